-- One memory, with what it replaced and its history.
tool = {
  name = "get_memory",
  description = "Show one memory with its history: when it was said, what was changed and by whom",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      memory_id = { type = "string", minLength = 1, description = "The memory's id, as recall gives it" },
    },
    required = { "memory_id" },
  },
}

function tool.execute(params, context)
  local record = context.memory.get(params.memory_id)
  if not record then error.throw({ kind = "not_found", message = "no memory with the id '" .. params.memory_id:sub(1, 80) .. "' in this bank (recall and list_memories give the ids)" }) end
  local history = json.array({})
  for _, change in ipairs(context.memory.history(record.id)) do
    history[#history + 1] = { version = change.version, op = change.op, op_id = change.op_id, at = time.iso(change.at), changed = change.changed }
  end
  return {
    id = record.aliases.hindsight,
    text = record.text,
    type = record.type or "world",
    context = record.context or "general",
    contexts = json.array(record.contexts),
    tags = json.array(record.tags),
    flags = json.array(record.flags),
    metadata = json.object(record.metadata),
    document_id = record.document_id or json.null,
    said = record.said,
    happened = record.happened or json.null,
    created_at = time.iso(record.created),
    version = record.version,
    superseded_by = record.superseded_by or json.null,
    history = history,
  }
end
