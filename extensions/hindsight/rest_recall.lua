-- POST .../memories/recall
tool = {
  name = "rest_recall",
  description = "Hindsight's recall over REST",
  parameters = {
    type = "object",
    properties = {
      query = { type = "string", minLength = 1 },
      types = { type = "array", items = { type = "string" } },
      budget = { type = "string", enum = { "low", "mid", "high" }, default = "mid" },
      max_tokens = { type = "integer", minimum = 1, default = 4096 },
      query_timestamp = { type = "string", description = "The moment of asking: 'last week' is read against it" },
      tags = { type = "array", items = { type = "string" } },
      tags_match = shared.TAGS_MATCH,
      min_scores = {
        type = "object",
        properties = { final = { type = "number" } },
        additionalProperties = false,
      },
      temporal_window = {
        type = "object",
        properties = { start = { type = "string" }, ["end"] = { type = "string" } },
        required = { "start", "end" },
        additionalProperties = false,
      },
      include = {
        type = "object",
        properties = { entities = {}, chunks = {}, source_facts = {} },
        additionalProperties = false,
        description = "What is not kept here beside a memory comes empty",
      },
      trace = { type = "boolean" },
      prefer_observations = { type = "boolean", description = "There are none here: it changes nothing" },
    },
    required = { "query" },
  },
}

function tool.execute(params, context)
  local filter = shared.admit_tags({ kind = "fact" }, params.tags, params.tags_match)
  shared.admit_kinds(filter, params.types)
  local window = params.temporal_window
  local matches = context.memory.search(params.query, {
    limit = 100,
    max_tokens = params.max_tokens,
    budget = params.budget,
    filter = filter,
    window = window and { since = window.start, ["until"] = window["end"] } or "auto",
    asked_at = params.query_timestamp,
    min_score = params.min_scores and params.min_scores.final,
    touch = true,
  })
  local results = json.array({})
  for _, hit in ipairs(matches.results) do
    local result = shared.unit(hit.record)
    result.scores = { final = hit.score }
    results[#results + 1] = result
  end
  local include = params.include or {}
  return {
    results = results,
    entities = include.entities and json.object({}) or json.null,
    chunks = include.chunks and json.object({}) or json.null,
    source_facts = include.source_facts and json.object({}) or json.null,
    trace = params.trace and { total = matches.total, degraded = matches.degraded or json.null } or json.null,
  }
end
