"""How ctx speaks with PostgreSQL: connections, transactions, errors and migrations.

The SQL of the rooms above is SQLite's with `?` for a value; a connection here takes it as it is. What was
begun is never sent a second time, but a connection that fails before anything was sent is replaced: after a
failover the next one finds the server that took over.
"""

import itertools
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, wraps
from typing import Any, Self, TypeVar

import psycopg
from psycopg import errors
from psycopg.adapt import Loader
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumper

from ctx.errors import Busy, StoreError
from ctx.store.postgres_address import (
    AWAY,
    CONNECT_TIMEOUT_S,
    LIMITS_MS,
    POOLED,
    STATEMENT_TIMEOUT_MS,
    address_of,
    answering_first,
    not_connected,
)
from ctx.store.record import TOO_LARGE, unfit

OLDEST = 14  # the version of the server
FAILOVER_S = 20.0  # how long a call waits for a server that takes writes
START_S = 3.0  # and the first one, which more likely has a wrong address
CONNECTIONS = 16  # of one process
REPLY_S = STATEMENT_TIMEOUT_MS / 1000 + 10  # by then a server that is well has ended a statement itself
_RETRY_S = 0.1
_SILENCE_S = 1.0  # an attempt that took longer was not refused: nobody answers there
_RUNS = (64, 16, 4, 1)  # rows of an INSERT
_RUN_BYTES = 1 << 20
_ESCAPE = "\x1a"  # PostgreSQL's texts hold any character but U+0000, which is kept as this and a letter
_PROCESS = "pg_backend_pid()"
_TRANSACTIONS_SEEN = 3  # of a pooled connection, to tell what the pool is of
# What the address asks for, where a pooler kept that to itself.
_LIMIT = "SELECT {} WHERE current_setting('lock_timeout') = '0'".format(
    ", ".join(f"set_config('{name}', '{limit}', false)" for name, limit in LIMITS_MS.items())
)
_MIGRATION_LOCK = 0x637478  # "ctx": of those who migrate, one at a time

T = TypeVar("T")

LOST = "the database broke off, and whether this was stored is not known: look, and try again"


_WRITTEN = "the catalog is being written by another process: try again"
_PASSING: dict[type[psycopg.Error], str] = {
    **dict.fromkeys(
        (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure), _WRITTEN
    ),
    errors.QueryCanceled: "the database took too long to answer: try again",
    # `PostgresWrite.next_seq` has it where its number is taken back.
    errors.DivisionByZero: "this process was held up for long, and nothing was stored: try again",
    errors.ReadOnlySqlTransaction: "the database takes no writes just now (it is a standby): try again",
}
_FINAL: dict[type[psycopg.Error], str] = {
    **dict.fromkeys((errors.NumericValueOutOfRange, errors.ProgramLimitExceeded), TOO_LARGE),
    errors.DiskFull: "the disk of the database is full, and nothing was changed: free some space and try "
    "again",
    errors.InsufficientPrivilege: "the database refuses this to the user of [store] url: grant it, or name "
    "its owner",
    **dict.fromkeys((errors.DuplicatePreparedStatement, errors.InvalidSqlStatementName), POOLED),
}


def store_error(error: psycopg.Error) -> StoreError:
    """Our error for one of PostgreSQL's; raise it `from` that one. No address and no statement is in it."""
    for kind in type(error).__mro__:
        if kind in _PASSING:
            return Busy(_PASSING[kind])
        if kind in _FINAL:
            return StoreError(_FINAL[kind])
    if isinstance(error, psycopg.OperationalError):
        return StoreError(not_connected(error)[0])
    return StoreError("the database could not answer: see the log")


@contextmanager
def translating() -> Iterator[None]:
    """Turns psycopg's errors, and what it says of values it cannot take, into `StoreError` and `Busy`."""
    try:
        yield
    except psycopg.Error as error:
        raise store_error(error) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise unfit(error) from error


class _TextDumper(StrDumper):
    def dump(self, obj: str) -> Any:
        if "\0" in obj or _ESCAPE in obj:
            obj = obj.replace(_ESCAPE, f"{_ESCAPE}s").replace("\0", f"{_ESCAPE}0")
        return super().dump(obj)


class _TextLoader(Loader):
    def load(self, data: Any) -> str:
        text = str(data, "utf-8")
        if _ESCAPE in text:
            text = text.replace(f"{_ESCAPE}0", "\0").replace(f"{_ESCAPE}s", _ESCAPE)
        return text


@cache
def _native(sql: str) -> bytes:
    """A statement as psycopg takes it."""
    return sql.replace("%", "%%").replace("?", "%s").encode()


@cache
def _inserting(sql: str, count: int) -> bytes:
    """`INSERT ... VALUES (...)` for so many rows, as the server takes it."""
    head, tail = sql.split(" VALUES (", 1)
    depth, end = 1, 0
    while depth:
        depth += {"(": 1, ")": -1}.get(tail[end], 0)
        end += 1
    numbers = itertools.count(1)
    text = f"{head} VALUES {', '.join([f'({tail[:end]}'] * count)}{tail[end:]}"
    return re.sub(r"\?", lambda _: f"${next(numbers)}", text).encode()


def _runs(rows: list[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    """Rows in runs of few lengths, since the server prepares a statement for each; those with long values are
    alone.
    """
    start = 0
    while start < len(rows):
        for length in _RUNS:
            run = rows[start : start + length]
            if len(run) == length and (length == 1 or sum(map(_size, run)) < _RUN_BYTES):
                break
        yield run
        start += length


def _size(row: Sequence[Any]) -> int:
    return sum(len(value) for value in row if isinstance(value, str | bytes))


class _Cursor(psycopg.Cursor[tuple[Any, ...]]):
    """A cursor whose count of rows waits for the reply, as its rows do."""

    @property
    def rowcount(self) -> int:
        if self.connection.info.pipeline_status:
            with self.connection.pipeline():  # one within another ends with what was sent before
                pass
        return super().rowcount


class _NoReply(psycopg.OperationalError):
    """The server took what was sent, and says nothing."""


def _in_time(steps: Generator[Any, Any, T], ends_s: float) -> Generator[Any, Any, T]:
    """What psycopg does step by step, each as soon as its socket is ready. Raises `_NoReply`."""
    try:
        wanted = next(steps)
        while time.monotonic() < ends_s:
            wanted = steps.send((yield wanted))
    except StopIteration as end:
        reply: T = end.value
        return reply
    raise _NoReply("no reply in time")


class _Native(psycopg.Connection[tuple[Any, ...]]):
    """A connection on which a reply is waited for so long at most, and that is closed then: a server that
    hangs as a whole, with its disk or its machine, ends nothing by the timeouts that it was told.
    """

    reply_s: float | None = REPLY_S  # None: for as long as it takes

    def wait(self, gen: Generator[Any, Any, T], *values: Any, **named: Any) -> T:
        if self.reply_s is not None:
            gen = _in_time(gen, time.monotonic() + self.reply_s)
        try:
            return super().wait(gen, *values, **named)
        except _NoReply:
            self.close()
            raise


class Connection:
    """A connection in autocommit mode; a transaction is begun and ended by name. One thread at a time."""

    def __init__(self, native: _Native) -> None:
        self.native = native
        self.system = ""  # which server this is, for good: asked once
        self.process = 0  # and which of its processes, which a pooler does not tell
        self._piped = False

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> "psycopg.Cursor[tuple[Any, ...]]":
        return self.native.execute(_native(sql), values or None)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> "psycopg.Cursor[tuple[Any, ...]]":
        """A statement for each of the rows; what only inserts them has many in one statement."""
        cursor = self.native.cursor()
        if " VALUES (" in sql:
            cursor = psycopg.RawCursor(self.native)  # others look for marks in so long a text each time
            # Or each size of a number has a statement of its own.
            cursor.adapters.register_dumper(int, Int8Dumper)
            for part in _runs(list(rows)):
                cursor.execute(_inserting(sql, len(part)), [value for row in part for value in row])
        elif self._piped:  # psycopg's own would wait for the replies
            for row in rows:
                cursor = self.native.execute(_native(sql), row)
        else:
            cursor.executemany(_native(sql), list(rows))
        return cursor

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block whose statements are one message to the server. What they reply can be read behind it."""
        outer, self._piped = self._piped, True
        try:
            with self.native.pipeline():
                yield
        finally:
            self._piped = outer

    @contextmanager
    def committing(self) -> Iterator[None]:
        """The last block of a transaction, or all of it: its statements are sent without waiting for their
        replies, but where one is read, and the commit with the last of them. Raises `StoreError` where the
        connection broke behind that.
        """
        at_commit = False
        try:
            with self.together():
                yield
                at_commit = True
                self.native.execute("COMMIT")
        except psycopg.OperationalError as error:
            if at_commit and _of_connection(error):
                raise StoreError(LOST) from error
            raise

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Rows in parts of a thousand, within a transaction; all at once in one that does not wait for
        replies.
        """
        if self._piped:
            yield from self.execute(sql, values)
            return
        with self.native.cursor(name="stream") as cursor:
            cursor.itersize = 1000
            cursor.execute(_native(sql), values or None)
            yield from cursor

    def begin(self, *, write: bool, reply_s: float) -> None:
        """Begins a transaction. The server has so long to reply, which it does at once where it is well."""
        self.native.reply_s = reply_s
        if write and not self.system:
            self.system, self.process = _server(self)
        self.execute("BEGIN" if write else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self.native.reply_s = REPLY_S

    def close(self) -> None:
        self.native.close()


class Database:
    """A PostgreSQL database: the connections of this process to it. Safe from several threads; close it."""

    def __init__(self, url: str, *, timeout_s: float = FAILOVER_S) -> None:
        self._address = address_of(url)
        self._timeout_s = timeout_s
        self.pooled: bool | None = None  # whether a pooler is in between; None before that was asked
        self._reached = False
        self._away_s: float | None = None  # since when no server takes writes, on the monotonic clock
        self._silent_until_s = 0.0  # until then nobody is asked who did not answer
        self._idle: list[Connection] = []
        self._aside: Connection | None = None
        self._aside_lock = threading.Lock()
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        self._close_idle()
        self.leave_aside()

    @contextmanager
    def transaction(
        self, *, write: bool = False, patience_s: float | None = None, stepwise: bool = False
    ) -> Iterator[Connection]:
        """A transaction: committed at the end, rolled back on any exception. Without `write`, a steady view
        for reading. `patience_s`: how long a server that is away is waited for, where that is not for this to
        say. `stepwise`: each statement of a write has its reply before the next, where something outside of
        the transaction depends on that, or one is no plain statement.

        Raises `Busy` where others write for too long, `StoreError` for the rest.
        """
        if self._closed:
            raise StoreError("the catalog is closed")
        if not self._free.acquire(timeout=self._timeout_s if patience_s is None else max(0.0, patience_s)):
            raise Busy("all connections to the database are in use: try again")
        try:
            connection = self._begun(write, patience_s)
            try:
                with translating(), nullcontext() if stepwise or not write else connection.committing():
                    yield connection
            except BaseException:
                self._roll_back(connection)
                raise
            self._commit(connection, write)
            self._put_back(connection)
        finally:
            self._free.release()

    def aside(self, sql: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The row that a statement gives, in a transaction of its own beside whatever else is under way. What
        it changes is durable with the next write. Raises as `transaction`.
        """
        with self._aside_lock, translating():
            for last in (False, True):
                try:
                    if self._aside is None:
                        self._aside = self._connected()
                        self._aside.execute("SET synchronous_commit = off")
                    return self._aside.execute(sql, values).fetchone()
                except psycopg.OperationalError as error:
                    if last or not _of_connection(error):
                        raise
                    self._drop_aside()
        raise AssertionError("unreachable")

    def _drop_aside(self) -> None:
        connection, self._aside = self._aside, None
        if connection is not None:
            connection.close()

    def leave_aside(self) -> None:
        """Has the next statement that goes aside go to the server that takes writes by then."""
        with self._aside_lock:
            self._drop_aside()

    def _begun(self, write: bool, patience_s: float | None) -> Connection:
        """A connection with a transaction begun. Nothing was sent before it, so that a broken one is
        replaced.
        """
        began_s = time.monotonic()
        while True:
            connection = None
            if not self._idle and self._silent(began_s, patience_s):
                raise StoreError(AWAY)
            try:
                connection = self._idle.pop() if self._idle else self._connected(patience_s)
                connection.begin(write=write, reply_s=CONNECT_TIMEOUT_S if patience_s is None else patience_s)
                return connection
            except IndexError:
                continue  # another thread took the last idle one
            except psycopg.OperationalError as error:
                if connection is not None:
                    connection.close()
                    if isinstance(error, _NoReply):
                        self._hangs(began_s, patience_s, error)
                elif not not_connected(error)[1] or self._waited(began_s, patience_s):
                    raise store_error(error) from error
                else:
                    time.sleep(_RETRY_S)
            except psycopg.Error as error:
                if connection is not None:
                    connection.close()
                raise store_error(error) from error

    def _hangs(self, began_s: float, patience_s: float | None, error: psycopg.OperationalError) -> None:
        """Leaves a server that does not reply. Raises `StoreError` where it was waited for long enough."""
        if patience_s is None:
            self._close_idle()  # each of them would be waited for as long
        if self._waited(began_s, patience_s):
            raise store_error(error) from error

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _waited(self, began_s: float, patience_s: float | None) -> bool:
        """Whether a server that is away was waited for as long as it may be."""
        return time.monotonic() > self._ends_s(began_s, patience_s)

    def _ends_s(self, began_s: float, patience_s: float | None) -> float:
        """Until when a server that is away is waited for: by all calls together, unless one has a patience of
        its own. What comes later learns at once that it is still away.
        """
        if self._away_s is None:
            self._away_s = time.monotonic()
        if patience_s is not None:
            return began_s + patience_s
        return self._away_s + (self._timeout_s if self._reached else START_S)

    def _silent(self, began_s: float, patience_s: float | None) -> bool:
        """Whether nobody answered lately, and is asked again only after the time that there is: an attempt
        takes seconds then, so that no more than half of the time is spent on them.
        """
        silent = time.monotonic() < self._silent_until_s
        return silent and self._ends_s(began_s, patience_s) < self._silent_until_s

    def _connected(self, patience_s: float | None = None) -> Connection:
        began_s = time.monotonic()
        address = self._address
        if patience_s is not None:
            address = make_conninfo(address, connect_timeout=1)  # the least there is: psycopg makes two of it
        try:
            native = _Native.connect(address, autocommit=True, cursor_factory=_Cursor)
        except psycopg.OperationalError:
            now_s = time.monotonic()
            if now_s - began_s > _SILENCE_S:
                self._silent_until_s = now_s + (now_s - began_s)
            raise
        self._reached, self._away_s, self._silent_until_s = True, None, 0.0
        self._address = answering_first(self._address, native.info.host, native.info.port)
        native.adapters.register_dumper(str, _TextDumper)
        native.adapters.register_loader("text", _TextLoader)
        connection = Connection(native)
        if self.pooled:
            connection.execute(_LIMIT)
        return connection

    def _check_sessions(self) -> None:
        """Raises `StoreError` where a pooler has a connection's transactions, and with them its settings and
        prepared statements, wander about those of the server.
        """
        with translating():
            self._close_idle()  # it has no limits yet
            first, second = self._connected(), self._connected()
            try:
                processes = {(_process(first), _process(second)) for _ in range(_TRANSACTIONS_SEEN)}
            finally:
                first.close()
                second.close()
        if len(processes) > 1 or len({*processes.pop()}) == 1:
            raise StoreError(POOLED)

    def _put_back(self, connection: Connection) -> None:
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    def _commit(self, connection: Connection, write: bool) -> None:
        if connection.native.info.transaction_status == TransactionStatus.IDLE:
            return  # with its last block
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            connection.close()
            if write and isinstance(error, psycopg.OperationalError):
                raise StoreError(LOST) from error
            raise store_error(error) from error

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.execute("ROLLBACK")
            self._put_back(connection)
        except psycopg.Error:
            connection.close()  # the first error is the one to tell

    def vacuum(self, tables: Sequence[str]) -> None:
        """Frees the rows that were deleted from tables. Raises `StoreError`."""
        with translating():
            connection = self._connected()
            try:
                connection.execute("SET statement_timeout = 0")
                connection.native.reply_s = None
                connection.execute(f"VACUUM {', '.join(tables)}")
            finally:
                connection.close()

    def migrate(self, component: str, migrations: Sequence[str]) -> None:
        """Brings one component's tables up to date; `migrations[n]` is the SQL that leads from version n to n
        + 1.

        Raises `StoreError` for a database that is newer than the program, a server that is too old, or texts
        that are not in the order of their code points, or a pooler of transactions.
        """
        known = self.pooled
        with self.transaction() as connection:
            version = connection.native.info.server_version // 10_000
            if version < OLDEST:
                raise StoreError(
                    f"the database is PostgreSQL {version}, and ctx needs {OLDEST} or newer: upgrade it"
                )
            _check_order(connection)
            if known is None:
                self.pooled = _process(connection) != connection.native.info.backend_pid
            current = _version(connection, component) == len(migrations)
        if known is None and self.pooled:
            self._check_sessions()
        if current:
            return
        with self.transaction(write=True, stepwise=True) as connection:
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.native.reply_s = None
            connection.execute("SELECT pg_advisory_xact_lock(?)", (_MIGRATION_LOCK,))
            connection.execute(
                "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BIGINT NOT NULL)"
            )
            version = _version(connection, component)
            if version > len(migrations):
                raise StoreError(
                    f"the catalog was written by a newer ctx ({component} version {version}, "
                    f"this program knows {len(migrations)}): upgrade ctx"
                )
            for sql in migrations[version:]:
                connection.native.execute(sql.encode())
            connection.execute(
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (f"schema.{component}", len(migrations)),
            )


def _server(connection: Connection) -> tuple[str, int]:
    """The name that a server has from its making on, and its standbys with it, "-" where it may not be asked;
    and the number of its process.
    """
    try:
        row = connection.execute(f"SELECT system_identifier, {_PROCESS} FROM pg_control_system()").fetchone()
    except errors.InsufficientPrivilege:
        return "-", _process(connection)
    return (str(row[0]), int(row[1])) if row else ("-", 0)


def _process(connection: Connection) -> int:
    row = connection.execute(f"SELECT {_PROCESS}").fetchone()
    assert row is not None
    return int(row[0])


def _version(connection: Connection, component: str) -> int:
    if connection.execute("SELECT to_regclass('meta')").fetchone() == (None,):
        return 0
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (f"schema.{component}",)).fetchone()
    return int(row[0]) if row else 0


def _check_order(connection: Connection) -> None:
    row = connection.execute(
        "SELECT pg_encoding_to_char(encoding), datcollate, current_database(), to_json(d)->>'datlocprovider' "
        "FROM pg_database d WHERE datname = current_database()"
    ).fetchone()
    assert row is not None
    # The builtin provider ("b") knows no other order than that of the code points, ICU ("i") not this one.
    in_order = row[3] == "b" or (
        row[3] != "i" and row[1].replace("-", "").lower() in ("c", "c.utf8", "posix")
    )
    if row[0] != "UTF8" or not in_order:
        raise StoreError(
            f"the database sorts texts as {row[0]} {row[1]}, and ctx needs C.UTF-8: create it anew with "
            f"CREATE DATABASE {row[2]} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C.UTF-8'"
        )


def broken(error: StoreError) -> bool:
    """Whether it was the connection that failed, so that what only reads may ask again."""
    cause = error.__cause__
    return isinstance(cause, psycopg.OperationalError) and _of_connection(cause)


def _of_connection(error: psycopg.OperationalError) -> bool:
    return error.sqlstate is None or (error.sqlstate[:2] in ("08", "57") and error.sqlstate != "57014")


def asked_again(read: Callable[..., Any]) -> Callable[..., Any]:
    """A reading call that is made once more where the connection broke under it. Never for what writes."""

    @wraps(read)
    def reading(*values: Any, **named: Any) -> Any:
        try:
            return read(*values, **named)
        except StoreError as error:
            if not broken(error):
                raise
            return read(*values, **named)

    return reading
