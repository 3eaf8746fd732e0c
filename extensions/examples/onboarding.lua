-- An agent that introduces somebody to a subject from the indexed documents. Name it in ctx.toml to serve it:
--   [agents.script.onboarding]
--   path = "./agents/onboarding.lua"
--   team = "Platform"
agent = {
  name = "onboarding",
  description = "Introduces a newcomer to a subject, from the indexed documents and with sources",
  tools = { "search", "get", "sources" },
  arguments = {
    { name = "subject", description = "What to learn about", required = true },
    { name = "role", description = "Who asks, for example 'backend engineer'" },
  },
}

function agent.resolve(args, config, context)
  local hits = context.search(args.subject, { mode = "hybrid", limit = 6 })
  local reading = {}
  for number, hit in ipairs(hits) do
    local place = hit.heading ~= "" and hit.heading or hit.title
    reading[number] = ("%d. %s, section '%s' (id %s, changed %s)"):format(number, hit.title, place, hit.id, hit.updated_at:sub(1, 10))
  end
  local found = #reading > 0 and table.concat(reading, "\n") or "Nothing is indexed on this subject; say so before anything else."
  local system = ([[
You introduce %s to "%s"%s.
Explain the idea first, then how it is done here, then where it goes wrong. Use `get` to read a document before you rely on it, and
name the document behind every claim. Where the documents disagree, the newer one is likely right: say that they disagree.

Read first:
%s]]):format(args.role or "a newcomer", args.subject, config.team and (" in the " .. config.team .. " team") or "", found)
  return {
    system = system,
    tools = agent.tools,
    messages = { { role = "user", content = "Introduce me to " .. args.subject .. "." } },
  }
end
