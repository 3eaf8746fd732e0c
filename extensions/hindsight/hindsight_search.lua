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
      as_of = { type = "string", description = "What held at that time (ISO 8601)" },
    },
    required = { "bank_id", "query" },
  },
}

-- One result: what the seed shows, then when it was said and happened, how sure the match is, and what it replaced.
local function shown(hit, id)
  local record = hit.record
  local replaced = json.array({})
  for _, older in ipairs(hit.replaced or {}) do
    replaced[#replaced + 1] = { text = older.text, said = time.iso(older.timestamp) }
  end
  return {
    id = id,
    text = record.text,
    type = record.type or "world",
    context = record.context or "general",
    event_date = record.event_date and time.iso(record.event_date) or json.null,
    said = record.said,
    happened = record.happened or json.null,
    score = hit.score,
    tags = json.array(record.tags),
    flags = json.array(record.flags),
    replaced = replaced,
    document_id = record.document_id or json.null,
  }
end

function tool.execute(params, context)
  if not context.bank.exists() then
    error.throw({ kind = "not_found", message = "Memory bank '" .. context.bank.id .. "' not found" })
  end
  local matches = context.memory.search(params.query, {
    limit = 100,
    max_tokens = params.max_tokens,
    filter = { kind = "fact" },
    window = "auto",
    floor = not params.as_of,
    as_of = params.as_of,
    touch = true,
  })
  local results = json.array({})
  for _, hit in ipairs(matches.results) do
    results[#results + 1] = shown(hit, hit.record.id)
  end
  return { results = results }
end
