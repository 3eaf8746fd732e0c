tool = {
  name = "memory_store",
  description = "Store a conversation in memory with a label and a folder",
  annotations = { read_only = false, destructive = false, open_world = false },
  parameters = {
    type = "object",
    properties = {
      label = shared.LABEL,
      folder = { type = "string", default = "/", pattern = "^/", description = "Folder path for organization" },
      messages = shared.MESSAGES,
      importance_score = { type = "number", minimum = 1, maximum = 10, default = 5, description = "1-10 scale for pruning decisions" },
      supersedes = shared.SUPERSEDES,
    },
    required = { "label", "messages" },
  },
}

function tool.execute(params, context)
  local conversation, stored = shared.store(params, context)
  local similar = shared.similar(stored.similar)
  return {
    success = true,
    data = {
      conversation_id = conversation.id,
      id = conversation.id,
      label = conversation.label,
      folder = conversation.folder,
      message_count = #params.messages,
      superseded = shared.superseded(stored.superseded),
      similar = similar,
      hint = similar and "Does this make one of these untrue? Then call memory_supersede with its id; otherwise do nothing.",
    },
    error = json.null,
  }
end
