-- Forgets what a filter matches. Nothing is destroyed: `undo_memory` with the op_id brings it back.
tool = {
  name = "clear_memories",
  description = "Forget all memories of this bank that match; without a filter, all. A dry run only counts. undo_memory brings them back",
  annotations = { read_only = false, destructive = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      type = { type = "string", description = "Only memories of this type" },
      context = { type = "string", description = "Only memories of this context" },
      tags = { type = "array", items = { type = "string" }, description = "Only memories with any of these tags" },
      before = { type = "string", description = "Only what was said before (ISO 8601)" },
      dry_run = { type = "boolean", default = true, description = "Only say how much would be forgotten" },
    },
  },
}

function tool.execute(params, context)
  local filter = shared.admit_kinds({ kind = "fact" }, params.type and { params.type }, params.context)
  if params.tags then filter.tags = { has_any = params.tags } end
  if params.before then filter.timestamp = { lt = params.before } end
  local cleared = context.memory.delete_where({ filter = filter, dry_run = params.dry_run, reason = "clear_memories" })
  return { success = true, deleted = cleared.count, dry_run = params.dry_run, op_id = cleared.op_id or json.null }
end
