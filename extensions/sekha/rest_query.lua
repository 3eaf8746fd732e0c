-- POST /api/v1/query, and by words alone POST /api/v1/search/{kind}
tool = {
  name = "rest_query",
  description = "Search messages over Sekha's REST",
  parameters = {
    type = "object",
    properties = {
      query = { type = "string", minLength = 1 },
      kind = { type = "string", enum = { "fts" }, description = "By words alone" },
      filters = { type = "object" },
      limit = { type = "integer", minimum = 1, maximum = 1000, default = 10 },
      offset = { type = "integer", minimum = 0, default = 0 },
    },
    required = { "query" },
  },
}

function tool.execute(params, context)
  local matches = context.memory.search(params.query, {
    limit = params.limit,
    offset = params.offset,
    mode = params.kind and "keyword" or nil,
    filter = shared.filter(params.filters),
    window = "auto",
    touch = true,
  })
  local results = json.array({})
  for _, hit in ipairs(matches.results) do
    results[#results + 1] = shared.result(hit)
    results[#results].created_at = results[#results].timestamp
  end
  return {
    query = params.query,
    results = results,
    total = matches.total,
    page = params.offset // params.limit + 1,
    page_size = params.limit,
  }
end
