-- DELETE .../memories?type=: forgets the bank's memories; they can be brought back.
tool = { name = "rest_clear", description = "Forget a bank's memories over Hindsight's REST", parameters = { type = "object", properties = {} } }

-- What is asked for and not known here is said, not dropped.
local function check(values, known, where)
  for name, value in pairs(values) do
    if value ~= nil and not known[name] then
      error.throw({ kind = "invalid_params", message = where .. ": '" .. tostring(name) .. "' is not supported here" })
    end
  end
end

function tool.execute(params, context)
  check(params, { type = true }, "clear")
  local cleared = context.memory.delete_where({ filter = { kind = "fact", type = params.type }, reason = "rest" })
  return { success = true, message = "Memories forgotten", deleted_count = cleared.count, op_id = cleared.op_id or json.null }
end
