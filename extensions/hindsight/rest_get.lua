-- GET .../memories/{memory_id}
tool = { name = "rest_get", description = "One memory over Hindsight's REST", parameters = { type = "object", properties = {} } }

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
  local record = context.memory.get(params.memory_id)
  if not record then error.throw({ kind = "not_found", message = "Memory unit '" .. params.memory_id .. "' not found" }) end
  return unit(record)
end
