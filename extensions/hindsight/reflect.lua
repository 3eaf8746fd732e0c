-- Organises the evidence for a question: findings with counts, conflicts, a timeline, gaps. It quotes and counts; it does not reason.
tool = {
  name = "reflect",
  title = "Reflect",
  description = "Synthesize stored memories into a cited answer: patterns with how often they occur, conflicts, a timeline and gaps",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      query = { type = "string", minLength = 1, description = "The question or topic to reflect on" },
      context = { type = "string", description = "Optional context about why this reflection is needed" },
      as_of = { type = "string", description = "What held at that time (ISO 8601)" },
      budget = { type = "string", enum = { "low", "mid", "high" }, default = "low", description = "Search budget" },
    },
    required = { "query" },
  },
}

local fact = shared.fact

function tool.execute(params, context)
  local said = context.memory.synthesize(params.query, {
    budget = params.budget,
    context = params.context,
    filter = { kind = "fact" },
    as_of = params.as_of,
  })
  for _, entry in ipairs(said.based_on) do entry.id = fact(entry.id) end
  for _, entry in ipairs(said.nearest or {}) do entry.id = fact(entry.id) end
  for _, entry in ipairs(said.timeline) do entry.id = fact(entry.id) end
  for _, finding in ipairs(said.findings) do
    for place, id in ipairs(finding.ids) do finding.ids[place] = fact(id) end
  end
  for _, conflict in ipairs(said.conflicts) do
    conflict.older.id, conflict.newer.id = fact(conflict.older.id), fact(conflict.newer.id)
  end
  if said.recommendation then
    for place, id in ipairs(said.recommendation.ids) do said.recommendation.ids[place] = fact(id) end
  end
  said.as_of = nil -- the moment of asking: without it the same memories give the same bytes
  return said
end
