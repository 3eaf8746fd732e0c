-- The older generation's recall.
tool = {
  name = "hindsight_search",
  description = "Search memories for a user",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      bank_id = { type = "string", minLength = 1, description = "Unique identifier for the user (e.g., user_id, email)" },
      query = { type = "string", minLength = 1, description = "Natural language search query" },
      max_tokens = { type = "integer", minimum = 1, default = 4096, description = "Maximum tokens for results" },
      explanation = { type = "string", description = "Optional explanation for why this search is being performed" },
    },
    required = { "bank_id", "query" },
  },
}

function tool.execute(params, context)
  if not context.bank.exists() then
    error.throw({ kind = "not_found", message = "Memory bank '" .. context.bank.id .. "' not found" })
  end
  local found = context.memory.search(params.query, {
    limit = 100,
    max_tokens = params.max_tokens,
    filter = { kind = "fact" },
    touch = true,
  })
  local results = json.array({})
  for _, hit in ipairs(found.results) do
    local record = hit.record
    results[#results + 1] = {
      id = record.id,
      text = record.text,
      type = record.type or "world",
      context = record.context or "general",
      event_date = record.event_date and time.iso(record.event_date) or json.null,
      document_id = json.null,
    }
  end
  return { results = results }
end
