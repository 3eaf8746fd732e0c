-- How this bank's `reflect` looks at its memories.
tool = {
  name = "update_bank",
  description = "Set this bank's mission and how it reflects: skepticism, literalism and empathy, 1 to 5 each (3 changes nothing)",
  annotations = { read_only = false, destructive = false, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      mission = { type = "string", description = "What the bank is for" },
      skepticism = { type = "integer", minimum = 1, maximum = 5 },
      literalism = { type = "integer", minimum = 1, maximum = 5 },
      empathy = { type = "integer", minimum = 1, maximum = 5 },
    },
  },
}

function tool.execute(params, context)
  local config = context.bank.config() or {}
  for _, name in ipairs({ "mission", "skepticism", "literalism", "empathy" }) do
    if params[name] ~= nil then config[name] = params[name] end
  end
  return { success = true, bank_id = context.bank.id, config = json.object(context.memory.configure({ config = json.object(config) })) }
end
