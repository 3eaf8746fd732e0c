-- POST .../memories: stores the items, all or none.
tool = { name = "rest_retain", description = "Hindsight's retain over REST", parameters = { type = "object", properties = {} } }

-- What is asked for and not known here is said, not dropped.
local function check(values, known, where)
  for name, value in pairs(values) do
    if value ~= nil and not known[name] then
      error.throw({ kind = "invalid_params", message = where .. ": '" .. tostring(name) .. "' is not supported here" })
    end
  end
end

local KNOWN = { items = true, async = true, document_tags = true, operation_id = true }
local ITEM = {
  content = true, timestamp = true, context = true, metadata = true, document_id = true, tags = true, resolve_entities = true,
}

local function text_of(content)
  if type(content) == "string" then return content end
  local parts = {}
  for _, block in ipairs(type(content) == "table" and content or {}) do
    if block.type ~= "text" then
      error.throw({ kind = "invalid_params", message = "items: content blocks of type '" .. tostring(block.type) .. "' are not supported here" })
    end
    parts[#parts + 1] = block.text
  end
  return table.concat(parts, "\n")
end

function tool.execute(params, context)
  check(params, KNOWN, "retain")
  if type(params.items) ~= "table" or #params.items == 0 then
    error.throw({ kind = "invalid_params", message = "items: a list of memories, each with a content" })
  end
  for _, item in ipairs(params.items) do
    check(item, ITEM, "items")
    local tags = json.array({})
    for _, tag in ipairs(item.tags or {}) do tags[#tags + 1] = tag end
    for _, tag in ipairs(params.document_tags or {}) do tags[#tags + 1] = tag end
    context.memory.put({
      text = text_of(item.content),
      context = item.context,
      type = "world",
      timestamp = item.timestamp ~= "unset" and item.timestamp or nil,
      metadata = item.metadata,
      document_id = item.document_id,
      tags = tags,
    })
  end
  return { success = true, bank_id = context.bank.id, items_count = #params.items, async = false }
end
