-- GET .../tags?q=&limit=&offset=: the tags of a bank's memories, the most frequent first; `q` may hold * for anything.
tool = {
  name = "rest_tags",
  description = "Hindsight's list of tags over REST",
  parameters = {
    type = "object",
    properties = {
      q = { type = "string", maxLength = 200 },
      source = { type = "string", enum = { "memories" }, default = "memories" },
      limit = { type = "integer", minimum = 1, maximum = 1000, default = 100 },
      offset = { type = "integer", minimum = 0, maximum = 100000, default = 0 },
    },
  },
}

-- Whether a text is what a pattern with * says, whatever the case: piece by piece, the last one at the end.
local function matches(text, pattern)
  text, pattern = string.lower(text), string.lower(pattern)
  local pieces = {}
  for piece in string.gmatch(pattern .. "*", "([^*]*)%*") do pieces[#pieces + 1] = piece end
  if #pieces == 1 then return text == pattern end
  local first, last = pieces[1], pieces[#pieces]
  if string.sub(text, 1, #first) ~= first then return false end
  local position = #first + 1
  for number = 2, #pieces - 1 do
    local _, stop = string.find(text, pieces[number], position, true)
    if not stop then return false end
    position = stop + 1
  end
  return #text - #last + 1 >= position and string.sub(text, #text - #last + 1) == last
end

function tool.execute(params, context)
  local tags = {}
  for _, group in ipairs(context.memory.stats({ filter = { kind = "fact" }, group_by = "tags" }).groups) do
    if not params.q or params.q == "" or matches(group.value, params.q) then
      tags[#tags + 1] = { tag = group.value, count = group.count }
    end
  end
  local items = json.array({})
  for number = params.offset + 1, math.min(#tags, params.offset + params.limit) do items[#items + 1] = tags[number] end
  return { items = items, total = #tags, limit = params.limit, offset = params.offset }
end
