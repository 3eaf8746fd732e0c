-- POST .../reflect
tool = { name = "rest_reflect", description = "Hindsight's reflect over REST", parameters = { type = "object", properties = {} } }

-- What is asked for and not known here is said, not dropped.
local function check(values, known, where)
  for name, value in pairs(values) do
    if value ~= nil and not known[name] then
      error.throw({ kind = "invalid_params", message = where .. ": '" .. tostring(name) .. "' is not supported here" })
    end
  end
end

local KNOWN = {
  query = true, budget = true, context = true, max_tokens = true, include = true, tags = true, tags_match = true,
  apply_all_directives = true, exclude_mental_models = true,
}

function tool.execute(params, context)
  check(params, KNOWN, "reflect")
  local filter = { kind = "fact" }
  if params.tags and #params.tags > 0 then filter.tags = { has_any = params.tags } end
  local answer = context.memory.synthesize(params.query, { budget = params.budget, context = params.context, filter = filter })
  local memories = json.array({})
  for _, entry in ipairs(answer.based_on) do
    memories[#memories + 1] = { id = entry.id, text = entry.text, type = "world", context = entry.context or json.null }
  end
  return { text = answer.text, based_on = { memories = memories } }
end
