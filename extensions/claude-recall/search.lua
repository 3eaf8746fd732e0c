-- Scores are calibrated: 0.7 means the memory speaks to the query, whatever else is stored.
tool = {
  name = "search",
  description = "Search memories using a natural language query",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      query = { type = "string", minLength = 1, description = "Search query" },
      limit = { type = "number", minimum = 1, maximum = 1000, default = 10, description = "Maximum number of results" },
      threshold = { type = "number", minimum = 0, maximum = 1, default = 0.7, description = "Minimum similarity score (0-1)" },
    },
    required = { "query" },
  },
}

function tool.execute(params, context)
  local found = context.memory.search(params.query, {
    limit = math.floor(params.limit),
    min_score = params.threshold,
    order = "score",
    filter = { kind = "fact" },
    touch = true,
  })
  local results = json.array({})
  for _, hit in ipairs(found.results) do
    local record = hit.record
    results[#results + 1] = {
      id = record.aliases["claude-recall"],
      content = record.text,
      metadata = json.object(record.metadata or {}),
      timestamp = time.iso(record.event_date or record.created),
      score = hit.score,
    }
  end
  return { results = results, total = found.total, query = params.query }
end
