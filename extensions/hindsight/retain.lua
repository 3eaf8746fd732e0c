-- Stores a fact; it is durable, and found by the next recall, when this returns.
tool = {
  name = "retain",
  title = "Retain",
  description = "Store information to long-term memory: personal facts, preferences, events, decisions, opinions, goals, project details",
  annotations = { read_only = false, destructive = false, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      content = { type = "string", minLength = 1, description = "The fact or memory to store" },
      context = { type = "string", default = "general", description = "Category for the memory" },
    },
    required = { "content" },
  },
}

function tool.execute(params, context)
  local stored = context.memory.put({ text = params.content, context = params.context, type = "world" })
  local digits = string.sub(string.gsub(stored.id, "-", ""), 1, 12)
  return {
    success = true,
    message = "Memory stored successfully",
    id = "fact_" .. digits,
    bank_id = context.bank.id,
  }
end
