-- POST .../memories/recall
tool = { name = "rest_recall", description = "Hindsight's recall over REST", parameters = { type = "object", properties = {} } }

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

local KNOWN = {
  query = true, types = true, budget = true, max_tokens = true, trace = true, query_timestamp = true, include = true, tags = true,
  tags_match = true, prefer_observations = true,
}

function tool.execute(params, context)
  check(params, KNOWN, "recall")
  local filter = { kind = "fact" }
  if params.types then filter.type = { ["in"] = params.types } end
  if params.tags and #params.tags > 0 then
    local strict = string.find(params.tags_match or "any", "strict") ~= nil
    local with = { tags = { [string.find(params.tags_match or "any", "all") and "has_all" or "has_any"] = params.tags } }
    filter.any = strict and { with } or { with, { tags = { exists = false } } }
  end
  local matches = context.memory.search(params.query, {
    limit = 100,
    max_tokens = params.max_tokens or 4096,
    budget = params.budget or "mid",
    filter = filter,
    window = "auto",
    asked_at = params.query_timestamp,
    floor = true,
    touch = true,
  })
  local results = json.array({})
  for _, hit in ipairs(matches.results) do
    local result = unit(hit.record)
    result.scores = { final = hit.score }
    results[#results + 1] = result
  end
  return { results = results }
end
