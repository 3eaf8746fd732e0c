-- Every field that is reported updated was written.
tool = {
  name = "memory_update",
  description = "Update a conversation's label, folder, status or importance",
  annotations = { read_only = false, destructive = false, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      conversation_id = {
        type = "string",
        pattern = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
        description = "Conversation to update",
      },
      label = { type = "string", minLength = 1, maxLength = 500, description = "New label" },
      folder = { type = "string", pattern = "^/", description = "New folder path" },
      status = { type = "string", enum = { "active", "archived" }, description = "active or archived" },
      importance_score = { type = "number", minimum = 1, maximum = 10, description = "1-10 scale" },
    },
    required = { "conversation_id" },
  },
}

function tool.execute(params, context)
  local id = string.lower(params.conversation_id)
  local known = context.memory.get(id)
  if not known or known.kind ~= "conversation" then
    error.throw({ kind = "not_found", message = "Conversation not found: " .. id })
  end
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
  context.memory.touch({ id })
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
