-- GET .../documents/{document_id}/chunks: the memories of a document in the order in which they were retained.
tool = {
  name = "rest_document_chunks",
  description = "A document's texts over Hindsight's REST",
  parameters = {
    type = "object",
    properties = {
      document_id = { type = "string" },
      limit = { type = "integer", minimum = 1, maximum = 1000, default = 100 },
      offset = { type = "integer", minimum = 0, maximum = 100000, default = 0 },
    },
    required = { "document_id" },
  },
}

function tool.execute(params, context)
  local records = shared.records_of(params.document_id, context)
  local items = json.array({})
  for number = params.offset + 1, math.min(#records, params.offset + params.limit) do
    local record = records[number]
    items[#items + 1] = {
      chunk_id = record.id,
      document_id = params.document_id,
      bank_id = context.bank.id,
      chunk_index = number - 1,
      chunk_text = record.text,
      created_at = time.iso(record.created),
    }
  end
  return { items = items, total = #records, limit = params.limit, offset = params.offset }
end
