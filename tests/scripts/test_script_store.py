"""`context.store`: what a script keeps between calls."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import serving
from kit import project, workspace
from script_kit import configured

from ctx.errors import ToolError
from ctx.models import JSON, Caller
from ctx.scripts.store import MAX_BYTES, FileScriptStore, ScriptStore
from ctx.workspace import Workspace

CALLER = Caller("cli")
KEEP = """
tool = {
  parameters = { { name = "key" }, { name = "value", type = "object" }, { name = "list", type = "boolean" } },
}
function tool.execute(p, context)
  if p.list then return context.store.keys() end
  if p.value then context.store.set(p.key, p.value.it) end
  return { context.store.get(p.key) }
end
"""
COUNT = """
tool = {}
function tool.execute(p, context)
  for _ = 1, 40 do context.store.add("n") end
  return context.store.get("n")
end
"""


def tool_of(body: str) -> str:
    return f"tool = {{}} function tool.execute(p, context) {body}\nend"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.cluster)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ScriptStore]:
    if request.param == "sqlite":
        opened_store: ScriptStore = FileScriptStore(str(tmp_path / ".ctx" / "ctx.db"))
        yield opened_store
        opened_store.close()
        return
    from ctx.cluster.memory_db import SharedScriptStore
    from ctx.cluster.postgres import Database

    with Database(request.getfixturevalue("database_url")) as database:
        yield SharedScriptStore(database)


def soon() -> float:
    return time.monotonic() + 60


def opened(folder: Path, **scripts: str) -> Workspace:
    """A workspace that serves these scripts by name."""
    sections = ""
    for name, text in scripts.items():
        (folder / f"{name}.lua").write_text(text)
        sections += f'[tools.script.{name}]\npath = "./{name}.lua"\ntimeout = 20\n'
    path = project(folder, {"a.md": "# A\n\ntext\n"})
    path.write_text(path.read_text() + sections)
    space = workspace(path)
    space.load_extensions()
    return space


def test_a_value_is_there_for_the_next_call_and_the_next_start(tmp_path: Path) -> None:
    value: JSON = {"etag": 'W/"1"', "seen": [1, 2.5, True, "é"], "empty": {}}
    with opened(tmp_path, keep=KEEP) as space:
        assert space.toolbox.call("keep", {"key": "a"}, CALLER) == {}
        assert space.toolbox.call("keep", {"key": "a", "value": {"it": value}}, CALLER) == [value]
        assert space.toolbox.call("keep", {"key": "a"}, CALLER) == [value]
    with opened(tmp_path, keep=KEEP) as space:
        assert space.toolbox.call("keep", {"key": "a"}, CALLER) == [value]
        assert space.toolbox.call("keep", {"list": True}, CALLER) == ["a"]
        assert space.toolbox.call("keep", {"key": "a", "value": {}}, CALLER) == {}  # set(key, nil) drops it
        assert space.toolbox.call("keep", {"list": True}, CALLER) == []


def test_one_script_does_not_see_what_another_keeps(tmp_path: Path) -> None:
    with opened(tmp_path, keep=KEEP, spy=KEEP) as space:
        space.toolbox.call("keep", {"key": "a", "value": {"it": "secret"}}, CALLER)
        assert space.toolbox.call("spy", {"key": "a"}, CALLER) == {}
        assert space.toolbox.call("spy", {"list": True}, CALLER) == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("local t = {} t.t = t context.store.set('k', t)", "a table contains itself"),
        ("context.store.set('k', print)", "a function cannot be kept"),
        ("context.store.set(('k'):rep(257), 1)", "a key must be a string of 1 to 256 bytes"),
        ("context.store.set('k', ('x'):rep(1 << 20))", "exceed the limit of 1,048,576"),
        ("context.store.set('k', 'x') context.store.add('k')", "must be numbers"),
        ("local t = {} for _ = 1, 200 do t = {t} end context.store.set('k', t)", "nested more than 128"),
    ],
)
def test_values_that_cannot_be_stored_are_refused(tmp_path: Path, body: str, reason: str) -> None:
    with opened(tmp_path, bad=tool_of(body), keep=KEEP) as space:
        with pytest.raises(ToolError, match=reason):
            space.toolbox.call("bad", {}, CALLER)
        assert space.toolbox.call("keep", {"key": "a", "value": {"it": 1}}, CALLER) == [1]


def test_a_full_store_refuses_keeps_what_it_has_and_takes_again_once_something_is_dropped(
    store: ScriptStore,
) -> None:
    store.call("set", "s", {"key": "big", "value": "x" * (MAX_BYTES - 100)}, soon())
    with pytest.raises(ToolError, match="exceed the limit"):
        store.call("set", "s", {"key": "more", "value": "x" * 100}, soon())
    with pytest.raises(ToolError, match="exceed the limit"):
        store.call("set", "s", {"key": "big", "value": "x" * MAX_BYTES}, soon())
    assert store.call("get", "s", {"key": "big"}, soon()) == "x" * (MAX_BYTES - 100)
    store.call("set", "other", {"key": "k", "value": "x" * 1000}, soon())  # another script's is another's
    store.call("set", "s", {"key": "big", "value": None}, soon())
    store.call("set", "s", {"key": "more", "value": "x" * 100}, soon())
    assert store.call("keys", "s", {}, soon()) == ["more"]


def test_two_children_that_count_at_once_lose_nothing(tmp_path: Path) -> None:
    totals: list[JSON] = []
    with opened(tmp_path, count=COUNT) as space:
        threads = [
            threading.Thread(target=lambda: totals.append(space.toolbox.call("count", {}, CALLER)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert max(totals) == 80


@pytest.mark.slow
def test_what_set_has_answered_survives_a_kill(tmp_path: Path) -> None:
    (tmp_path / "keep.lua").write_text(KEEP)
    config = configured(tmp_path, '[tools.script.keep]\npath = "./keep.lua"\n')
    with serving(config) as server:
        assert server.post("/tools/keep", {"key": "a", "value": {"it": "kept"}})[0] == 200
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(60)
    with serving(config) as server:
        assert server.post("/tools/keep", {"key": "a"}) == (200, {"result": ["kept"]})
