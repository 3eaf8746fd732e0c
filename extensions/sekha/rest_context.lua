-- POST /api/v1/context/assemble: the messages that speak to a question, as many as a number of tokens holds, in the order they were said.
tool = {
  name = "rest_context",
  description = "Assemble the context of a question over Sekha's REST",
  parameters = {
    type = "object",
    properties = {
      query = { type = "string", minLength = 1 },
      context_budget = { type = "integer", minimum = 1, default = 4000, description = "Tokens, of four characters" },
      preferred_labels = { type = "array", items = { type = "string" }, description = "What is in these comes first" },
      excluded_folders = { type = "array", items = { type = "string" } },
    },
    required = { "query" },
  },
}

local MOST = 100

-- Whether one message stands before another: by its time, within a conversation by its place.
local function earlier(a, b)
  local first, second = shared.moment(a), shared.moment(b)
  if first ~= second then return first < second end
  if a.parent ~= b.parent then return a.parent < b.parent end
  return (a.ordinal or 0) < (b.ordinal or 0)
end

function tool.execute(params, context)
  local filter = { kind = "message" }
  if params.excluded_folders and #params.excluded_folders > 0 then
    filter.none = json.array({})
    for _, folder in ipairs(params.excluded_folders) do filter.none[#filter.none + 1] = { ["parent.folder"] = { under = folder } } end
  end
  local preferred = {}
  for _, label in ipairs(params.preferred_labels or {}) do preferred[label] = true end
  local hits, others = {}, {}
  local matches = context.memory.search(params.query, { limit = MOST, filter = filter, window = "auto", touch = true })
  for _, hit in ipairs(matches.results) do
    local list = preferred[(hit.container or {}).label] and hits or others
    list[#list + 1] = hit
  end
  for _, hit in ipairs(others) do hits[#hits + 1] = hit end
  local chosen, tokens = {}, 0
  for _, hit in ipairs(hits) do
    local cost = math.ceil(utf8.len(hit.record.text) / 4)
    if tokens + cost <= params.context_budget then
      tokens = tokens + cost
      chosen[#chosen + 1] = hit
    end
  end
  table.sort(chosen, function(a, b) return earlier(a.record, b.record) end)
  local messages, ids, labels, seen = json.array({}), json.array({}), json.array({}), {}
  for _, hit in ipairs(chosen) do
    local result = shared.result(hit)
    result.role = hit.record.role
    messages[#messages + 1] = result
    if not seen[result.conversation_id] then
      seen[result.conversation_id] = true
      ids[#ids + 1], labels[#labels + 1] = result.conversation_id, result.label
    end
  end
  return { messages = messages, token_count = tokens, conversation_ids = ids, labels = labels }
end
