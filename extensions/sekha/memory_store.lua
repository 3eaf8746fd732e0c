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
    },
    required = { "label", "messages" },
  },
}

function tool.execute(params, context)
  local conversation = shared.store(params, context)
  return {
    success = true,
    data = {
      conversation_id = conversation.id,
      id = conversation.id,
      label = conversation.label,
      folder = conversation.folder,
      message_count = #params.messages,
    },
    error = json.null,
  }
end
