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
      supersedes = shared.SUPERSEDES,
    },
    required = { "label", "messages" },
  },
}

function tool.execute(params, context)
  local conversation, stored = shared.store(params, context)
  local reply = shared.shown(conversation, context)
  reply.similar, reply.superseded = shared.similar(stored.similar), shared.superseded(stored.superseded)
  return reply
end
