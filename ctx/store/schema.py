"""Opens SQLite files and migrates their tables.

A file holds one or more components (the catalog, the memories). Each component has its own list of migrations
and its own version in the table `meta`. A file from a newer ctx is refused. An older file is backed up and
then migrated.
"""

import errno
import fcntl
import os
import re
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from ctx import files
from ctx.errors import Busy, StoreError
from ctx.store.folder import JOURNAL, check_journal, own_folder
from ctx.store.record import unfit

APPLICATION_ID = 0x63747831  # "ctx1": distinguishes our files from other SQLite files
# A bulk transaction takes less than a second. A process that writes for ten seconds probably hangs.
BUSY_TIMEOUT_S = 10.0
# SQLite truncates the write-ahead log to this size. It may grow beyond it during a long read.
_JOURNAL_LIMIT_BYTES = 64 << 20
# 32 MB. With SQLite's default of 4 MB, a bulk run would rewrite index pages for each batch.
_CHECKPOINT_PAGES = 8_000
# Large enough for the index over the text hashes of a million chunks, so that bulk inserts stay in memory.
_WRITER_CACHE_KB = 64 << 10
# In a small file this cache holds everything that a search reads. For larger files, SQLite's default of 2 MB
# is faster: pages are rarely read twice, and a small cache fits into the processor's caches.
_SMALL_PAGES, _SMALL_CACHE_KB = 4096, 8 << 10

COMPANIONS = ("-wal", "-shm", JOURNAL)  # suffixes of the files that SQLite creates next to a database

_META = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"

# kind of schema object -> how its SQL begins in `sqlite_master`
_KINDS = {
    "table": ("CREATE TABLE ", "CREATE VIRTUAL TABLE "),
    "index": ("CREATE INDEX ", "CREATE UNIQUE INDEX "),
}

READ_ONLY = "the catalog is read-only: check the permissions of its file and folder"

_MESSAGES = {
    sqlite3.SQLITE_CORRUPT: "the catalog is damaged: restore a backup of it, or run `ctx doctor`",
    sqlite3.SQLITE_NOTADB: "the catalog is not a SQLite file: restore a backup of it, or set [db] path to a "
    "new file",
    sqlite3.SQLITE_FULL: "the disk is full, and nothing was changed: free some space and try again",
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_PERM: "the catalog may not be opened: check the permissions of its file and folder",
    sqlite3.SQLITE_CANTOPEN: "the catalog cannot be opened: check that its folder exists and may be written",
    sqlite3.SQLITE_IOERR: "the file system failed while the catalog was read or written: see the log",
    sqlite3.SQLITE_TOOBIG: "a text is larger than the catalog can hold (1 GB)",
}


def store_error(error: sqlite3.Error) -> StoreError:
    """The `StoreError` to raise (with `from error`) for an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the class of the error
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Busy("the catalog is being written by another process: try again")
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED:
        return Busy("the catalog was deleted or replaced while it was opened: try again")
    return StoreError(_MESSAGES.get(code, "the catalog could not answer: see the log"))


def is_damage(error: StoreError) -> bool:
    """Whether SQLite reported a damaged file. False for a file of another program or a newer ctx, and for a
    file that is in use or gone.
    """
    code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@contextmanager
def translating() -> Iterator[None]:
    """A context manager that turns the errors of SQLite into `StoreError` and `Busy`, also those for values
    that SQLite cannot store.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(error) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise unfit(error) from error


@contextmanager
def transaction(connection: "Connection", *, write: bool = True) -> Iterator[None]:
    """A context manager for one transaction: commits at the end of the block, and rolls back on any
    exception. With `write=False` it is a read transaction.

    Raises `Busy` if another process has locked the file, and `StoreError` for other errors, also if the file
    was deleted or replaced.
    """
    if write:
        check_present(connection)
    with translating():
        connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # after a full disk SQLite has already rolled back
                with suppress(sqlite3.Error):  # the first error matters; the next opening rolls back
                    connection.execute("ROLLBACK")
            raise
    if write:
        check_present(connection)  # a deleted file takes writes, but nobody can open it again


class Connection(sqlite3.Connection):
    """A connection that remembers which file it opened."""

    path = ":memory:"
    timeout_s = BUSY_TIMEOUT_S
    mark: files.Identity | None = None
    log: files.Identity | None = None  # the write-ahead log; None if it did not exist at the opening

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        return self.execute(sql, values)

    def lost(self) -> bool:
        """Whether the file was deleted or replaced, so that writes would be lost."""
        if files.identity(self.path) != self.mark:
            return True
        return self.log is not None and files.identity(f"{self.path}-wal") != self.log


def check_present(connection: Connection) -> None:
    """Raises `StoreError` if the file of a connection was deleted or replaced."""
    if connection.lost():
        name = os.path.basename(connection.path)
        raise StoreError(f"`{name}` was deleted or replaced while ctx had it open: restart ctx")


def connect(
    path: str, *, read_only: bool = False, synchronous: str = "NORMAL", timeout_s: float = BUSY_TIMEOUT_S
) -> Connection:
    """Opens a database in autocommit mode. Only one thread at a time may use the connection.

    Unless `read_only`, creates a missing folder with mode 0700 and a missing file with mode 0600. The folder
    and the file must not be links. The journal is a write-ahead log, so readers never wait. With
    `synchronous` "NORMAL", a power failure may lose the last transactions but never damages the file. With
    "FULL", it loses no committed transaction. Raises `StoreError`.
    """
    folder = os.path.dirname(os.path.abspath(path))
    with translating(), _opening():
        address = files.sqlite_address(path, "mode=rw")
        if not read_only:
            _create(path)
        elif _check_readable(path):
            # Nobody can write to this folder, so the file does not change. Without `immutable`, SQLite would
            # try to create a log file in the folder.
            address += "&immutable=1"
        check_journal(path)
        # Read before the file is opened: if the file is replaced in between, `lost` notices.
        mark = files.identity(path)
        connection = sqlite3.connect(
            address,
            timeout=timeout_s,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
            factory=Connection,
        )
        try:
            connection.path, connection.mark, connection.timeout_s = path, mark, timeout_s
            if read_only:
                _prepare_reading(connection)
            else:
                _marked_ours(connection)  # before anything changes in another program's file
                _check_statements(connection)
                for suffix in ("", *COMPANIONS):  # files that SQLite creates later get the database's mode
                    files.check_file(path + suffix, beneath=folder, private=True)
                _prepare_writing(connection, synchronous)
            connection.log = files.identity(f"{path}-wal")
        except BaseException as error:
            connection.close()
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY and _refuses_locks(path):
                raise StoreError(
                    f"the file system of {path} has no file locks, which SQLite needs: set [db] path or "
                    "[memory] path to a file on a local disk"
                ) from error
            raise
    return connection


def _refuses_locks(path: str) -> bool:
    """Whether the file system does not support file locks. SQLite reports this as "busy"."""
    try:
        with tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(path))) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
    return False


@contextmanager
def _opening() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"the catalog cannot be made or opened: {error.strerror}") from error


def _prepare_reading(connection: Connection) -> None:
    connection.execute("PRAGMA query_only = 1")
    _check_statements(connection)  # a view with the name of a table would run its SQL when it is read
    if connection.execute("PRAGMA page_count").fetchone()[0] <= _SMALL_PAGES:
        connection.execute(f"PRAGMA cache_size = -{_SMALL_CACHE_KB}")


def is_locked(path: str) -> bool:
    """Whether the file exists and this user cannot write to it or to its folder."""
    folder = os.path.dirname(path) or "."
    return os.path.exists(path) and not (os.access(path, os.W_OK) and os.access(folder, os.W_OK))


def _create(path: str) -> None:
    """Creates the folder and an empty file with mode 0600, if they do not exist. Raises `OSError` if the file
    is a link or belongs to another user.
    """
    own_folder(path)
    folder = os.path.dirname(os.path.abspath(path))
    for suffix in ("", *COMPANIONS):
        if files.check_file(path + suffix, beneath=folder, own=True) is None and not suffix:
            try:
                os.close(files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, beneath=folder))
            except FileExistsError:
                pass  # another process has just created it


def _check_readable(path: str) -> bool:
    """Checks that the file can be read safely. Returns whether it cannot change, because its folder is not
    writable and there is no log. Raises `OSError` for a link, and `StoreError` if the file does not exist.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.lexists(path):
        raise StoreError("there is no catalog yet: run `ctx index`")
    # A reader that may write creates SQLite's log. In a folder of another user, this would lock out the
    # owner.
    writing = os.access(folder, os.W_OK)
    files.check_folder(folder, beneath=folder, writing=writing)
    present = [files.check_file(path + suffix, beneath=folder) for suffix in ("", *COMPANIONS)]
    return not writing and present[1] is None


def _prepare_writing(connection: Connection, synchronous: str) -> None:
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        _use_wal(connection)
    connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KB}")
    connection.execute("PRAGMA foreign_keys = 1")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    if synchronous == "FULL":
        connection.execute("PRAGMA fullfsync = 1")  # on macOS, fsync alone leaves data in the disk's cache
    connection.execute(f"PRAGMA journal_size_limit = {_JOURNAL_LIMIT_BYTES}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    # On Debian, SQLite overwrites deleted data with zeros by default, which doubles the work.
    connection.execute("PRAGMA secure_delete = 0")
    connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # SQLite opens the log at the first read


def _use_wal(connection: Connection) -> None:
    """Switches the file to a write-ahead log. Tries again until the timeout, because SQLite fails at once if
    two processes switch the file at the same time.
    """
    deadline = time.monotonic() + connection.timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def schema_version(connection: sqlite3.Connection, component: str) -> int:
    """The number of migrations that were applied to a component; 0 if it has no tables. Raises
    `StoreError`.
    """
    with translating():
        try:
            row = connection.execute(
                "SELECT value FROM meta WHERE key = ?", (f"schema.{component}",)
            ).fetchone()
        except sqlite3.OperationalError as error:
            if not str(error).startswith("no such table"):
                raise
            return 0
    version = row[0] if row else 0
    if not isinstance(version, int):
        raise StoreError("the catalog does not say which version it has: restore a backup of your own")
    return version


def migrate(connection: Connection, component: str, migrations: Sequence[str]) -> None:
    """Brings the tables of one component up to date. `migrations[n]` is the SQL that leads from version n to
    version n + 1.

    All migrations run in one transaction. Before existing tables change, the file is copied to
    `<file>.<component>-<version>.bak`. Raises `StoreError` for a file of a newer ctx or of another program.
    """
    version = schema_version(connection, component)
    if version > len(migrations):
        raise StoreError(
            f"the catalog was written by a newer ctx ({component} version {version}, this program knows "
            f"{len(migrations)}): upgrade ctx, or restore the backup made when it was upgraded"
        )
    if version == len(migrations):
        return
    if version:
        backup = f"{connection.path}.{component}-{version}.bak"
        with files.writing(f"the backup of the catalog before its upgrade, {backup},", StoreError):
            copy_database(connection, f"{backup}.tmp", backup)
    with transaction(connection):
        if not _marked_ours(connection):
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(_META)
        version = schema_version(connection, component)  # another process may have migrated it meanwhile
        for sql in migrations[version:]:
            # `executescript` would commit the open transaction. Each statement ends at the end of a line.
            for statement in re.split(r";[ ]*(?:--.*)?$", sql, flags=re.MULTILINE):
                connection.execute(statement)
        if version < len(migrations):
            connection.execute(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"schema.{component}", len(migrations))
            )


def _check_statements(connection: sqlite3.Connection) -> None:
    if holds_statements(connection):
        raise StoreError(
            "the catalog holds a trigger, a view or a computed column, which ctx never makes and which may "
            "drop what is stored: restore a backup of your own, or delete it and run `ctx index`"
        )


def holds_statements(connection: sqlite3.Connection) -> bool:
    """Whether the file contains SQL code that would run along with our statements: a trigger, a view or a
    computed column.
    """
    query = "SELECT type, CAST(sql AS TEXT) FROM sqlite_master WHERE sql IS NOT NULL"
    rows = connection.execute(query).fetchall()
    for kind, text in rows:
        # Compares the text as well, because SQLite runs the text and the type may be forged (`Trigger`).
        if not text.startswith(_KINDS.get(kind, ())) or (kind == "index" and text.count("(") > 1):
            return True  # a second parenthesis in an index belongs to an expression
    words = " ".join([text for _, text in rows]).upper()  # joined once, because every search waits for this
    if "CHECK" in words or "LIKE" in words or "GLOB" in words:  # none of our names contains these words
        return True
    pieces = words.split("AS")  # a generated column has the word AS; many names only contain the letters
    for before, after in pairwise(pieces):
        if not (before[-1:].isalpha() or after[:1].isalpha() or before[-1:] == "_" or after[:1] == "_"):
            return True
    # A column's default must start like a number or a string.
    starts = [default.lstrip()[:1] for default in words.split("DEFAULT")[1:]]
    return not all(start.isalnum() or start == "'" for start in starts)


def _marked_ours(connection: sqlite3.Connection) -> bool:
    """Whether the file has our application id; False if it is still empty. Raises `StoreError` for a file of
    another program.
    """
    # Counts the tables first, because another process sets the id in the transaction that creates them.
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
        return True
    if tables:
        raise StoreError("the catalog's file belongs to another program: set [db] path to a new file")
    return False


def discard_copy(path: str) -> None:
    """Deletes the database copy at `path` and its companion files, if they exist. Raises `OSError`."""
    Path(path).unlink(missing_ok=True)
    discard_companions(path)


def discard_companions(path: str) -> None:
    """Deletes the companion files (`COMPANIONS`) of a database, if they exist. Raises `OSError`."""
    for suffix in COMPANIONS:
        Path(path + suffix).unlink(missing_ok=True)


def begin_copy(path: str) -> None:
    """Creates an empty file with mode 0600 for a database copy. Replaces an earlier copy. Raises
    `OSError`.
    """
    discard_copy(path)
    folder = os.path.dirname(os.path.abspath(path))
    os.close(files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, beneath=folder))


def copy_database(connection: sqlite3.Connection, unfinished: str, path: str) -> None:
    """Copies the database to the file `unfinished` (mode 0600), and renames this file to `path` when the copy
    is complete. Raises `OSError`, `StoreError`.
    """
    begin_copy(unfinished)
    try:
        with translating():
            target = sqlite3.connect(unfinished, isolation_level=None)
            try:
                connection.backup(target)
            finally:
                target.close()
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
    files.sync(os.path.dirname(os.path.abspath(path)))
