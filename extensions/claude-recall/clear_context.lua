-- Clears this session's memories and no others. Nothing is destroyed: the operation can be undone.
tool = {
  name = "clear_context",
  description = "Clear session-specific context memories",
  annotations = { read_only = false, destructive = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = { confirm = { type = "boolean", description = "Confirmation required to clear context" } },
  },
}

function tool.execute(params, context)
  if params.confirm ~= true then
    return { success = false, message = "Confirmation required to clear context", memoriesCleared = 0 }
  end
  local cleared = context.memory.delete_where({
    filter = { kind = "fact", session = context.session.id },
    reason = "clear_context",
  })
  return { success = true, message = "Context cleared successfully", memoriesCleared = cleared.count }
end
