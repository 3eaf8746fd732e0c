"""Backup and restore: complete, equal afterwards, and no file overwritten by mistake."""

import atexit
import functools
import hashlib
import json
import os
import re
import shutil
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest
from kit import ctx, named, picture, project, workspace
from kit import found as matches

from ctx.backup import CATALOG, MANIFEST, MEMORY, Store, back_up, restore
from ctx.errors import BadRequest, Busy, StoreError
from ctx.models import Caller
from ctx.server.keys import KeyRing, match
from ctx.server.overview import health

PAGES = {
    "tea.md": "# Tea\n\nThree minutes, 80 degrees.\n",
    "coffee.md": "# Coffee\n\nGround just before the quokka wakes.\n",
}
CONFIG = '[connectors.filesystem.docs]\nroot = "./docs"\n[memory]\npath = "./.ctx/memory.db"\n'


def indexed(folder: Path, *, memories: int = 3) -> Path:
    """A project that is indexed and embedded, with memories and keys; its configuration."""
    shutil.copytree(built(memories), folder, dirs_exist_ok=True)
    return folder / "ctx.toml"


@functools.cache
def built(memories: int) -> Path:
    """The same in its own folder, made once and deleted when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="ctx-backup-"))
    atexit.register(shutil.rmtree, folder)
    config = project(folder, PAGES, CONFIG)
    with workspace(config) as space:
        space.indexer.run()
        space.indexer.embed()
        bank = space.memory.bank("ana")
        for number in range(memories):
            bank.put(f"The narwhal number {number} likes tea.")
    return folder


def answers(config: Path) -> tuple[Any, ...]:
    """The content and answers of a store, to compare with another."""
    with workspace(config) as space:
        bank = space.memory.bank("ana")
        return (
            picture(space),
            matches(space, "quokka", "minutes"),
            matches(space, "a hot drink", mode="semantic"),
            space.catalog.stats()["embeddings"],
            list(bank.export()),
        )


def store(folder: Path) -> Store:
    return Store(*(str(folder / ".ctx" / name) for name in (CATALOG, MEMORY)))


def test_a_restored_store_has_the_same_ids_and_gives_the_same_answers(tmp_path: Path) -> None:
    config = indexed(tmp_path / "first")
    contents = back_up(store(tmp_path / "first"), str(tmp_path / "backup.zip"))
    assert contents.rows["document"] == 2
    assert contents.rows["memories"] >= 3
    second = project(tmp_path / "second", PAGES, CONFIG)
    restore(str(tmp_path / "backup.zip"), store(tmp_path / "second"))
    with workspace(second) as space:
        space.indexer.repair()
        assert health(space)["pending"] == 0  # nothing is embedded again
        assert space.index.check() == []
    assert answers(second) == answers(config)
    for path in (tmp_path / "backup.zip", *store(tmp_path / "second").parts().values()):
        assert Path(path).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "second" / ".ctx").stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.zip", "first", "second"]


def test_the_log_of_calls_is_restored_too(tmp_path: Path) -> None:
    with workspace(project(tmp_path / "first", PAGES, CONFIG)) as space:
        space.toolbox.call("search", {"query": "quokka"}, Caller("mcp", client="an agent"))
    back_up(store(tmp_path / "first"), str(tmp_path / "backup.zip"))
    second = project(tmp_path / "second", PAGES, CONFIG)
    restore(str(tmp_path / "backup.zip"), store(tmp_path / "second"))
    with workspace(second) as space:
        assert space.activity is not None
        assert [row.query for row in space.activity.entries()] == ["quokka"]


def test_a_backup_is_of_one_moment_and_waits_for_no_writer(tmp_path: Path) -> None:
    config = indexed(tmp_path)
    with workspace(config) as space, space.catalog._writing() as write:
        write.connection.execute("DELETE FROM document")
        back_up(store(tmp_path), str(tmp_path / "backup.zip"))
    with zipfile.ZipFile(tmp_path / "backup.zip") as archive:
        assert json.loads(archive.read(MANIFEST))["rows"]["document"] == 2


@pytest.mark.slow
def test_a_store_that_is_there_is_replaced_only_where_that_is_asked_for(tmp_path: Path) -> None:
    config = indexed(tmp_path)
    before = answers(config)
    back_up(store(tmp_path), str(tmp_path / "backup.zip"))
    (tmp_path / "docs" / "tea.md").unlink()
    with workspace(config) as space:
        space.indexer.run()
        space.memory.bank("ana").put("What was said after the backup.")
    with pytest.raises(BadRequest, match="use --replace to overwrite it"):
        restore(str(tmp_path / "backup.zip"), store(tmp_path))
    with pytest.raises(BadRequest, match="cannot be read: No such file"):
        restore(str(tmp_path / "nope.zip"), store(tmp_path))
    assert answers(config) != before
    restore(str(tmp_path / "backup.zip"), store(tmp_path), replace=True)
    with workspace(config) as space:
        assert matches(space, "minutes") == [[]], "no old index answers for the new catalog"
        space.indexer.repair()
    assert answers(config) == before


def test_what_a_killed_backup_left_goes_with_the_next_one(tmp_path: Path) -> None:
    indexed(tmp_path)
    for ending in ("", ".unfinished", ".unfinished-journal"):
        (tmp_path / ".ctx" / f"ctx.db.backup.partial{ending}").write_text("half of it")
    back_up(store(tmp_path), str(tmp_path / "backup.zip"))
    assert not list((tmp_path / ".ctx").glob("*.partial*"))


def test_a_store_in_use_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    config = indexed(tmp_path)
    back_up(store(tmp_path), str(tmp_path / "backup.zip"))
    before = answers(config)
    with workspace(config) as space:
        assert space.catalog.stats()["documents"] == 2
        with pytest.raises(Busy, match="the store is in use"):
            restore(str(tmp_path / "backup.zip"), store(tmp_path), replace=True)
        with space.indexer.writing(), pytest.raises(Busy, match="is writing the index"):
            restore(str(tmp_path / "backup.zip"), store(tmp_path), replace=True)
        assert matches(space, "minutes") == [["tea.md"]]
    assert answers(config) == before


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def turned(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)


def another(path: Path) -> None:
    path.write_text("a letter")


def without_manifest(path: Path) -> None:
    rewritten(path, {MANIFEST: None})


def of_a_newer_program(path: Path) -> None:
    rewritten(path, {MANIFEST: lambda manifest: manifest | {"format": 99, "version": "9.9"}})


def with_another_sum(path: Path) -> None:
    rewritten(path, {MANIFEST: lambda manifest: manifest | {"files": {CATALOG: {"bytes": 1, "sha256": "0"}}}})


def saying(**fields: Any) -> Callable[[Path], None]:
    """A manifest with some values replaced."""

    def damage(path: Path) -> None:
        rewritten(path, {MANIFEST: lambda manifest: manifest | fields})

    return damage


def nested(path: Path) -> None:
    rewritten(path, {MANIFEST: None})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(MANIFEST, "[" * 200_000)


def encrypted(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1  # of the last member, which is the manifest
    path.write_bytes(content)


def with_keys_apart(path: Path) -> None:
    """As an early build made it."""
    sums = {"bytes": 2, "sha256": "0"}
    rewritten(
        path, {MANIFEST: lambda manifest: manifest | {"files": {**manifest["files"], "keys.json": sums}}}
    )


def vast(path: Path) -> None:
    sums = {"bytes": 10**18, "sha256": "0"}
    rewritten(path, {MANIFEST: lambda manifest: manifest | {"files": {CATALOG: sums}}})


def rewritten(path: Path, changes: dict[str, Callable[[Any], Any] | None]) -> None:
    """The archive with members left out, or their JSON changed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            change = changes.get(name)
            if name not in changes:
                archive.writestr(name, content)
            elif change is not None:
                archive.writestr(name, json.dumps(change(json.loads(content))))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut_short, "is not a backup of ctx, or it is truncated"),
        (turned, "the backup is damaged in ctx.db, and nothing was changed"),
        (another, "is not a backup of ctx"),
        (without_manifest, "is not a backup of ctx"),
        (of_a_newer_program, r"was made by a newer ctx \(9.9\)"),
        (with_another_sum, "is damaged in ctx.db"),
        (saying(rows=[1]), "is not a backup of ctx"),
        (saying(rows={"document": "many"}), "is not a backup of ctx"),
        (saying(created_ms="yesterday"), "is not a backup of ctx"),
        (saying(created_ms=10**30), "is not a backup of ctx"),
        (saying(files={CATALOG: [1]}), "is not a backup of ctx"),
        (saying(files={CATALOG: {"bytes": "x", "sha256": "0"}}), "is not a backup of ctx"),
        (nested, "is not a backup of ctx"),
        (encrypted, "is not a backup of ctx"),
        (with_keys_apart, "made by an early build of ctx: restore it with that build"),
        (saying(format=1), "made by an early build of ctx: restore it with that build"),
        (vast, "more than the disk has free"),
    ],
)
def test_what_is_no_whole_backup_is_refused_and_changes_nothing(
    damage: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    config = indexed(tmp_path, memories=1)
    backup = tmp_path / "backup.zip"
    back_up(store(tmp_path), str(backup))
    before = answers(config)
    damage(backup)
    with pytest.raises((BadRequest, StoreError), match=words):
        restore(str(backup), store(tmp_path), replace=True)
    assert answers(config) == before
    assert not (tmp_path / ".ctx" / "restored.partial").exists()


def test_a_key_that_was_revoked_since_stays_revoked(tmp_path: Path) -> None:
    indexed(tmp_path, memories=1)
    with keys_of(tmp_path) as ring:
        leaked, _ = ring.create("ana")
        current_key, _ = ring.create("ben")
        back_up(store(tmp_path), str(tmp_path / "backup.zip"))
        ring.revoke("ana")
    restore(str(tmp_path / "backup.zip"), store(tmp_path), replace=True)
    with keys_of(tmp_path) as ring:
        assert match(leaked, ring.candidates()) is None
        assert match(current_key, ring.candidates()) is not None


def keys_of(folder: Path) -> AbstractContextManager[KeyRing]:
    return closing(KeyRing(store(folder).memory))


def test_a_backup_without_keys_does_not_open_the_store(tmp_path: Path) -> None:
    indexed(tmp_path, memories=1)
    back_up(store(tmp_path), str(tmp_path / "backup.zip"))
    with keys_of(tmp_path) as ring:
        key, _ = ring.create("ana")
    restore(str(tmp_path / "backup.zip"), store(tmp_path), replace=True)
    with keys_of(tmp_path) as ring:
        assert match(key, ring.candidates()) is not None


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER lose AFTER INSERT ON memories BEGIN DELETE FROM memories; END",
        "CREATE VIEW all_memories AS SELECT * FROM memories",
        # Whoever looks at the pages first has it computed, and says that it is NULL.
        "CREATE TABLE odd (a); INSERT INTO odd VALUES (1); PRAGMA writable_schema = ON; UPDATE sqlite_master "
        "SET sql = 'CREATE TABLE odd (a, b TEXT AS (nullif(a, a)) NOT NULL)' WHERE name = 'odd'",
    ],
)
def test_a_catalog_with_a_stranger_s_statements_is_refused(tmp_path: Path, statement: str) -> None:
    indexed(tmp_path, memories=1)
    back_up(store(tmp_path), str(tmp_path / "backup.zip"))
    with_database(tmp_path / "backup.zip", statement)
    with pytest.raises(
        StoreError, match="holds a trigger, a view or a computed column, which ctx never makes"
    ):
        restore(str(tmp_path / "backup.zip"), store(tmp_path / "other"))
    assert not (tmp_path / "other" / ".ctx" / "ctx.db").exists()


def test_a_store_that_was_never_indexed_gives_its_memories_back(tmp_path: Path) -> None:
    config = project(tmp_path / "first")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/tea.md").write_text("The narwhal likes tea.\n")
    assert ctx("memory", "sync", "--folder", "../notes", cwd=tmp_path / "first").returncode == 0
    assert ctx("backup", "../backup.zip", cwd=tmp_path / "first").returncode == 0
    shutil.copytree(config.parent / "docs", tmp_path / "second/docs")
    shutil.copy(config, tmp_path / "second")
    restored = ctx("restore", "../backup.zip", cwd=tmp_path / "second")
    assert restored.returncode == 0, restored.stderr
    exports = [ctx("memory", "export", cwd=tmp_path / name).stdout for name in ("first", "second")]
    assert "narwhal" in exports[0]
    assert exports[0] == exports[1]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE meta SET value = 'one' WHERE key = 'schema.catalog'", "it does not say its version"),
        ("UPDATE meta SET value = -5 WHERE key = 'schema.memories'", "it does not say its version"),
        ("DELETE FROM meta", "it does not say its version"),
    ],
)
def test_a_catalog_of_another_shape_is_refused_and_the_one_that_is_there_stays(
    statement: str, words: str, tmp_path: Path
) -> None:
    config = indexed(tmp_path, memories=1)
    back_up(store(tmp_path), str(tmp_path / "backup.zip"))
    with_database(tmp_path / "backup.zip", statement)
    before = answers(config)
    with pytest.raises(StoreError, match=re.escape(words)):
        restore(str(tmp_path / "backup.zip"), store(tmp_path), replace=True)
    assert answers(config) == before


def with_database(backup: Path, statement: str) -> None:
    """A complete backup with a correct checksum, whose database has run a statement."""
    name = MEMORY if "memor" in statement else CATALOG
    with zipfile.ZipFile(backup) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    database = backup.with_suffix(".db")
    database.write_bytes(members[name])
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.executescript(statement)
    connection.close()
    members[name] = database.read_bytes()
    manifest = json.loads(members[MANIFEST])
    digest = hashlib.sha256(members[name]).hexdigest()
    manifest["files"][name] = {"bytes": len(members[name]), "sha256": digest}
    members[MANIFEST] = json.dumps(manifest).encode()
    with zipfile.ZipFile(backup, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_a_pipe_is_no_backup_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadRequest, match="is not a file"):
        restore(str(tmp_path / "pipe"), store(tmp_path))


def test_a_backup_of_a_file_does_not_go_into_a_shared_database(tmp_path: Path) -> None:
    config = indexed(tmp_path, memories=1)
    back_up(store(tmp_path), str(tmp_path / "backup.zip"))
    config.write_text(CONFIG + '[store]\nurl = "postgresql://nobody@127.0.0.1:1/none"\n')
    reply = ctx("restore", "--replace", "backup.zip", cwd=tmp_path, env=named(config))
    assert (reply.returncode, "[store] url" in reply.stderr) == (2, True)


def test_a_backup_of_a_newer_catalog_is_refused(tmp_path: Path) -> None:
    config = indexed(tmp_path, memories=1)
    with workspace(config) as space, space.catalog._writing() as write:
        write.connection.execute("UPDATE meta SET value = 99 WHERE key = 'schema.catalog'")
    back_up(store(tmp_path), str(tmp_path / "backup.zip"))
    with pytest.raises(StoreError, match="made by a newer ctx, and nothing was changed"):
        restore(str(tmp_path / "backup.zip"), store(tmp_path / "other"))
    assert not (tmp_path / "other" / ".ctx" / "ctx.db").exists()


def test_a_backup_replaces_a_backup_and_no_other_file(tmp_path: Path) -> None:
    indexed(tmp_path, memories=1)
    target = tmp_path / "backup.zip"
    with zipfile.ZipFile(tmp_path / "pictures.zip", "w") as archive:
        archive.writestr("a.png", "a picture")
    for content in (b"a letter", (tmp_path / "pictures.zip").read_bytes()):
        target.write_bytes(content)
        with pytest.raises(BadRequest, match="is not a backup of ctx; choose another file"):
            back_up(store(tmp_path), str(target))
        assert target.read_bytes() == content
    target.unlink()
    back_up(store(tmp_path), str(target))
    inode = target.stat().st_ino
    back_up(store(tmp_path), str(target))
    assert target.stat().st_ino != inode
    assert not os.path.lexists(tmp_path / ".ctx" / "backup.partial")


def test_a_backup_that_cannot_be_written_names_where(tmp_path: Path) -> None:
    project(tmp_path, {"a.md": "# A\n\nwords\n"})
    assert ctx("index", cwd=tmp_path).returncode == 0
    (tmp_path / ".ctx" / "backup.lock").mkdir()
    reply = ctx("backup", "notes.ctx-backup", cwd=tmp_path)
    assert reply.returncode == 4
    fault = f"the backup to {tmp_path}/notes.ctx-backup cannot be written"
    assert f"{fault}: `backup.lock` is not a file" in reply.stderr


def test_a_damaged_catalog_makes_no_backup(tmp_path: Path) -> None:
    indexed(tmp_path, memories=1)
    path = tmp_path / ".ctx" / "ctx.db"
    content = bytearray(path.read_bytes())
    content[20 * 4096 : 24 * 4096] = b"\xff" * (4 * 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="the catalog is damaged"):
        back_up(store(tmp_path), str(tmp_path / "backup.zip"))
    assert not (tmp_path / "backup.zip").exists()


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_what_sqlite_left_of_a_file_that_has_gone_is_not_played_into_the_restored_one(
    tmp_path: Path, suffix: str
) -> None:
    indexed(tmp_path / "first", memories=1)
    back_up(store(tmp_path / "first"), str(tmp_path / "backup.zip"))
    (tmp_path / "second" / ".ctx").mkdir(parents=True, mode=0o700)
    remnant = Path(store(tmp_path / "second").catalog + suffix)
    remnant.write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + b"\xff" * 4096)
    restore(str(tmp_path / "backup.zip"), store(tmp_path / "second"))
    assert not remnant.exists()


def test_a_backup_holds_no_file_that_a_link_in_the_store_leads_to(tmp_path: Path) -> None:
    indexed(tmp_path, memories=1)
    (tmp_path / "id_rsa").write_text("private")
    Path(store(tmp_path).memory).unlink()
    Path(store(tmp_path).memory).symlink_to(tmp_path / "id_rsa")
    with pytest.raises(StoreError, match="is a link"):
        back_up(store(tmp_path), str(tmp_path / "backup.zip"))
    assert not (tmp_path / "backup.zip").exists()


def test_links_in_the_folder_of_the_store_are_not_followed(tmp_path: Path) -> None:
    indexed(tmp_path / "first", memories=1)
    back_up(store(tmp_path / "first"), str(tmp_path / "backup.zip"))
    precious = tmp_path / "precious"
    precious.write_text("kept")
    folder = tmp_path / "second" / ".ctx"
    folder.mkdir(parents=True)
    (folder / "ctx.db").symlink_to(precious)
    with pytest.raises(StoreError, match="is a link"):
        restore(str(tmp_path / "backup.zip"), store(tmp_path / "second"), replace=True)
    shutil.rmtree(folder)
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="is a link"):
        restore(str(tmp_path / "backup.zip"), store(tmp_path / "second"))
    assert precious.read_text() == "kept"
    assert list((tmp_path / "elsewhere").iterdir()) == []
