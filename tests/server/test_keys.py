"""The key ring: how keys are stored, what they open, when changes take effect."""

import json
import multiprocessing
import os
import shutil
import stat
from pathlib import Path

import pytest

from ctx.errors import BadRequest, ConfigError, NotFound, StoreError
from ctx.server.keys import Grant, KeyRing, digest, match


def test_only_a_hash_is_stored_and_the_file_is_the_owners(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "keys.json"
    key, record = KeyRing(str(path)).create("laptop", ["alice"])
    assert key.startswith("ctx_")
    assert len(key) == len("ctx_") + 43, "256 bits, six a character"
    assert key not in path.read_text()
    assert digest(key).hex() == record.sha256 == json.loads(path.read_text())["keys"][0]["sha256"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert (path.parent / ".gitignore").exists()
    assert [name for name in os.listdir(path.parent) if name.endswith(".tmp")] == []


def test_a_change_by_another_process_takes_effect(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.json")
    server, command = KeyRing(path), KeyRing(path)
    assert server.closed is False
    key, record = command.create("laptop", ["alice"])
    assert server.closed is True, "the door is shut before anybody comes with a key"
    assert match(key, server.candidates()) is not None
    revoked = command.revoke(record.id, clock=lambda: 7)
    assert revoked == record._replace(revoked_ms=7)
    assert match(key, server.candidates()) is None


def test_revoking_the_last_key_keeps_the_server_closed(tmp_path: Path) -> None:
    ring = KeyRing(str(tmp_path / "keys.json"))
    ring.create("laptop")
    ring.revoke("laptop", clock=lambda: 7)
    assert ring.closed
    assert ring.candidates() == ()
    assert ring.list()[0].revoked_ms == 7


def test_neither_does_losing_or_breaking_the_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    ring = KeyRing(str(path))
    key, _ = ring.create("laptop")
    path.write_text("not json")
    assert ring.closed
    assert match(key, ring.candidates()) is not None
    path.unlink()
    assert ring.closed


@pytest.mark.parametrize(
    "oddity",
    [
        {"banks": "ab"},  # not the banks a and b
        {"banks": {"*": 1}},
        {"banks": ["bad bank!"]},
        {"name": "two words"},
        {"name": None},
        {"id": 5},
        {"sha256": "00"},
        {"created_ms": None},
        {"created_ms": 10**30},
        {"revoked_ms": "yesterday"},
        {"more": 1},
    ],
)
def test_a_record_that_no_ctx_has_written_is_refused(tmp_path: Path, oddity: dict[str, object]) -> None:
    path = tmp_path / "keys.json"
    KeyRing(str(path)).create("laptop")
    content = json.loads(path.read_text())
    content["keys"][0].update(oddity)
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="not a key ring; restore it"):
        KeyRing(str(path))


def test_a_deeply_nested_key_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text("[" * 200_000)
    with pytest.raises(ConfigError, match="not a key ring; restore it"):
        KeyRing(str(path))


def test_keys_that_cannot_be_written_are_an_error_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    ring = KeyRing(str(path))
    ring.create("laptop")
    (tmp_path / "keys.json.lock").unlink(missing_ok=True)
    (tmp_path / "keys.json.lock").mkdir()
    with pytest.raises(StoreError, match=f"the keys cannot be written in {tmp_path}: `keys.json.lock`"):
        ring.create("phone")
    assert [record.name for record in ring.list()] == ["laptop"]


def test_a_name_may_be_used_again_once_its_key_is_revoked(tmp_path: Path) -> None:
    ring = KeyRing(str(tmp_path / "keys.json"))
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
        KeyRing(str(tmp_path / "keys.json")).create("laptop", [bank])


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "x" * 65])
def test_a_name_that_no_list_could_show_is_refused(tmp_path: Path, name: str) -> None:
    ring = KeyRing(str(tmp_path / "keys.json"))
    with pytest.raises(BadRequest, match="1 to 64 of"):
        ring.create(name)
    assert ring.list() == []


@pytest.mark.parametrize("content", ["", "[]", '{"version": 1, "keys": [{}]}', '{"version": 9, "keys": []}'])
def test_a_file_that_is_no_key_ring_stops_the_start(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"keys\.json"):
        KeyRing(str(path))


def test_keys_are_written_anew_once_the_folder_that_went_with_them_is_there_again(tmp_path: Path) -> None:
    folder = tmp_path / ".ctx"
    path = str(folder / "keys.json")
    ring = KeyRing(path)
    key, _ = ring.create("laptop", ["alice"])
    shutil.rmtree(folder)
    assert match(key, ring.candidates()) is not None
    assert not folder.exists(), "whoever deletes a store is not given another"
    folder.mkdir()
    assert match(key, ring.candidates()) is not None
    assert match(key, KeyRing(path).candidates()) is not None
    shutil.rmtree(folder)
    folder.mkdir()  # before anybody has looked
    assert match(key, ring.candidates()) is not None
    assert match(key, KeyRing(path).candidates()) is not None


def test_keys_are_written_into_no_folder_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".ctx").symlink_to("elsewhere")
    with pytest.raises(StoreError, match="link"):
        KeyRing(str(tmp_path / ".ctx" / "keys.json")).create("laptop")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_keys_from_another_ring_are_added_and_revoked(tmp_path: Path) -> None:
    local, distant = KeyRing(str(tmp_path / "local.json")), KeyRing(str(tmp_path / "distant.json"))
    key, _ = distant.create("laptop", ["alice"])
    assert local.add(distant.list()) == 1
    assert match(key, local.candidates()) == Grant("key:laptop", frozenset(["alice"]))
    assert local.add(distant.list()) == 0
    distant.revoke("laptop", clock=lambda: 7)
    assert local.add(distant.list()) == 1
    assert match(key, local.candidates()) is None
    assert [record.revoked_ms for record in local.list()] == [7]
    local.create("desk")
    distant.create("desk")
    with pytest.raises(BadRequest, match="another key called 'desk'"):
        local.add(distant.list())
    distant.revoke("desk")
    assert local.add(distant.list()) == 1
    assert len(local.list()) == 3


def _create(path: str, names: list[str]) -> None:
    ring = KeyRing(path)
    for name in names:
        ring.create(name)


def test_processes_that_write_at_once_lose_no_key(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.json")
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
    ring = KeyRing(str(tmp_path / "keys.json"))
    _, former = ring.create("laptop")
    ring.revoke("laptop", clock=lambda: 7)
    key, present = ring.create("laptop")
    assert ring.revoke("laptop").id == present.id
    assert match(key, ring.candidates()) is None
    assert ring.list()[0].revoked_ms == 7
    with pytest.raises(NotFound, match="no key in force is called"):
        ring.revoke(former.id)
