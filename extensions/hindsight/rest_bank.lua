-- PUT .../banks/{bank_id}: makes a bank, or changes its mission and how it reflects.
tool = { name = "rest_bank", description = "Make or change a bank over Hindsight's REST", parameters = { type = "object", properties = {} } }

function tool.execute(params, context)
  local config = context.bank.config() or {}
  config.mission = params.mission or params.reflect_mission or params.background or config.mission
  for name, value in pairs(type(params.disposition) == "table" and params.disposition or {}) do config[name] = value end
  config = context.memory.configure({ config = json.object(config) })
  return {
    bank_id = context.bank.id,
    name = params.name or context.bank.id,
    mission = config.mission or "",
    disposition = {
      skepticism = config.skepticism or 3,
      literalism = config.literalism or 3,
      empathy = config.empathy or 3,
    },
  }
end
