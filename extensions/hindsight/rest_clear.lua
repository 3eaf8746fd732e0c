-- DELETE .../memories?type=: forgets the bank's memories; they can be brought back.
tool = {
  name = "rest_clear",
  description = "Forget a bank's memories over Hindsight's REST",
  parameters = { type = "object", properties = { type = { type = "string" } } },
}

function tool.execute(params, context)
  local cleared = context.memory.delete_where({ filter = shared.admit_kinds({ kind = "fact" }, params.type and { params.type }), reason = "rest" })
  return { success = true, message = "Memories forgotten", deleted_count = cleared.count, op_id = cleared.op_id or json.null }
end
