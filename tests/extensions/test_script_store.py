"""`context.store`: what a script keeps between calls. Its own, bounded, durable, and never half written."""

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import project, workspace
from running import Running, configured

from ctx.errors import Busy, CtxError, ScriptTimeout, StoreError, ToolError
from ctx.extensions.store import MAX_BYTES, MAX_KEY_BYTES, MAX_KEYS, FileScriptStore, ScriptStore
from ctx.types import JSON, Caller
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
    from ctx.extensions.shared_store import SharedScriptStore
    from ctx.store.postgres import Database

    with Database(request.getfixturevalue("database_url")) as database:
        yield SharedScriptStore(database)


def soon() -> float:
    return time.monotonic() + 60


def opened(folder: Path, timeouts: dict[str, float] | None = None, **scripts: str) -> Workspace:
    """A workspace that serves these scripts by name."""
    sections = ""
    for name, text in scripts.items():
        (folder / f"{name}.lua").write_text(text)
        timeout_s = (timeouts or {}).get(name, 20)
        sections += f'[tools.script.{name}]\npath = "./{name}.lua"\ntimeout = {timeout_s}\n'
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


def test_a_file_that_takes_over_the_name_does_not_take_over_the_values(tmp_path: Path) -> None:
    with opened(tmp_path, keep=KEEP) as space:
        space.toolbox.call("keep", {"key": "a", "value": {"it": 1}}, CALLER)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "keep.lua").write_text(KEEP)
    path = tmp_path / "ctx.toml"
    path.write_text(path.read_text().replace("./keep.lua", "./other/keep.lua"))
    with workspace(path) as space:
        space.load_extensions()
        assert space.toolbox.call("keep", {"key": "a"}, CALLER) == {}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("local t = {} t.t = t context.store.set('k', t)", "a table contains itself"),
        ("context.store.set('k', print)", "a function cannot be kept"),
        ("context.store.set({}, 1)", "string expected, got table"),
        ("context.store.set(nil, 1)", "string expected, got nil"),
        ("context.store.set('', 1)", "a key is text of 1 to 256 bytes"),
        ("context.store.set(('k'):rep(257), 1)", "a key is text of 1 to 256 bytes"),
        ("context.store.set('k', ('x'):rep(1 << 20))", "over the limit of 1,048,576"),
        ("context.store.set('k', ('x'):rep(20 << 20))", r"context\.store\.set"),
        ("context.store.add('k', 'one')", "a finite number expected, got string"),
        ("context.store.add('k', 0/0)", "a finite number expected"),
        ("context.store.set('k', 'x') context.store.add('k')", "must be a number"),
        ("context.store.set('k', math.maxinteger) context.store.add('k')", "larger than a number can be"),
        ("local t = {} for _ = 1, 200 do t = {t} end context.store.set('k', t)", "nested more than 128"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_named(tmp_path: Path, body: str, reason: str) -> None:
    with opened(tmp_path, bad=tool_of(body), keep=KEEP) as space:
        with pytest.raises(ToolError, match=reason):
            space.toolbox.call("bad", {}, CALLER)
        assert space.toolbox.call("keep", {"key": "a", "value": {"it": 1}}, CALLER) == [1]


@pytest.mark.parametrize("key", [None, 5, [], "", "\ud800", "k" * (MAX_KEY_BYTES + 1), "é" * 129])
def test_a_key_that_a_worker_in_other_hands_sends_is_refused(store: ScriptStore, key: JSON) -> None:
    for act in (store.get, lambda *arguments: store.set(arguments[0], arguments[1], 1, arguments[2])):
        with pytest.raises(ToolError, match="a key is text"):
            act("s", key, soon())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\udfff", {"a": ["\ud800"]}])
def test_a_value_that_json_cannot_say_is_refused(store: ScriptStore, value: JSON) -> None:
    with pytest.raises(ToolError, match="nothing that JSON can say"):
        store.set("s", "k", value, soon())
    assert store.keys("s", soon()) == []


def test_a_full_store_refuses_keeps_what_it_has_and_takes_again_once_something_is_dropped(
    store: ScriptStore,
) -> None:
    store.set("s", "big", "x" * (MAX_BYTES - 100), soon())
    with pytest.raises(ToolError, match="over the limit"):
        store.set("s", "more", "x" * 100, soon())
    with pytest.raises(ToolError, match="over the limit"):
        store.set("s", "big", "x" * MAX_BYTES, soon())
    assert store.get("s", "big", soon()) == "x" * (MAX_BYTES - 100)
    store.set("other", "k", "x" * 1000, soon())  # another script's is another's
    store.set("s", "big", None, soon())
    store.set("s", "more", "x" * 100, soon())
    assert store.keys("s", soon()) == ["more"]


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[ScriptStore]:
    store = FileScriptStore(str(tmp_path / ".ctx" / "ctx.db"))
    yield store
    store.close()


def test_there_are_only_so_many_keys(tmp_path: Path, file_store: ScriptStore) -> None:
    store = file_store
    store.set("s", "k0", 0, soon())
    with sqlite3.connect(tmp_path / ".ctx" / "ctx.db") as writer:
        rows = [("s", f"k{number}", 3, "1") for number in range(1, MAX_KEYS)]
        writer.executemany("INSERT INTO script_value VALUES (?, ?, ?, ?)", rows)
    writer.close()
    with pytest.raises(ToolError, match="1,000 keys"):
        store.set("s", "one more", 1, soon())
    store.set("s", "k5", "in place of what was there", soon())
    assert len(store.keys("s", soon())) == MAX_KEYS


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
def test_a_deadline_that_passes_while_the_file_is_taken_ends_the_call_and_spoils_nothing(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, {"keep": 2.0}, keep=KEEP) as space:
        space.toolbox.call("keep", {"key": "a", "value": {"it": 1}}, CALLER)
        writer = sqlite3.connect(space.config.db.path, isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        try:
            began_s = time.monotonic()
            with pytest.raises((ScriptTimeout, ToolError)):
                space.toolbox.call("keep", {"key": "a", "value": {"it": 2}}, CALLER)
            assert time.monotonic() - began_s < 20  # it is not freed meanwhile
        finally:
            writer.execute("ROLLBACK")
            writer.close()
        assert space.toolbox.call("keep", {"key": "a"}, CALLER) == [1]


def test_a_file_that_another_process_keeps_is_busy_by_the_deadline(
    tmp_path: Path, file_store: ScriptStore
) -> None:
    store = file_store
    store.set("s", "k", 1, soon())
    writer = sqlite3.connect(tmp_path / ".ctx" / "ctx.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy):
        store.set("s", "k", 2, time.monotonic() + 0.1)
    writer.close()
    store.set("s", "k", 3, soon())
    assert store.get("s", "k", soon()) == 3


def test_a_catalog_that_is_no_database_is_an_error_with_a_mend(tmp_path: Path) -> None:
    path = tmp_path / "ctx.db"
    path.write_bytes(b"not a database, but as long as a page of one " * 200)
    store = FileScriptStore(str(path))
    with pytest.raises(StoreError, match=r"not a SQLite file: restore a backup"):
        store.get("s", "k", soon())


@pytest.mark.slow
def test_what_set_has_answered_survives_a_kill(tmp_path: Path) -> None:
    (tmp_path / "keep.lua").write_text(KEEP)
    configured(tmp_path, '[tools.script.keep]\npath = "./keep.lua"\n')
    with Running(tmp_path) as server:
        assert server.call("keep", {"key": "a", "value": {"it": "kept"}}).status == 200
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(60)
    with Running(tmp_path) as server:
        assert server.call("keep", {"key": "a"}).body == {"result": ["kept"]}


def test_a_script_tried_outside_any_project_keeps_nothing_and_makes_no_file(tmp_path: Path) -> None:
    from kit import ctx

    (tmp_path / "keep.lua").write_text(KEEP)
    reply = ctx("tool", "test", "keep.lua", "--param", "key=a", cwd=tmp_path)
    assert reply.returncode == 5
    assert "context.store is not available here" in reply.stderr
    assert not (tmp_path / ".ctx").exists()


def test_a_pack_s_script_has_no_such_store(tmp_path: Path) -> None:
    from ctx.extensions.bridge import Bridge
    from ctx.lua.host import Policy

    with opened(tmp_path, keep=KEEP) as space:
        bridge = space.runner().bridge
        assert isinstance(bridge, Bridge)
        answer = bridge.host_for(Policy("hindsight"), CALLER, memory=lambda *_: None)
        for operation in ("get", "set", "add", "keys"):
            with pytest.raises(CtxError, match="not available here"):
                answer(f"context.store.{operation}", b'{"key": "a"}', soon())
