-- GET .../banks/{bank_id}/profile
tool = { name = "rest_profile", description = "A bank over Hindsight's REST", parameters = { type = "object", properties = {} } }

function tool.execute(_, context) return shared.profile(context) end
