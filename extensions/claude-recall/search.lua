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
      include_superseded = { type = "boolean", default = false, description = "Also memories that were replaced" },
      as_of = { type = "string", description = "What held at that time (ISO 8601)" },
      threshold = { type = "number", minimum = 0, maximum = 1, default = 0.7, description = "Minimum similarity score (0-1)" },
    },
    required = { "query" },
  },
}

local NEAREST, LEAST = 3, 0.25

local function shown(hit, context)
  local record = hit.record
  local newer
  for _, id in ipairs(hit.newer or {}) do
    newer = newer or json.array({})
    newer[#newer + 1] = shared.name(context.memory.get(id))
  end
  return {
    id = shared.name(record),
    content = record.text,
    metadata = record.metadata,
    timestamp = shared.moment(record),
    happened = record.happened,
    score = hit.score,
    said = record.said,
    newer = newer,
  }
end

function tool.execute(params, context)
  local options = { limit = math.floor(params.limit), order = "score", filter = { kind = "fact" }, window = "auto", as_of = params.as_of, include_superseded = params.include_superseded }
  options.min_score, options.touch = params.threshold, true
  local matches = context.memory.search(params.query, options)
  local results = json.array({})
  for _, hit in ipairs(matches.results) do results[#results + 1] = shown(hit, context) end
  local reply = { results = results, total = matches.total, query = params.query }
  if #results == 0 then
    -- What may speak to the query, less surely than was asked, is shown apart, with its score.
    options.min_score, options.limit = LEAST, NEAREST
    local nearest = json.array({})
    for _, hit in ipairs(context.memory.search(params.query, options).results) do nearest[#nearest + 1] = shown(hit, context) end
    if #nearest > 0 then reply.belowThreshold = nearest end
  end
  return reply
end
