-- Stores a fact; it is durable, and found by the next recall, when this returns.
tool = {
  name = "retain",
  title = "Retain",
  description = "Store information to long-term memory: personal facts, preferences, events, decisions, opinions, goals, project details. "
    .. "One claim a memory. `similar` in the reply are memories close in meaning: if this makes one untrue, call supersede_memory",
  annotations = { read_only = false, destructive = false, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      content = { type = "string", minLength = 1, description = "The fact or memory to store" },
      context = { type = "string", default = "general", description = "Category for the memory" },
      timestamp = { type = "string", description = "When it was said (ISO 8601); relative dates in it are read against this. Absent: now" },
      event_date = { type = "string", description = "When it happened, where the text does not say (ISO 8601)" },
      tags = { type = "array", items = { type = "string" }, description = "Labels to filter by" },
      metadata = { type = "object", description = "Anything to keep with it" },
      document_id = { type = "string", description = "The document that it comes from" },
      supersedes = shared.SUPERSEDES,
    },
    required = { "content" },
  },
}

function tool.execute(params, context)
  local stored = context.memory.put({
    text = params.content,
    context = params.context,
    type = "world",
    timestamp = params.timestamp,
    event_date = params.event_date,
    tags = params.tags,
    metadata = params.metadata,
    document_id = params.document_id,
    supersedes = params.supersedes,
  })
  local similar = shared.named(stored.similar, shared.fact)
  return {
    success = true,
    message = stored.created and "Memory stored successfully" or "Memory was stored before",
    id = shared.fact(stored.id),
    bank_id = context.bank.id,
    flags = shared.filled(stored.flags),
    op_id = stored.op_id,
    superseded = shared.named(stored.superseded, shared.fact),
    similar = similar,
    hint = similar and shared.HINT,
  }
end
