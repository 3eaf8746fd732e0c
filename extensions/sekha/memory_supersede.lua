-- Replaces conversations by another one that is there.
tool = {
  name = "memory_supersede",
  description = "Replace conversations that are no longer true by another stored conversation; they are kept",
  annotations = { read_only = false, destructive = false, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      old_ids = { type = "array", items = shared.ID, minItems = 1, description = "The conversations that are replaced" },
      new_id = shared.ID,
    },
    required = { "old_ids", "new_id" },
  },
}

function tool.execute(params, context)
  local done = context.memory.supersede(params.old_ids, params.new_id)
  return { success = true, data = { superseded = shared.superseded(done.superseded) or json.array({}) }, error = json.null }
end
