"""What an archive can lay in the folder of the store to have an engine delete a file of the user's: a journal
of SQLite's that names another, a list of tantivy's that names files elsewhere.
"""

import json
import os
import shutil
import sqlite3
import struct
from pathlib import Path

import pytest
from store_tree import make

from ctx.backup import Store, back_up, restore
from ctx.errors import StoreError
from ctx.models import Filters
from ctx.store.folder import WriterLock, check_journal
from ctx.store.index import LocalIndex
from ctx.store.sqlite import SqliteCatalog

MAGIC = bytes.fromhex("d9d505f920a163d7")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "id_rsa"
    path.write_text("-----BEGIN KEY-----\n")
    return path


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "project" / ".ctx" / "ctx.db"
    with SqliteCatalog(str(path)) as catalog:
        catalog.put_documents([make("s", "a", ["one word"])])
    return path


def interrupted(database: Path, named: Path | None) -> None:
    """Leaves a database as a program does that died while it changed it, with a journal to be played back:
    where `named`, as one of a change of several databases, whose common journal that is.
    """
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE pets (name)")
    for _ in range(100):
        connection.execute("INSERT INTO pets VALUES (randomblob(4000))")
    journal = Path(f"{database}-journal").read_bytes()
    content = database.read_bytes()
    connection.execute("ROLLBACK")
    connection.close()
    if named is not None:
        page = 0x40000000 // int.from_bytes(content[16:18]) + 1
        name = os.fsencode(named)
        journal += struct.pack(">I", page) + name + struct.pack(">II", len(name), sum(name)) + MAGIC
    database.write_bytes(content)
    Path(f"{database}-journal").write_bytes(journal)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_journal_that_names_another_file_is_not_played_back(
    database: Path, victim: Path, read_only: bool
) -> None:
    interrupted(database, victim)
    with pytest.raises(
        StoreError, match=r"`ctx\.db-journal` leads to another file.*: delete ctx\.db-journal"
    ):
        SqliteCatalog(str(database), read_only=read_only)
    assert victim.exists()
    Path(f"{database}-journal").unlink()  # the mend that the message names


@pytest.mark.parametrize("read_only", [True, False])
def test_a_journal_of_an_interrupted_change_is_played_back(database: Path, read_only: bool) -> None:
    interrupted(database, None)
    check_journal(str(database))
    with SqliteCatalog(str(database), read_only=read_only) as catalog:
        assert catalog.stats()["documents"] == 1
    assert not Path(f"{database}-journal").exists()


def test_a_restore_over_a_store_with_such_a_journal_deletes_nothing(
    tmp_path: Path, database: Path, victim: Path
) -> None:
    backup = tmp_path / "backup.ctx"
    store = Store(str(database), str(tmp_path / "memory.db"))
    back_up(store, str(backup))
    interrupted(database, victim)
    with pytest.raises(StoreError, match="leads to another file"):
        restore(str(backup), store, replace=True)
    assert victim.exists()


@pytest.mark.parametrize("place", ["absolute", "relative"])
def test_a_list_of_the_keyword_engine_deletes_nothing_elsewhere(
    tmp_path: Path, victim: Path, place: str
) -> None:
    store = tmp_path / "project" / ".ctx"

    def catch_up(word: str) -> list[int]:
        with SqliteCatalog(str(store / "ctx.db")) as catalog, WriterLock(str(store / "lock")):
            catalog.put_documents([make("s", word, [word])])
            with LocalIndex(str(store / "index"), lambda: None) as index:
                index.catch_up(catalog)
                return [len(index.keyword(name, Filters(), 3)) for name in ("first", "second")]

    assert catch_up("first") == [1, 0]
    folder = store / "index" / "keyword-1"
    name = str(victim) if place == "absolute" else os.path.relpath(victim, folder)
    managed = folder / ".managed.json"
    managed.write_text(json.dumps([*json.loads(managed.read_text()), name]))
    archive = shutil.make_archive(str(tmp_path / "archive"), "tar", store)
    shutil.rmtree(store)
    shutil.unpack_archive(archive, store)
    assert catch_up("second") == [1, 1]  # it was built anew
    assert victim.exists()
