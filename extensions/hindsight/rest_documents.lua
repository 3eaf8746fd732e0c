-- GET .../documents?q=&tags=&tags_match=&start_date=&end_date=&limit=&offset=, the latest first
tool = {
  name = "rest_documents",
  description = "Hindsight's list of documents over REST",
  parameters = {
    type = "object",
    properties = {
      q = { type = "string" },
      tags = { type = "array", items = { type = "string" } },
      tags_match = shared.TAGS_MATCH,
      time_field = { type = "string", enum = { "mentioned_at", "occurred_start", "created_at" }, default = "created_at" },
      start_date = { type = "string" },
      end_date = { type = "string" },
      limit = { type = "integer", minimum = 1, maximum = 1000, default = 100 },
      offset = { type = "integer", minimum = 0, maximum = 100000, default = 0 },
    },
  },
}

function tool.execute(params, context)
  local filter = shared.admit_tags({ kind = "fact", document_id = { exists = true } }, params.tags, params.tags_match)
  if params.q and params.q ~= "" then
    filter.any = { { document_id = { contains = params.q } }, { text = { contains = params.q } } }
  end
  if params.start_date or params.end_date then
    filter[shared.TIME_FIELD[params.time_field]] = { gte = params.start_date, lte = params.end_date }
  end
  local groups = context.memory.stats({ filter = filter, group_by = "document_id" }).groups
  table.sort(groups, function(a, b)
    if a.last_created ~= b.last_created then return a.last_created > b.last_created end
    return a.value < b.value
  end)
  local items = json.array({})
  for number = params.offset + 1, math.min(#groups, params.offset + params.limit) do
    local document = shared.document(groups[number].value, context)
    document.text_length = #document.original_text
    document.original_text = nil
    items[#items + 1] = document
  end
  return { items = items, total = #groups, limit = params.limit, offset = params.offset, total_is_estimate = false }
end
