tool = {
  name = "retrieve_memory",
  description = "Retrieve a specific memory by its id, or the most recent memories",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      id = { type = "string", description = "Memory ID to retrieve" },
      limit = { type = "number", minimum = 1, maximum = 1000, default = 10, description = "Number of recent memories to retrieve" },
    },
  },
}

function tool.execute(params, context)
  local records
  local total
  if params.id then
    local record = context.memory.get(params.id)
    records = record and { record } or {}
    total = #records
  else
    records = context.memory.list({ filter = { kind = "fact" }, order = "-created", limit = math.floor(params.limit) }).items
    total = #records
  end
  local memories = json.array({})
  for _, record in ipairs(records) do
    memories[#memories + 1] = {
      id = shared.name(record),
      content = record.text,
      metadata = record.metadata,
      timestamp = shared.moment(record),
      sessionId = record.session or json.null,
    }
  end
  return { memories = memories, total = total }
end
