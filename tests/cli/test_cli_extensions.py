"""`ctx tool`, `ctx connector` and `ctx agent`, as typed."""

import json
from pathlib import Path

import pytest
from kit import ctx, project

from ctx.types import JSON

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


def answer(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> dict[str, JSON]:
    done = ctx(*arguments, "--json", cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    told: dict[str, JSON] = json.loads(done.stdout)
    return told


def test_scaffolds_run_as_generated(folder: Path) -> None:
    assert ctx("index", cwd=folder).returncode == 0
    for kind, name in (("tool", "my_search"), ("connector", "tickets"), ("agent", "guide")):
        done = ctx(kind, "init", name, cwd=folder)
        assert done.returncode == 0, done.stderr
        again = ctx(kind, "init", name, cwd=folder)
        assert again.returncode == 2
        assert "nothing was written" in again.stderr
    told = answer(folder, "tool", "test", "tools/my-search.lua", "--param", "query=tokens")
    assert told == {"query": "tokens", "titles": ["Authentication"]}
    told = answer(folder, "connector", "test", "connectors/tickets.lua", "--param", "count=7")
    assert told["items"] == 7
    assert len(told["first"]) == 5
    assert told["problems"] == []
    told = answer(folder, "agent", "test", "agents/guide.lua", "--arg", "topic=tokens")
    assert "Authentication" in str(told["system"])
    assert told["tools"] == ["search", "get"]
    # And once more as a server would have them.
    (folder / "ctx.toml").write_text(
        CONFIG
        + '[tools.script.my-search]\npath = "./tools/my-search.lua"\n[agents.script.guide]\npath = "./agents/guide.lua"\n'
        + '[connectors.script.tickets]\npath = "./connectors/tickets.lua"\n'
    )
    assert answer(folder, "tool", "call", "my-search", "--param", "query=tokens")["titles"] == [
        "Authentication"
    ]
    assert [entry["name"] for entry in answer(folder, "agent", "list")["agents"]] == ["guide"]
    assert ctx("index", "script:tickets", cwd=folder).returncode == 0
    assert "example-1" in ctx("search", "example", "--source", "script", "--json", cwd=folder).stdout


def test_a_test_has_what_the_configuration_gives_the_script(folder: Path) -> None:
    (folder / "echo.lua").write_text(ECHO)
    told = answer(folder, "tool", "test", "echo.lua", "--param", "n=1")
    assert told == {"n": 1, "m": "x"}
    (folder / "ctx.toml").write_text(
        CONFIG + '[tools.script.e]\npath = "./echo.lua"\ngreeting = "hi"\nenv = ["ECHO_TOKEN"]\n'
    )
    told = answer(
        folder, "tool", "test", "echo.lua", "--param", "n=1", "--param", "m=[1", env={"ECHO_TOKEN": "t"}
    )
    assert told == {"n": 1, "m": "[1", "greeting": "hi", "token": "t"}
    done = ctx("tool", "call", "e", "--param", "n=2", cwd=folder)
    assert json.loads(done.stdout)["n"] == 2
    assert "echoing" in ctx("tool", "test", "echo.lua", "--param", "n=1", cwd=folder).stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("tool", "call", "echo"), 2, "missing required parameter: n"),
        (("tool", "call", "echo", "--param", "n=x"), 2, "must be of type 'integer'"),
        (("tool", "call", "echo", "--param", "n"), 2, "not KEY=VALUE"),
        (("tool", "call", "nothing"), 3, "no tool registered"),
        (("tool", "call", "broken"), 5, "did not load"),
        (("tool", "call", "late"), 5, "timed out"),
        (("tool", "test", "nothing.lua"), 2, "no such script"),
        (("tool", "init", "../x"), 2, "a name has"),
        (("agent", "test", "nobody"), 3, "no agent registered"),
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
    done = ctx(*arguments, cwd=folder)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_list_and_the_doctor_show_what_did_not_load(folder: Path) -> None:
    (folder / "tools").mkdir()
    (folder / "tools" / "good.lua").write_text(ECHO)
    (folder / "tools" / "bad.lua").write_text("tool = {")
    (folder / "ctx.toml").write_text(CONFIG + '[lua]\ntools_dir = "./tools"\n')
    told = answer(folder, "tool", "list")
    assert [tool["name"] for tool in told["tools"]][:3] == ["search", "get", "sources"]
    failed = told["failed"][0]
    assert (failed["name"], failed["file"], failed["serving"]) == ("bad", "tools/bad.lua", False)
    shown = ctx("tool", "list", cwd=folder)
    assert "good" in shown.stdout
    assert "FAILED bad (tools/bad.lua): syntax" in shown.stderr
    doctor = ctx("doctor", "--json", cwd=folder)
    assert doctor.returncode == 1
    findings = json.loads(doctor.stdout)["findings"]
    layers = [finding["detail"] for finding in findings if finding["what"] == "sandbox layer"]
    assert any(detail.startswith("system call filter: holds") for detail in layers) or any(
        "missing" in detail for detail in layers
    )
    assert [f["what"] for f in findings if f["what"] == "lua sandbox"] == ["lua sandbox"]
    assert [f["state"] for f in findings if f["what"] == "tool"] == ["failed"]


def test_a_mistake_in_the_names_ends_the_command_and_names_both_files(folder: Path) -> None:
    for place in ("a", "b"):
        (folder / place).mkdir()
        (folder / place / "echo.lua").write_text(ECHO)
    (folder / "ctx.toml").write_text(
        CONFIG + '[lua]\ntools_dir = "./a"\n[tools.script.echo]\npath = "./b/echo.lua"\n'
    )
    for arguments in (("tool", "list"), ("serve", "mcp", "--bind", "127.0.0.1:0")):
        done = ctx(*arguments, cwd=folder)
        assert done.returncode == 2
        assert "a/echo.lua" in done.stderr
        assert "b/echo.lua" in done.stderr
