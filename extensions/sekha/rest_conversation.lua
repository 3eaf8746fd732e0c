-- GET /api/v1/conversations/{conversation_id}
tool = {
  name = "rest_conversation",
  description = "One conversation over Sekha's REST",
  parameters = { type = "object", properties = { conversation_id = shared.ID }, required = { "conversation_id" } },
}

function tool.execute(params, context)
  return shared.shown(shared.conversation(params.conversation_id, context), context)
end
