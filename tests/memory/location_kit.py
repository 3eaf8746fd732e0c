"""What the tests of the place of memories share: a user of its own, projects, and stores of earlier versions."""

import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from git_kit import git
from kit import MEMORIES, project, workspace, write_key_file

from ctx.config import load_config
from ctx.config.trust import TrustFile, trust_path
from ctx.memory.location import memory_place
from ctx.memory.store import MemoryStore
from ctx.scripts.store import FileScriptStore

TEXTS = [f"The heron number {number} likes tea." for number in range(5)]


def repository(folder: Path, subject: str = "one") -> Path:
    """A project in a git repository; its configuration."""
    config = project(folder, {"tea.md": "# Tea\n\nThree minutes.\n"}, MEMORIES)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "ctx.toml", "docs")
    git(folder, "commit", "-q", "-m", subject)
    return config


def remember(config: Path, *texts: str) -> None:
    with workspace(config) as space:
        for text in texts:
            space.memory.bank("default").put(text)


def recalled(config: Path) -> list[str]:
    with workspace(config) as space:
        return sorted(record["text"] for record in space.memory.bank("default").every())


def memory_of(config: Path) -> Path:
    """The file of the memories of a configuration."""
    return Path(memory_place(load_config(str(config), os.environ), os.environ).memory)


def make_old(config: Path, texts: list[str] = TEXTS, *, known: bool = True) -> str:
    """Gives a project a store as earlier versions made it, with all in `ctx.db`; one of its keys."""
    catalog = config.parent / ".ctx" / "ctx.db"
    with workspace(config) as space:
        space.indexer.run()
    with MemoryStore(str(catalog)) as store:
        for text in texts:
            store.bank("default").put(text)
    (catalog.parent / "ctx.db.count").unlink()
    with closing(FileScriptStore(str(catalog))) as values:
        values.call("set", "tool", {"key": "count", "value": 7}, time.monotonic() + 60)
    key = write_key_file(catalog.parent / "keys.json")
    if known:
        TrustFile(trust_path(os.environ)).record({str(config.parent.resolve() / "ctx.toml"): "0"})
    return key


def tables(database: Path) -> set[str]:
    with closing(sqlite3.connect(database)) as connection:
        return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def count_of(config: Path) -> dict[str, int]:
    """What is written down of the memories that were acknowledged."""
    content: dict[str, int] = json.loads(Path(f"{memory_of(config)}.count").read_text())
    return content
