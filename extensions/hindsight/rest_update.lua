-- PATCH .../memories/{memory_id}: corrects a memory; the version before stays in its history.
tool = { name = "rest_update", description = "Correct a memory over Hindsight's REST", parameters = { type = "object", properties = {} } }

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
    entities = json.array({}),
    metadata = metadata,
    tags = json.array(record.tags),
  }
end

function tool.execute(params, context)
  check(params, { memory_id = true, text = true, context = true, tags = true, metadata = true, timestamp = true }, "update")
  local id = params.memory_id
  params.memory_id = nil
  return unit(context.memory.update(id, params).record)
end
