tool = {
  name = "memory_get_context",
  description = "Retrieve the full context of a conversation: its metadata and its messages",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      conversation_id = shared.ID,
    },
    required = { "conversation_id" },
  },
}

function tool.execute(params, context)
  local conversation = shared.conversation(params.conversation_id, context)
  local messages, words = shared.messages(conversation, context)
  return {
    success = true,
    data = {
      conversation_id = conversation.id,
      label = conversation.label,
      status = conversation.status,
      folder = conversation.folder,
      importance_score = conversation.importance,
      word_count = words,
      session_count = #context.memory.sessions(conversation.id),
      created_at = shared.stamp(conversation.created),
      updated_at = shared.stamp(conversation.updated),
      messages = messages,
    },
    error = json.null,
  }
end
