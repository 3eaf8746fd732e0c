-- Finds what was retained, best first.
tool = {
  name = "recall",
  title = "Recall",
  description = "Search memories to provide personalized responses. Use it at the start of a conversation and before recommendations. "
    .. "Results say when a thing was said and when it happened; `newer` names later results on the same subject",
  annotations = { read_only = true, idempotent = true, open_world = false },
  failure = { results = json.array({}) },
  parameters = {
    type = "object",
    properties = {
      query = { type = "string", minLength = 1, description = "Natural language search query" },
      max_results = { type = "integer", minimum = 1, maximum = 1000, default = 10, description = "Maximum results to return" },
      max_tokens = { type = "integer", minimum = 1, description = "Stop before the results exceed so many tokens" },
      budget = { type = "string", enum = { "low", "mid", "high" }, default = "low", description = "How wide to search" },
      types = { type = "array", items = { type = "string" }, description = "Only memories of these types" },
      tags = { type = "array", items = { type = "string" }, description = "Only memories with these tags" },
      tags_match = { type = "string", enum = { "any", "all" }, default = "any", description = "With any of the tags, or with all" },
      as_of = { type = "string", description = "What held at that time (ISO 8601)" },
      include_superseded = { type = "boolean", default = false, description = "Also memories that were replaced" },
      min_score = { type = "number", minimum = 0, maximum = 1, description = "Only matches as sure as this" },
    },
    required = { "query" },
  },
  output = {
    type = "object",
    properties = {
      confidence = { type = "number", description = "How likely any result answers, 0 to 1" },
      results = {
        type = "array",
        items = {
          type = "object",
          properties = {
            id = { type = "string" },
            text = { type = "string" },
            type = { type = "string" },
            context = { type = "string" },
            event_date = { anyOf = { { type = "string" }, { type = "null" } } },
            said = { type = "string" },
            happened = { type = "string" },
            score = { type = "number" },
            tags = { type = "array", items = { type = "string" } },
            flags = { type = "array", items = { type = "string" } },
            replaced = { type = "array", items = { type = "object" } },
            newer = { type = "array", items = { type = "string" }, description = "Later results close in meaning" },
          },
          required = { "id", "text", "type", "context", "event_date" },
        },
      },
    },
    required = { "results" },
  },
}

function tool.execute(params, context)
  local filter = shared.admit_kinds({ kind = "fact" }, params.types)
  if params.tags and #params.tags > 0 then
    filter.tags = { [params.tags_match == "all" and "has_all" or "has_any"] = params.tags }
  end
  local matches = context.memory.search(params.query, {
    limit = params.max_results,
    max_tokens = params.max_tokens,
    budget = params.budget,
    filter = filter,
    window = "auto",
    as_of = params.as_of,
    include_superseded = params.include_superseded,
    min_score = params.min_score,
    touch = true,
  })
  local results = json.array({})
  for _, hit in ipairs(matches.results) do
    results[#results + 1] = shared.result(hit, hit.record.aliases.hindsight)
  end
  return { results = results, confidence = #results > 0 and matches.confidence or nil }
end
