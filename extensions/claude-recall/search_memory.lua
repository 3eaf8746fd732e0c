-- Finds memories of this project and of all, best first.
tool = {
  name = "search_memory",
  description = "Search memories before making decisions. Returns what matches, with the ids that delete_memory takes",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      query = { type = "string", minLength = 1, description = "What to look for" },
      limit = { type = "number", minimum = 1, maximum = 25, default = 10, description = "Maximum results" },
      type = { type = "string", description = "Only memories of this type: preference, correction, devops, failure, project-knowledge, tool-use" },
      projectId = shared.PROJECT,
    },
    required = { "query" },
  },
}

function tool.execute(params, context)
  local filter = shared.within({ kind = "fact", ["metadata.type"] = params.type }, shared.project(params, context))
  local matches = context.memory.search(params.query, {
    limit = math.floor(params.limit),
    filter = filter,
    window = "auto",
    touch = true,
  })
  local lines, memories = {}, json.array({})
  for _, hit in ipairs(matches.results) do
    local record = hit.record
    local kind = (record.metadata or {}).type or "general"
    lines[#lines + 1] = "- [" .. kind .. "] (id: " .. shared.name(record) .. ") " .. record.text
    memories[#memories + 1] = {
      id = shared.name(record),
      type = kind,
      content = record.text,
      timestamp = shared.moment(record),
      projectId = record.label or json.null,
      score = hit.score,
      said = record.said,
    }
  end
  return {
    results = #lines > 0 and table.concat(lines, "\n") or 'No memories found matching "' .. params.query .. '".',
    count = #memories,
    totalMatches = matches.total,
    query = params.query,
    memories = memories,
  }
end
