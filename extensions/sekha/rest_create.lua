-- POST /api/v1/conversations
tool = {
  name = "rest_create",
  description = "Store a conversation over Sekha's REST",
  parameters = {
    type = "object",
    properties = {
      label = shared.LABEL,
      folder = { type = "string", default = "/", pattern = "^/" },
      messages = shared.MESSAGES,
      importance_score = { type = "number", minimum = 1, maximum = 10, default = 5 },
      metadata = { type = "object" },
    },
    required = { "label", "messages" },
  },
}

function tool.execute(params, context)
  return shared.shown(shared.store(params, context), context)
end
