-- PUT and PATCH .../banks/{bank_id}: makes a bank, or changes its mission and how it reflects.
local TRAIT = { type = "integer", minimum = 1, maximum = 5 }
tool = {
  name = "rest_bank",
  description = "Make or change a bank over Hindsight's REST",
  parameters = {
    type = "object",
    properties = {
      name = { type = "string" },
      mission = { type = "string" },
      reflect_mission = { type = "string" },
      background = { type = "string" },
      disposition = {
        type = "object",
        properties = { skepticism = TRAIT, literalism = TRAIT, empathy = TRAIT },
        additionalProperties = false,
      },
      disposition_skepticism = TRAIT,
      disposition_literalism = TRAIT,
      disposition_empathy = TRAIT,
    },
  },
}

function tool.execute(params, context)
  local config = context.bank.config() or {}
  config.name = params.name or config.name
  config.mission = params.reflect_mission or params.mission or params.background or config.mission
  for _, trait in ipairs({ "skepticism", "literalism", "empathy" }) do
    config[trait] = params["disposition_" .. trait] or (params.disposition or {})[trait] or config[trait]
  end
  context.memory.configure({ config = json.object(config) })
  return shared.profile(context)
end
