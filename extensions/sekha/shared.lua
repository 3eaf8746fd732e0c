-- What Sekha's scripts share: how conversations and messages are shown, what a filter may say, what is worth archiving.
local shared = {}

local PINNED = 10 -- an importance that nothing prunes

shared.PINNED = PINNED

shared.ID = {
  type = "string",
  pattern = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
  description = "The conversation's id",
}
shared.LABEL = { type = "string", minLength = 1, maxLength = 500, description = "Human-readable conversation label" }
shared.FOLDER = { type = "string", pattern = "^/", description = "Folder path" }
shared.IMPORTANCE = { type = "number", minimum = 1, maximum = 10, description = "1-10 scale for pruning decisions; 10 is never suggested" }
shared.MESSAGES = {
  type = "array",
  minItems = 1,
  description = "The messages, in order",
  items = {
    type = "object",
    properties = {
      role = { type = "string", enum = { "user", "assistant", "system", "tool" } },
      content = { type = "string", minLength = 1 },
    },
    required = { "role", "content" },
  },
}

function shared.stamp(ms) return time.iso(ms, "%Y-%m-%dT%H:%M:%S") end

-- When a message was said: by its own timestamp. (An older store kept that as the date of an event, without an end.)
function shared.moment(record)
  if record.event_date and not record.event_end then return record.event_date end
  return record.timestamp
end

-- The conversation of an id. Counts as a reading of it.
function shared.conversation(id, context)
  local record = context.memory.get(string.lower(id))
  if not record or record.kind ~= "conversation" then
    error.throw({ kind = "not_found", message = "Conversation not found: " .. string.lower(id) })
  end
  context.memory.touch({ record.id })
  return record
end

-- Its messages as they are shown, and how many words they have.
function shared.messages(record, context)
  local words, messages = 0, json.array({})
  for _, message in ipairs(context.memory.children(record.id).items) do
    for _ in string.gmatch(message.text, "%S+") do words = words + 1 end
    messages[#messages + 1] = { role = message.role, content = message.text, timestamp = shared.stamp(shared.moment(message)) }
  end
  return messages, words
end

-- A conversation over Sekha's REST.
function shared.shown(record, context)
  local messages, words = shared.messages(record, context)
  return {
    id = record.id,
    conversation_id = record.id,
    label = record.label,
    folder = record.folder,
    status = record.status,
    archived = record.status == "archived",
    importance_score = record.importance,
    message_count = #messages,
    word_count = words,
    created_at = shared.stamp(record.created),
    updated_at = shared.stamp(record.updated),
    metadata = record.metadata,
    messages = messages,
  }
end

-- The conversations of a label, of a folder with all below it, pinned or archived ones.
function shared.chosen(params)
  local filter = { kind = "conversation", label = params.label }
  if params.folder then filter.folder = { under = params.folder } end
  if params.archived ~= nil then filter.status = params.archived and "archived" or "active" end
  if params.pinned ~= nil then filter.importance = params.pinned and { gte = PINNED } or { lt = PINNED } end
  return filter
end

-- Stores a conversation; gives its record.
function shared.store(params, context)
  if string.find(params.folder .. "/", "/../", 1, true) then
    error.throw({ kind = "invalid_params", message = "folder must not contain '..'" })
  end
  local items = json.array({})
  for _, message in ipairs(params.messages) do
    items[#items + 1] = { text = message.content, role = message.role, timestamp = message.timestamp, metadata = message.metadata or {} }
  end
  local stored = context.memory.put_many({
    items = items,
    container = {
      label = params.label,
      folder = params.folder,
      importance = params.importance_score,
      status = "active",
      metadata = params.metadata,
    },
    supersedes = params.supersedes,
  })
  return context.memory.get(stored.id), stored
end

shared.SUPERSEDES = {
  type = "array",
  items = { type = "string" },
  description = "Ids of conversations that this one makes untrue: they are replaced by it, and kept",
}

-- Conversations with a message close in meaning; nil if there are none.
function shared.similar(conversations)
  local shown = json.array({})
  for _, found in ipairs(conversations) do
    shown[#shown + 1] = {
      conversation_id = found.id,
      label = found.label or json.null,
      content = found.text,
      said = found.said,
      score = found.score,
    }
  end
  return #shown > 0 and shown or nil
end

-- Conversations that were replaced; nil if there are none.
function shared.superseded(conversations)
  local shown = json.array({})
  for _, older in ipairs(conversations) do shown[#shown + 1] = { conversation_id = older.id, label = older.text, said = older.said } end
  return #shown > 0 and shown or nil
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

-- The filter of messages that Sekha's `filters` mean. What they do not know is refused.
function shared.filter(filters)
  local filter = { kind = "message" }
  filters = filters or {}
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
  return filter
end

-- A message that a search found.
function shared.result(hit)
  local record, conversation = hit.record, hit.container or {}
  return {
    conversation_id = record.parent,
    message_id = record.id,
    score = hit.score,
    similarity = hit.score,
    content = record.text,
    label = conversation.label or json.null,
    folder = conversation.folder or "/",
    timestamp = shared.stamp(shared.moment(record)),
    metadata = record.metadata,
    said = record.said,
    newer = hit.newer and json.array(hit.newer) or nil,
  }
end

-- Old, unimportant conversations, and what archiving them would spare. Nothing is changed.
function shared.prunable(threshold_days, importance_threshold, context)
  local suggestions, savings = json.array({}), 0
  local stale = context.memory.stale({ idle_days = threshold_days, importance = importance_threshold })
  for _, conversation in ipairs(stale.items) do
    local tokens = math.ceil(conversation.characters / 4)
    savings = savings + tokens
    suggestions[#suggestions + 1] = {
      conversation_id = conversation.id,
      conversation_label = conversation.label,
      last_accessed = shared.stamp(conversation.last_accessed),
      message_count = conversation.count,
      token_estimate = tokens,
      importance_score = conversation.importance + 0.0,
      preview = conversation.first,
      recommendation = "archive",
    }
  end
  return suggestions, savings
end

return shared
