-- Every field that is reported updated was written.
tool = {
  name = "memory_update",
  description = "Update a conversation's label, folder, status or importance",
  annotations = { read_only = false, destructive = false, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      conversation_id = shared.ID,
      label = shared.LABEL,
      folder = shared.FOLDER,
      status = { type = "string", enum = { "active", "archived" }, description = "active or archived" },
      importance_score = shared.IMPORTANCE,
    },
    required = { "conversation_id" },
  },
}

function tool.execute(params, context)
  local id = shared.conversation(params.conversation_id, context).id
  local fields = json.array({})
  if params.label or params.folder then fields[#fields + 1] = "label/folder" end
  if params.status then fields[#fields + 1] = "status" end
  if params.importance_score then fields[#fields + 1] = "importance_score" end
  if #fields > 0 then
    context.memory.update(id, {
      label = params.label,
      folder = params.folder,
      status = params.status,
      importance = params.importance_score,
    })
  end
  return {
    success = true,
    data = {
      conversation_id = id,
      updated_fields = fields,
      message = #fields > 0 and "Conversation updated successfully" or "No fields changed",
    },
    error = json.null,
  }
end
