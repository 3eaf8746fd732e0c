tool = {
  name = "store_memory",
  description = "Store a memory in the Claude Recall database",
  annotations = { read_only = false, destructive = false, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      content = { type = "string", minLength = 1, description = "Memory content to store" },
      metadata = { type = "object", description = "Optional metadata for the memory" },
    },
    required = { "content" },
  },
}

function tool.execute(params, context)
  local stored = context.memory.put({ text = params.content, metadata = params.metadata or {}, session = context.session.id })
  local record = context.memory.get(stored.id)
  return { id = shared.name(record), success = true, message = "Memory stored successfully" }
end
