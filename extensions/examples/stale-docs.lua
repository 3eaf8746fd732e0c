-- Which documents nobody has touched for long, oldest first. Name it in ctx.toml to serve it:
--   [tools.script.stale-docs]
--   path = "./tools/stale-docs.lua"
--   months = 12
tool = {
  name = "stale-docs",
  description = "List documents on a topic that have not changed for a while, oldest first: candidates for review or removal",
  annotations = { read_only = true, open_world = false },
  parameters = {
    { name = "topic", type = "string", required = true, description = "What the documents are about" },
    { name = "months", type = "integer", minimum = 1, maximum = 240, description = "How long ago they changed last (default 6)" },
    { name = "source", type = "string", description = "Only this source, by name or type" },
  },
}

local MONTH_S = 30 * 24 * 3600

function tool.execute(params, context)
  local months = params.months or tonumber(context.config.months) or 6
  local before = os.date("!%Y-%m-%dT%H:%M:%SZ", os.time() - months * MONTH_S)
  local hits = context.search(params.topic, { mode = "hybrid", limit = 50, source = params.source, ["until"] = before })
  table.sort(hits, function(a, b)
    if a.updated_at ~= b.updated_at then return a.updated_at < b.updated_at end
    return a.source_id < b.source_id
  end)
  local documents = json.array({})
  for _, hit in ipairs(hits) do
    documents[#documents + 1] = { id = hit.id, title = hit.title, source_id = hit.source_id, updated_at = hit.updated_at }
  end
  log.info(("%d documents on '%s' are older than %s"):format(#documents, params.topic, before))
  return { before = before, count = #documents, documents = documents }
end
