"""One file that holds all of a store that cannot be made again, and a store made of such a file.

A backup is a ZIP archive with the catalog (`ctx.db`: documents, embeddings, memories), the hashes of the keys
(`keys.json`) and, written last, `manifest.json`. The index is not in it: it follows from the catalog without
embedding anything again.
"""

import hashlib
import json
import os
import sqlite3
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

from ctx import __version__, file_writing, files
from ctx.clock import iso_utc, now_ms
from ctx.errors import BadRequest, Busy, StoreError
from ctx.memory.schema import MIGRATIONS as MEMORY_MIGRATIONS
from ctx.memory.schema import bring_up_to_date
from ctx.server.keys import records_of
from ctx.store.folder import COPY, PARTIAL, check_journal, own_folder
from ctx.store.keyword_files import discard
from ctx.store.lock import WriterLock
from ctx.store.schema import (
    APPLICATION_ID,
    connect,
    copy_database,
    discard_companions,
    discard_copy,
    holds_statements,
    migrate,
    passing_connection,
    store_error,
    translating,
)
from ctx.store.sqlite import COMPONENT, MIGRATIONS
from ctx.types import JSON

FORMAT = 1
CATALOG, KEYS, MANIFEST = "ctx.db", "keys.json", "manifest.json"
# zlib's: a third of the text's size at 60 MB a second; more takes three times as long for a tenth.
_COMPRESSION = 1
_BLOCK_BYTES = 1 << 20
_MAX_MANIFEST_BYTES = 1 << 20
_MAX_KEYS_BYTES = 16 << 20
# What reading a member raises that is cut short, encrypted, packed in an unknown way or nested without end.
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError)
_IS_THERE = "there is a store here already; --replace puts the backup in its place"
_COUNTED = ("document", "chunk", "embedding", "memories")
_SHARED = ("meta.", "sqlite_")  # tables of every component, and SQLite's own
_VERSIONS = {f"schema.{COMPONENT}": len(MIGRATIONS), "schema.memories": len(MEMORY_MIGRATIONS)}


class Contents(NamedTuple):
    """What a backup holds: when and by which ctx it was made, and how many rows of each kind."""

    created_ms: int
    version: str
    rows: dict[str, int]
    files: dict[str, dict[str, JSON]]  # name -> bytes, sha256


def back_up(database: str, path: str) -> Contents:
    """Writes a backup of the store of this catalog to `path`, 0600, which is whole or not there.

    The catalog is copied as it is at one moment, whoever reads, serves or indexes meanwhile. A backup that is
    there is replaced, any other file is not. Raises `BadRequest`, `StoreError`.
    """
    if os.path.lexists(path) and not _is_backup(path):
        raise BadRequest(f"{path} is there already and is no backup of ctx; name another file")
    folder = os.path.dirname(database)
    copy = os.path.join(folder, COPY)
    lock = file_writing.locked(os.path.join(folder, "backup"), beneath=folder)
    with file_writing.writing(f"the backup to {path}, by way of a copy in {folder},", StoreError), lock:
        _copy_catalog(database, copy)
        try:
            with file_writing.replacement(path) as descriptor, open(descriptor, "wb", closefd=False) as file:
                return _write_archive(file, copy, os.path.join(folder, KEYS))
        finally:
            os.unlink(copy)


def _is_backup(path: str) -> bool:
    try:
        with _opened(path) as archive:
            return {CATALOG, MANIFEST} <= set(archive.namelist())
    except BadRequest:
        return False


def _copy_catalog(database: str, copy: str) -> None:
    """A copy of the catalog that is known to be sound. Raises `StoreError`."""
    connection = connect(database, read_only=True)
    try:
        copy_database(connection, f"{copy}.unfinished", copy)
    finally:
        connection.close()
    problems = _problems(copy)
    if problems:
        os.unlink(copy)
        raise StoreError(
            f"the catalog is damaged, so no backup was made of it ({problems[0]}): run `ctx doctor`"
        )


def _write_archive(file: BinaryIO, catalog: str, keys: str) -> Contents:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION) as archive:
        sums = {CATALOG: _add(archive, CATALOG, catalog)}
        if files.check_file(keys, beneath=os.path.dirname(keys)) is not None:
            sums[KEYS] = _add(archive, KEYS, keys)
        contents = Contents(now_ms(), __version__, _rows(catalog), sums)
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


def restore(path: str, database: str, *, replace: bool = False) -> Contents:
    """Makes the store of this catalog anew from a backup; the index has then to be brought to its state.

    All of the backup is read and checked before anything is touched, and the catalog is put in place at once:
    whoever is killed leaves the old store or the new one. A store that is there is kept unless `replace`.
    Raises `BadRequest` for a file that is no backup, `StoreError` for a damaged or newer one, `Busy` where
    the store is in use.
    """
    folder = os.path.dirname(database)
    partial = os.path.join(folder, PARTIAL)
    with _opened(path) as archive:
        contents = _manifest(archive, path)
        if os.path.lexists(database) and not replace:
            raise BadRequest(_IS_THERE)
        own_folder(database)
        with WriterLock(os.path.join(folder, "lock")), file_writing.writing("the store", StoreError):
            try:
                _extract(archive, CATALOG, contents, partial)
                _check_catalog(partial)
                keys = _keys(archive, contents, os.path.join(folder, KEYS))
                if not os.path.lexists(database):  # whoever is killed leaves no store without its keys
                    _lay_keys(keys, folder)
                _put_in_place(partial, database, replace=replace)
                _lay_keys(keys, folder)
                _clear_backups(folder)
            finally:
                if os.path.lexists(partial):
                    os.unlink(partial)
    return contents


def _lay_keys(keys: bytes | None, folder: str) -> None:
    if keys is not None:
        file_writing.replace(os.path.join(folder, KEYS), keys, beneath=folder)


def _clear_backups(folder: str) -> None:
    """Deletes what a backup that was killed has left."""
    with file_writing.locked(os.path.join(folder, "backup"), beneath=folder):
        for name in (COPY, f"{COPY}.unfinished"):
            discard_copy(os.path.join(folder, name))


@contextmanager
def _opened(path: str) -> Iterator[zipfile.ZipFile]:
    if files.irregular(path):
        raise BadRequest(f"{path} is no file, and a backup is one")
    try:
        archive = zipfile.ZipFile(path)
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}") from error
    except _UNREADABLE as error:
        raise BadRequest(f"{path} is no backup of ctx, or it was cut short") from error
    with archive:
        yield archive


def _manifest(archive: zipfile.ZipFile, path: str) -> Contents:
    """What the manifest says, whoever wrote it. Raises `BadRequest`, `StoreError` for one of a newer ctx."""
    try:
        with archive.open(MANIFEST) as member:
            manifest = json.loads(member.read(_MAX_MANIFEST_BYTES))
        if manifest["format"] > FORMAT:
            raise StoreError(f"{path} was made by a newer ctx ({manifest['version']}): upgrade ctx")
        return _contents(manifest)
    except (*_UNREADABLE, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f"{path} is no backup of ctx") from error


def _contents(manifest: JSON) -> Contents:
    """Raises `ValueError`, `LookupError`, `TypeError`, `AttributeError`, `OverflowError` for another's."""
    rows = {str(name): int(count) for name, count in manifest["rows"].items()}
    sums: dict[str, dict[str, JSON]] = {
        str(name): {"bytes": int(entry["bytes"]), "sha256": str(entry["sha256"])}
        for name, entry in manifest["files"].items()
    }
    if CATALOG not in sums:
        raise ValueError("it is of no catalog")
    iso_utc(manifest["created_ms"])  # a moment that can be told
    return Contents(manifest["created_ms"], str(manifest["version"]), rows, sums)


def _member(archive: zipfile.ZipFile, name: str, contents: Contents) -> bytes:
    """A small member whose sum is right. Raises `StoreError`."""
    if contents.files[name]["bytes"] > _MAX_KEYS_BYTES:
        raise _damaged(name)
    data = b"".join(_blocks(archive, name, contents))
    _check_sum(name, hashlib.sha256(data).hexdigest(), contents)
    return data


def _keys(archive: zipfile.ZipFile, contents: Contents, path: str) -> bytes | None:
    """The keys to lay at `path`: the backup's, but what was revoked since stays revoked. None: leave it.

    A key is revoked because it came into wrong hands; a backup of the day before must not open the door
    again.
    """
    if KEYS not in contents.files:
        return None
    try:
        document = json.loads(_member(archive, KEYS, contents))
        records_of(document)  # or the server that is started next would refuse them
        records = {str(record["id"]): record for record in document["keys"]}
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        raise _damaged(KEYS) from error
    records |= _revoked(path)
    return json.dumps({**document, "keys": list(records.values())}, indent=1).encode()


def _revoked(path: str) -> dict[str, JSON]:
    """The keys in a file that were revoked, by id; none where there is no file."""
    try:
        present = json.loads(files.read_file(path, beneath=os.path.dirname(path)))["keys"]
        return {str(record["id"]): record for record in present if record["revoked_ms"] is not None}
    except FileNotFoundError:
        return {}
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise StoreError(f"the keys that are here cannot be read: move {path} away first") from error


def _extract(archive: zipfile.ZipFile, name: str, contents: Contents, path: str) -> None:
    """A member as a file, 0600, whose sum is right. Raises `StoreError`, `OSError`."""
    folder, size = os.path.dirname(path), contents.files[name]["bytes"]
    if os.path.lexists(path):
        os.unlink(path)  # of one that was killed
    if size > file_writing.free_bytes(folder):  # some kilobytes may unpack to a disk full of zeros
        raise StoreError(f"the backup unpacks to {size:,} bytes, more than there is room for: free some")
    digest = hashlib.sha256()
    descriptor = files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, beneath=folder)
    with open(descriptor, "wb") as target:
        for block in _blocks(archive, name, contents):
            digest.update(block)
            target.write(block)
        target.flush()
        os.fsync(target.fileno())
    _check_sum(name, digest.hexdigest(), contents)


def _blocks(archive: zipfile.ZipFile, name: str, contents: Contents) -> Iterator[bytes]:
    """The bytes of a member, as many as the manifest tells at most. Raises `StoreError` for a damaged one."""
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


def _check_sum(name: str, digest: str, contents: Contents) -> None:
    if contents.files[name]["sha256"] != digest:
        raise _damaged(name)


def _damaged(name: str) -> StoreError:
    return StoreError(f"the backup is damaged in {name}, and nothing was changed: take another one")


def _check_catalog(path: str) -> None:
    """Raises `StoreError` unless this is a catalog that this program can open, whole in every page."""
    _check_origin(path)
    problems = _problems(path)
    if problems:
        raise _damaged_catalog(problems[0])
    with _looked_at(path) as connection:
        versions = dict(connection.execute("SELECT key, value FROM meta WHERE key LIKE 'schema.%'"))
        if not versions or not all(map(_is_version, versions.values())):
            raise _odd("it says no version")
        if any(version > _VERSIONS.get(key, 0) for key, version in versions.items()):
            raise StoreError("the backup was made by a newer ctx, and nothing was changed: upgrade ctx")
        _check_columns(versions, _columns(connection))


def _check_columns(versions: dict[str, int], columns: set[str]) -> None:
    """Raises `StoreError` for columns that a catalog of these versions lacks, or has and says nothing of."""
    lacking = _columns_of(versions) - columns
    if lacking:
        raise _odd(f"it lacks {min(lacking)}")
    # Memories alone are a store too: what no version is said of is made when the store is opened.
    absent = {key: version for key, version in _VERSIONS.items() if key not in versions}
    present = {name for name in _columns_of(absent) & columns if not name.startswith(_SHARED)}
    if present:
        raise _odd(f"it says no version of {min(present)}")


def _check_origin(path: str) -> None:
    """Raises `StoreError` for another program's file, and for one with a stranger's statements in it: who
    looks whether the pages are sound has computed columns computed, which need have no end.
    """
    try:
        with _looked_at(path) as connection:
            [mark] = connection.execute("PRAGMA application_id").fetchone()
            computing = holds_statements(connection)
    except StoreError as error:
        raise _damaged_catalog(error.message) from error
    if mark != APPLICATION_ID:
        raise StoreError("what the backup calls a catalog is another program's file; nothing was changed")
    if computing:
        raise StoreError(
            "the catalog in the backup holds a trigger, a view or a computed column, which ctx never "
            "makes; nothing was changed"
        )


def _damaged_catalog(reason: str) -> StoreError:
    return StoreError(f"the catalog in the backup is damaged, and nothing was changed ({reason})")


def _is_version(value: JSON) -> bool:
    return isinstance(value, int) and value > 0


def _odd(reason: str) -> StoreError:
    return StoreError(f"the catalog in the backup is none of ctx's making ({reason}); nothing was changed")


def _columns_of(versions: Mapping[str, int]) -> set[str]:
    """`table.column` of all that a catalog of these versions has; an older one's are not looked into."""
    connection = passing_connection()
    try:
        if versions.get(f"schema.{COMPONENT}") == len(MIGRATIONS):
            migrate(connection, COMPONENT, MIGRATIONS)
        if versions.get("schema.memories") == len(MEMORY_MIGRATIONS):
            bring_up_to_date(connection)
        return _columns(connection)
    finally:
        connection.close()


def _columns(connection: sqlite3.Connection) -> set[str]:
    tables = "(SELECT name FROM sqlite_master WHERE type = 'table')"
    rows = connection.execute(f"SELECT t.name || '.' || c.name FROM {tables} t, pragma_table_info(t.name) c")
    return {row[0] for row in rows}


def _put_in_place(partial: str, database: str, *, replace: bool) -> None:
    """Lays a catalog where none stands, or, to `replace` it, into the file of the one that stands there: at
    once, either way. Raises `BadRequest`, `Busy` where that one is open anywhere, `StoreError`.
    """
    folder = os.path.dirname(database)
    files.check_file(database, beneath=folder)
    if not os.path.lexists(database):
        discard(os.path.join(folder, "index"))
        # Of a file that has gone: SQLite would take them for the new one's.
        discard_companions(database)
        try:
            os.link(partial, database)  # unlike a renaming, never over what another process just made
        except FileExistsError:
            pass
        else:
            file_writing.sync_folder(folder)
            return
    if not replace:
        raise BadRequest(_IS_THERE)
    check_journal(database)
    connection = sqlite3.connect(database, timeout=0, isolation_level=None)
    try:
        _overwrite(connection, partial, os.path.join(folder, "index"))
    except sqlite3.DatabaseError as error:
        raise _not_replaced(error) from error
    finally:
        connection.close()


def _overwrite(connection: sqlite3.Connection, partial: str, index: str) -> None:
    """Gives an open catalog the content of another, in one transaction. Raises `sqlite3.DatabaseError`.

    Not by a renaming: who had opened the file just before, and waits for its lock, would go on with a file
    that has no name, and lay its log beside the new one, which then plays it back.
    """
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    # The log goes into the file and away, which SQLite grants only to the last that has it open.
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("COMMIT")  # the lock is kept
    # Before, not after: of one that is killed in between, no old index answers for the new catalog.
    discard(index)
    with _looked_at(partial) as source:
        source.backup(connection)


def _not_replaced(error: sqlite3.DatabaseError) -> StoreError:
    code = error.sqlite_errorcode & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Busy("the store is in use: stop what serves or searches it (`ctx projects` lists servers)")
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return store_error(error)
    return StoreError("the store that is here cannot be opened: move its folder away first")


@contextmanager
def _looked_at(path: str) -> Iterator[sqlite3.Connection]:
    """A connection to a file that nobody else has, laying nothing beside it."""
    with translating():
        connection = sqlite3.connect(files.sqlite_address(path, "immutable=1"), uri=True)
        try:
            yield connection
        finally:
            connection.close()


def _problems(path: str) -> list[str]:
    """What is wrong with a catalog's pages, a line each."""
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
