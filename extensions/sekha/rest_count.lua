-- GET /api/v1/conversations/count?label=&folder=
tool = {
  name = "rest_count",
  description = "How many conversations there are, over Sekha's REST",
  parameters = { type = "object", properties = { label = { type = "string" }, folder = { type = "string" } } },
}

function tool.execute(params, context)
  return { count = context.memory.count({ filter = shared.chosen(params) }), label = params.label or json.null, folder = params.folder or json.null }
end
