"""The key ring: how keys are stored, what they open, when changes take effect."""

import multiprocessing
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from kit import write_key_file

from ctx.errors import BadRequest, ConfigError, NotFound, StoreError
from ctx.memory.store import MemoryStore
from ctx.server.keys import Grant, KeyRing, digest, match


def test_only_a_hash_is_stored_and_the_file_is_the_owners(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "memory.db"
    ring = KeyRing(str(path))
    assert ring.list() == []
    assert not path.exists(), "looking makes no file"
    key, record = ring.create("laptop", ["alice"])
    assert key.startswith("ctx_")
    assert len(key) == len("ctx_") + 43, "256 bits, six a character"
    ring.close()
    assert key.encode() not in path.read_bytes()
    assert digest(key).hex() == record.sha256 == KeyRing(str(path)).list()[0].sha256
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert (path.parent / ".gitignore").exists()


def test_a_change_by_another_process_takes_effect(tmp_path: Path) -> None:
    path = str(tmp_path / "memory.db")
    server, command = KeyRing(path), KeyRing(path)
    assert server.closed is False
    key, record = command.create("laptop", ["alice"])
    assert server.closed is True, "the door is shut before anybody comes with a key"
    assert match(key, server.candidates()) is not None
    revoked = command.revoke(record.id, clock=lambda: 7)
    assert revoked == record._replace(revoked_ms=7)
    assert match(key, server.candidates()) is None


def test_revoking_the_last_key_keeps_the_server_closed(tmp_path: Path) -> None:
    ring = KeyRing(str(tmp_path / "memory.db"))
    ring.create("laptop")
    ring.revoke("laptop", clock=lambda: 7)
    assert ring.closed
    assert ring.candidates() == ()
    assert ring.list()[0].revoked_ms == 7


def test_neither_does_losing_or_replacing_the_file(tmp_path: Path) -> None:
    path = tmp_path / "project" / "memory.db"
    ring = KeyRing(str(path))
    key, _ = ring.create("laptop")
    path.unlink()
    assert ring.closed
    assert match(key, ring.candidates()) is not None
    MemoryStore(str(tmp_path / "empty.db")).close()
    (tmp_path / "empty.db").rename(path)
    assert ring.closed
    assert match(key, ring.candidates()) is not None


def test_a_damaged_file_leaves_the_server_closed(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    path.write_bytes(b"not a database" * 1000)
    ring = KeyRing(str(path))
    assert ring.closed
    assert ring.candidates() == ()
    with pytest.raises(StoreError, match="not a SQLite file"):
        ring.list()
    with pytest.raises(StoreError, match="not a SQLite file"):
        ring.create("laptop")


def test_the_keys_of_an_earlier_version_are_moved_once(tmp_path: Path) -> None:
    earlier, path = tmp_path / "keys.json", str(tmp_path / "memory.db")
    key = write_key_file(earlier, "phone", "laptop")
    ring = KeyRing(path, str(earlier))
    assert [record.name for record in ring.list()] == ["phone", "laptop"]
    assert match(key, ring.candidates()) == Grant("key:laptop")
    assert not earlier.exists()
    (tmp_path / "keys.json.moved").rename(earlier)  # as if it had been killed before the file was renamed
    ring.revoke("laptop")
    assert [record.revoked_ms is None for record in KeyRing(path, str(earlier)).list()] == [True, False]
    assert (tmp_path / "keys.json.moved").exists()


def test_a_key_of_an_earlier_version_that_has_the_name_of_another_stops_the_start(tmp_path: Path) -> None:
    write_key_file(tmp_path / "keys.json", "laptop")
    path = str(tmp_path / "memory.db")
    KeyRing(path).create("laptop")
    with pytest.raises(ConfigError, match=r"keys\.json: another key called 'laptop' exists"):
        KeyRing(path, str(tmp_path / "keys.json"))
    assert (tmp_path / "keys.json").exists()


def test_keys_that_cannot_be_written_are_an_error_of_the_store(tmp_path: Path) -> None:
    ring = KeyRing(str(tmp_path / "memory.db"))
    ring.create("laptop")
    with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON api_key BEGIN SELECT RAISE(ABORT, 'full'); END")
        with pytest.raises(StoreError):
            ring.create("phone")
    assert [record.name for record in ring.list()] == ["laptop"]


def test_a_name_may_be_used_again_once_its_key_is_revoked(tmp_path: Path) -> None:
    ring = KeyRing(str(tmp_path / "memory.db"))
    first, _ = ring.create("laptop")
    with pytest.raises(BadRequest, match="exists"):
        ring.create("laptop")
    ring.revoke("laptop")
    second, _ = ring.create("laptop")
    assert match(first, ring.candidates()) is None
    assert match(second, ring.candidates()) is not None


@pytest.mark.parametrize("bank", ["..", ".", "a/b", "", "a b", "ä", "x" * 129, "pack:sekha"])
def test_a_bank_that_no_url_could_name_is_refused(tmp_path: Path, bank: str) -> None:
    with pytest.raises(BadRequest):
        KeyRing(str(tmp_path / "memory.db")).create("laptop", [bank])


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "x" * 65])
def test_a_name_that_no_list_could_show_is_refused(tmp_path: Path, name: str) -> None:
    ring = KeyRing(str(tmp_path / "memory.db"))
    with pytest.raises(BadRequest, match="1 to 64 of"):
        ring.create(name)
    assert ring.list() == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "[" * 200_000,
        '{"version": 1, "keys": [{}]}',
        '{"version": 1}',
        '{"keys": [{"id": "a", "name": "b", "banks": ["*"], "sha256": "no hash", "created_ms": 1}]}',
    ],
)
def test_a_file_that_is_no_key_file_stops_the_start(tmp_path: Path, content: str) -> None:
    (tmp_path / "keys.json").write_text(content)
    with pytest.raises(ConfigError, match=r"keys\.json: not a key file"):
        KeyRing(str(tmp_path / "memory.db"), str(tmp_path / "keys.json"))


def test_keys_are_written_into_no_folder_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".ctx").symlink_to("elsewhere")
    with pytest.raises(StoreError, match="link"):
        KeyRing(str(tmp_path / ".ctx" / "memory.db")).create("laptop")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_keys_from_another_ring_are_added_and_revoked(tmp_path: Path) -> None:
    local, distant = KeyRing(str(tmp_path / "local.db")), KeyRing(str(tmp_path / "distant.db"))
    key, _ = distant.create("laptop", ["alice"])
    for _ in range(2):  # the second time changes nothing
        local.add(distant.list())
        assert match(key, local.candidates()) == Grant("key:laptop", frozenset(["alice"]))
        assert len(local.list()) == 1
    distant.revoke("laptop", clock=lambda: 7)
    local.add(distant.list())
    assert match(key, local.candidates()) is None
    assert [record.revoked_ms for record in local.list()] == [7]
    local.create("desk")
    distant.create("desk")
    with pytest.raises(BadRequest, match="another key called 'desk'"):
        local.add(distant.list())
    distant.revoke("desk")
    local.add(distant.list())
    assert len(local.list()) == 3


def _create(path: str, names: list[str]) -> None:
    ring = KeyRing(path)
    for name in names:
        ring.create(name)


def test_processes_that_write_at_once_lose_no_key(tmp_path: Path) -> None:
    path = str(tmp_path / "memory.db")
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=_create, args=(path, [f"{writer}-{turn}" for turn in range(10)]))
        for writer in range(3)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert len(KeyRing(path).list()) == 30


def test_of_two_keys_of_one_name_the_one_in_force_is_revoked(tmp_path: Path) -> None:
    ring = KeyRing(str(tmp_path / "memory.db"))
    _, former = ring.create("laptop")
    ring.revoke("laptop", clock=lambda: 7)
    key, present = ring.create("laptop")
    assert ring.revoke("laptop").id == present.id
    assert match(key, ring.candidates()) is None
    assert ring.list()[0].revoked_ms == 7
    with pytest.raises(NotFound, match="no valid key is called"):
        ring.revoke(former.id)
