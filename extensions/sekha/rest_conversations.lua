-- GET /api/v1/conversations?label=&folder=&pinned=&archived=&page=&page_size=, the latest first
tool = {
  name = "rest_conversations",
  description = "The conversations over Sekha's REST",
  parameters = {
    type = "object",
    properties = {
      label = { type = "string" },
      folder = { type = "string" },
      pinned = { type = "boolean" },
      archived = { type = "boolean" },
      page = { type = "integer", minimum = 1, maximum = 10000, default = 1 },
      page_size = { type = "integer", minimum = 1, maximum = 100, default = 50 },
    },
  },
}

function tool.execute(params, context)
  local filter = shared.chosen(params)
  local results, passed, cursor = json.array({}), 0, nil
  local before = (params.page - 1) * params.page_size
  repeat
    local page = context.memory.list({ filter = filter, order = "-updated", limit = 200, cursor = cursor })
    for _, record in ipairs(page.items) do
      passed = passed + 1
      if passed > before and #results < params.page_size then
        results[#results + 1] = {
          conversation_id = record.id,
          id = record.id,
          label = record.label,
          folder = record.folder,
          status = record.status,
          importance_score = record.importance,
          timestamp = shared.stamp(record.created),
          created_at = shared.stamp(record.created),
          updated_at = shared.stamp(record.updated),
          metadata = record.metadata,
        }
      end
    end
    cursor = page.cursor
  until not cursor or #results >= params.page_size
  return { results = results, total = context.memory.count({ filter = filter }), page = params.page, page_size = params.page_size }
end
