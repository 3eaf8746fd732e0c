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
      supersedes = shared.SUPERSEDES,
    },
    required = { "bank_id", "content", "context" },
  },
}

function tool.execute(params, context)
  local stored = context.memory.put({ text = params.content, context = params.context, type = "world", timestamp = params.timestamp, supersedes = params.supersedes })
  if params.explanation then -- why it was stored makes no other memory of it
    local metadata = context.memory.get(stored.id).metadata or {}
    metadata.explanation = params.explanation
    context.memory.update(stored.id, { metadata = json.object(metadata) })
  end
  local done = "Fact stored successfully"
  local function own(id) return id end -- as hindsight_search gives them
  local similar, superseded = shared.named(stored.similar, own), shared.named(stored.superseded, own)
  -- A second block of an MCP reply; over REST the result is the text alone.
  if not (similar or superseded) or context.request.transport == "rest" then return done end
  local details = { id = stored.id, similar = similar, superseded = superseded, hint = similar and shared.HINT, op_id = stored.op_id }
  return { content = json.array({ { type = "text", text = done }, { type = "text", text = json.encode(details) } }) }
end
