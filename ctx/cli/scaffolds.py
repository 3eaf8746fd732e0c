"""The scripts that `ctx tool init`, `ctx connector init` and `ctx agent init` write: each runs as generated.
And a registry of such scripts, for `ctx registry init`.
"""

from ctx.toml import toml_value

TOOL = """-- {title}: a tool. `ctx tool test {path}` runs it; docs/lua-api.md lists what a script may call.
tool = {{
  name = "{name}",
  description = "Say in one sentence what this tool does and when to use it",
  annotations = {{ read_only = true }},
  parameters = {{
    {{ name = "query", type = "string", required = true, minLength = 1, description = "What to look for" }},
    {{ name = "limit", type = "integer", default = 5, description = "How many documents" }},
  }},
}}

function tool.execute(params, context)
  local hits = context.search(params.query, {{ mode = "hybrid", limit = params.limit }})
  local titles = json.array({{}})
  for _, hit in ipairs(hits) do
    titles[#titles + 1] = hit.title
  end
  log.info("found " .. #hits .. " documents")
  return {{ query = params.query, titles = titles }}
end
"""

CONNECTOR = """-- {title}: a connector. `ctx connector test {path}` runs it;
-- name it in ctx.toml to index what it yields:
--   [connectors.script.{name}]
--   path = "{path}"
connector = {{
  name = "{name}",
  description = "Say where the documents come from",
}}

function connector.scan(config)
  local items = {{}}
  for number = 1, tonumber(config.count or 2) do
    items[#items + 1] = {{
      source_id = "example-" .. number,
      title = "Example " .. number,
      body = "The text of example " .. number .. ".",
      source_url = "https://example.com/" .. number,
      updated_at = "2026-01-01T00:00:00Z",
      metadata = {{ number = number }},
    }}
  end
  return items
end
"""

AGENT = """-- {title}: an agent. `ctx agent test {path} topic=releases` resolves it;
-- name it in ctx.toml to serve it:
--   [agents.script.{name}]
--   path = "{path}"
agent = {{
  name = "{name}",
  description = "Say what this agent helps with",
  tools = {{ "search", "get" }},
  arguments = {{
    {{ name = "topic", description = "What it is about", required = true }},
  }},
}}

function agent.resolve(args, config, context)
  local lines = {{ "You help with " .. args.topic .. ". Search before you answer, and cite what you found." }}
  for _, hit in ipairs(context.search(args.topic, {{ mode = "hybrid", limit = 5 }})) do
    lines[#lines + 1] = "- " .. hit.title .. " (" .. hit.id .. ")"
  end
  return {{
    system = table.concat(lines, "\\n"),
    tools = {{ "search", "get" }},
    messages = {{ {{ role = "user", content = "Begin with what is known about " .. args.topic .. "." }} }},
  }}
end
"""

_MANIFEST = """# What this registry offers. `path` is the script; a folder of its own (NAME/tool.lua) goes
# with it.
[registry]
name = {name}
description = "Say what these scripts have in common"

[tools.hello]
path = "tools/hello/tool.lua"
description = "Say in one sentence what this tool does"
tags = ["example"]

[connectors.hello]
path = "connectors/hello/connector.lua"
description = "Say where the documents come from"
required_config = ["count"]  # keys that whoever uses it has to give

[agents.hello]
path = "agents/hello/agent.lua"
description = "Say what this agent helps with"
"""

_README = """# {name}

Lua scripts for [ctx](https://github.com/ctx-server/ctx):
`ctx registry install NAME ADDRESS-OF-THIS-REPOSITORY`, then `ctx registry list NAME`.
Each script lies in a folder of its own, with the files that it reads.
"""


def registry(name: str) -> dict[str, str]:
    """A registry to begin with: path -> text."""
    scripts = {"tool": TOOL, "connector": CONNECTOR, "agent": AGENT}
    files = {
        f"{kind}s/hello/{kind}.lua": text.format(
            name="hello", title="hello", path=f"{kind}s/hello/{kind}.lua"
        )
        for kind, text in scripts.items()
    }
    return {
        "registry.toml": _MANIFEST.format(name=toml_value(name)),
        "README.md": _README.format(name=name),
        **files,
    }
