tool = {
  name = "store_memory",
  description = "Store a memory in the Claude Recall database",
  annotations = { read_only = false, destructive = false, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      content = { type = "string", minLength = 1, description = "Memory content to store" },
      metadata = { type = "object", description = "Optional metadata for the memory" },
      supersedes = shared.SUPERSEDES,
    },
    required = { "content" },
  },
}

function tool.execute(params, context)
  local metadata = params.metadata or {}
  local supersedes = params.supersedes or metadata.supersedes
  metadata.supersedes = nil
  local stored = context.memory.put({
    text = params.content,
    metadata = metadata,
    session = context.session.id,
    supersedes = supersedes,
  })
  return shared.written(stored, {
    id = shared.name(context.memory.get(stored.id)),
    success = true,
    message = "Memory stored successfully",
  }, context)
end
