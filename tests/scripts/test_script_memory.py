"""`memory_bank`: `context.memory` of an operator's own tools and agents."""

from pathlib import Path

import pytest
from kit import project, workspace

from ctx.errors import BadRequest, ScriptTimeout, ToolError, Unauthorized
from ctx.models import Caller

CALLER = Caller("rest")
TABLE = '[tools.script.{0}]\npath = "./{0}.lua"\nmemory_bank = "diary"\ntimeout = 2\n'
BODIES = {
    "note": "return context.memory.put({ text = params.text })",
    "read": "return { context.bank.id, #context.memory.search('lighthouse', { limit = 5 }).results }",
    "stuck": "context.memory.put({ text = 'before the loop' }) while true do pcall(function() while true do "
    "end end) end",
    "fails": "context.memory.put({ text = 'before the failure' }) error('on purpose')",
    "throws": "context.memory.put({ text = 'before the throw' }) error.throw({ kind = 'invalid_params', "
    "message = 'not so' })",
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    for name, body in BODIES.items():
        (tmp_path / f"{name}.lua").write_text(
            f"tool = {{}} function tool.execute(params, context) {body} end"
        )
    tables = "".join(TABLE.format(name) for name in BODIES)
    head = '[embedding]\nprovider = "disabled"\n'
    path: Path = project(tmp_path, {"a.md": "# A\n"}, head + tables)
    return path


def test_a_tool_with_a_bank_keeps_memories_in_it(config: Path) -> None:
    with workspace(config) as space:
        space.load_extensions()
        stored = space.toolbox.call("note", {"text": "the lighthouse is white"}, CALLER)
        assert space.toolbox.call("read", {}, CALLER) == ["diary", 1]
        record = space.memory.bank("diary").get(stored["id"])
        assert record is not None
        assert record["source"]["tool"] == "note"


@pytest.mark.parametrize(
    ("name", "error"), [("stuck", ScriptTimeout), ("fails", ToolError), ("throws", BadRequest)]
)
def test_a_call_that_fails_takes_back_what_it_wrote(config: Path, name: str, error: type[Exception]) -> None:
    with workspace(config) as space:
        space.load_extensions()
        with pytest.raises(error):
            space.toolbox.call(name, {}, CALLER)
        assert space.memory.bank("diary").count() == 0


def test_a_key_for_another_bank_does_not_open_the_tool(config: Path) -> None:
    with workspace(config) as space:
        space.load_extensions()
        assert space.toolbox.get("note").pack == "memory"  # guarded as the packs' tools are
        with pytest.raises(Unauthorized):
            space.toolbox.call("note", {"text": "x"}, CALLER._replace(banks=frozenset({"alice"})))
