-- POST .../reflect
tool = {
  name = "rest_reflect",
  description = "Hindsight's reflect over REST",
  parameters = {
    type = "object",
    properties = {
      query = { type = "string", minLength = 1 },
      budget = { type = "string", enum = { "low", "mid", "high" }, default = "low" },
      context = { type = "string" },
      max_tokens = { type = "integer", minimum = 1, default = 4096 },
      fact_types = { type = "array", items = { type = "string" } },
      tags = { type = "array", items = { type = "string" } },
      tags_match = shared.TAGS_MATCH,
      include = {
        type = "object",
        properties = { facts = {} },
        additionalProperties = false,
        description = "facts: the evidence with the answer",
      },
      apply_all_directives = { type = "boolean", description = "There are none here: it changes nothing" },
      exclude_mental_models = { type = "boolean", description = "There are none here: it changes nothing" },
      exclude_mental_model_ids = { type = "array", items = { type = "string" } },
    },
    required = { "query" },
  },
}

-- As many whole sentences as `tokens` allow (a token is four characters), one at least.
local function within(answer, tokens)
  if #answer <= 4 * tokens then return answer end
  local cut
  for place in string.gmatch(answer, "()%]%s") do
    if cut and place > 4 * tokens then break end
    cut = place
  end
  return cut and string.sub(answer, 1, cut) or answer
end

function tool.execute(params, context)
  local filter = shared.admit_tags({ kind = "fact" }, params.tags, params.tags_match)
  shared.admit_kinds(filter, params.fact_types)
  local answer = context.memory.synthesize(params.query, { budget = params.budget, context = params.context, filter = filter })
  local reply = { text = within(answer.text, params.max_tokens), based_on = json.null }
  if params.include and params.include.facts then
    local memories = json.array({})
    for _, entry in ipairs(answer.based_on) do
      local record = context.memory.get(entry.id)
      if record then memories[#memories + 1] = shared.unit(record) end
    end
    reply.based_on = { memories = memories, mental_models = json.array({}), directives = json.array({}) }
  end
  return reply
end
