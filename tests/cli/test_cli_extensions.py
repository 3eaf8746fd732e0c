"""`ctx tool`, `ctx connector` and `ctx agent`, as typed."""

import json
import subprocess
from pathlib import Path

import pytest
from kit import ctx, named, project

from ctx.models import JSON

CONFIG = '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'
ECHO = """
tool = { description = "Echoes", parameters = { { name = "n", type = "integer", required = true }, { name = "m", default = "x" } } }
function tool.execute(params, context)
  log.info("echoing")
  return { n = params.n, m = params.m, greeting = context.config.greeting, token = env.get("ECHO_TOKEN") }
end
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project(tmp_path, {"auth.md": "# Authentication\n\nTokens are rotated by the platform team.\n"}, CONFIG)
    return tmp_path


def typed(
    *arguments: str, folder: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What the command does for a user who names the folder's configuration."""
    return ctx(*arguments, cwd=folder, env=named(folder / "ctx.toml") | (env or {}))


def answer(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> dict[str, JSON]:
    run = typed(*arguments, "--json", folder=folder, env=env)
    assert run.returncode == 0, run.stderr
    reply: dict[str, JSON] = json.loads(run.stdout)
    return reply


@pytest.mark.slow
def test_scaffolds_run_as_generated(folder: Path) -> None:
    assert typed("index", folder=folder).returncode == 0
    for kind, name in (("tool", "my_search"), ("connector", "tickets"), ("agent", "guide")):
        run = typed(kind, "init", name, folder=folder)
        assert run.returncode == 0, run.stderr
        second = typed(kind, "init", name, folder=folder)
        assert second.returncode == 2
        assert "nothing was written" in second.stderr
    reply = answer(folder, "tool", "test", "tools/my-search.lua", "--param", "query=tokens")
    assert reply == {"query": "tokens", "titles": ["Authentication"]}
    reply = answer(folder, "connector", "test", "connectors/tickets.lua", "--param", "count=7")
    assert reply["items"] == 7
    assert len(reply["first"]) == 5
    assert reply["problems"] == []
    reply = answer(folder, "agent", "test", "agents/guide.lua", "--arg", "topic=tokens")
    assert "Authentication" in str(reply["system"])
    assert reply["tools"] == ["search", "get"]
    # And once more as a server would have them.
    (folder / "ctx.toml").write_text(
        CONFIG + '[tools.script.my-search]\npath = "./tools/my-search.lua"\n[agents.script.guide]\npath = '
        '"./agents/guide.lua"\n' + '[connectors.script.tickets]\npath = "./connectors/tickets.lua"\n'
    )
    assert answer(folder, "tool", "call", "my-search", "--param", "query=tokens")["titles"] == [
        "Authentication"
    ]
    assert [entry["name"] for entry in answer(folder, "agent", "list")["agents"]] == ["guide"]
    assert typed("index", "script:tickets", folder=folder).returncode == 0
    assert "example-1" in typed("search", "example", "--source", "script", "--json", folder=folder).stdout


def test_the_tools_that_an_agent_names_drive_no_terminal(folder: Path) -> None:
    (folder / "guide.lua").write_text(
        'agent = { name = "guide", description = "d" }\n'
        'function agent.resolve() return { system = "s", tools = { "\\27[31mred\\nsearch" } } end\n'
    )
    reply = typed("agent", "test", "guide.lua", folder=folder)
    assert reply.returncode == 0
    assert "tools: \\x1b[31mred\\nsearch\n" in reply.stdout


def test_a_test_has_what_the_configuration_gives_the_script(folder: Path) -> None:
    (folder / "echo.lua").write_text(ECHO)
    reply = answer(folder, "tool", "test", "echo.lua", "--param", "n=1")
    assert reply == {"n": 1, "m": "x"}
    (folder / "ctx.toml").write_text(
        CONFIG + '[tools.script.e]\npath = "./echo.lua"\ngreeting = "hi"\nenv = ["ECHO_TOKEN"]\n'
    )
    reply = answer(
        folder, "tool", "test", "echo.lua", "--param", "n=1", "--param", "m=[1", env={"ECHO_TOKEN": "t"}
    )
    assert reply == {"n": 1, "m": "[1", "greeting": "hi", "token": "t"}
    run = typed("tool", "call", "e", "--param", "n=2", folder=folder)
    assert json.loads(run.stdout)["n"] == 2
    assert "echoing" in typed("tool", "test", "echo.lua", "--param", "n=1", folder=folder).stderr


def test_a_test_may_call_the_tools_that_the_script_may_call(folder: Path) -> None:
    (folder / "asks.lua").write_text(
        'tool = { description = "Asks another" }\n'
        'function tool.execute(params, context) return context.call("echo", { n = 4 }) end\n'
    )
    (folder / "echo.lua").write_text(ECHO)
    (folder / "ctx.toml").write_text(
        CONFIG + '[tools.script.echo]\npath = "echo.lua"\n'
        '[tools.script.asks]\npath = "asks.lua"\ncalls = ["echo"]\n'
    )
    assert answer(folder, "tool", "test", "asks.lua") == {"n": 4, "m": "x"}


def test_the_values_of_a_test_need_no_option(folder: Path) -> None:
    (folder / "guide.lua").write_text(
        "agent = { description = 'd', arguments = { { name = 'topic' } } }\n"
        "function agent.resolve(args) return { system = 'On ' .. args.topic } end\n"
    )
    assert answer(folder, "agent", "test", "guide.lua", "topic=tea")["system"] == "On tea"
    (folder / "few.lua").write_text(
        "connector = { description = 'd' }\n"
        "function connector.scan(config) emit({ source_id = config.first, body = 'text' }) end\n"
    )
    (item,) = answer(folder, "connector", "test", "few.lua", "first=A-1")["first"]
    assert item["source_id"] == "A-1"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("tool", "call", "echo"), 2, "missing required parameter: n"),
        (("tool", "call", "echo", "--param", "n=x"), 2, "must be of type 'integer'"),
        (("tool", "call", "broken"), 5, "did not load"),
        (("tool", "call", "late"), 5, "timed out"),
        (("connector", "test", "scripts/failing.lua"), 1, "the API is down"),
    ],
)
def test_what_goes_wrong_is_said_in_a_line_and_an_exit_code(
    folder: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    scripts = folder / "scripts"
    scripts.mkdir()
    (scripts / "echo.lua").write_text(ECHO)
    (scripts / "broken.lua").write_text("tool = {")
    (scripts / "late.lua").write_text("tool = {} function tool.execute() while true do end end")
    (scripts / "failing.lua").write_text(
        'connector = {} function connector.scan() error("the API is down") end'
    )
    names = "\n".join(
        f'[tools.script.{n}]\npath = "./scripts/{n}.lua"\ntimeout = 0.5' for n in ("echo", "broken", "late")
    )
    (folder / "ctx.toml").write_text(CONFIG + names)
    run = typed(*arguments, folder=folder)
    assert run.returncode == code, run.stderr
    assert said in run.stderr
    assert "Traceback" not in run.stderr


def test_the_list_and_the_doctor_show_what_did_not_load(folder: Path) -> None:
    (folder / "tools").mkdir()
    (folder / "tools" / "good.lua").write_text(ECHO)
    (folder / "tools" / "bad.lua").write_text("tool = {")
    (folder / "ctx.toml").write_text(CONFIG + '[lua]\ntools_dir = "./tools"\n')
    reply = answer(folder, "tool", "list")
    assert [tool["name"] for tool in reply["tools"]][:3] == ["search", "get", "outline"]
    failed = reply["failed"][0]
    assert (failed["name"], failed["file"], failed["serving"]) == ("bad", "tools/bad.lua", False)
    listing = typed("tool", "list", folder=folder)
    assert "good" in listing.stdout
    assert "FAILED bad (tools/bad.lua): syntax" in listing.stderr
    doctor = typed("doctor", "--json", folder=folder)
    assert doctor.returncode == 1
    findings = json.loads(doctor.stdout)["findings"]
    layers = [row["detail"] for row in findings if row["what"] == "sandbox layer"]
    assert any(detail.startswith("system call filter: holds") for detail in layers) or any(
        "missing" in detail for detail in layers
    )
    assert [f["what"] for f in findings if f["what"] == "lua sandbox"] == ["lua sandbox"]
    assert [f["state"] for f in findings if f["what"] == "tool"] == ["failed"]


def test_two_tools_of_one_name_are_one_tool_and_one_failure(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "echo.lua").write_text(ECHO)
    (folder / "ctx.toml").write_text(
        CONFIG + '[lua]\ntools_dir = "./a"\n[tools.script.echo]\npath = "./b/echo.lua"\n'
    )
    (failure,) = answer(folder, "tool", "list")["failed"]
    assert failure["file"] == "a/echo.lua"
    assert "two tools are called 'echo': b/echo.lua and a/echo.lua" in failure["error"]
    assert answer(folder, "tool", "call", "echo", "--param", "n=3")["n"] == 3


@pytest.mark.slow
def test_the_tools_of_packs_are_listed_called_and_described(folder: Path) -> None:
    (folder / "tools").mkdir()
    (folder / "tools" / "retain.lua").write_text(ECHO)
    (folder / "ctx.toml").write_text(
        CONFIG + '[lua]\ntools_dir = "./tools"\n[packs]\nenabled = ["hindsight"]\n'
    )
    listing = answer(folder, "tool", "list")
    assert "retain" in [tool["name"] for tool in listing["tools"]]
    (failure,) = listing["failed"]  # of two tools of one name, the script is the one that fails
    assert (failure["name"], "the pack hindsight" in failure["error"]) == ("retain", True)
    run = typed("tool", "call", "retain", "--param", "content=Zoë likes tea", folder=folder)
    assert run.returncode == 0, run.stderr
    paths = json.loads(typed("openapi", folder=folder).stdout)["paths"]
    assert "/tools/retain" in paths


def test_an_agent_that_names_no_tool_is_told_of(folder: Path) -> None:
    (folder / "ctx.toml").write_text(
        CONFIG + '[agents.inline.reviewer]\nsystem_prompt = "s"\ntools = ["serch", "get"]\n'
    )
    findings = answer(folder, "doctor")["findings"]
    (doubt,) = [row for row in findings if row["what"] == "setting"]
    assert doubt["state"] == "warning"
    assert "agent 'reviewer': there is no tool 'serch'" in doubt["detail"]
    assert "did you mean 'search'?" in doubt["detail"]


@pytest.mark.parametrize("kind", ["tool", "connector", "agent"])
def test_a_folder_that_is_a_link_is_not_written_to(tmp_path: Path, kind: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / f"{kind}s").symlink_to(elsewhere)
    reply = ctx(kind, "init", "count", cwd=clone)
    assert (reply.returncode, "is a link" in reply.stderr) == (2, True), reply.stderr
    assert list(elsewhere.iterdir()) == []
    assert ctx(kind, "init", "count", "--path", f"{kind}s/count.lua", cwd=clone).returncode == 0, "named"
