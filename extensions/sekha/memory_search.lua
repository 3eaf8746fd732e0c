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
      as_of = { type = "string", description = "What held at that time (ISO 8601)" },
      limit = { type = "integer", minimum = 1, maximum = 1000, default = 10, description = "Max results to return" },
      offset = { type = "integer", minimum = 0, default = 0, description = "Pagination offset" },
    },
    required = { "query" },
  },
}

-- When a message was said: by its own timestamp. (An older store kept that as the date of an event, without an end.)
local function moment(record)
  if record.event_date and not record.event_end then return record.event_date end
  return record.timestamp
end

-- What was said in a span of time; the two ways in which a message's time is kept.
local function said_within(after, before)
  return {
    { event_date = { gte = after, lte = before }, event_end = { exists = false } },
    { timestamp = { gte = after, lte = before }, any = { { event_date = { exists = false } }, { event_end = { exists = true } } } },
  }
end

local KNOWN = {
  folder = function(filter, value) filter["parent.folder"] = { under = value } end,
  label = function(filter, value) filter["parent.label"] = value end,
  status = function(filter, value) filter["parent.status"] = value end,
  role = function(filter, value) filter.role = value end,
  importance_min = function(filter, value) filter["parent.importance"] = { gte = value } end,
}

function tool.execute(params, context)
  local filter = { kind = "message" }
  if params.filter_labels and #params.filter_labels > 0 then filter["parent.label"] = { ["in"] = params.filter_labels } end
  local filters = params.filters or {}
  if filters.after or filters.before then filter.any = said_within(filters.after, filters.before) end
  for name, value in pairs(filters) do
    local add = KNOWN[name]
    if not add and name ~= "after" and name ~= "before" then
      error.throw({
        kind = "invalid_params",
        message = "unknown filter '" .. tostring(name) .. "' (known: folder, label, status, role, after, before, importance_min)",
      })
    end
    if add and value ~= nil then add(filter, value) end
  end
  local matches = context.memory.search(params.query, {
    limit = params.limit,
    offset = params.offset,
    filter = filter,
    window = "auto",
    floor = not params.as_of,
    as_of = params.as_of,
    touch = true,
  })
  local results = json.array({})
  for _, hit in ipairs(matches.results) do
    local record, conversation = hit.record, hit.container or {}
    results[#results + 1] = {
      conversation_id = record.parent,
      message_id = record.id,
      score = hit.score,
      similarity = hit.score,
      content = record.text,
      label = conversation.label or json.null,
      folder = conversation.folder or "/",
      timestamp = time.iso(moment(record), "%Y-%m-%dT%H:%M:%S"),
      metadata = json.object(record.metadata or {}),
    }
  end
  return {
    success = true,
    data = { query = params.query, total_results = matches.total, limit = params.limit, results = results },
    error = json.null,
  }
end
