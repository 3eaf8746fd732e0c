-- Finds messages; a folder means everything below it.
tool = {
  name = "memory_search",
  description = "Search stored conversations by meaning and words",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      query = { type = "string", minLength = 1, description = "Natural language search query" },
      filters = {
        type = "object",
        description = "folder (with all below it), label, status, role, after, before, importance_min",
      },
      filter_labels = { type = "array", items = { type = "string" }, description = "Only conversations with one of these labels" },
      include_superseded = { type = "boolean", default = false, description = "Also what was replaced" },
      as_of = { type = "string", description = "What held at that time (ISO 8601)" },
      limit = { type = "integer", minimum = 1, maximum = 1000, default = 10, description = "Max results to return" },
      offset = { type = "integer", minimum = 0, default = 0, description = "Pagination offset" },
    },
    required = { "query" },
  },
}

function tool.execute(params, context)
  local filter = shared.filter(params.filters)
  if params.filter_labels and #params.filter_labels > 0 then
    filter.all = json.array({ { ["parent.label"] = { ["in"] = params.filter_labels } } })
  end
  local matches = context.memory.search(params.query, {
    limit = params.limit,
    offset = params.offset,
    filter = filter,
    window = "auto",
    as_of = params.as_of,
    include_superseded = params.include_superseded,
    touch = true,
  })
  local results = json.array({})
  for _, hit in ipairs(matches.results) do results[#results + 1] = shared.result(hit) end
  local data = { query = params.query, total_results = matches.total, limit = params.limit, results = results }
  return {
    success = true,
    data = data,
    error = json.null,
  }
end
