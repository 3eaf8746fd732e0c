tool = {
  name = "memory_export",
  description = "Export a conversation as JSON or Markdown",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      conversation_id = {
        type = "string",
        pattern = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
        description = "Conversation to export",
      },
      format = { type = "string", enum = { "json", "markdown" }, default = "json", description = "Export format" },
      include_metadata = { type = "boolean", default = true, description = "Include metadata in export" },
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
  local record = context.memory.get(id)
  if not record or record.kind ~= "conversation" then
    error.throw({ kind = "not_found", message = "Conversation not found: " .. id })
  end
  context.memory.touch({ id })
  local words = 0
  local messages = json.array({})
  local lines = { "# " .. record.label, "" }
  for _, message in ipairs(context.memory.children(id).items) do
    for _ in string.gmatch(message.text, "%S+") do words = words + 1 end
    local stamp = time.iso(moment(message), STAMP)
    messages[#messages + 1] = { role = message.role, content = message.text, timestamp = stamp }
    lines[#lines + 1] = "**" .. message.role .. "**" .. (params.include_metadata and " (" .. stamp .. ")" or "")
    lines[#lines + 1] = ""
    lines[#lines + 1] = message.text
    lines[#lines + 1] = ""
  end
  local conversation = { id = record.id, label = record.label }
  if params.include_metadata then
    conversation.folder = record.folder
    conversation.status = record.status
    conversation.importance_score = record.importance
    conversation.word_count = words
    conversation.session_count = #context.memory.sessions(id)
    conversation.created_at = time.iso(record.created, STAMP)
    conversation.updated_at = time.iso(record.updated, STAMP)
    table.insert(lines, 3, "- folder: " .. record.folder .. "\n- status: " .. record.status .. "\n- importance: " .. record.importance .. "\n")
  end
  local content
  if params.format == "markdown" then
    content = table.concat(lines, "\n")
  else
    content = json.encode({ conversation = conversation, messages = messages })
  end
  return {
    success = true,
    data = {
      conversation = conversation,
      messages = messages,
      format = params.format,
      include_metadata = params.include_metadata,
      content = content,
    },
    error = json.null,
  }
end
