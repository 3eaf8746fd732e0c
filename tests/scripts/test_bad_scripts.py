"""A broken script fails alone."""

import re
from pathlib import Path

import pytest
from kit import ROOT, workspace
from script_kit import answering, configured, opened, said

from ctx.errors import ScriptTimeout, ToolError
from ctx.models import Caller
from ctx.scripts import loader
from ctx.scripts.loader import Scripts
from ctx.scripts.scripts import FIELDS, Runner, ScriptFile
from ctx.text.strings import one_line

CALLER = Caller("cli")


@pytest.mark.parametrize(
    "name", ["search", "list", "sources", "ok copy", "a b", "ä", "x" * 65, "a\nb", "\x1b[31m", "-.-"]
)
def test_an_invalid_tool_name_fails_only_that_script(
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


def test_a_script_whose_load_timed_out_is_tried_again_later_and_when_it_is_called(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tools / "slow.lua").write_text(answering("late"))
    with workspace(configured(tmp_path, "")) as space:
        loads = []

        def busy_machine() -> Runner:
            loads.append(1)
            if len(loads) % 3:
                raise ScriptTimeout("tool 'slow' timed out after 1 s")
            return space.runner()

        def loaded() -> Scripts:
            slow = ScriptFile("slow", str(tools / "slow.lua"))
            scripts = Scripts(busy_machine, space.toolbox, space.agents, lambda: [("tool", slow, 0)])
            scripts.load()
            return scripts

        scripts = loaded()
        scripts.refresh()
        assert len(loads) == 1  # not at every look
        with pytest.raises(ScriptTimeout, match="while it was loaded; the next call tries again"):
            said(space, "slow")
        assert said(space, "slow") == "late"
        assert len(loads) == 3
        space.toolbox.remove("slow")
        scripts = loaded()
        monkeypatch.setattr(loader, "RETRIES_S", (0.0, 0.0))
        scripts.refresh()
        scripts.refresh()
        assert "slow" in [tool.name for tool in space.toolbox.list()]  # without a call


@pytest.mark.parametrize("kind", FIELDS)
def test_python_and_lua_know_the_same_fields(kind: str) -> None:
    prelude = (ROOT / "ctx" / "lua" / "prelude.lua").read_text()
    metadata = prelude[prelude.index("local METADATA") :]
    (names,) = re.findall(rf"^  {kind} = \{{(.*)\}},$", metadata, re.MULTILINE)
    assert tuple(re.findall(r'"(\w+)"', names)) == FIELDS[kind]
