tool = {
  name = "memory_store",
  description = "Store a conversation in memory with a label and a folder",
  annotations = { read_only = false, destructive = false, open_world = false },
  parameters = {
    type = "object",
    properties = {
      label = { type = "string", minLength = 1, maxLength = 500, description = "Human-readable conversation label" },
      folder = { type = "string", default = "/", pattern = "^/", description = "Folder path for organization" },
      messages = {
        type = "array",
        minItems = 1,
        description = "The messages, in order",
        items = {
          type = "object",
          properties = {
            role = { type = "string", enum = { "user", "assistant", "system", "tool" } },
            content = { type = "string", minLength = 1 },
          },
          required = { "role", "content" },
        },
      },
      importance_score = { type = "number", minimum = 1, maximum = 10, default = 5, description = "1-10 scale for pruning decisions" },
    },
    required = { "label", "messages" },
  },
}

function tool.execute(params, context)
  if string.find(params.folder .. "/", "/../", 1, true) then
    error.throw({ kind = "invalid_params", message = "folder must not contain '..'" })
  end
  local items = json.array({})
  for _, message in ipairs(params.messages) do
    items[#items + 1] = {
      text = message.content,
      role = message.role,
      timestamp = message.timestamp,
      metadata = message.metadata or {},
    }
  end
  local stored = context.memory.put_many({
    items = items,
    container = {
      label = params.label,
      folder = params.folder,
      importance = params.importance_score,
      status = "active",
    },
  })
  local conversation = context.memory.get(stored.id)
  return {
    success = true,
    data = { conversation_id = stored.id, id = stored.id, label = conversation.label, folder = conversation.folder, message_count = #items },
    error = json.null,
  }
end
