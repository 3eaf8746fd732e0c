-- Suggests only; nothing is archived or deleted here. Importance 10 is pinned.
tool = {
  name = "memory_prune",
  description = "Suggest old, unimportant conversations to archive",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      threshold_days = { type = "integer", minimum = 0, default = 30, description = "Consider conversations older than X days" },
      importance_threshold = { type = "number", minimum = 0, maximum = 10, default = 5.0, description = "Consider conversations with score <= X" },
    },
  },
}

local DAY_MS = 24 * 60 * 60 * 1000
local PINNED = 10

function tool.execute(params, context)
  local before = time.now() - params.threshold_days * DAY_MS
  local filter = {
    kind = "conversation",
    status = "active",
    last_accessed = { lte = before },
    importance = { lte = params.importance_threshold, lt = PINNED },
  }
  local suggestions = json.array({})
  local savings = 0
  local cursor
  repeat
    local page = context.memory.list({ filter = filter, order = "last_accessed", limit = 200, cursor = cursor })
    local ids = json.array({})
    for _, conversation in ipairs(page.items) do ids[#ids + 1] = conversation.id end
    local contents = context.memory.contents({ ids = ids })
    for _, conversation in ipairs(page.items) do
      local held = contents[conversation.id] or { count = 0, characters = 0, first = "" }
      local tokens = math.ceil(held.characters / 4)
      local first = held.first
      local last = utf8.offset(first, 101)
      savings = savings + tokens
      suggestions[#suggestions + 1] = {
        conversation_id = conversation.id,
        conversation_label = conversation.label,
        last_accessed = time.iso(conversation.last_accessed, "%Y-%m-%dT%H:%M:%S"),
        message_count = held.count,
        token_estimate = tokens,
        importance_score = conversation.importance + 0.0,
        preview = last and string.sub(first, 1, last - 1) or first,
        recommendation = "archive",
      }
    end
    cursor = page.cursor
  until not cursor
  return {
    success = true,
    data = {
      threshold_days = params.threshold_days,
      importance_threshold = params.importance_threshold,
      total_suggestions = #suggestions,
      estimated_token_savings = savings,
      suggestions = suggestions,
    },
    error = json.null,
  }
end
