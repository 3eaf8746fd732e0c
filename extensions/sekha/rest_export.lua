-- GET /api/v1/export?label=&folder=&format=
tool = {
  name = "rest_export",
  description = "Export conversations over Sekha's REST",
  parameters = {
    type = "object",
    properties = {
      label = { type = "string" },
      folder = { type = "string" },
      format = { type = "string", enum = { "markdown", "json" }, default = "markdown" },
    },
  },
}

local MOST = 1000

function tool.execute(params, context)
  local filter = shared.chosen(params)
  if context.memory.count({ filter = filter }) > MOST then
    error.throw({ kind = "invalid_params", message = "more than " .. MOST .. " conversations: narrow it by label or folder, or use `ctx memory export`" })
  end
  local conversations, lines = json.array({}), { "# Conversations", "" }
  for _, record in ipairs(context.memory.list({ filter = filter, order = "created", limit = MOST }).items) do
    local conversation = shared.shown(record, context)
    conversations[#conversations + 1] = conversation
    lines[#lines + 1] = "## " .. record.label .. "\n\n- id: " .. record.id .. "\n- folder: " .. record.folder .. "\n- status: " .. record.status .. "\n"
    for _, message in ipairs(conversation.messages) do
      lines[#lines + 1] = "**" .. message.role .. "** (" .. message.timestamp .. ")\n\n" .. message.content .. "\n"
    end
  end
  local content = params.format == "json" and json.encode(conversations) or table.concat(lines, "\n")
  return { content = content, format = params.format, conversation_count = #conversations }
end
