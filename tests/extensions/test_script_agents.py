"""Agents: inline and in Lua, over REST, MCP and the command line."""

from pathlib import Path

import pytest
from kit import workspace
from running import Running, configured

from ctx.errors import BadRequest, NotFound, ScriptTimeout, ToolError
from ctx.types import JSON, Caller

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


def prompt(server: Running, name: str, arguments: JSON) -> tuple[int, JSON]:
    answer = server.ask("POST", f"/agents/{name}/prompt", arguments)
    return answer.status, answer.body


def rpc(server: Running, method: str, params: JSON) -> JSON:
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return server.ask("POST", "/mcp", request).body["result"]


@pytest.mark.slow
def test_agents_are_listed_and_resolved_over_http(tmp_path: Path) -> None:
    configure(tmp_path, broken="agent = {", loops=agent("while true do end"), planner=PLANNER)
    with Running(tmp_path) as server:
        listed = {entry["name"]: entry for entry in server.ask("GET", "/agents/list").body["agents"]}
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

        assert prompt(server, "reviewer", {}) == (
            200,
            {"system": "You review code.", "tools": ["search"], "messages": []},
        )
        status, body = prompt(server, "planner", {"task": "release token"})
        assert status == 200
        assert body["system"].startswith("Consider release token; ")
        assert (body["tools"], body["messages"]) == (
            ["search"],
            [{"role": "assistant", "content": "Ready."}, {"role": "user", "content": "Go."}],
        )
        assert prompt(server, "planner", {})[0] == 400
        assert prompt(server, "nobody", {})[0] == 404
        assert prompt(server, "loops", {})[0] == 408
        assert prompt(server, "broken", {})[0] == 500


@pytest.mark.slow
def test_an_agent_is_a_prompt_over_mcp(tmp_path: Path) -> None:
    configure(tmp_path, planner=PLANNER)
    with Running(tmp_path) as server:
        prompts = {entry["name"]: entry for entry in rpc(server, "prompts/list", {})["prompts"]}
        assert {"reviewer", "planner"} <= set(prompts)
        assert prompts["planner"]["arguments"][0]["required"] is True
        messages = rpc(server, "prompts/get", {"name": "planner", "arguments": {"task": "release"}})[
            "messages"
        ]
        assert [message["role"] for message in messages] == ["user", "assistant", "user"]
        assert messages[0]["content"]["text"].startswith("Consider release")


def test_an_edited_agent_counts_and_a_broken_edit_does_not(tmp_path: Path) -> None:
    configure(tmp_path, planner=PLANNER)
    with Running(tmp_path) as server:
        (tmp_path / "agents" / "planner.lua").write_text(agent('return { system = "edited" }'))
        assert prompt(server, "planner", {})[1]["system"] == "edited"
        (tmp_path / "agents" / "planner.lua").write_text("agent = {")
        assert prompt(server, "planner", {})[1]["system"] == "edited"


@pytest.mark.parametrize(
    ("body", "tools", "messages"),
    [
        ('return { system = "s" }', ("search",), ()),
        ('return { system = "s", tools = {} }', (), ()),
        ('return { system = "s", tools = { "a", 1, "b" } }', ("a", "b"), ()),
        (
            'return { system = "s", messages = { { content = { type = "text", text = "c" } }, { content = 5 '
            "} } }",
            ("search",),
            ({"role": "user", "content": "c"}, {"role": "user", "content": "5"}),
        ),
        (
            'return { system = "s", messages = { "x", { content = "c" } } }',
            ("search",),
            ({"role": "user", "content": "c"},),
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


@pytest.mark.parametrize(
    "body", ["return nil", 'return "text"', "return {}", "return { system = 7 }", 'error("no")']
)
def test_an_agent_that_gives_no_prompt_is_an_error_of_its_script(tmp_path: Path, body: str) -> None:
    with workspace(configure(tmp_path, a=agent(body))) as space:
        _ = space.scripts
        with pytest.raises(ToolError):
            space.agents.prompt("a", {}, CALLER)


def test_an_agent_whose_field_can_only_be_a_slip_does_not_load(tmp_path: Path) -> None:
    slip = 'arguments = { { name = "topic", requird = true } }'
    with workspace(configure(tmp_path, a=agent('return { system = "s" }', slip))) as space:
        _ = space.scripts
        with pytest.raises(
            ToolError, match="argument 'topic' has the unknown field 'requird'; did you mean 'required'"
        ):
            space.agents.prompt("a", {}, CALLER)


def test_errors_of_agents_are_told_by_type(tmp_path: Path) -> None:
    with workspace(
        configure(tmp_path, late=agent('error("timed out")'), loops=agent("while true do end"))
    ) as space:
        _ = space.scripts
        with pytest.raises(ToolError):
            space.agents.prompt("late", {}, CALLER)
        with pytest.raises(ScriptTimeout):
            space.agents.prompt("loops", {}, CALLER)
        with pytest.raises(NotFound):
            space.agents.prompt("nobody", {}, CALLER)
        with pytest.raises(BadRequest):
            space.agents.prompt("loops", [], CALLER)


def test_an_agent_without_its_function_does_not_load(tmp_path: Path) -> None:
    with workspace(configure(tmp_path, a='agent = { description = "x" }')) as space:
        assert "does not define the function" in (space.scripts.statuses()[0].error or "")


def test_of_two_agents_of_one_name_the_script_is_the_one_that_fails(tmp_path: Path) -> None:
    config = configure(tmp_path, reviewer=agent('return { system = "s" }'))
    with workspace(config) as space:
        (status,) = space.scripts.statuses()
        assert not status.serving
        assert "two agents are called 'reviewer': the configuration and " in (status.error or "")
        assert "agents/reviewer.lua" in (status.error or "")
        assert [entry.source for entry in space.agents.list()] == ["toml"]


def test_a_message_whose_content_is_no_text_is_the_scripts_error(tmp_path: Path) -> None:
    configure(
        tmp_path, image=agent('return { system = "s", messages = { { content = { type = "image" } } } }')
    )
    with Running(tmp_path) as server:
        status, reply = prompt(server, "image", {})
        assert (status, reply["error"]["code"]) == (500, "tool_error")
        assert "agent 'image': the content of a message must be a text" in reply["error"]["message"]
