"""A restore that meets another command loses no acknowledged memory, and one that is killed is run again."""

import subprocess
import sys
from pathlib import Path

import pytest
from kit import ctx, picture, project, workspace

from ctx.backup import Store, back_up
from ctx.server.overview import health

# Runs a command, and once, right after it has opened the file that is named first (no lock is taken then), a
# step of somebody else. An audit hook is asked by SQLite's own module; nothing of ours knows of it.
MEETING = """
import runpy, sqlite3, sys
opened, step = sys.argv[1:3]
sys.argv = ["ctx", *sys.argv[3:]]
due = [False, True]  # behind the file that is being opened, and at all

def meet(event, arguments):
    if event == "sqlite3.connect":
        due[0] = due[1] and opened in str(arguments[0])
    elif event == "sqlite3.connect/handle" and due[0]:
        due[:] = [False, False]
        exec(step, {})

sys.addaudithook(meet)
try:
    runpy.run_module("ctx", run_name="__main__")
finally:
    assert not due[1]
"""
REMEMBERING = """
from ctx.config import load_config
from ctx.workspace import open_workspace
with open_workspace(load_config("ctx.toml", {})) as space:
    space.memory.bank("default").put("The otter came meanwhile.")
"""
# Ends when the restore has replaced the memories and opens the file that is named.
DYING = """
import os, sys
replaced = False

def die(event, arguments):
    global replaced
    if event in ("open", "sqlite3.connect"):
        path = str(arguments[0])
        if replaced and path.endswith(sys.argv[1]):
            os._exit(9)
        replaced = replaced or path.endswith(".ctx/memory.db") and event == "sqlite3.connect"

sys.addaudithook(die)
"""
RESTORING = """
from ctx.backup import Store, restore
restore("backup.zip", Store(".ctx/ctx.db", ".ctx/memory.db"), replace=True)
"""


CONFIG = """
[connectors.filesystem.docs]
root = "./docs"
[embedding]
provider = "disabled"
[memory]
path = "./.ctx/memory.db"
"""
HERON, OTTER = "The heron is remembered.", "The otter came meanwhile."


def remembering(folder: Path, text: str) -> Path:
    """A project with a memory, and a backup of that; its configuration."""
    config = project(folder, config=CONFIG)
    with workspace(config) as space:
        space.memory.bank("default").put(text)
    names = ("ctx.db", "memory.db")
    back_up(Store(*(str(folder / ".ctx" / name) for name in names)), str(folder / "backup.zip"))
    return config


def exported(folder: Path, text: str) -> str:
    """A file for `ctx memory import` with one memory."""
    with workspace(remembering(folder, text)) as space:
        (folder / "memories.jsonl").write_text("\n".join(space.memory.bank("default").export()))
    return str(folder / "memories.jsonl")


def meeting(folder: Path, opened: str, step: str, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", MEETING, opened, step, "--config", "ctx.toml", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def memories(config: Path) -> list[str]:
    with workspace(config) as space:
        assert space.catalog.check() == []
        return sorted(memory["text"] for memory in space.memory.bank("default").every())


def test_a_memory_that_is_acknowledged_during_a_restore_is_in_the_store(tmp_path: Path) -> None:
    otter = exported(tmp_path / "otter", OTTER)
    config = remembering(tmp_path / "project", HERON)
    with workspace(config) as space:
        space.memory.bank("default").put("Said after the backup.")
    reply = meeting(config.parent, "memory.db?", RESTORING, "memory", "import", otter)
    assert reply.returncode == 0, reply.stderr
    assert memories(config) == [HERON, OTTER]


def test_forgotten_memories_are_replaced_only_if_asked(tmp_path: Path) -> None:
    remembering(tmp_path / "first", HERON)
    config = remembering(tmp_path / "second", OTTER)
    (tmp_path / "first" / "backup.zip").replace(tmp_path / "second" / "backup.zip")
    with workspace(config) as space:
        bank = space.memory.bank("default")
        for record in bank.browse()["items"]:
            bank.delete(record["id"])
    for path in (config.parent / ".ctx").glob("ctx.db*"):
        path.unlink()
    reply = ctx("--config", "ctx.toml", "restore", "backup.zip", cwd=config.parent)
    assert reply.returncode == 2
    assert "there is a store here already" in reply.stderr, reply.stderr


def test_a_store_that_was_made_while_a_backup_unpacked_is_replaced_only_if_asked(tmp_path: Path) -> None:
    remembering(tmp_path / "first", HERON)
    config = project(tmp_path / "second", config=CONFIG)
    (tmp_path / "first" / "backup.zip").rename(tmp_path / "second" / "backup.zip")
    reply = meeting(config.parent, "restored.partial", REMEMBERING, "restore", "backup.zip")
    assert reply.returncode == 2
    assert "there is a store here already; use --replace to overwrite it with the backup" in reply.stderr
    assert memories(config) == [OTTER]
    assert not list((config.parent / ".ctx").glob("*.partial*"))
    assert (
        ctx("--config", "ctx.toml", "restore", "backup.zip", "--replace", cwd=config.parent).returncode == 0
    )
    assert memories(config) == [HERON]


@pytest.mark.parametrize("opened", ["memory.db.count", ".ctx/ctx.db"])
def test_a_restore_that_was_killed_between_the_two_databases_is_finished_by_another(
    tmp_path: Path, opened: str
) -> None:
    config = project(tmp_path, {"tea.md": "# Tea\n"}, CONFIG)
    with workspace(config) as space:
        space.indexer.run()
        before = picture(space)
    remembering(tmp_path, HERON)
    with workspace(config) as space:
        space.memory.bank("default").put(OTTER)
        (tmp_path / "docs" / "tea.md").write_text("# Coffee\n")
        space.indexer.run()
        after = picture(space)
    killed = subprocess.run([sys.executable, "-c", DYING + RESTORING, opened], cwd=tmp_path, check=False)
    assert killed.returncode == 9
    assert memories(config) == [HERON]
    with workspace(config) as space:
        assert picture(space) == after != before
        assert "degraded" not in health(space), "no memory is taken for lost"
    assert ctx("--config", "ctx.toml", "restore", "backup.zip", "--replace", cwd=tmp_path).returncode == 0
    assert memories(config) == [HERON]
    with workspace(config) as space:
        assert picture(space) == before
