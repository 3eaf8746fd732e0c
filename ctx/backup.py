"""Backs up a project's store into one file, and restores it.

A backup is a ZIP archive with the catalog (`ctx.db`: documents, embeddings), the memories and the hashes of
the API keys (`memory.db`), and at the end `manifest.json`. It does not contain the index, which can be
rebuilt from the catalog without embedding a text again.
"""

import hashlib
import json
import os
import sqlite3
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import BinaryIO, NamedTuple

from ctx import __version__, files
from ctx.clock import iso_utc, now_ms
from ctx.config import Config
from ctx.errors import BadRequest, Busy, StoreError
from ctx.memory.activity import COMPONENT as ACTIVITY
from ctx.memory.activity import MIGRATIONS as ACTIVITY_MIGRATIONS
from ctx.memory.copies import Ledger, counts_of
from ctx.memory.location import count_memories, locate
from ctx.memory.schema import MIGRATIONS as MEMORY_MIGRATIONS
from ctx.models import JSON
from ctx.scripts.store import COMPONENT as SCRIPTS
from ctx.scripts.store import MIGRATIONS as SCRIPT_MIGRATIONS
from ctx.server.keys import COMPONENT as SERVER_KEYS
from ctx.server.keys import MIGRATIONS as KEY_MIGRATIONS
from ctx.server.keys import KeyRing
from ctx.store.folder import COPY, PARTIAL, WriterLock, check_journal, own_folder
from ctx.store.keyword_writer import discard
from ctx.store.schema import (
    APPLICATION_ID,
    connect,
    copy_database,
    discard_companions,
    discard_copy,
    holds_statements,
    store_error,
    translating,
)
from ctx.store.sqlite import COMPONENT, MIGRATIONS

FORMAT = 2
CATALOG, MEMORY, MANIFEST = "ctx.db", "memory.db", "manifest.json"
# The zlib level. Level 1 compresses to a third at 60 MB/s; higher levels take three times as long to save
# another tenth.
_COMPRESSION = 1
_BLOCK_BYTES = 1 << 20
_MAX_MANIFEST_BYTES = 1 << 20
# The errors that Python raises for a file in the archive, or a manifest, that is truncated, encrypted,
# compressed in an unknown way or too deeply nested.
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError)
_IS_THERE = "there is a store here already; use --replace to overwrite it with the backup"
_COUNTED = ("document", "chunk", "embedding", "memories")
_VERSIONS = {
    f"schema.{COMPONENT}": len(MIGRATIONS),
    "schema.memories": len(MEMORY_MIGRATIONS),
    f"schema.{SCRIPTS}": len(SCRIPT_MIGRATIONS),
    f"schema.{SERVER_KEYS}": len(KEY_MIGRATIONS),
    f"schema.{ACTIVITY}": len(ACTIVITY_MIGRATIONS),
}


class Contents(NamedTuple):
    """The manifest of a backup."""

    created_ms: int
    version: str  # the version of ctx that made the backup
    rows: dict[str, int]  # table -> number of rows
    files: dict[str, dict[str, JSON]]  # file name in the archive -> {"bytes", "sha256"}


class Store(NamedTuple):
    """The paths of the two databases of a project's store."""

    catalog: str
    memory: str

    def parts(self) -> dict[str, str]:
        """File name in a backup -> path of the database."""
        return {CATALOG: self.catalog, MEMORY: self.memory}


def store_of(config: Config) -> Store:
    """The store that a configuration names. Raises `StoreError` if its files cannot be read."""
    location = locate(config, os.environ)
    KeyRing(location.memory, location.keys).close()  # moves the keys that an earlier version stored elsewhere
    return Store(config.db.path, location.memory)


def back_up(store: Store, path: str) -> Contents:
    """Writes a backup of a store to `path` atomically, with mode 0600.

    Each database is copied in one snapshot; other processes may search, serve or index meanwhile. An existing
    backup at `path` is replaced; any other file raises `BadRequest`. Raises `StoreError`.
    """
    if os.path.lexists(path) and not _is_backup(path):
        raise BadRequest(f"{path} exists and is not a backup of ctx; choose another file")
    with ExitStack() as held:
        held.enter_context(files.writing(f"the backup to {path}", StoreError))
        copies = {}
        present = {name: path for name, path in store.parts().items() if os.path.lexists(path)}
        for folder in sorted(set(map(os.path.dirname, present.values()))):
            held.enter_context(files.locked(os.path.join(folder, "backup"), beneath=folder))
        for name, database in present.items():
            copies[name] = os.path.join(os.path.dirname(database), f"{name}.{COPY}")
            _copy_database(database, copies[name])
            held.callback(discard_copy, copies[name])
        with files.replacement(path) as descriptor, open(descriptor, "wb", closefd=False) as file:
            return _write_archive(file, copies)


def _is_backup(path: str) -> bool:
    try:
        with _opened(path) as archive:
            names = set(archive.namelist())
            return MANIFEST in names and bool(names & {CATALOG, MEMORY})
    except BadRequest:
        return False


def _copy_database(database: str, copy: str) -> None:
    """Copies a database to the file `copy` and checks the copy. Raises `StoreError`."""
    connection = connect(database, read_only=True)
    try:
        copy_database(connection, f"{copy}.unfinished", copy)
    finally:
        connection.close()
    problems = _problems(copy)
    if problems:
        os.unlink(copy)
        raise StoreError(
            f"{os.path.basename(database)} is damaged, so no backup was made ({problems[0]}): "
            "run `ctx doctor`"
        )


def _write_archive(file: BinaryIO, copies: dict[str, str]) -> Contents:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION) as archive:
        sums = {name: _add(archive, name, path) for name, path in copies.items()}
        rows: dict[str, int] = {}
        for copy in copies.values():
            rows |= _rows(copy)
        contents = Contents(now_ms(), __version__, rows, sums)
        manifest = {
            "format": FORMAT,
            "created_at": iso_utc(contents.created_ms),
            **contents._asdict(),
        }
        archive.writestr(MANIFEST, json.dumps(manifest, indent=2))
    return contents


def _add(archive: zipfile.ZipFile, name: str, path: str) -> dict[str, JSON]:
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as source, archive.open(name, "w", force_zip64=True) as target:
        while block := source.read(_BLOCK_BYTES):
            digest.update(block)
            size += len(block)
            target.write(block)
    return {"bytes": size, "sha256": digest.hexdigest()}


def restore(path: str, store: Store, *, replace: bool = False) -> Contents:
    """Restores a store from a backup. The caller must then update the index.

    The whole backup is read and checked before anything changes. Each database is replaced atomically, the
    memories first. If the process is killed, each database is either the old or the new version; run the
    restore again then. An existing store is replaced only with `replace`. Raises `BadRequest` for a file that
    is not a backup, `StoreError` for a damaged backup or one of a newer ctx, and `Busy` if the store is in
    use.
    """
    folder = os.path.dirname(store.catalog)
    partial = {
        name: os.path.join(os.path.dirname(to), f"{name}.{PARTIAL}") for name, to in store.parts().items()
    }
    with _opened(path) as archive:
        contents = _manifest(archive, path)
        if not replace and (os.path.lexists(store.catalog) or count_memories(store.memory)):
            raise BadRequest(_IS_THERE)
        own_folder(store.catalog)
        own_folder(store.memory)
        with WriterLock(os.path.join(folder, "lock")), files.writing("the store", StoreError):
            try:
                for name in partial.keys() & contents.files.keys():
                    _extract(archive, name, contents, partial[name])
                    _check_catalog(partial[name])
                _keep_keys(partial[MEMORY], store.memory)
                _put_all(partial, store, replace=replace)
            finally:
                for made in partial.values():
                    discard_copy(made)
    return contents


def _put_all(partial: dict[str, str], store: Store, *, replace: bool) -> None:
    """Puts both restored databases in place, the memories first."""
    if os.path.lexists(partial[MEMORY]):
        with _looked_at(partial[MEMORY]) as connection:
            counts = counts_of(connection)
        ledger = Ledger(store.memory)
        with ledger.held() as page:
            # Otherwise, if ctx is killed after the next line, it would later report lost memories.
            page.lower(*counts)
        _put_in_place(partial[MEMORY], store.memory, replace=True, only_empty=not replace)
        ledger.reset(*counts)
    if os.path.lexists(partial[CATALOG]):
        index = os.path.join(os.path.dirname(store.catalog), "index")
        _put_in_place(partial[CATALOG], store.catalog, replace=replace, index=index)


@contextmanager
def _opened(path: str) -> Iterator[zipfile.ZipFile]:
    if files.irregular(path):
        raise BadRequest(f"{path} is not a file")
    try:
        archive = zipfile.ZipFile(path)
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}") from error
    except _UNREADABLE as error:
        raise BadRequest(f"{path} is not a backup of ctx, or it is truncated") from error
    with archive:
        yield archive


def _manifest(archive: zipfile.ZipFile, path: str) -> Contents:
    """Reads the manifest of a backup. Raises `BadRequest` if it is missing or invalid, and `StoreError` if a
    newer ctx or an early build wrote it.
    """
    try:
        with archive.open(MANIFEST) as member:
            manifest = json.loads(member.read(_MAX_MANIFEST_BYTES))
        if manifest["format"] > FORMAT:
            raise StoreError(f"{path} was made by a newer ctx ({manifest['version']}): upgrade ctx")
        if manifest["format"] < FORMAT or not manifest["files"].keys() <= {CATALOG, MEMORY}:
            raise StoreError(f"{path} was made by an early build of ctx: restore it with that build")
        if not manifest["files"]:
            raise ValueError("it contains no database")
        iso_utc(manifest["created_ms"])  # raises an error for a time outside the years 1 to 9999
        return Contents(
            manifest["created_ms"],
            str(manifest["version"]),
            {str(name): int(count) for name, count in manifest["rows"].items()},
            {
                str(name): {"bytes": int(entry["bytes"]), "sha256": str(entry["sha256"])}
                for name, entry in manifest["files"].items()
            },
        )
    except (*_UNREADABLE, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f"{path} is not a backup of ctx") from error


def _keep_keys(restored: str, memory: str) -> None:
    """Adds the revoked API keys of the existing store to the restored database, or all of them if the backup
    has no keys.

    A revoked key may have leaked, so an older backup must not make it valid again. And a backup without keys
    must not give access to a server that needed a key.
    """
    try:
        with closing(KeyRing(memory)) as ring:
            present = ring.list()
    except StoreError as error:
        raise StoreError(f"the existing keys cannot be read: move {memory} away first") from error
    with closing(KeyRing(restored)) as ring:
        added = [record for record in present if record.revoked_ms is not None] if ring.list() else present
        if added:
            ring.add(added)


def _extract(archive: zipfile.ZipFile, name: str, contents: Contents, path: str) -> None:
    """Unpacks the file `name` of the archive into the file `path` (mode 0600) and checks its checksum. Raises
    `StoreError`, `OSError`.
    """
    folder, size = os.path.dirname(path), contents.files[name]["bytes"]
    if os.path.lexists(path):
        os.unlink(path)  # remove the file that a killed restore left
    # An archive of a few kilobytes can unpack to zeros that fill the disk.
    if size > files.free_bytes(folder):
        raise StoreError(
            f"the backup unpacks to {size:,} bytes, more than the disk has free: free some space"
        )
    digest = hashlib.sha256()
    descriptor = files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, beneath=folder)
    with open(descriptor, "wb") as target:
        for block in _blocks(archive, name, contents):
            digest.update(block)
            target.write(block)
        target.flush()
        os.fsync(target.fileno())
    if contents.files[name]["sha256"] != digest.hexdigest():
        raise _damaged(name)


def _blocks(archive: zipfile.ZipFile, name: str, contents: Contents) -> Iterator[bytes]:
    """Yields the bytes of the file `name` of the archive in blocks. Raises `StoreError` if the file is
    damaged or longer than the manifest says.
    """
    remaining = contents.files[name]["bytes"]
    try:
        with archive.open(name) as source:
            while block := source.read(_BLOCK_BYTES):
                remaining -= len(block)
                if remaining < 0:
                    raise _damaged(name)
                yield block
    except (*_UNREADABLE, KeyError) as error:
        raise _damaged(name) from error


def _damaged(name: str) -> StoreError:
    return StoreError(f"the backup is damaged in {name}, and nothing was changed: use another backup")


def _check_catalog(path: str) -> None:
    """Raises `StoreError` unless the file is an intact database of ctx that this version can open."""
    _check_origin(path)
    problems = _problems(path)
    if problems:
        raise _damaged_catalog(problems[0])
    with _looked_at(path) as connection:
        versions = dict(connection.execute("SELECT key, value FROM meta WHERE key LIKE 'schema.%'"))
    if not versions or not all(isinstance(version, int) and version > 0 for version in versions.values()):
        raise _damaged_catalog("it does not say its version")
    if any(version > _VERSIONS.get(key, 0) for key, version in versions.items()):
        raise StoreError("the backup was made by a newer ctx, and nothing was changed: upgrade ctx")


def _check_origin(path: str) -> None:
    """Raises `StoreError` for a file that another program made, and for one with triggers, views or computed
    columns. ctx makes none of these, and SQLite's check of a file computes the columns, which may never end.
    """
    try:
        with _looked_at(path) as connection:
            [mark] = connection.execute("PRAGMA application_id").fetchone()
            computing = holds_statements(connection)
    except StoreError as error:
        raise _damaged_catalog(error.message) from error
    if mark != APPLICATION_ID:
        raise StoreError("the catalog in the backup is another program's file; nothing was changed")
    if computing:
        raise StoreError(
            "the catalog in the backup holds a trigger, a view or a computed column, which ctx never "
            "makes; nothing was changed"
        )


def _damaged_catalog(reason: str) -> StoreError:
    return StoreError(f"the catalog in the backup is damaged, and nothing was changed ({reason})")


def _put_in_place(
    partial: str, database: str, *, replace: bool, only_empty: bool = False, index: str | None = None
) -> None:
    """Puts the restored file `partial` in place of `database`, atomically. A missing database becomes a new
    file. With `replace`, replaces the content of an existing database; with `only_empty` as well, only if
    that database has no memories. Deletes the `index` that is derived from the database first.

    Raises `BadRequest`, `StoreError`, and `Busy` if a process has the existing database open.
    """
    folder = os.path.dirname(database)
    files.check_file(database, beneath=folder)
    if not os.path.lexists(database):
        if index:
            discard(index)
        # Deletes the log of a former file, which SQLite would apply to the new file.
        discard_companions(database)
        try:
            # Unlike a rename, a link never replaces a file that another process has just created.
            os.link(partial, database)
        except FileExistsError:
            pass
        else:
            files.sync(folder)
            return
    if not replace:
        raise BadRequest(_IS_THERE)
    check_journal(database)
    connection = sqlite3.connect(database, timeout=0, isolation_level=None)
    try:
        _overwrite(connection, partial, index, only_empty=only_empty)
    except sqlite3.DatabaseError as error:
        raise _not_replaced(error) from error
    finally:
        connection.close()


def _overwrite(connection: sqlite3.Connection, partial: str, index: str | None, *, only_empty: bool) -> None:
    """Replaces the content of an open database in one transaction. Raises `sqlite3.DatabaseError`.

    A rename would not be safe: a process that has just opened the old file would continue to write its log,
    which SQLite would then apply to the new file.
    """
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    # Merges and deletes the log, which SQLite only does if no other connection is open.
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("COMMIT")  # EXCLUSIVE mode keeps the lock after the commit
    if only_empty and _holds_memories(connection):
        raise BadRequest(_IS_THERE)
    # Deletes the index first, so that no old index is used with the new catalog if the process is killed.
    if index:
        discard(index)
    with _looked_at(partial) as source:
        source.backup(connection)


def _holds_memories(connection: sqlite3.Connection) -> bool:
    """Whether there are memories, also forgotten ones, which can be restored."""
    tables = "SELECT count(*) FROM sqlite_master WHERE name = 'memories'"
    if not connection.execute(tables).fetchone()[0]:
        return False
    return connection.execute("SELECT 1 FROM memories LIMIT 1").fetchone() is not None


def _not_replaced(error: sqlite3.DatabaseError) -> StoreError:
    code = error.sqlite_errorcode & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Busy(
            "the store is in use: stop the servers and searches that use it (`ctx status` lists servers)"
        )
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return store_error(error)
    return StoreError("the existing store cannot be opened: move its folder away first")


@contextmanager
def _looked_at(path: str) -> Iterator[sqlite3.Connection]:
    """Yields a read-only connection, which creates no log file. No other process may use the database."""
    with translating():
        connection = sqlite3.connect(files.sqlite_address(path, "immutable=1"), uri=True)
        try:
            yield connection
        finally:
            connection.close()


def _problems(path: str) -> list[str]:
    """Checks all pages of a database and returns one line for each problem."""
    try:
        with _looked_at(path) as connection:
            lines = [str(row[0]) for row in connection.execute("PRAGMA quick_check(20)")]
    except StoreError as error:
        return [error.message]
    return [] if lines == ["ok"] else lines


def _rows(path: str) -> dict[str, int]:
    with _looked_at(path) as connection:
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        return {
            name: int(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0])
            for name in _COUNTED
            if name in names
        }
