-- GET .../memories/list?type=&q=&limit=&offset=
tool = { name = "rest_list", description = "Hindsight's list of memories over REST", parameters = { type = "object", properties = {} } }

-- What is asked for and not known here is said, not dropped.
local function check(values, known, where)
  for name, value in pairs(values) do
    if value ~= nil and not known[name] then
      error.throw({ kind = "invalid_params", message = where .. ": '" .. tostring(name) .. "' is not supported here" })
    end
  end
end

local function iso(ms) return ms and time.iso(ms) or json.null end

local function unit(record)
  local metadata = json.object({})
  for name, value in pairs(record.metadata or {}) do
    metadata[name] = type(value) == "string" and value or json.encode(value)
  end
  return {
    id = record.id,
    text = record.text,
    type = record.type or "world",
    fact_type = record.type or "world",
    context = record.context or json.null,
    date = record.said,
    mentioned_at = record.said,
    occurred_start = iso(record.event_date),
    occurred_end = iso(record.event_end or record.event_date),
    document_id = record.document_id or json.null,
    entities = "",
    metadata = metadata,
    tags = json.array(record.tags),
  }
end

local KNOWN = { type = true, q = true, limit = true, offset = true }

function tool.execute(params, context)
  check(params, KNOWN, "list")
  local limit, offset = tonumber(params.limit) or 100, tonumber(params.offset) or 0
  local filter = { kind = "fact", type = params.type }
  if params.q and params.q ~= "" then filter.text = { contains = params.q } end
  local items, seen, cursor = json.array({}), 0, nil
  repeat
    local page = context.memory.list({ filter = filter, order = "-timestamp", limit = 200, cursor = cursor })
    for _, record in ipairs(page.items) do
      seen = seen + 1
      if seen > offset and #items < limit then items[#items + 1] = unit(record) end
    end
    cursor = page.cursor
  until not cursor or #items >= limit
  return { items = items, total = context.memory.count({ filter = filter }), limit = math.floor(limit), offset = math.floor(offset) }
end
