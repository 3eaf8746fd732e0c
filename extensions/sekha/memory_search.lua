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
      limit = { type = "integer", minimum = 1, maximum = 1000, default = 10, description = "Max results to return" },
      offset = { type = "integer", minimum = 0, default = 0, description = "Pagination offset" },
    },
    required = { "query" },
  },
}

local KNOWN = {
  folder = function(filter, value) filter["parent.folder"] = { under = value } end,
  label = function(filter, value) filter["parent.label"] = value end,
  status = function(filter, value) filter["parent.status"] = value end,
  role = function(filter, value) filter.role = value end,
  after = function(filter, value) filter.created = filter.created or {}; filter.created.gte = value end,
  before = function(filter, value) filter.created = filter.created or {}; filter.created.lte = value end,
  importance_min = function(filter, value) filter["parent.importance"] = { gte = value } end,
}

function tool.execute(params, context)
  local filter = { kind = "message" }
  for name, value in pairs(params.filters or {}) do
    local add = KNOWN[name]
    if not add then
      error.throw({
        kind = "invalid_params",
        message = "unknown filter '" .. tostring(name) .. "' (known: folder, label, status, role, after, before, importance_min)",
      })
    end
    if value ~= nil then add(filter, value) end
  end
  local found = context.memory.search(params.query, {
    limit = params.limit,
    offset = params.offset,
    filter = filter,
    touch = true,
  })
  local results = json.array({})
  for _, hit in ipairs(found.results) do
    local record, conversation = hit.record, hit.container or {}
    results[#results + 1] = {
      conversation_id = record.parent,
      message_id = record.id,
      score = hit.score,
      content = record.text,
      label = conversation.label or json.null,
      folder = conversation.folder or "/",
      timestamp = time.iso(record.event_date or record.created, "%Y-%m-%dT%H:%M:%S"),
      metadata = json.object(record.metadata or {}),
    }
  end
  return {
    success = true,
    data = { query = params.query, total_results = found.total, limit = params.limit, results = results },
    error = json.null,
  }
end
