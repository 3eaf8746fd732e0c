-- {{title}}: a tool. `ctx tool test {{path}}` runs it; docs/lua-api.md lists what a script may call.
tool = {
  name = "{{name}}",
  description = "Say in one sentence what this tool does and when to use it",
  annotations = { read_only = true },
  parameters = {
    { name = "query", type = "string", required = true, minLength = 1, description = "What to look for" },
    { name = "limit", type = "integer", default = 5, description = "How many documents" },
  },
}

function tool.execute(params, context)
  local hits = context.search(params.query, { mode = "hybrid", limit = params.limit })
  local titles = json.array({})
  for _, hit in ipairs(hits) do
    titles[#titles + 1] = hit.title
  end
  log.info("found " .. #hits .. " documents")
  return { query = params.query, titles = titles }
end
