tool = {
  name = "memory_export",
  description = "Export a conversation as JSON or Markdown",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      conversation_id = shared.ID,
      format = { type = "string", enum = { "json", "markdown" }, default = "json", description = "Export format" },
      include_metadata = { type = "boolean", default = true, description = "Include metadata in export" },
    },
    required = { "conversation_id" },
  },
}

function tool.execute(params, context)
  local record = shared.conversation(params.conversation_id, context)
  local messages, words = shared.messages(record, context)
  local conversation = { id = record.id, label = record.label }
  local lines = { "# " .. record.label, "" }
  if params.include_metadata then
    conversation.folder = record.folder
    conversation.status = record.status
    conversation.importance_score = record.importance
    conversation.word_count = words
    conversation.session_count = #context.memory.sessions(record.id)
    conversation.created_at = shared.stamp(record.created)
    conversation.updated_at = shared.stamp(record.updated)
    lines[#lines + 1] = "- folder: " .. record.folder .. "\n- status: " .. record.status .. "\n- importance: " .. record.importance .. "\n"
  end
  for _, message in ipairs(messages) do
    lines[#lines + 1] = "**" .. message.role .. "**" .. (params.include_metadata and " (" .. message.timestamp .. ")" or "")
    lines[#lines + 1] = ""
    lines[#lines + 1] = message.content
    lines[#lines + 1] = ""
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
