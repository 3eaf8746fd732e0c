"""`kill -9` during backup, restore and import leaves whole files and whole databases."""

import os
import random
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from kit import found as matches
from kit import picture, project, trust, workspace

from ctx.backup import CATALOG, MEMORY, Store, back_up

pytestmark = pytest.mark.slow

WORDS = ("xylophone", "quokka", "marimba")
CONFIG = '[connectors.filesystem.docs]\nroot = "./docs"\n[packs]\nenabled = ["hindsight"]\n[memory]\npath = "./.ctx/memory.db"\n'
HARNESS = '[connectors.filesystem.docs]\nroot = "./docs"\n[vector_index]\nbackend = "auto"\n'


@pytest.mark.timeout(600)
def test_kills_during_backup_restore_and_import_leave_whole_files_and_stores(tmp_path: Path) -> None:
    kill_and_look(tmp_path, kills=6, seed=1)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_many_kills_during_backup_restore_and_import(tmp_path: Path) -> None:
    kill_and_look(tmp_path, kills=int(os.environ.get("CTX_KILLS", "50")), seed=2)


def store(folder: Path) -> Store:
    return Store(*(str(folder / ".ctx" / name) for name in (CATALOG, MEMORY)))


def kill_and_look(folder: Path, *, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    config = project(
        folder, {f"{number}.md": f"# {WORDS[0]}\n\nPage {number}.\n" for number in range(40)}, CONFIG
    )
    trust(config)  # it names a place for the memories
    (folder / "config").mkdir()
    (folder / "config" / "harness.toml").write_text(HARNESS)
    states = []
    for number, word in enumerate(WORDS[:2]):
        for path in (folder / "docs").iterdir():
            path.write_text(path.read_text().replace(WORDS[0], word))
        with workspace(config) as space:
            space.indexer.run()
            space.memory.bank("ana").put(f"The {word} is remembered.")
        states.append(state(config))
        back_up(store(folder), str(folder / f"{number}.zip"))
    commands = (
        ("backup", "new.zip"),
        ("restore", "--replace", "0.zip"),
        ("restore", "--replace", "1.zip"),
        ("import", "context-harness", "config/harness.toml", "--output", "imported.toml"),
    )
    lengths = {}
    for command in commands:
        began_s = time.monotonic()
        assert started(folder, command).wait() == 0
        lengths[command] = time.monotonic() - began_s
    whole = (folder / "imported.toml").read_text()
    for _ in range(kills):
        command = chance.choice(commands)
        for name in ("new.zip", "imported.toml"):
            (folder / name).unlink(missing_ok=True)
        process = started(folder, command)
        try:
            process.wait(chance.uniform(0.3, 1.0) * lengths[command])
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        documents, memories = state(config)
        assert memories in [stored for _, stored in states]
        current = [stored for stored, _ in states].index(documents)
        with workspace(config) as space:
            pages = [f"{number}.md" for number in range(40)]
            for number, ids in enumerate(matches(space, *WORDS[:2])):
                assert ids == [] or (number == current and set(ids) <= set(pages))
        if (folder / "new.zip").exists():
            with zipfile.ZipFile(folder / "new.zip") as archive:
                assert archive.testzip() is None
        if (folder / "imported.toml").exists():
            assert (folder / "imported.toml").read_text() == whole
    for number in range(2):
        assert started(folder, ("restore", "--replace", f"{number}.zip")).wait() == 0
        assert state(config) == states[number]
        with workspace(config) as space:
            counts = [len(ids) for ids in matches(space, *WORDS[:2])]
            assert counts == [40 if word == number else 0 for word in range(2)]
    assert not list((folder / ".ctx").glob("*.partial*"))


def started(folder: Path, command: tuple[str, ...]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "ctx", *command],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def state(config: Path) -> tuple[Any, ...]:
    """What a store holds: its documents and its memories. Every page of it is sound."""
    with workspace(config) as space:
        assert space.catalog.check() == []
        return picture(space), list(space.memory.bank("ana").export())
