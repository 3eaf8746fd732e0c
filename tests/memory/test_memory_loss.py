"""What was acknowledged and is no longer there is said, and copies and salvage bring back what they can."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from kit import ctx, workspace
from location_kit import TEXTS, count_of, memory_of, recalled, remember, repository

from ctx import files
from ctx.config import load_config
from ctx.errors import StoreError
from ctx.memory import copies, salvage
from ctx.memory.copies import Ledger, copy_if_changed
from ctx.models import Caller
from ctx.server.keys import key_ring, match
from ctx.server.overview import health

WRITE_AND_DIE = """
import os, signal, sys
from ctx.config import load_config
from ctx.workspace import open_workspace
space = open_workspace(load_config(sys.argv[1], os.environ))
bank = space.memory.bank("default")
for number in range(50):
    bank.put(f"The otter number {number} pours tea.")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return repository(tmp_path / "project")


def write_and_die(config: Path) -> None:
    """50 memories, acknowledged, by a process that is killed: they are in the log alone."""
    process = subprocess.run([sys.executable, "-c", WRITE_AND_DIE, str(config)], check=False, timeout=60)
    assert process.returncode < 0


def doctor(config: Path, *options: str) -> tuple[int, str]:
    process = ctx("doctor", "--json", *options, cwd=config.parent)
    found = json.loads(process.stdout)["findings"]
    lines = [f"{row['state']} {row['detail']}" for row in found if row["what"] == "memory"]
    return process.returncode, "\n".join(lines)


def degraded(config: Path) -> str:
    with workspace(config) as space:
        return " ".join(health(space).get("degraded", []))


def cut(path: Path, share: float) -> None:
    os.truncate(path, int(path.stat().st_size * share))


def test_a_truncated_log_is_a_loss_that_is_counted(config: Path) -> None:
    write_and_die(config)
    cut(Path(f"{memory_of(config)}-wal"), 0.66)
    kept = len(recalled(config))
    assert 0 < kept < 50
    code, said = doctor(config)
    assert (code, f"failed {50 - kept} memories that were stored are missing" in said) == (1, True), said
    assert f"{50 - kept} memories" in degraded(config)
    recall = ctx("memory", "recall", "otter", cwd=config.parent)
    assert f"{50 - kept} memories" in recall.stdout
    with workspace(config) as space:
        assert space.memory.bank("default").search("otter")["missing"] == 50 - kept
    _, said = doctor(config, "--fix")
    assert f"{50 - kept} memories could not be read anywhere" in said
    assert doctor(config)[1].count("failed") == 0
    assert "missing" not in degraded(config)


@pytest.mark.parametrize("damage", ["deleted", "empty", "half"])
def test_a_file_that_is_gone_empty_or_cut_is_a_loss(config: Path, damage: str) -> None:
    remember(config, *TEXTS)
    memory = memory_of(config)
    for copy in copies.copies(str(memory)):
        os.unlink(copy)
    if damage == "deleted":
        memory.unlink()
    else:
        cut(memory, 0 if damage == "empty" else 0.5)
    code, said = doctor(config)
    assert (code, "failed" in said) == (1, True), said
    assert "memory" in degraded(config)
    _, said = doctor(config, "--fix")
    assert (
        "no memory is missing" if damage == "half" else "5 memories could not be read anywhere"
    ) in said, said
    assert "failed" not in doctor(config)[1]


def damage_journal(memory: Path) -> None:
    with closing(sqlite3.connect(memory)) as connection:
        select = "SELECT rootpage FROM sqlite_master WHERE name = 'memory_journal'"
        root = connection.execute(select).fetchone()[0]
    overwrite(memory, [root])


def test_the_newest_sound_copy_comes_back_with_what_was_stored_since(config: Path) -> None:
    remember(config, *TEXTS)
    memory = str(memory_of(config))
    assert copies.copies(memory) == [f"{memory}.1"]
    remember(config, "The badger came later.")
    damage_journal(Path(memory))
    assert doctor(config)[0] == 1
    _, said = doctor(config, "--fix")
    assert "5 memories from the copy" in said, said
    assert "1 more read from the file itself; no memory is missing" in said
    assert recalled(config) == sorted([*TEXTS, "The badger came later."])
    with workspace(config) as space:
        assert space.memory.check(deep=True) == []


def overwrite(path: Path, pages: list[int]) -> None:
    size = int.from_bytes(path.read_bytes()[16:18], "big")
    with open(path, "r+b") as file:
        for page in pages:
            file.seek((page - 1) * size)
            file.write(b"\xa5" * size)


def test_of_a_file_with_every_fifth_page_overwritten_the_count_says_what_is_missing(config: Path) -> None:
    remember(config, *(f"The heron number {number} likes tea. {'x' * 300}" for number in range(200)))
    memory = memory_of(config)
    for copy in copies.copies(str(memory)):
        os.unlink(copy)
    with closing(sqlite3.connect(memory)) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
    overwrite(memory, list(range(5, pages + 1, 5)))
    code, said = doctor(config)
    assert code == 1, said
    _, said = doctor(config, "--fix")
    kept = len(recalled(config))
    assert 0 < kept < 200
    assert f"{200 - kept} memories could not be read anywhere" in said, said
    with workspace(config) as space:
        assert space.memory.check(deep=True) == []


def test_a_correction_that_the_copy_lacks_is_read_from_the_file(config: Path) -> None:
    with workspace(config) as space:
        bank = space.memory.bank("default")
        id = bank.put("The heron lives in Berlin.")["id"]
    assert copies.copies(str(memory_of(config)))
    with workspace(config) as space:
        space.memory.bank("default").update(id, {"text": "The heron lives in Paris."})
    Ledger(str(memory_of(config))).reset(9, 9)
    doctor(config)
    doctor(config, "--fix")
    assert recalled(config) == ["The heron lives in Paris."]


def test_on_a_full_disk_nothing_is_touched(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(config, *TEXTS)
    memory = memory_of(config)
    overwrite(memory, [2])
    before = {path.name: path.read_bytes() for path in memory.parent.iterdir()}
    monkeypatch.setattr(files, "free_bytes", lambda path: 1000)
    with pytest.raises(StoreError, match="nothing was changed"):
        salvage.restore(str(memory))
    after = {path.name: path.read_bytes() for path in memory.parent.iterdir()}
    assert before == after


def test_copies_are_about_a_day_apart_and_three_are_kept(config: Path) -> None:
    remember(config, TEXTS[0])
    memory = str(memory_of(config))
    for day in range(6):
        for copy in copies.copies(memory):  # a day passes
            moment = os.stat(copy).st_mtime - 86_400
            os.utime(copy, (moment, moment))
        remember(config, f"Day {day}.")
        assert not copy_if_changed(memory)
    kept = copies.copies(memory)
    assert [path.rpartition(".")[2] for path in kept] == ["1", "2", "3"]
    assert [stored(path) for path in kept] == [7, 6, 5]
    remember(config, "Again.")
    assert copy_if_changed(memory)
    remember(config, "And again.")
    assert copy_if_changed(memory)
    assert [stored(path) for path in copies.copies(memory)] == [9, 7, 6]


def stored(path: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM memories").fetchone()[0])


def test_a_damaged_file_is_not_copied_over_sound_copies(config: Path) -> None:
    remember(config, *TEXTS)
    memory = str(memory_of(config))
    assert stored(f"{memory}.1") == len(TEXTS)
    with closing(sqlite3.connect(memory)) as connection:
        root = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'memory_journal'"
        ).fetchone()[0]
    overwrite(Path(memory), [root])
    later = time.time() + 10
    os.utime(memory, (later, later))
    assert not copy_if_changed(memory)
    assert stored(f"{memory}.1") == len(TEXTS)


def test_forgetting_erasing_and_dropping_raise_no_alarm(config: Path) -> None:
    with workspace(config) as space:
        bank = space.memory.bank("default")
        ids = [bank.put(text)["id"] for text in TEXTS]
        bank.delete(ids[0])
        bank.delete_all([ids[1]], hard=True)
        space.memory.bank("other").put("x")
        space.memory.delete("other")
    assert count_of(config) | {"changes": 0} == {"memories": 3, "changes": 0, "lost": 0, "lost_changes": 0}
    assert "failed" not in doctor(config)[1]


def test_a_count_that_lags_behind_raises_no_alarm(config: Path) -> None:
    remember(config, *TEXTS)
    Ledger(str(memory_of(config))).reset(3, 3)
    assert recalled(config) == TEXTS
    assert count_of(config)["memories"] == len(TEXTS)
    assert "failed" not in doctor(config)[1]


def test_a_restored_backup_is_no_loss(config: Path) -> None:
    remember(config, *TEXTS)
    assert ctx("backup", "b.zip", cwd=config.parent).returncode == 0
    remember(config, "One more.")
    process = ctx("restore", "--replace", "b.zip", cwd=config.parent)
    assert process.returncode == 0, process.stderr
    assert recalled(config) == TEXTS
    assert "failed" not in doctor(config)[1]
    assert load_config(str(config), os.environ).memory.path is None


def test_the_keys_in_a_damaged_file_are_restored_with_the_memories(config: Path) -> None:
    remember(config, *TEXTS)  # of which a copy is made, without the keys
    with closing(key_ring(load_config(str(config), os.environ))) as ring:
        key, _ = ring.create("laptop")
    damage_journal(memory_of(config))
    assert doctor(config)[0] == 1
    doctor(config, "--fix")
    with closing(key_ring(load_config(str(config), os.environ))) as ring:
        assert match(key, ring.candidates()) is not None


READERS = (
    ("hindsight", "recall", {"query": "heron"}),
    ("hindsight", "list_memories", {}),
    ("hindsight", "reflect", {"query": "heron"}),
    ("hindsight", "hindsight_search", {"bank_id": "default", "query": "heron"}),
    ("claude-recall", "mcp__claude-recall__search", {"query": "heron"}),
    ("claude-recall", "mcp__claude-recall__retrieve_memory", {}),
    ("sekha", "memory_search", {"query": "heron"}),
)


def test_every_dialect_says_that_memories_are_missing(config: Path) -> None:
    config.write_text(config.read_text().replace('["hindsight"]', '["hindsight", "claude-recall", "sekha"]'))
    remember(config, *TEXTS)
    memory_of(config).unlink()
    for copy in copies.copies(str(memory_of(config))):
        os.unlink(copy)
    with workspace(config) as space:
        space.memory.bank("default").put("The heron is back.")
        assert {pack.name for pack in space.packs} == {pack for pack, _, _ in READERS}
        for _, tool, arguments in READERS:
            reply = space.toolbox.call(tool, arguments, Caller("rest"))
            assert (reply.get("data") or reply)["missing"] == len(TEXTS), tool
