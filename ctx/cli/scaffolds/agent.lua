-- {{title}}: an agent. `ctx agent test {{path}} topic=releases` resolves it;
-- name it in ctx.toml to serve it:
--   [agents.script.{{name}}]
--   path = "{{path}}"
agent = {
  name = "{{name}}",
  description = "Say what this agent helps with",
  tools = { "search", "get" },
  arguments = {
    { name = "topic", description = "What it is about", required = true },
  },
}

function agent.resolve(args, config, context)
  local lines = { "You help with " .. args.topic .. ". Search before you answer, and cite what you found." }
  for _, hit in ipairs(context.search(args.topic, { mode = "hybrid", limit = 5 })) do
    lines[#lines + 1] = "- " .. hit.title .. " (" .. hit.id .. ")"
  end
  return {
    system = table.concat(lines, "\n"),
    tools = { "search", "get" },
    messages = { { role = "user", content = "Begin with what is known about " .. args.topic .. "." } },
  }
end
