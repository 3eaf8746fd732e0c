-- Finds what was retained, best first.
tool = {
  name = "recall",
  title = "Recall",
  description = "Search memories to provide personalized responses. Use it at the start of a conversation and before recommendations",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      query = { type = "string", minLength = 1, description = "Natural language search query" },
      max_results = { type = "integer", minimum = 1, maximum = 1000, default = 10, description = "Maximum results to return" },
      max_tokens = { type = "integer", minimum = 1, description = "Stop before the results exceed so many tokens" },
      budget = { type = "string", enum = { "low", "mid", "high" }, default = "low", description = "How wide to search" },
    },
    required = { "query" },
  },
  output = {
    type = "object",
    properties = {
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
          },
          required = { "id", "text", "type", "context", "event_date" },
        },
      },
    },
    required = { "results" },
  },
}

function tool.execute(params, context)
  local found = context.memory.search(params.query, {
    limit = params.max_results,
    max_tokens = params.max_tokens,
    budget = params.budget,
    filter = { kind = "fact" },
    touch = true,
  })
  local results = json.array({})
  for _, hit in ipairs(found.results) do
    local record = hit.record
    results[#results + 1] = {
      id = record.aliases.hindsight,
      text = record.text,
      type = record.type or "world",
      context = record.context or "general",
      event_date = record.event_date and time.iso(record.event_date) or json.null,
    }
  end
  return { results = results }
end
