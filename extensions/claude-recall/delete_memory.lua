-- Forgets a memory by its id. Nothing is destroyed: the reply's op_id, given as `undo`, brings it back.
tool = {
  name = "delete_memory",
  description = "Forget a memory by its id, which search_memory shows; `undo` with the op_id of the reply brings it back",
  annotations = { read_only = false, destructive = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      id = { type = "string", minLength = 1, description = "The memory's id" },
      undo = { type = "string", minLength = 1, description = "The op_id of an earlier delete_memory" },
    },
  },
}

function tool.execute(params, context)
  if params.undo then
    local undone = context.memory.undo(params.undo)
    return { success = true, restored = undone.count, message = "Memory restored." }
  end
  if not params.id then error.throw({ kind = "invalid_params", message = "missing required parameter: id" }) end
  local record = context.memory.get(params.id)
  if not record or record.kind ~= "fact" then
    return { success = false, id = params.id, message = 'Memory "' .. params.id .. '" not found.' }
  end
  local deleted = context.memory.delete(record.id, { reason = "delete_memory" })
  return { success = true, id = params.id, message = 'Memory "' .. params.id .. '" deleted.', op_id = deleted.op_id }
end
