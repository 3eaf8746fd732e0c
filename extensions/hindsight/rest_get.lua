-- GET .../memories/{memory_id}
tool = {
  name = "rest_get",
  description = "One memory over Hindsight's REST",
  parameters = { type = "object", properties = { memory_id = { type = "string" } }, required = { "memory_id" } },
}

function tool.execute(params, context)
  local record = context.memory.get(params.memory_id)
  if not record then error.throw({ kind = "not_found", message = "Memory unit '" .. params.memory_id .. "' not found" }) end
  return shared.unit(record)
end
