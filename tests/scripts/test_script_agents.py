"""Agents: inline and in Lua."""

from pathlib import Path

import pytest
from faults import serving
from kit import workspace
from script_kit import configured

from ctx.models import JSON, Caller

CALLER = Caller("cli")

PLANNER = """
agent = {
  name = "other-name",
  description = "Plans work",
  tools = { "search", "get" },
  arguments = { { name = "task", description = "What to plan", required = true }, { name = "depth" } },
}
function agent.resolve(args, config, context)
  local hits = context.search(args.task, { mode = "hybrid", limit = 3 })
  return {
    system = ("%s %s; %d found"):format(config.voice or "Plan", args.task, #hits),
    tools = { "search" },
    messages = { { role = "assistant", content = "Ready." }, { content = "Go." } },
  }
end
"""


def agent(body: str, fields: str = "") -> str:
    return f"agent = {{ {fields} }}\nfunction agent.resolve(args, config, context)\n  {body}\nend\n"


def configure(folder: Path, **scripts: str) -> Path:
    (folder / "agents").mkdir()
    tables = []
    for name, text in scripts.items():
        (folder / "agents" / f"{name}.lua").write_text(text)
        tables.append(f'[agents.script.{name}]\npath = "./agents/{name}.lua"\ntimeout = 1.0')
    tables.append('voice = "Consider"' if scripts else "")  # of the last one
    inline = (
        '[agents.inline.reviewer]\ndescription = "Reviews"\ntools = ["search"]\nsystem_prompt = "You review '
        'code."'
    )
    return configured(folder, "\n".join([*tables, inline]))


@pytest.mark.slow
def test_agents_are_listed_and_resolved_over_http(tmp_path: Path) -> None:
    config = configure(tmp_path, broken="agent = {", loops=agent("while true do end"), planner=PLANNER)
    with serving(config) as server:

        def prompt(name: str, arguments: JSON) -> tuple[int, JSON]:
            return server.post(f"/agents/{name}/prompt", arguments)

        listed = {entry["name"]: entry for entry in server.get("/agents/list")["agents"]}
        assert set(listed) == {"reviewer", "loops", "planner"}
        assert listed["reviewer"] == {
            "name": "reviewer",
            "description": "Reviews",
            "tools": ["search"],
            "source": "toml",
            "arguments": [],
        }
        assert listed["planner"] == {
            "name": "planner",
            "description": "Plans work",
            "tools": ["search", "get"],
            "source": "lua",
            "arguments": [
                {"name": "task", "description": "What to plan", "required": True},
                {"name": "depth", "description": "", "required": False},
            ],
        }

        assert prompt("reviewer", {}) == (
            200,
            {"system": "You review code.", "tools": ["search"], "messages": []},
        )
        status, body = prompt("planner", {"task": "release token"})
        assert status == 200
        assert body["system"].startswith("Consider release token; ")
        assert (body["tools"], body["messages"]) == (
            ["search"],
            [{"role": "assistant", "content": "Ready."}, {"role": "user", "content": "Go."}],
        )
        assert prompt("planner", {})[0] == 400
        assert prompt("nobody", {})[0] == 404
        assert prompt("loops", {})[0] == 408
        assert prompt("broken", {})[0] == 500


@pytest.mark.parametrize(
    ("body", "tools", "messages"),
    [
        ('return { system = "s" }', ("search",), ()),
        (
            'return { system = "s", messages = { { content = { type = "text", text = "c" } }, { content = 5 '
            "} } }",
            ("search",),
            ({"role": "user", "content": "c"}, {"role": "user", "content": "5"}),
        ),
    ],
)
def test_the_declared_tools_are_the_answer_where_resolve_gives_none(
    tmp_path: Path, body: str, tools: JSON, messages: JSON
) -> None:
    with workspace(configure(tmp_path, a=agent(body, 'tools = { "search" }'))) as space:
        _ = space.scripts
        prompt = space.agents.prompt("a", {}, CALLER)
        assert (prompt.system, prompt.tools, prompt.messages) == ("s", tools, messages)
        assert space.agents.list()[0].tools == ("search",)
