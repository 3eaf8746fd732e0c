"""Opens SQLite files and migrates their tables.

A file holds several components (the catalog, the memories), each with its own list of migrations and its own
version in `meta`. A file of a newer ctx is refused. An older file is copied and then migrated.
"""

import errno
import fcntl
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ctx import files
from ctx.errors import Busy, StoreError
from ctx.store.folder import JOURNAL, check_journal, own_folder
from ctx.store.record import unfit

APPLICATION_ID = 0x63747831  # "ctx1": distinguishes our files from other SQLite files
# A bulk transaction of another process takes less than a second; after ten it probably hangs.
BUSY_TIMEOUT_S = 10.0
# the write-ahead log, which may grow during a long read, is truncated to this size
_JOURNAL_LIMIT_BYTES = 64 << 20
# 32 MB: with SQLite's default of 4 MB a bulk run would write index pages again for each batch.
_CHECKPOINT_PAGES = 8_000
# Holds the index over the text hashes of a million chunks, so that bulk inserts stay in memory.
_WRITER_CACHE_KB = 64 << 10
# Enough for everything that a search reads of a small file. For larger files SQLite's 2 MB are faster: pages
# are rarely read twice, and a small cache stays in the processor's caches.
_SMALL_PAGES, _SMALL_CACHE_KB = 4096, 8 << 10

COMPANIONS = ("-wal", "-shm", JOURNAL)  # files that SQLite creates beside a database

_META = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"

# How SQLite writes the definitions of each kind.
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
    """Our error for one of SQLite's; raise it `from` that one."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the class of the error
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Busy("the catalog is being written by another process: try again")
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED:
        return Busy("the catalog was deleted or replaced while it was opened: try again")
    return StoreError(_MESSAGES.get(code, "the catalog could not answer: see the log"))


def is_damage(error: StoreError) -> bool:
    """Whether an error says that the file is damaged, and not that it is foreign, newer, in use or gone."""
    code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class translating:
    """Turns SQLite's errors, and those for values that it cannot store, into `StoreError` and `Busy`."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise store_error(error) from error
        if isinstance(error, OverflowError | UnicodeEncodeError):
            raise unfit(error) from error


class transaction(translating):
    """One transaction: committed at the end, rolled back on any exception. Without `write`, a read
    transaction.

    Raises `Busy` if another process has the file locked, else `StoreError`, also if the file was deleted or
    replaced.
    """

    __slots__ = ("_write", "connection")

    def __init__(self, connection: "Connection", *, write: bool = True) -> None:
        self.connection = connection
        self._write = write

    def __enter__(self) -> None:
        if self._write:
            check_present(self.connection)
        with translating():
            self.connection.execute("BEGIN IMMEDIATE" if self._write else "BEGIN")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            try:
                with translating():
                    self.connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
            if self._write:
                check_present(self.connection)  # else this was written to a file that nobody will open
        else:
            self._roll_back()
            super().__exit__(kind, error, trace)

    def _roll_back(self) -> None:
        if self.connection.in_transaction:  # after a full disk SQLite has already rolled back
            try:
                self.connection.execute("ROLLBACK")
            except sqlite3.Error:
                pass  # the first error matters; SQLite rolls back at the next opening


class Connection(sqlite3.Connection):
    """A connection that remembers which file it opened."""

    path: str
    mark: files.Identity | None
    log: files.Identity | None  # of the write-ahead log, if it existed when this was opened
    synchronous: str
    timeout_s: float

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
    """Opens a database in autocommit mode, for one thread at a time.

    Creates the folder with 0700 and the file with 0600, unless `read_only`. Neither may be a link. The
    journal is a write-ahead log, so that readers never wait. With `synchronous` "NORMAL" a power failure may
    lose the last transactions, but never damages the file; "FULL" loses nothing that was committed. Raises
    `StoreError`.
    """
    address = _address(path, read_only=read_only)
    check_journal(path)
    # Before it is opened: if it is replaced in between, it counts as lost.
    mark = files.identity(path)
    with translating():
        connection = sqlite3.connect(
            address,
            timeout=timeout_s,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
            factory=Connection,
        )
        try:
            connection.path, connection.mark = path, mark
            connection.synchronous, connection.timeout_s = synchronous, timeout_s
            if read_only:
                _prepare_reading(connection)
            else:
                _marked_ours(connection)  # before anything changes in another program's file
                _check_statements(connection)
                _close_to_others(path)
                _prepare_writing(connection)
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
    """Whether the file system has no locks, which SQLite reports as busy."""
    try:
        with tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(path))) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
    return False


def _address(path: str, *, read_only: bool) -> str:
    """The URI for SQLite. Creates the file for writing; for reading it must exist."""
    address = files.sqlite_address(path, "mode=rw")
    try:
        if not read_only:
            _create(path)
        elif _check_readable(path):
            # SQLite would create a log beside the file; but if nobody can write there, the file does not
            # change.
            return address + "&immutable=1"
    except OSError as error:
        raise StoreError(f"the catalog cannot be made or opened: {error.strerror}") from error
    return address


def _prepare_reading(connection: Connection) -> None:
    connection.execute("PRAGMA query_only = 1")
    _check_statements(connection)  # a view in place of a table would run when the table is read
    if connection.execute("PRAGMA page_count").fetchone()[0] <= _SMALL_PAGES:
        connection.execute(f"PRAGMA cache_size = -{_SMALL_CACHE_KB}")


def is_locked(path: str) -> bool:
    """Whether the file exists and this user may only read it."""
    folder = os.path.dirname(path) or "."
    return os.path.exists(path) and not (os.access(path, os.W_OK) and os.access(folder, os.W_OK))


def passing_connection() -> Connection:
    """A connection to an empty database in memory."""
    connection = sqlite3.connect(
        ":memory:", isolation_level=None, check_same_thread=False, factory=Connection
    )
    connection.path, connection.mark, connection.log = ":memory:", None, None
    return connection


def _create(path: str) -> None:
    """Makes an empty file with 0600, and its folder, if there is none. Raises `OSError` for a link or another
    user's file.
    """
    own_folder(path)
    folder = os.path.dirname(os.path.abspath(path))
    for suffix in ("", *COMPANIONS):
        if files.check_file(path + suffix, beneath=folder, own=True) is None and not suffix:
            try:
                os.close(files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, beneath=folder))
                own_folder(path)  # records the new file as checked
            except FileExistsError:
                pass  # another process was first


def _close_to_others(path: str) -> None:
    """Gives our database and SQLite's files beside it 0600. Files that SQLite creates later get the same
    mode.
    """
    folder = os.path.dirname(os.path.abspath(path))
    try:
        for suffix in ("", *COMPANIONS):
            files.check_file(path + suffix, beneath=folder, private=True)
    except OSError as error:
        raise StoreError(f"the catalog cannot be made or opened: {error.strerror}") from error


def _check_readable(path: str) -> bool:
    """Whether nobody can change the file. Raises `OSError` for links, `StoreError` if there is no file."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.lexists(path):
        raise StoreError("there is no catalog yet: run `ctx index`")
    # A reader creates SQLite's log; in another user's folder that would lock out the owner.
    writing = os.access(folder, os.W_OK)
    files.check_folder(folder, beneath=folder, writing=writing)
    present = [files.check_file(path + suffix, beneath=folder) for suffix in ("", *COMPANIONS)]
    return not writing and present[1] is None


def _prepare_writing(connection: Connection) -> None:
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        _use_wal(connection, connection.timeout_s)
    connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KB}")
    connection.execute("PRAGMA foreign_keys = 1")
    connection.execute(f"PRAGMA synchronous = {connection.synchronous}")
    if connection.synchronous == "FULL":
        connection.execute("PRAGMA fullfsync = 1")  # macOS: fsync alone leaves data in the disk's own cache
    connection.execute(f"PRAGMA journal_size_limit = {_JOURNAL_LIMIT_BYTES}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    # Debian's SQLite overwrites deleted data with zeros, which is twice the work.
    connection.execute("PRAGMA secure_delete = 0")
    connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # SQLite opens the log with the first read


def _use_wal(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switches the file to a write-ahead log. SQLite does not wait for this lock if two processes do so at
    once.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def schema_version(connection: sqlite3.Connection, component: str) -> int:
    """The number of migrations that a component has seen: 0 if it has no tables. Raises `StoreError`."""
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
    """Brings one component's tables up to date; `migrations[n]` is the SQL from version n to n + 1.

    They run in one transaction. Before existing tables are changed, the file is copied to
    `<file>.<component>-<version>.bak`. Raises `StoreError` for a file of a newer ctx or another program.
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
        _back_up(connection, f"{component}-{version}")
    with transaction(connection):
        if not _marked_ours(connection):
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(_META)
        version = schema_version(connection, component)  # another process may have been first
        for sql in migrations[version:]:
            for statement in _statements(sql):
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
    """Whether a file contains code that would run with our statements: triggers, views, computed columns."""
    query = "SELECT type, CAST(sql AS TEXT) FROM sqlite_master WHERE sql IS NOT NULL"
    rows = connection.execute(query).fetchall()
    for kind, text in rows:
        # SQLite runs the text, and the type may be forged (`Trigger`).
        if not text.startswith(_KINDS.get(kind, ())) or (kind == "index" and text.count("(") > 1):
            return True  # the second parenthesis is of an expression
    words = " ".join([text for _, text in rows]).upper()  # joined once, because every search waits for this
    if "CHECK" in words or "LIKE" in words or "GLOB" in words:  # none of our names contains these
        return True
    pieces = words.split("AS")  # of a generated column; many names contain these letters
    for before, after in pairwise(pieces):
        if not (before[-1:].isalpha() or after[:1].isalpha() or before[-1:] == "_" or after[:1] == "_"):
            return True
    return not all(map(_is_constant, words.split("DEFAULT")[1:]))


def _is_constant(default: str) -> bool:
    """Whether a column's default starts like a number or a string."""
    first = default.lstrip()[:1]
    return first.isalnum() or first == "'"


def _marked_ours(connection: sqlite3.Connection) -> bool:
    """Whether the file is marked as ours; False while it is empty. Raises `StoreError` for another program's
    file.
    """
    # In this order, because another process marks the file when it creates the tables.
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
        return True
    if tables:
        raise StoreError("the catalog's file belongs to another program: set [db] path to a new file")
    return False


def _statements(sql: str) -> Iterator[str]:
    """The statements of a script one by one, because `executescript` would commit first."""
    statement = ""
    for part in sql.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip(" \n;"):
        yield statement


def _back_up(connection: sqlite3.Connection, label: str) -> None:
    """Copies the whole file, including its log. Replaces a copy with the same label, which has the same
    content.
    """
    with translating():
        path = connection.execute("PRAGMA database_list").fetchone()[2]
    try:
        copy_database(connection, f"{path}.{label}.bak.tmp", f"{path}.{label}.bak")
    except OSError as error:
        raise StoreError(
            f"no backup of the catalog could be made before its upgrade: {error.strerror}"
        ) from error


def discard_copy(path: str) -> None:
    """Deletes a copy and SQLite's files beside it, if they exist. Raises `OSError`."""
    if os.path.lexists(path):
        os.unlink(path)
    discard_companions(path)


def discard_companions(path: str) -> None:
    """Deletes SQLite's files beside a database, if they exist. Raises `OSError`."""
    for suffix in COMPANIONS:
        if os.path.lexists(path + suffix):
            os.unlink(path + suffix)


def begin_copy(path: str) -> None:
    """Makes an empty file with 0600 for a copy; replaces an earlier one. Raises `OSError`."""
    discard_copy(path)
    folder = os.path.dirname(os.path.abspath(path))
    os.close(files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, beneath=folder))


def copy_database(connection: sqlite3.Connection, unfinished: str, path: str) -> None:
    """Writes a complete copy of the database, with 0600, and renames it to `path` at the end. Raises
    `OSError`, `StoreError`.
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
