-- PATCH .../documents/{document_id}: the tags of a document are those of its memories.
tool = {
  name = "rest_document_update",
  description = "Change a document's tags over Hindsight's REST",
  parameters = {
    type = "object",
    properties = { document_id = { type = "string" }, tags = { type = "array", items = { type = "string" } } },
    required = { "document_id", "tags" },
  },
}

function tool.execute(params, context)
  for _, record in ipairs(shared.records_of(params.document_id, context)) do
    context.memory.update(record.id, { tags = json.array(params.tags) })
  end
  return { success = true }
end
