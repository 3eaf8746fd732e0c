"""Whatever is wrong with one script is that script's failure, and what it asks of `search` is checked as
everybody's.
"""

import logging
import os
from pathlib import Path

import pytest
from kit import workspace
from running import answering, configured, opened, said

from ctx.errors import ToolError
from ctx.text import one_line
from ctx.types import Caller

CALLER = Caller("cli")


def test_of_two_tools_of_one_name_the_named_one_serves_and_both_files_are_told(
    tmp_path: Path, tools: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tools / "echo.lua").write_text(answering("a"))
    (tmp_path / "elsewhere").mkdir()
    named_file = tmp_path / "elsewhere" / "echo.lua"
    named_file.write_text(answering("b"))
    config = configured(
        tmp_path, '\ntools_dir = "./tools"\n[tools.script.echo]\npath = "./elsewhere/echo.lua"'
    )
    with workspace(config) as space:
        statuses = space.scripts.statuses()
        assert [(status.where, status.serving) for status in statuses] == [
            ("elsewhere/echo.lua", True),
            ("tools/echo.lua", False),
        ]
        assert said(space, "echo") == "b"
        for _ in range(3):
            space.scripts.refresh()
        (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert "elsewhere/echo.lua and tools/echo.lua" in record.getMessage()
        (tools / "echo.lua").rename(tools / "second.lua")  # the mend that the message names
        space.scripts.refresh()
        assert said(space, "second") == "a"
        assert all(status.error is None for status in space.scripts.statuses())


@pytest.mark.parametrize(
    "name", ["search", "list", "sources", "ok copy", "a b", "ä", "x" * 65, "a\nb", "\x1b[31m", "-.-"]
)
def test_a_name_that_may_not_be_is_one_failed_script(
    tmp_path: Path, tools: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tools / f"{name}.lua").write_text(answering("x"))
    (tools / "zz.lua").write_text(answering("served"))
    with opened(tmp_path) as space:
        assert said(space, "zz") == "served"
        (failed,) = [status for status in space.scripts.statuses() if status.name != "zz"]
        assert (failed.name, failed.serving) == (one_line(name), False)
        assert f"tools/{one_line(name)}.lua" in (failed.error or "")
        (tools / "zznew.lua").write_text(answering("later"))
        space.scripts.refresh()
        assert said(space, "zznew") == "later"
        assert caplog.text.count("tool not loaded") == 1
        assert "\x1b" not in caplog.text


MALFORMED = {
    "properties-text": "tool = { parameters = { type = 'object', properties = 'x' } }",
    "properties-list": "tool = { parameters = { type = 'object', properties = { 1, 2 } } }",
    "properties-number": "tool = { parameters = { type = 'object', properties = 7 } }",
    "properties-boolean": "tool = { parameters = { type = 'object', properties = true } }",
    "type-list": "tool = { parameters = { type = 'object', properties = { a = { type = {} } } } }",
    "required-number": "tool = { parameters = { type = 'object', required = 1, properties = { a = { type = "
    "'string' } } } }",
    "parameters-text": "tool = { parameters = 'query' }",
    "parameters-function": "tool = { parameters = function() end }",
    "rule-number": "tool = { parameters = { a = 1 } }",
    "ref-nowhere": "tool = { parameters = { type = 'object', properties = { a = { ['$ref'] = '#/x' } } } }",
    "tool-text": "tool = 'x'",
    "tool-missing": "other = {}",
    "syntax": "tool = {",
    "error": "error('at load')",
    "error-table": "error({})",
    "binary": "\0\1\2",
    "deep": "tool = { parameters = " + "{ a = " * 300 + "1" + " }" * 301,
    "cycle": "tool = {} tool.parameters = tool",
    "metatable": "tool = setmetatable({}, { __index = function() error('no') end })",
}


def test_no_malformed_script_takes_another_along(
    tmp_path: Path, tools: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, text in MALFORMED.items():
        (tools / f"{name}.lua").write_text(f"{text}\nfunction tool.execute() return 1 end\n")
    (tools / "zz.lua").write_text(answering("served"))
    with opened(tmp_path) as space:
        statuses = {status.name: status for status in space.scripts.statuses()}
        assert statuses.keys() == {*MALFORMED, "zz"}
        assert said(space, "zz") == "served"
        for name, status in statuses.items():
            assert status.serving is (status.error is None), name
            if status.error is not None:
                with pytest.raises(ToolError, match="did not load"):
                    space.toolbox.call(name, {}, CALLER)
        assert not any(status.serving for name, status in statuses.items() if name.startswith("properties-"))
        (tools / "zznew.lua").write_text(answering("later"))
        caplog.clear()
        space.scripts.refresh()
        space.scripts.refresh()
        assert said(space, "zznew") == "later"
        assert "did not load" not in caplog.text  # each failure is told once, and not with every look


def test_a_configured_name_that_may_not_be_answers_why(tmp_path: Path, tools: Path) -> None:
    (tools / "a.lua").write_text(answering("x"))
    with opened(tmp_path, scripts='\n[tools.script."a.b"]\npath = "./tools/a.lua"') as space:
        with pytest.raises(ToolError, match="a name has 1 to 64"):
            space.toolbox.call("a.b", {}, CALLER)
        assert [status.serving for status in space.scripts.statuses()] == [False]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ('{ mode = "zzz" }', "mode"),
        ('{ limit = "1" }', "limit"),
        ("{ limit = 0 }", "limit"),
        ("{ limit = 101 }", "limit"),
        ("{ lmit = 1 }", "lmit"),
        ("{ source = 5 }", "source"),
        ("{ since = true }", "since"),
        ("{ since = 'yesterday' }", "since"),
        ("{ filters = { sauce = 'x' } }", "sauce"),
        ("{ filters = 'docs' }", "filters"),
    ],
)
def test_a_scripts_search_refuses_what_the_tool_refuses(
    tmp_path: Path, tools: Path, options: str, why: str
) -> None:
    (tools / "find.lua").write_text(
        f"tool = {{}} function tool.execute(params, context) return context.search('token', {options}) end"
    )
    with opened(tmp_path) as space:
        with pytest.raises(ToolError, match=why) as refusal:
            space.toolbox.call("find", {}, CALLER)
        assert "context.search: " in refusal.value.message


@pytest.mark.parametrize(
    "options",
    ["nil", "{}", "{ limit = 2.0 }", "{ source = 'filesystem' }", "{ filters = { since = '2000-01-01' } }",
     "{ until_ = nil, ['until'] = '2100-01-01' }", "{ mode = 'hybrid', limit = 100, filters = {} }"],
)  # fmt: skip
def test_a_scripts_search_takes_what_the_tool_takes(tmp_path: Path, tools: Path, options: str) -> None:
    (tools / "find.lua").write_text(
        f"tool = {{}} function tool.execute(params, context) return #context.search('token', {options}) end"
    )
    with opened(tmp_path) as space:
        space.indexer.run([])
        assert space.toolbox.call("find", {}, CALLER) == 1


def test_scripts_that_hang_while_they_load_hold_up_no_other(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.extensions.scripts.LOAD_S", 0.5)
    for name in ("a", "b", "c", "d"):
        (tools / f"{name}.lua").write_text("while true do end tool = {}")
    (tools / "zz.lua").write_text(answering("served"))
    with opened(tmp_path) as space:
        statuses = {status.name: status for status in space.scripts.statuses()}
        assert [name for name, status in statuses.items() if "timed out" in (status.error or "")] == [*"abcd"]
        assert said(space, "zz") == "served"


def test_a_start_does_not_wait_for_each_of_many_scripts_that_hang(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.extensions.scripts.LOAD_S", 0.2)
    monkeypatch.setattr("ctx.extensions.loader._PATIENCE_S", 0.0)
    for name in ("a", "b", "c", "d"):
        (tools / f"{name}.lua").write_text("while true do end tool = {}")
    (tools / "yy.lua").write_text(answering("served"))
    (tools / "zz.lua").write_text(answering("served too"))
    with opened(tmp_path) as space:

        def put_off() -> list[str]:
            statuses = space.scripts.statuses()
            return [status.name for status in statuses if "not loaded yet" in (status.error or "")]

        assert put_off() == ["b", "c", "d", "yy", "zz"]
        assert said(space, "zz") == "served too"  # whoever calls it has it loaded
        assert put_off() == ["b", "c", "d", "yy"]
        for hung in ("b", "c", "d"):  # each round of the watch looks at one more
            space.scripts.refresh()
            assert hung not in put_off()
        space.scripts.refresh()
        assert put_off() == []
        assert said(space, "yy") == "served"


def test_a_pipe_in_the_place_of_a_script_is_not_waited_for(tmp_path: Path, tools: Path) -> None:
    os.mkfifo(tools / "pipe.lua")
    (tools / "zz.lua").write_text(answering("served"))
    with opened(tmp_path) as space:
        assert said(space, "zz") == "served"
        with pytest.raises(ToolError, match=r"tools/pipe\.lua is no file"):
            said(space, "pipe")
