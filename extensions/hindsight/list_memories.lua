-- What is in the bank, newest first, a page at a time.
tool = {
  name = "list_memories",
  description = "List the memories of this bank, newest first",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      limit = { type = "integer", minimum = 1, maximum = 1000, default = 50, description = "Memories on a page" },
      cursor = { type = "string", description = "The cursor of the page before" },
      type = { type = "string", description = "Only memories of this type" },
      context = { type = "string", description = "Only memories of this context" },
      tags = { type = "array", items = { type = "string" }, description = "Only memories with any of these tags" },
      since = { type = "string", description = "Only what was said since (ISO 8601)" },
      ["until"] = { type = "string", description = "Only what was said until (ISO 8601)" },
      as_of = { type = "string", description = "What held at that time (ISO 8601)" },
      include_superseded = { type = "boolean", default = false, description = "Also what a later statement replaced" },
    },
  },
}

function tool.execute(params, context)
  local filter = shared.admit_kinds({ kind = "fact" }, params.type and { params.type }, params.context)
  if params.tags and #params.tags > 0 then filter.tags = { has_any = params.tags } end
  if params.since or params["until"] then filter.timestamp = { gte = params.since, lte = params["until"] } end
  local page = context.memory.list({
    filter = filter,
    order = "-timestamp",
    limit = params.limit,
    cursor = params.cursor,
    as_of = params.as_of,
    include_superseded = params.include_superseded,
  })
  local memories = json.array({})
  for _, record in ipairs(page.items) do
    memories[#memories + 1] = {
      id = record.aliases.hindsight,
      text = record.text,
      type = record.type or "world",
      context = record.context or "general",
      tags = json.array(record.tags),
      flags = json.array(record.flags),
      said = record.said,
      happened = record.happened or json.null,
      superseded_by = record.superseded_by or json.null,
    }
  end
  return {
    memories = memories,
    total = context.memory.count({ filter = filter, as_of = params.as_of, include_superseded = params.include_superseded }),
    cursor = page.cursor or json.null,
  }
end
