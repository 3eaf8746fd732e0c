-- Forgets a memory. Nothing is destroyed: `undo_memory` with the op_id brings it back.
tool = {
  name = "delete_memory",
  description = "Forget a memory. It can be brought back with undo_memory and the op_id of the reply",
  annotations = { read_only = false, destructive = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      memory_id = { type = "string", minLength = 1, description = "The memory's id, as recall gives it" },
      dry_run = { type = "boolean", default = false, description = "Only say how much would be forgotten" },
    },
    required = { "memory_id" },
  },
}

function tool.execute(params, context)
  local deleted = context.memory.delete(params.memory_id, { dry_run = params.dry_run, reason = "delete_memory" })
  return { success = true, deleted = deleted.count, dry_run = params.dry_run, op_id = deleted.op_id or json.null }
end
