-- PATCH .../memories/{memory_id}: corrects a memory, forgets it (state: invalidated) or brings it back (state: valid).
tool = {
  name = "rest_update",
  description = "Correct a memory over Hindsight's REST",
  parameters = {
    type = "object",
    properties = {
      memory_id = { type = "string" },
      text = { type = "string", minLength = 1 },
      context = { type = "string" },
      fact_type = { type = "string" },
      tags = { type = "array", items = { type = "string" } },
      metadata = { type = "object" },
      timestamp = { type = "string" },
      mentioned_at = { type = "string" },
      occurred_start = { type = "string" },
      occurred_end = { type = "string" },
      entities = { type = "array", items = { type = "string" } },
      resolve_entities = { type = "boolean", description = "Names are kept as they are given, either way" },
      state = { type = "string", enum = { "valid", "invalidated" } },
      reason = { type = "string" },
    },
    required = { "memory_id" },
  },
}

function tool.execute(params, context)
  local id = params.memory_id
  local before = context.memory.get(id, { include_deleted = true })
  if not before then error.throw({ kind = "not_found", message = "Memory unit '" .. id .. "' not found" }) end
  if params.state == "valid" and before.deleted_at then context.memory.restore(id) end
  local metadata = params.metadata
  if params.entities then
    metadata = metadata or before.metadata or {}
    metadata.entities = json.array(params.entities)
  end
  local patch = {
    text = params.text,
    context = params.context,
    type = params.fact_type,
    tags = params.tags,
    metadata = metadata,
    timestamp = params.mentioned_at or params.timestamp,
    event_date = params.occurred_start,
    event_end = params.occurred_end,
  }
  if next(patch) then context.memory.update(id, patch) end
  if params.state == "invalidated" and not before.deleted_at then context.memory.delete(id, { reason = params.reason or "rest" }) end
  return shared.unit(context.memory.get(id, { include_deleted = true }))
end
