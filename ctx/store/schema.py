"""How ctx opens a SQLite file, and brings its tables up to date.

One file holds several components (the catalog, the memories), each with its own list of migrations and its own version in
`meta`. A file newer than the program is refused; an older one is migrated, after a copy of it was laid beside it.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence

from ctx.errors import Busy, StoreError

APPLICATION_ID = 0x63747831  # "ctx1": tells our files from any other SQLite file
BUSY_TIMEOUT_S = (
    10.0  # a bulk transaction of another process takes less than a second; ten mean that it hangs
)
_JOURNAL_LIMIT_BYTES = 64 << 20  # a write-ahead log that a long reader let grow is cut back to this
_CHECKPOINT_PAGES = (
    8_000  # 32 MB: at SQLite's own 4 MB a bulk run would write the pages of its indexes again for each batch
)
_WRITER_CACHE_KB = (
    64 << 10
)  # the index over the text hashes of a million chunks, so that bulk inserts stay in memory
_READER_CACHE_KB = 8 << 10

_META = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"

_MESSAGES = {
    sqlite3.SQLITE_CORRUPT: "the catalog is damaged: restore a backup of it, or run `ctx doctor`",
    sqlite3.SQLITE_NOTADB: "the catalog is not a SQLite file: restore a backup of it, or set [db] path to a new file",
    sqlite3.SQLITE_FULL: "the disk is full, and nothing was changed: free some space and try again",
    sqlite3.SQLITE_READONLY: "the catalog is read-only: check the permissions of its file and folder",
    sqlite3.SQLITE_PERM: "the catalog may not be opened: check the permissions of its file and folder",
    sqlite3.SQLITE_CANTOPEN: "the catalog cannot be opened: check that its folder exists and may be written",
    sqlite3.SQLITE_IOERR: "the file system failed while the catalog was read or written: see the log",
    sqlite3.SQLITE_TOOBIG: "a text is larger than the catalog can hold (1 GB)",
}


def store_error(error: sqlite3.Error) -> StoreError:
    """Our error for one of SQLite's; raise it `from` that one."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the class, the rest a refinement
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Busy("the catalog is being written by another process: try again")
    return StoreError(_MESSAGES.get(code, "the catalog could not answer: see the log"))


class translating:
    """Turns SQLite's errors, and what its Python module says of values it cannot take, into `StoreError` and `Busy`."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise store_error(error) from error
        if isinstance(error, OverflowError):
            raise StoreError("a number or a text is larger than the catalog can hold") from error
        if isinstance(error, UnicodeEncodeError):
            raise StoreError(
                "a text holds a lone surrogate, which is not Unicode text and cannot be stored"
            ) from error


class transaction(translating):
    """One transaction: committed at the end, rolled back on any exception. Without `write`, a steady view for reading.

    Raises `Busy` where another process keeps the file, `StoreError` for the rest. A class and not a generator: `contextlib` costs
    a cold search 0.6 ms.
    """

    __slots__ = ("_write", "connection")

    def __init__(self, connection: sqlite3.Connection, *, write: bool = True) -> None:
        self.connection = connection
        self._write = write

    def __enter__(self) -> None:
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
        else:
            self._roll_back()
            super().__exit__(kind, error, trace)

    def _roll_back(self) -> None:
        if self.connection.in_transaction:  # a full disk has already rolled back
            try:
                self.connection.execute("ROLLBACK")
            except sqlite3.Error:
                pass  # the first error is the one to tell; SQLite rolls back when the file is next opened


def make_private_folder(path: str) -> None:
    """Makes a folder and those above it, 0700 under any umask. One that exists keeps its mode."""
    path = os.path.abspath(path)
    if os.path.isdir(path):
        return
    make_private_folder(os.path.dirname(path))
    try:
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)  # a umask may have taken bits of our own
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def _create(path: str) -> None:
    """Makes an empty file 0600 where there is none. SQLite gives its -wal and -shm the mode of the file itself."""
    try:
        make_private_folder(os.path.dirname(os.path.abspath(path)))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        if os.path.isfile(path):
            return
        raise StoreError("the catalog's path is not a file: set [db] path to another") from None
    except OSError as error:
        raise StoreError(f"the catalog cannot be made: {error.strerror}; check its folder") from error
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def connect(
    path: str, *, read_only: bool = False, synchronous: str = "NORMAL", timeout_s: float = BUSY_TIMEOUT_S
) -> sqlite3.Connection:
    """An open connection in autocommit mode, usable from any one thread at a time.

    The folder is made 0700 and the file 0600 unless `read_only`, which never creates. The journal is a write-ahead log, so
    that readers never wait. `synchronous` "NORMAL" survives the death of the process but may lose the last transactions with
    the power (the file stays whole); "FULL" loses nothing that was committed. Raises `StoreError`.
    """
    if synchronous not in ("NORMAL", "FULL"):
        raise ValueError(synchronous)
    if not read_only:
        _create(path)
    elif not os.path.exists(path):
        raise StoreError("there is no catalog yet: run `ctx index`")
    address = "file:" + path.replace("%", "%25").replace("?", "%3f").replace("#", "%23") + "?mode=rw"
    if (
        read_only
        and not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK)
        and not os.path.exists(path + "-wal")
    ):
        # SQLite would want to lay a log beside the file; where nobody can write, nobody changes the file either.
        address += "&immutable=1"
    with translating():
        connection = sqlite3.connect(
            address, timeout=timeout_s, isolation_level=None, check_same_thread=False, uri=True
        )
        try:
            if read_only:
                connection.execute("PRAGMA query_only = 1")
                connection.execute(f"PRAGMA cache_size = -{_READER_CACHE_KB}")
                return connection
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                _use_wal(connection, timeout_s)
            connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KB}")
            connection.execute("PRAGMA foreign_keys = 1")
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute(f"PRAGMA journal_size_limit = {_JOURNAL_LIMIT_BYTES}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            connection.execute(
                "PRAGMA secure_delete = 0"
            )  # Debian's SQLite overwrites with zeros what it deletes: twice the work
        except BaseException:
            connection.close()
            raise
    return connection


def _use_wal(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switches the file to a write-ahead log. SQLite does not wait for this lock by itself when two processes meet here."""
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
    """How many migrations of a component the file has seen: 0 where it has none of its tables. Raises `StoreError`."""
    with translating():
        if not connection.execute(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
        ).fetchone():
            return 0
        row = connection.execute("SELECT value FROM meta WHERE key = ?", (f"schema.{component}",)).fetchone()
    return int(row[0]) if row else 0


def migrate(connection: sqlite3.Connection, component: str, migrations: Sequence[str]) -> None:
    """Brings one component's tables up to date; `migrations[n]` is the SQL that leads from version n to n + 1.

    All of them are one transaction. Before tables that hold something are changed, the whole file is copied to
    `<file>.<component>-<version>.bak`. Raises `StoreError` for a file that is newer than the program, or not ours.
    """
    version = schema_version(connection, component)
    if version > len(migrations):
        raise StoreError(
            f"the catalog was written by a newer ctx ({component} version {version}, this program knows {len(migrations)}): "
            "upgrade ctx, or restore the backup made when it was upgraded"
        )
    if version == len(migrations):
        return
    if version:
        _back_up(connection, f"{component}-{version}")
    with transaction(connection):
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise StoreError("the catalog's file belongs to another program: set [db] path to a new file")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(_META)
        version = schema_version(connection, component)  # another process may have come first
        for sql in migrations[version:]:
            for statement in _statements(sql):
                connection.execute(statement)
        if version < len(migrations):
            connection.execute(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"schema.{component}", len(migrations))
            )


def _statements(sql: str) -> Iterator[str]:
    """The statements of a script one by one: sqlite3's own `executescript` would commit first."""
    statement = ""
    for part in sql.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip(" \n;"):
        yield statement


def _back_up(connection: sqlite3.Connection, label: str) -> None:
    """Lays a whole copy of the file beside it, log included. One of the same label is replaced: it holds the same."""
    with translating():
        path = connection.execute("PRAGMA database_list").fetchone()[2]
    unfinished = f"{path}.{label}.bak.tmp"
    try:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        _create(unfinished)
        with translating():
            target = sqlite3.connect(unfinished, isolation_level=None)
            try:
                connection.backup(target)
            finally:
                target.close()
        os.replace(unfinished, f"{path}.{label}.bak")
    except OSError as error:
        raise StoreError(
            f"no backup of the catalog could be made before its upgrade: {error.strerror}"
        ) from error
