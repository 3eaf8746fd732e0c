-- DELETE .../banks/{bank_id}/config: back to what holds for every bank.
tool = { name = "rest_reset", description = "Reset a bank's configuration over Hindsight's REST", parameters = { type = "object", properties = {} } }

function tool.execute(_, context)
  context.memory.configure({ config = json.object({}) })
  return {
    bank_id = context.bank.id,
    config = { reflect_mission = "", disposition_skepticism = 3, disposition_literalism = 3, disposition_empathy = 3 },
    overrides = json.object({}),
  }
end
