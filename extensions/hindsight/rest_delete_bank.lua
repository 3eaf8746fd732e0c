-- DELETE .../banks/{bank_id}: forgets all that is in it, and its configuration; the memories can be brought back.
tool = { name = "rest_delete_bank", description = "Forget a bank over Hindsight's REST", parameters = { type = "object", properties = {} } }

function tool.execute(_, context)
  local deleted = context.memory.delete_where({ filter = { id = { exists = true } }, reason = "rest", anew = true })
  context.memory.configure({ config = json.object({}) })
  return { success = true, message = "Bank forgotten", deleted_count = deleted.count, op_id = deleted.op_id or json.null }
end
