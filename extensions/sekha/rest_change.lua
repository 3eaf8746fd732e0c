-- PUT /api/v1/conversations/{conversation_id}/{change}: label, folder, status, pin or archive.
tool = {
  name = "rest_change",
  description = "Change a conversation over Sekha's REST",
  parameters = {
    type = "object",
    properties = {
      conversation_id = shared.ID,
      change = { type = "string", enum = { "label", "folder", "status", "pin", "archive" } },
      label = shared.LABEL,
      folder = shared.FOLDER,
      status = { type = "string", enum = { "active", "archived", "pinned" } },
    },
    required = { "conversation_id", "change" },
  },
}

function tool.execute(params, context)
  local change = params.change
  if (change == "label" or change == "folder" or change == "status") and not params[change] then
    error.throw({ kind = "invalid_params", message = "missing required parameter: " .. change })
  end
  local id = shared.conversation(params.conversation_id, context).id
  local pinned = change == "pin" or params.status == "pinned"
  context.memory.update(id, {
    label = params.label,
    folder = params.folder,
    status = change == "archive" and "archived" or pinned and "active" or params.status,
    importance = pinned and shared.PINNED or nil,
  })
  return shared.shown(context.memory.get(id), context)
end
