-- Corrects a memory; the version before stays in its history, and undo brings it back.
tool = {
  name = "update_memory",
  description = "Correct a memory's text, context, tags, type or date. The earlier version is kept in its history",
  annotations = { read_only = false, destructive = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      memory_id = { type = "string", minLength = 1, description = "The memory's id, as recall gives it" },
      content = { type = "string", minLength = 1, description = "The corrected text" },
      context = { type = "string", description = "Category for the memory" },
      type = { type = "string", description = "world, experience, opinion" },
      tags = { type = "array", items = { type = "string" }, description = "Its labels, all of them" },
      timestamp = { type = "string", description = "When it was said (ISO 8601)" },
      event_date = { type = "string", description = "When it happened (ISO 8601)" },
    },
    required = { "memory_id" },
  },
}

function tool.execute(params, context)
  local changes = {
    text = params.content,
    context = params.context,
    type = params.type,
    tags = params.tags,
    timestamp = params.timestamp,
    event_date = params.event_date,
  }
  if next(changes) == nil then
    error.throw({ kind = "invalid_params", message = "nothing to correct: send content, context, type, tags, timestamp or event_date" })
  end
  local reply = context.memory.update(params.memory_id, changes)
  return {
    success = true,
    id = reply.record.aliases.hindsight,
    text = reply.record.text,
    changed = json.array(reply.changed),
    version = reply.record.version,
    op_id = reply.op_id or json.null,
  }
end
