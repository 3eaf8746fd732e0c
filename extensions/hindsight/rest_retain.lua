-- POST .../memories: stores the items, all or none.
tool = {
  name = "rest_retain",
  description = "Hindsight's retain over REST",
  parameters = {
    type = "object",
    properties = {
      items = {
        type = "array",
        minItems = 1,
        items = {
          type = "object",
          properties = {
            content = { type = { "string", "array" }, minLength = 1, minItems = 1, items = { type = "object" } },
            timestamp = { type = "string", description = "When it was said; 'unset': now" },
            context = { type = "string" },
            metadata = { type = "object" },
            document_id = { type = "string" },
            tags = { type = "array", items = { type = "string" } },
            entities = { type = "array", items = { type = "object", required = { "text" } } },
            resolve_entities = { type = "boolean", description = "Names are kept as they are given, either way" },
            supersedes = shared.SUPERSEDES,
            update_mode = { type = "string", enum = { "append", "replace" }, description = "replace: what the document said before is forgotten" },
          },
          required = { "content" },
          additionalProperties = false,
        },
      },
      async = { type = "boolean", description = "It is stored when the reply is sent, either way" },
      document_tags = { type = "array", items = { type = "string" } },
      operation_id = { type = "string", minLength = 1, maxLength = 180, description = "The same id again stores nothing again" },
    },
    required = { "items" },
  },
}

local function joined(...)
  local tags = json.array({})
  for _, list in ipairs({ ... }) do
    for _, tag in ipairs(list) do tags[#tags + 1] = tag end
  end
  return tags
end

function tool.execute(params, context)
  local function key(part) return params.operation_id and params.operation_id .. ":" .. part end
  local replaced = {}
  for place, item in ipairs(params.items) do
    local document = item.document_id
    if item.update_mode == "replace" and document and not replaced[document] then
      replaced[document] = true
      context.memory.delete_where({
        filter = { kind = "fact", document_id = document },
        reason = "replaced",
        idempotency_key = key("replaced:" .. place),
      })
    end
  end
  local similar, superseded, own = {}, {}, {}
  for place, item in ipairs(params.items) do
    local metadata = item.metadata or {}
    if item.entities and #item.entities > 0 then
      metadata.entities = json.array({})
      for _, entity in ipairs(item.entities) do metadata.entities[#metadata.entities + 1] = entity.text end
    end
    local stored = context.memory.put({
      text = shared.text_of(item.content),
      context = item.context,
      type = "world",
      timestamp = item.timestamp ~= "unset" and item.timestamp or nil,
      metadata = metadata,
      document_id = item.document_id,
      tags = joined(item.tags or {}, params.document_tags or {}),
      supersedes = item.supersedes,
      idempotency_key = key(place),
    })
    own[stored.id] = true
    for _, older in ipairs(stored.superseded) do superseded[#superseded + 1] = older end
    for _, memory in ipairs(stored.similar) do
      if not own[memory.id] then similar[#similar + 1] = memory end -- of an item of this request says nothing
    end
  end
  local function name(id) return id end
  return {
    success = true,
    bank_id = context.bank.id,
    items_count = #params.items,
    async = false,
    operation_id = params.operation_id or json.null,
    similar = shared.named(similar, name),
    superseded = shared.named(superseded, name),
  }
end
