-- GET, PATCH and DELETE .../banks/{bank_id}/config: what the bank sets, and what holds.
local TRAIT = { type = "integer", minimum = 1, maximum = 5 }
tool = {
  name = "rest_config",
  description = "A bank's configuration over Hindsight's REST",
  parameters = {
    type = "object",
    properties = {
      updates = {
        type = "object",
        properties = {
          reflect_mission = { type = "string" },
          disposition_skepticism = TRAIT,
          disposition_literalism = TRAIT,
          disposition_empathy = TRAIT,
        },
        additionalProperties = false,
      },
    },
  },
}

local KEPT_AS = {
  reflect_mission = "mission",
  disposition_skepticism = "skepticism",
  disposition_literalism = "literalism",
  disposition_empathy = "empathy",
}

function tool.execute(params, context)
  local kept = context.bank.config() or {}
  for name, value in pairs(params.updates or {}) do kept[KEPT_AS[name]] = value end
  if params.updates then context.memory.configure({ config = json.object(kept) }) end
  local overrides = json.object({})
  local config = { reflect_mission = "", disposition_skepticism = 3, disposition_literalism = 3, disposition_empathy = 3 }
  for name, key in pairs(KEPT_AS) do
    if kept[key] ~= nil then
      overrides[name], config[name] = kept[key], kept[key]
    end
  end
  return { bank_id = context.bank.id, config = config, overrides = overrides }
end
