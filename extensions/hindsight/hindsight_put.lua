-- The older generation's retain: the bank is an argument, which the core has checked and turned into the bank of this call.
tool = {
  name = "hindsight_put",
  description = "Store a new memory for a user",
  annotations = { read_only = false, destructive = false, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      bank_id = { type = "string", minLength = 1, description = "Unique identifier for the user (e.g., user_id, email)" },
      content = { type = "string", minLength = 1, description = "Memory content to store" },
      context = { type = "string", description = "Category for the memory (e.g., 'personal_preferences', 'work_history')" },
      timestamp = { type = "string", description = "When it was said (ISO 8601); absent: now" },
      explanation = { type = "string", description = "Optional explanation for why this memory is being stored" },
    },
    required = { "bank_id", "content", "context" },
  },
}

function tool.execute(params, context)
  local stored = context.memory.put({ text = params.content, context = params.context, type = "world", timestamp = params.timestamp })
  if params.explanation then -- why it was stored makes no other memory of it
    local metadata = context.memory.get(stored.id).metadata or {}
    metadata.explanation = params.explanation
    context.memory.update(stored.id, { metadata = json.object(metadata) })
  end
  return "Fact stored successfully"
end
