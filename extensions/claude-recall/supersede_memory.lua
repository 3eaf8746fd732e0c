-- Replaces memories by another one that is there.
tool = {
  name = "supersede_memory",
  description = "Replace memories that are no longer true by another stored memory; they are kept",
  annotations = { read_only = false, destructive = false, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      old_ids = { type = "array", items = { type = "string" }, minItems = 1, description = "The ids of the memories that are replaced" },
      new_id = { type = "string", minLength = 1, description = "The id of the memory that holds now" },
    },
    required = { "old_ids", "new_id" },
  },
}

function tool.execute(params, context)
  local done = context.memory.supersede(params.old_ids, params.new_id)
  return { success = true, superseded = shared.named(done.superseded, context) or json.array({}) }
end
