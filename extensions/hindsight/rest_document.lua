-- GET .../documents/{document_id}: what was retained under a document's id, as one text.
tool = {
  name = "rest_document",
  description = "One document over Hindsight's REST",
  parameters = { type = "object", properties = { document_id = { type = "string" } }, required = { "document_id" } },
}

function tool.execute(params, context) return shared.document(params.document_id, context) end
