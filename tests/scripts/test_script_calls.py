"""`context.call` calls another tool that was granted; `context.progress` reports progress."""

import threading
from pathlib import Path

import pytest
from kit import project, workspace

from ctx.errors import ScriptTimeout, ToolError
from ctx.models import Caller
from ctx.scripts.bridge import MAX_DEPTH
from ctx.tools.toolbox import Call
from ctx.workspace import Workspace

CALLER = Caller("cli")
CALL = """
tool = { parameters = { { name = "tool" }, { name = "arguments", type = "object" } } }
function tool.execute(p, context) return { got = context.call(p.tool, p.arguments) } end
"""
DOUBLE = """
tool = { parameters = { { name = "n", type = "integer", required = true } } }
function tool.execute(p) return p.n * 2 end
"""


def tool_of(body: str) -> str:
    return f"tool = {{}} function tool.execute(p, context) {body}\nend"


def opened(folder: Path, settings: str = "", **scripts: tuple[str, str]) -> Workspace:
    """A workspace of scripts by name, each a text and the settings of its section."""
    sections = ""
    for name, (text, section) in scripts.items():
        (folder / f"{name}.lua").write_text(text)
        sections += f'[tools.script.{name}]\npath = "./{name}.lua"\n{section}\n'
    path = project(folder, {"a.md": "# Release\n\nThe release token.\n"})
    path.write_text(path.read_text() + settings + sections)
    space = workspace(path)
    space.load_extensions()
    return space


def test_a_script_calls_the_tools_that_it_was_granted_and_no_other(tmp_path: Path) -> None:
    granted = (CALL, 'calls = ["double", "search"]')
    calls: list[Call] = []
    with opened(tmp_path, call=granted, double=(DOUBLE, ""), other=(DOUBLE, "")) as space:
        space.refresh([])
        space.toolbox.observe(calls.append)
        reply = space.toolbox.call("call", {"tool": "double", "arguments": {"n": 21}}, CALLER)
        assert reply == {"got": 42}
        reply = space.toolbox.call("call", {"tool": "search", "arguments": {"query": "release"}}, CALLER)
        assert [hit["title"] for hit in reply["got"]["results"]] == ["Release"]
        with pytest.raises(ToolError, match=r"may not call 'other'; name it in calls = \[...\] to allow it"):
            space.toolbox.call("call", {"tool": "other", "arguments": {"n": 1}}, CALLER)
    assert [(call.tool, call.caller.interface, call.outcome) for call in calls] == [
        ("double", "script", "ok"),
        ("call", "cli", "ok"),
        ("search", "script", "ok"),
        ("call", "cli", "ok"),
        ("call", "cli", "tool_error"),
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("context.call('double', {})", "context.call: double: missing required parameter: n"),
        ("context.call('absent')", "context.call: absent: no tool registered with name: absent"),
        ("context.call('fails')", "context.call: fails: .*on purpose"),
        ("context.call('slow')", r"context.call: slow: tool 'slow' timed out after 0\.2 s"),
        ("local t = {} t.t = t context.call('double', t)", "a table contains itself"),
    ],
)
def test_a_call_that_fails_says_which_tool_and_why(tmp_path: Path, body: str, reason: str) -> None:
    grant = 'calls = ["double", "absent", "fails", "slow"]'
    fails, slow = tool_of("error('on purpose')"), tool_of("while true do end")
    scripts = {"fails": (fails, ""), "slow": (slow, "timeout = 0.2"), "double": (DOUBLE, "")}
    with opened(tmp_path, outer=(tool_of(body), grant), **scripts) as space:
        with pytest.raises(ToolError, match=reason) as caught:
            space.toolbox.call("outer", {}, CALLER)
        assert len(caught.value.message) < 3000
        assert space.toolbox.call("double", {"n": 1}, CALLER) == 2


def test_scripts_that_call_in_a_circle_are_stopped_and_named(tmp_path: Path) -> None:
    circle = tool_of("return context.call('a')")
    with (
        opened(
            tmp_path, a=(tool_of("return context.call('b')"), 'calls = ["b"]'), b=(circle, 'calls = ["a"]')
        ) as space,
        pytest.raises(ToolError, match=f"{MAX_DEPTH} scripts are already waiting for each other"),
    ):
        space.toolbox.call("a", {}, CALLER)


@pytest.mark.slow
def test_a_call_within_a_call_ends_with_the_outer_deadline(tmp_path: Path) -> None:
    inner = tool_of("while true do end")
    outer = tool_of("context.call('inner')")
    ends = threading.Semaphore(0)

    def note(_: Call) -> None:
        ends.release()

    with opened(
        tmp_path, outer=(outer, 'calls = ["inner"]\ntimeout = 2'), inner=(inner, "timeout = 250")
    ) as space:
        space.toolbox.observe(note)
        with pytest.raises(ScriptTimeout):
            space.toolbox.call("outer", {}, CALLER)
        for _ in range(2):  # the thread that waited for the inner one tells its end too
            assert ends.acquire(timeout=60)


def test_the_memories_of_a_pack_are_not_reached_by_a_call(tmp_path: Path) -> None:
    pack = '[packs]\nenabled = ["hindsight"]\n'
    body = "return context.call('retain', { content = 'x' })"
    granted = (tool_of(body), 'calls = ["retain"]')
    reason = "retain: it reads memories, which scripts may not reach through another tool"
    with opened(tmp_path, pack, outer=granted) as space, pytest.raises(ToolError, match=reason):
        space.toolbox.call("outer", {}, CALLER)


# -- progress ------------------------------------------------------------------------------------------------


def reports(folder: Path, body: str) -> list[tuple[float, float | None, str]]:
    """What a client is told of a tool's progress."""
    lines: list[tuple[float, float | None, str]] = []
    with opened(folder, work=(tool_of(body), "")) as space:
        caller = CALLER._replace(progress=lambda done, total, message: lines.append((done, total, message)))
        space.toolbox.call("work", {}, caller)
    return lines


def test_a_tool_tells_how_far_it_is(tmp_path: Path) -> None:
    body = (
        "context.progress(1, 2, 'reading') sleep(0.15) context.progress(1.5) context.progress(2, 2, 'done')"
    )
    assert reports(tmp_path, body) == [(1, 2, "reading"), (1.5, None, ""), (2, 2, "done")]


def test_a_loop_that_reports_every_step_does_not_flood_its_client(tmp_path: Path) -> None:
    lines = reports(tmp_path, "for n = 1, 2000 do context.progress(n, 2000) end")
    assert (lines[0][0], lines[-1][0]) == (1, 2000)
    assert len(lines) < 60


# -- what `ctx tool init` writes -----------------------------------------------------------------------------
