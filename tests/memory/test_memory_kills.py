"""Processes killed while they correct, forget, undo, purge, merge, rename, import or capture memories."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from memory_kit import WordEmbedder
from memory_mover import CONFIG, State, captured

from ctx.memory.folder import Folder
from ctx.memory.store import MemoryStore

MOVER = Path(__file__).parent / "memory_mover.py"
GRADUAL = ("take_in", "capture")  # a memory at a time: what is cut short is finished when it is done again


def run_and_kill(folder: Path, seed: int, chance: random.Random) -> list[dict[str, Any]]:
    """The lines of a mover that was killed somewhere in a step, or just after one."""
    with subprocess.Popen(
        [sys.executable, str(MOVER), str(folder), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=MOVER.parent,
        env={**os.environ, "HOME": str(folder), "OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2 + chance.randrange(12))]
        for _ in range(chance.randrange(60_000)):
            pass  # up to some milliseconds of chance between a line and the kill
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.read().splitlines()
    complete = []
    for line in lines:
        try:
            complete.append(json.loads(line))
        except ValueError:
            continue  # cut in two by the kill: nothing was acknowledged by it
    return complete


def state(store: MemoryStore, marker: str) -> State:
    """The banks in which a step's memories are, with their texts."""
    texts: State = {}
    for name in store.banks():
        if name == "alice" or name.startswith(marker):
            named = name in (marker, f"{marker}-x")
            facts = store.bank(name).browse({"kind": "fact"}, limit=1000)["items"]
            texts[name] = sorted(fact["text"] for fact in facts if named or fact["text"].split()[0] == marker)
    return {name: entries for name, entries in texts.items() if entries}


def ordered(texts: State) -> State:
    return {name: sorted(entries) for name, entries in texts.items() if entries}


def check(folder: Path, lines: list[dict[str, Any]]) -> str | None:
    """Holds what was acknowledged, and what was not, against the store; the step that was cut short."""
    finished = {line["done"] for line in lines if "done" in line}
    interrupted = None
    with MemoryStore(str(folder / "ctx.db"), WordEmbedder()) as store:
        store.embed_pending()
        assert store.check(deep=True) == []
        for line in lines:
            if "step" not in line:
                continue
            contents, before, after = (
                state(store, line["marker"]),
                ordered(line["before"]),
                ordered(line["after"]),
            )
            if line["marker"] in finished:
                assert contents == after, line
                continue
            interrupted = line["step"]
            if interrupted not in GRADUAL:
                assert contents in (before, after), (line, contents)
                continue
            entries = contents.get(line["marker"], [])
            assert len(entries) == len(set(entries)), line
            assert set(entries) <= set(line["after"][line["marker"]]), line
            if interrupted == "take_in":
                path = str(folder / line["marker"])
                assert Folder(store.bank(line["marker"]), path).import_()["conflicts"] == []
            else:
                captured(folder, line["marker"])
            assert state(store, line["marker"]) == after, line
        for line in lines:
            if line.get("step") == "purge" and line["marker"] in finished:
                for file in folder.glob("ctx.db*"):
                    assert f"{line['marker']} fact".encode() not in file.read_bytes(), line
    return interrupted


def kill_movers(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Kills so many; how often each step was cut short."""
    (folder / "ctx.toml").write_text(CONFIG)
    chance = random.Random(seed)
    interrupted: dict[str, int] = {}
    for number in range(kills):
        step = check(folder, run_and_kill(folder, seed * 1000 + number, chance))
        if step is not None:
            interrupted[step] = interrupted.get(step, 0) + 1
    return interrupted


@pytest.mark.slow
def test_a_killed_mover_leaves_each_step_done_or_not_begun(tmp_path: Path) -> None:
    kill_movers(tmp_path, 6, seed=3)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_two_hundred_killed_movers_leave_each_step_done_or_not_begun(tmp_path: Path) -> None:
    kill_movers(tmp_path, 200, seed=4)


WRITE = """
import sys
from ctx.memory.store import MemoryStore
with MemoryStore(sys.argv[1]) as store:
    for number in range(40):
        store.bank("shared").put(f"{sys.argv[2]} note {number}")
"""


def test_two_processes_that_write_one_bank_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "ctx.db")
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, path, name]) for name in ("otter", "heron")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    with MemoryStore(path, WordEmbedder()) as store:
        store.embed_pending()
        assert store.check(deep=True) == []
        texts = {record["text"] for record in store.bank("shared").every()}
    assert texts == {f"{name} note {number}" for name in ("otter", "heron") for number in range(40)}


def test_a_note_stored_by_an_import_that_died_is_taken_for_that_memory(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "pear.md").write_text("I like pears")
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder()) as store:
        bank = store.bank("alice")
        id = bank.put("I like pears")["id"]  # as far as the import came
        assert Folder(bank, str(notes)).import_()["conflicts"] == []
        assert id in (notes / "pear.md").read_text()
        (notes / "again.md").write_text("I like pears.")
        [conflict] = Folder(bank, str(notes)).import_()["conflicts"]
        assert conflict["file"] == "again.md"
        assert bank.count() == 1
