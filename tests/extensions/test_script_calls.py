"""`context.call`: another tool by grant, with a bound on depth and time. `context.progress`: what a long call
tells meanwhile.
"""

import threading
import time
from pathlib import Path

import pytest
from faults import serving
from kit import ctx, named, project, workspace

from ctx.errors import ScriptTimeout, ToolError
from ctx.extensions.bridge import MAX_DEPTH
from ctx.tools.base import Call
from ctx.types import Caller
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
    assert [(call.tool, call.caller.door, call.outcome) for call in calls] == [
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
        ("context.call('double', { n = 'x' })", "context.call: double: parameter 'n' must be of type"),
        ("context.call('absent')", "context.call: absent: no tool registered with name: absent"),
        ("context.call('fails')", "context.call: fails: .*on purpose"),
        ("context.call('slow')", r"context.call: slow: tool 'slow' timed out after 0\.2 s"),
        ("context.call()", "string expected, got nil"),
        ("context.call({})", "string expected, got table"),
        ("context.call('double', 'n=1')", "table expected, got string"),
        ("local t = {} t.t = t context.call('double', t)", "a table contains itself"),
        ("context.call('double', { n = ('x'):rep(17 << 20) })", r"context\.call"),
        ("context.call(('x'):rep(1 << 20))", "may not call 'x+'"),
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
        pytest.raises(ToolError, match=f"{MAX_DEPTH} scripts wait for one another already"),
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


def test_a_call_waits_for_a_worker_no_longer_than_its_caller_does(tmp_path: Path) -> None:
    """One tool has half of the workers: the third of its calls within one another finds none free."""
    recursive = tool_of("return context.call('again')")
    with opened(
        tmp_path, "[lua]\nworkers = 1\n", again=(recursive, 'calls = ["again"]\ntimeout = 0.5')
    ) as space:
        began_s = time.monotonic()
        with pytest.raises((ScriptTimeout, ToolError)):
            space.toolbox.call("again", {}, CALLER)
        assert time.monotonic() - began_s < 20  # a dead end would last for good


def test_the_memories_of_a_pack_are_not_reached_by_a_call(tmp_path: Path) -> None:
    pack = '[packs]\nenabled = ["hindsight"]\n'
    body = "return context.call('retain', { content = 'x' })"
    granted = (tool_of(body), 'calls = ["retain"]')
    reason = "retain: it belongs to the pack hindsight"
    with opened(tmp_path, pack, outer=granted) as space, pytest.raises(ToolError, match=reason):
        space.toolbox.call("outer", {}, CALLER)


def test_a_tool_to_call_that_nobody_serves_is_told_at_the_start(tmp_path: Path) -> None:
    with opened(tmp_path, outer=(CALL, 'calls = ["serch"]')) as space:
        assert space.doubts() == [
            "script 'outer' (outer.lua): calls: there is no tool 'serch'; did you mean 'search'?"
        ]


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


@pytest.mark.slow
def test_a_script_that_searches_again_and_again_does_not_flood_the_log(tmp_path: Path) -> None:
    (tmp_path / "seek.lua").write_text(tool_of("for _ = 1, 50 do context.search('token') end return 1"))
    config = project(tmp_path, {"a.md": "# Release\n\nThe release token.\n"})
    config.write_text(config.read_text() + '[tools.script.seek]\npath = "./seek.lua"\n')
    for level, lines in (("info", 0), ("debug", 50)):
        with serving(config, "--log-level", level) as server:
            assert server.post("/tools/seek", {}) == (200, {"result": 1})
        assert "call tool=seek door=rest" in server.log()
        assert server.log().count("call tool=search door=script") == lines


def test_a_loop_that_reports_every_step_does_not_flood_its_client(tmp_path: Path) -> None:
    lines = reports(tmp_path, "for n = 1, 2000 do context.progress(n, 2000) end")
    assert (lines[0][0], lines[-1][0]) == (1, 2000)
    assert len(lines) < 60


def test_a_loop_that_says_of_each_step_that_it_is_the_last_is_told_as_seldom(tmp_path: Path) -> None:
    lines = reports(tmp_path, "for n = 1, 2000 do context.progress(n, n) end")
    assert lines[0][0] == 1
    assert len(lines) < 100


def test_progress_only_grows(tmp_path: Path) -> None:
    lines = reports(tmp_path, "for _, n in ipairs{3, 3, 1, 2, 4} do context.progress(n, 1) end")
    assert [count for count, _, _ in lines] == [3, 4]


def test_a_message_is_one_short_line(tmp_path: Path) -> None:
    ((_, _, message),) = reports(tmp_path, "context.progress(0, nil, ('a\\n\\27[31m'):rep(1 << 18))")
    assert message.isprintable()
    assert len(message) < 2000


@pytest.mark.parametrize(
    "arguments", ["", "'1'", "0/0", "1/0", "-1", "1, {}", "1, -1", "1, 2, {}", "1e300", "true", "1, false"]
)
def test_progress_that_is_no_number_is_refused(tmp_path: Path, arguments: str) -> None:
    with pytest.raises(ToolError, match="progress"):
        reports(tmp_path, f"context.progress({arguments})")


def test_a_script_nobody_waits_for_may_report_all_the_same(tmp_path: Path) -> None:
    with opened(tmp_path, work=(tool_of("context.progress(1) return 'ok'"), "")) as space:
        assert space.toolbox.call("work", {}, CALLER) == "ok"


# -- what `ctx tool init` writes -----------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "no-such-word-anywhere", "release"])
def test_the_scaffold_answers_whatever_it_is_asked(tmp_path: Path, query: str) -> None:
    path = project(tmp_path, {"a.md": "# Release\n\nThe release token.\n"})
    assert "It is called 'my-tool' and not served yet" in ctx("tool", "init", "my_tool", cwd=tmp_path).stdout
    ctx("index", cwd=tmp_path, env=named(path))
    reply = ctx("tool", "test", "tools/my-tool.lua", f"query={query}", cwd=tmp_path, env=named(path))
    if query:
        assert reply.returncode == 0, reply.stderr
        assert ("Release" in reply.stdout) is (query == "release")
    else:
        assert (reply.returncode, "query" in reply.stderr) == (2, True)
