"""How ctx opens a SQLite file, and brings its tables up to date.

One file holds several components (the catalog, the memories), each with its own list of migrations and its
own version in `meta`. A file newer than the program is refused; an older one is migrated, after a copy of it
was laid beside it.
"""

import errno
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ctx import file_writing, files
from ctx.errors import Busy, StoreError
from ctx.store.record import unfit

if TYPE_CHECKING:
    import sqlite3
else:
    import _sqlite3 as sqlite3  # all that `sqlite3` has but its adapters of dates: 0.4 ms of a cold search

APPLICATION_ID = 0x63747831  # "ctx1": tells our files from any other SQLite file
# A bulk transaction of another process takes less than a second; ten mean that it hangs.
BUSY_TIMEOUT_S = 10.0
_JOURNAL_LIMIT_BYTES = 64 << 20  # a write-ahead log that a long reader let grow is cut back to this
# 32 MB: at SQLite's own 4 MB a bulk run would write the pages of its indexes again for each batch.
_CHECKPOINT_PAGES = 8_000
# The index over the text hashes of a million chunks, so that bulk inserts stay in memory.
_WRITER_CACHE_KB = 64 << 10
# Of a small file all that a search reads. Of a larger one, whose pages are seldom met again, SQLite's own
# 2 MB: a page is read sooner into memory that the processor's caches still have.
_SMALL_PAGES, _SMALL_CACHE_KB = 4096, 8 << 10

JOURNAL = "-journal"
COMPANIONS = ("-wal", "-shm", JOURNAL)  # what SQLite lays beside a file and opens by name

_META = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"

# How SQLite itself writes down what there may be in a file, each under its kind.
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
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the class, the rest a refinement
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Busy("the catalog is being written by another process: try again")
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED:
        return Busy("the catalog was deleted or replaced while it was opened: try again")
    return StoreError(_MESSAGES.get(code, "the catalog could not answer: see the log"))


def is_damage(error: StoreError) -> bool:
    """Whether it says that the file is damaged: not that it is another program's, newer, in use or away."""
    code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class translating:
    """Turns SQLite's errors, and what its Python module says of values it cannot take, into `StoreError` and
    `Busy`.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise store_error(error) from error
        if isinstance(error, OverflowError | UnicodeEncodeError):
            raise unfit(error) from error


class transaction(translating):
    """One transaction: committed at the end, rolled back on any exception. Without `write`, a steady view for
    reading.

    Raises `Busy` if another process keeps the file, `StoreError` for the rest, also if the file was deleted
    or replaced.
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
                check_present(self.connection)  # else it was committed to a file that nobody will open
        else:
            self._roll_back()
            super().__exit__(kind, error, trace)

    def _roll_back(self) -> None:
        if self.connection.in_transaction:  # a full disk has already rolled back
            try:
                self.connection.execute("ROLLBACK")
            except sqlite3.Error:
                pass  # the first error is the one to tell; SQLite rolls back when the file is next opened


class Connection(sqlite3.Connection):
    """A connection that knows which file it has open, whatever becomes of the file's name."""

    path: str
    mark: files.Identity | None
    log: files.Identity | None  # of the write-ahead log, where it was there when this was opened
    synchronous: str
    timeout_s: float

    def lost(self) -> bool:
        """Whether its file was deleted or replaced: nobody would find what is written now."""
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
    """An open connection in autocommit mode, usable from any one thread at a time.

    The folder is made 0700 and the file 0600 unless `read_only`, which never creates. Neither may be a link.
    The journal is a write-ahead log, so that readers never wait. `synchronous` "NORMAL" survives the death of
    the process but may lose the last transactions with the power (the file stays whole); "FULL" loses nothing
    that was committed, on macOS neither. Raises `StoreError`.
    """
    address = _address(path, read_only=read_only)
    if os.path.lexists(path + JOURNAL):
        from ctx.store.folder import check_journal  # what no sound store needs

        check_journal(path)
    # Before it is opened: of one that is replaced in between, what was opened is then known to be gone.
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
                _marked_ours(connection)  # before anything of a file changes that is another program's
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
    """Whether the file system there has no locks, as some network file systems: SQLite calls that busy."""
    try:
        with tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(path))) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
    return False


def _address(path: str, *, read_only: bool) -> str:
    """What SQLite opens; a file that is to be written is made, one to be read must be there."""
    address = files.sqlite_address(path, "mode=rw")
    try:
        if not read_only:
            _create(path)
        elif _check_readable(path):
            # SQLite would want to lay a log beside the file; where nobody can write, nobody changes the file
            # either.
            return address + "&immutable=1"
    except OSError as error:
        raise StoreError(f"the catalog cannot be made or opened: {error.strerror}") from error
    return address


def _prepare_reading(connection: Connection) -> None:
    connection.execute("PRAGMA query_only = 1")
    _check_statements(connection)  # a view in a table's place is asked by whoever reads the table
    if connection.execute("PRAGMA page_count").fetchone()[0] <= _SMALL_PAGES:
        connection.execute(f"PRAGMA cache_size = -{_SMALL_CACHE_KB}")


def is_locked(path: str) -> bool:
    """Whether the file is there and this user may only read it."""
    folder = os.path.dirname(path) or "."
    return os.path.exists(path) and not (os.access(path, os.W_OK) and os.access(folder, os.W_OK))


def passing_connection() -> Connection:
    """A connection to a catalog in memory, which has no tables yet and goes with the connection."""
    connection = sqlite3.connect(
        ":memory:", isolation_level=None, check_same_thread=False, factory=Connection
    )
    connection.path, connection.mark, connection.log = ":memory:", None, None
    return connection


def _create(path: str) -> None:
    """Makes an empty file 0600 where there is none, and its folder. Raises `OSError` for a link or another
    user's.
    """
    _own_folder(path)
    folder = os.path.dirname(os.path.abspath(path))
    for suffix in ("", *COMPANIONS):
        if files.check_file(path + suffix, beneath=folder, own=True) is None and not suffix:
            try:
                os.close(files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, beneath=folder))
                _own_folder(path)  # which knows it then, and looks at another one in its place
            except FileExistsError:
                pass  # another process came first


def _close_to_others(path: str) -> None:
    """Gives a catalog of ours 0600, and what SQLite laid beside it: what it lays later has the file's
    mode.
    """
    folder = os.path.dirname(os.path.abspath(path))
    try:
        for suffix in ("", *COMPANIONS):
            files.check_file(path + suffix, beneath=folder, private=True)
    except OSError as error:
        raise StoreError(f"the catalog cannot be made or opened: {error.strerror}") from error


def _own_folder(path: str) -> None:
    # Half a millisecond, and a search from the command line only reads.
    from ctx.store.folder import own_folder

    own_folder(path)


def _check_readable(path: str) -> bool:
    """Whether nobody can change the file. Raises `OSError` for links, `StoreError` where there is no file."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.lexists(path):
        raise StoreError("there is no catalog yet: run `ctx index`")
    # A reader lays SQLite's log beside the file; in another user's folder that would lock the owner out.
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
    # Debian's SQLite overwrites with zeros what it deletes: twice the work.
    connection.execute("PRAGMA secure_delete = 0")
    connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # SQLite opens the log with the first read


def _use_wal(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switches the file to a write-ahead log.
    SQLite does not wait for this lock by itself when two processes meet here.
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
    """How many migrations of a component the file has seen: 0 where it has none of its tables.
    Raises `StoreError`.
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
    """Brings one component's tables up to date; `migrations[n]` is the SQL that leads from version n to n +
    1.

    All of them are one transaction. Before tables that hold something are changed, the whole file is copied
    to `<file>.<component>-<version>.bak`. Raises `StoreError` for a file that is newer than the program, or
    not ours.
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
        version = schema_version(connection, component)  # another process may have come first
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
    """Whether a file brings a stranger's statements (triggers, views, computed columns), which would run with
    each of ours.
    """
    query = "SELECT type, CAST(sql AS TEXT) FROM sqlite_master WHERE sql IS NOT NULL"
    rows = connection.execute(query).fetchall()
    for kind, text in rows:
        # SQLite runs what the text says, and a stranger may call that by another kind (`Trigger`).
        if not text.startswith(_KINDS.get(kind, ())) or (kind == "index" and text.count("(") > 1):
            return True  # the second is over an expression
    words = " ".join([text for _, text in rows]).upper()  # once: a search from the command line waits
    if "CHECK" in words or "LIKE" in words or "GLOB" in words:  # no name of ours has them in it
        return True
    pieces = words.split("AS")  # of a generated column; many a name has the letters
    for before, after in pairwise(pieces):
        if not (before[-1:].isalpha() or after[:1].isalpha() or before[-1:] == "_" or after[:1] == "_"):
            return True
    return not all(map(_is_constant, words.split("DEFAULT")[1:]))


def _is_constant(default: str) -> bool:
    """Whether the text of a column's default begins as a number or a text does."""
    first = default.lstrip()[:1]
    return first.isalnum() or first == "'"


def _marked_ours(connection: sqlite3.Connection) -> bool:
    """Whether the file is marked as ours; not while it is empty.
    Raises `StoreError` for another program's.
    """
    # In this order: whoever makes the tables meanwhile marks the file with them.
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
        return True
    if tables:
        raise StoreError("the catalog's file belongs to another program: set [db] path to a new file")
    return False


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
    """Lays a whole copy of the file beside it, log included. One of the same label is replaced: it holds the
    same.
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
    """Deletes a copy, and what SQLite laid beside it, where they are there. Raises `OSError`."""
    if os.path.lexists(path):
        os.unlink(path)
    discard_companions(path)


def discard_companions(path: str) -> None:
    """Deletes what SQLite laid beside a file, where it is there. Raises `OSError`."""
    for suffix in COMPANIONS:
        if os.path.lexists(path + suffix):
            os.unlink(path + suffix)


def begin_copy(path: str) -> None:
    """Makes an empty file for a copy, 0600, in place of an earlier one. Raises `OSError`."""
    discard_copy(path)
    folder = os.path.dirname(os.path.abspath(path))
    os.close(files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, beneath=folder))


def copy_database(connection: sqlite3.Connection, unfinished: str, path: str) -> None:
    """A whole copy of what the connection sees, 0600, at `path` once it is complete.
    Raises `OSError`, `StoreError`.
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
    file_writing.sync(os.path.dirname(os.path.abspath(path)))
