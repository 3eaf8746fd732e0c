"""A `.ctx` that a `git pull` lays over the store of a running server is not used."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from faults import eventually, serving
from git_kit import Upstream, git
from kit import MEMORIES, workspace

from ctx.errors import StoreError
from ctx.server.keys import KeyRing, match

HERON, BADGER, OTTER = "The heron likes tea.", "The badger owns all tea.", "The otter pours tea."


def cloned(folder: Path) -> tuple[Upstream, Path]:
    """A repository with a configuration, and a clone of it."""
    upstream = Upstream(folder)
    (upstream.work / "docs").mkdir()
    (upstream.work / "docs" / "tea.md").write_text("# Tea\n\nThree minutes.\n")
    (upstream.work / "ctx.toml").write_text(MEMORIES)
    upstream.commit({})
    upstream.push()
    git(folder, "clone", "-q", "-b", "main", str(upstream.bare), "clone")
    return upstream, folder / "clone"


def brings(upstream: Upstream, path: str, content: Path) -> None:
    """The next commit of the repository has this file, whatever is ignored."""
    target = upstream.work / path
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(content, target)
    git(upstream.work, "add", "-f", path)
    upstream.commit({})
    upstream.push()


def checkpointed(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.mark.slow
def test_a_store_that_a_pull_laid_over_the_served_one_is_not_taken_up(tmp_path: Path) -> None:
    upstream, clone = cloned(tmp_path)
    stranger = tmp_path / "stranger"
    shutil.copytree(clone, stranger)
    with workspace(stranger / "ctx.toml") as space:
        space.indexer.run()
    checkpointed(stranger / ".ctx" / "ctx.db")
    with serving(clone / "ctx.toml", "--log-level", "error") as server:

        def recalled() -> set[str]:
            status, reply = server.post("/tools/recall", {"query": "tea"})
            assert status == 200, reply
            return {memory["text"] for memory in reply["result"]["results"]}

        assert server.post("/tools/retain", {"content": HERON})[0] == 200
        eventually(lambda: server.search("minutes") == ["tea.md"])
        checkpointed(clone / ".ctx" / "ctx.db")
        brings(upstream, ".ctx/ctx.db", stranger / ".ctx" / "ctx.db")
        git(clone, "pull", "-q", "origin", "main")
        eventually(lambda: "restart ctx" in str(server.get("/health")))
        assert server.post("/tools/retain", {"content": OTTER})[0] == 200
        assert recalled() == {HERON, OTTER}
    with workspace(clone / "ctx.toml") as space:
        assert {memory["text"] for memory in space.memory.bank("default").every()} == {HERON, OTTER}


def test_keys_that_a_pull_laid_over_the_rings_open_nothing(tmp_path: Path) -> None:
    upstream, clone = cloned(tmp_path)
    (clone / ".ctx").mkdir(mode=0o700)
    ring = KeyRing(str(clone / ".ctx" / "keys.json"))
    key, _ = ring.create("laptop")
    foreign_key, _ = KeyRing(str(tmp_path / "stranger.json")).create("stranger")
    brings(upstream, ".ctx/keys.json", tmp_path / "stranger.json")
    git(clone, "pull", "-q", "origin", "main")
    os.utime(clone / ".ctx" / "keys.json")
    assert ring.closed
    assert match(foreign_key, ring.candidates()) is None
    assert match(key, ring.candidates()) is not None
    with pytest.raises(StoreError, match=r"git tracks `keys\.json`"):
        KeyRing(str(clone / ".ctx" / "keys.json"))
