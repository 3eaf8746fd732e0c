-- Takes an operation back: what it forgot or changed is as before, what it stored is forgotten.
tool = {
  name = "undo_memory",
  description = "Take back a retain, an update_memory, a delete_memory or a clear_memories by the op_id of its reply",
  annotations = { read_only = false, destructive = true, idempotent = false, open_world = false },
  parameters = {
    type = "object",
    properties = { op_id = { type = "string", minLength = 1, description = "The op_id of the reply" } },
    required = { "op_id" },
  },
}

function tool.execute(params, context)
  local undone = context.memory.undo(params.op_id)
  return { success = true, restored = undone.count, skipped = json.array(undone.skipped), op_id = undone.op_id }
end
