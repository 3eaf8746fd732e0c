-- An answer from many memories: the configured language model's with citations, else dated quotes.
tool = {
  name = "reflect",
  title = "Reflect",
  description = "Answer a question from many stored memories, with citations",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      query = { type = "string", minLength = 1, description = "The question or topic to reflect on" },
      context = { type = "string", description = "Optional context about why this reflection is needed" },
      as_of = { type = "string", description = "What held at that time (ISO 8601)" },
      budget = { type = "string", enum = { "low", "mid", "high" }, default = "low", description = "How many memories are read: 8, 30 or 60" },
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
  return said
end
