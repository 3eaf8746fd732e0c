-- DELETE .../documents/{document_id}: forgets a document's memories; they can be brought back.
tool = {
  name = "rest_document_delete",
  description = "Forget a document over Hindsight's REST",
  parameters = { type = "object", properties = { document_id = { type = "string" } }, required = { "document_id" } },
}

function tool.execute(params, context)
  shared.document(params.document_id, context)
  local deleted = context.memory.delete_where({ filter = { kind = "fact", document_id = params.document_id }, reason = "rest" })
  return {
    success = true,
    message = "Document forgotten",
    document_id = params.document_id,
    memory_units_deleted = deleted.count,
    op_id = deleted.op_id or json.null,
  }
end
