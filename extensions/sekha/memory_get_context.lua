tool = {
  name = "memory_get_context",
  description = "Retrieve the full context of a conversation: its metadata and its messages",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      conversation_id = {
        type = "string",
        pattern = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
        description = "Conversation ID to retrieve",
      },
    },
    required = { "conversation_id" },
  },
}

-- When a message was said: by its own timestamp. (An older store kept that as the date of an event, without an end.)
local function moment(record)
  if record.event_date and not record.event_end then return record.event_date end
  return record.timestamp
end

local STAMP = "%Y-%m-%dT%H:%M:%S"

function tool.execute(params, context)
  local id = string.lower(params.conversation_id)
  local conversation = context.memory.get(id)
  if not conversation or conversation.kind ~= "conversation" then
    error.throw({ kind = "not_found", message = "Conversation not found: " .. id })
  end
  context.memory.touch({ id })
  local words = 0
  local messages = json.array({})
  for _, message in ipairs(context.memory.children(id).items) do
    for _ in string.gmatch(message.text, "%S+") do words = words + 1 end
    messages[#messages + 1] = {
      role = message.role,
      content = message.text,
      timestamp = time.iso(moment(message), STAMP),
    }
  end
  return {
    success = true,
    data = {
      conversation_id = conversation.id,
      label = conversation.label,
      status = conversation.status,
      folder = conversation.folder,
      importance_score = conversation.importance,
      word_count = words,
      session_count = #context.memory.sessions(id),
      created_at = time.iso(conversation.created, STAMP),
      updated_at = time.iso(conversation.updated, STAMP),
      messages = messages,
    },
    error = json.null,
  }
end
