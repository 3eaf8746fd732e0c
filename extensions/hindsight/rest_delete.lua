-- DELETE .../memories/{memory_id}: forgets a memory; it can be brought back.
tool = {
  name = "rest_delete",
  description = "Forget a memory over Hindsight's REST",
  parameters = { type = "object", properties = { memory_id = { type = "string" } }, required = { "memory_id" } },
}

function tool.execute(params, context)
  local deleted = context.memory.delete(params.memory_id, { reason = "rest" })
  return { success = true, message = "Memory forgotten", deleted_count = deleted.count, op_id = deleted.op_id or json.null }
end
