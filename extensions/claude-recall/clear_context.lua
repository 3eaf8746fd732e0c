-- Clears this session's memories and no others. Nothing is destroyed: the reply's op_id, given as `undo`, brings them back.
tool = {
  name = "clear_context",
  description = "Clear session-specific context memories",
  annotations = { read_only = false, destructive = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      confirm = { type = "boolean", description = "Confirmation required to clear context" },
      undo = { type = "string", description = "The op_id of an earlier clear_context: brings back what it cleared" },
    },
  },
}

function tool.execute(params, context)
  if params.undo then
    local undone = context.memory.undo(params.undo)
    return { success = true, message = "Context restored", memoriesCleared = 0, memoriesRestored = undone.count }
  end
  if context.session.shared then
    error.throw({
      kind = "invalid_params",
      message = "only a client's own session can be cleared, and this one is shared or another's: send X-Session-Id and no sessionId",
    })
  end
  if params.confirm ~= true then
    return { success = false, message = "Confirmation required to clear context", memoriesCleared = 0 }
  end
  local cleared = context.memory.delete_where({
    filter = { kind = "fact", session = context.session.id },
    reason = "clear_context",
  })
  return {
    success = true,
    message = "Context cleared successfully",
    memoriesCleared = cleared.count,
    op_id = cleared.op_id or json.null,
  }
end
