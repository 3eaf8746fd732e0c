-- DELETE /api/v1/conversations/{conversation_id}: forgets it; the op_id brings it back.
tool = {
  name = "rest_forget",
  description = "Forget a conversation over Sekha's REST",
  parameters = { type = "object", properties = { conversation_id = shared.ID }, required = { "conversation_id" } },
}

function tool.execute(params, context)
  local id = shared.conversation(params.conversation_id, context).id
  local deleted = context.memory.delete(id, { reason = "rest" })
  return { success = true, conversation_id = id, op_id = deleted.op_id or json.null }
end
