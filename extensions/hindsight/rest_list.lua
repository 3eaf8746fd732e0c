-- GET .../memories/list?type=&q=&tags=&state=&start_date=&limit=&offset=
tool = {
  name = "rest_list",
  description = "Hindsight's list of memories over REST",
  parameters = {
    type = "object",
    properties = {
      type = { type = "string" },
      q = { type = "string" },
      document_id = { type = "string" },
      tags = { type = "array", items = { type = "string" } },
      tags_match = shared.TAGS_MATCH,
      state = { type = "string", enum = { "valid", "invalidated" }, default = "valid", description = "invalidated: what was forgotten" },
      time_field = { type = "string", enum = { "mentioned_at", "occurred_start", "created_at" }, default = "mentioned_at" },
      start_date = { type = "string" },
      end_date = { type = "string" },
      limit = { type = "integer", minimum = 1, maximum = 1000, default = 100 },
      offset = { type = "integer", minimum = 0, maximum = 100000, default = 0 },
    },
  },
}

function tool.execute(params, context)
  local filter = shared.admit_tags({ kind = "fact", document_id = params.document_id }, params.tags, params.tags_match)
  shared.admit_kinds(filter, params.type and { params.type })
  if params.q and params.q ~= "" then filter.text = { contains = params.q } end
  if params.start_date or params.end_date then
    filter[shared.TIME_FIELD[params.time_field]] = { gte = params.start_date, lte = params.end_date }
  end
  local forgotten = params.state == "invalidated"
  local items, passed, cursor = json.array({}), 0, nil
  repeat
    local page = context.memory.list({ filter = filter, order = "-timestamp", limit = 200, cursor = cursor, forgotten = forgotten })
    for _, record in ipairs(page.items) do
      passed = passed + 1
      if passed > params.offset and #items < params.limit then
        local unit = shared.unit(record)
        unit.entities = table.concat(unit.entities, ", ")
        items[#items + 1] = unit
      end
    end
    cursor = page.cursor
  until not cursor or #items >= params.limit
  return { items = items, total = context.memory.count({ filter = filter, forgotten = forgotten }), limit = params.limit, offset = params.offset }
end
