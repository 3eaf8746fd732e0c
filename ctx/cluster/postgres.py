"""The connection to PostgreSQL: a pool, transactions, errors and migrations.

Other modules write SQL in SQLite's style, with `?` for a value. psycopg_pool replaces broken connections, so
that after a failover the next transaction runs on the new server. No write is sent twice. If the reply to a
commit is lost, the error says that the result is unknown (`LOST`).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Self

import psycopg
from psycopg import IsolationLevel, errors
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo, timeout_from_conninfo
from psycopg.types.string import StrDumper
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from ctx.errors import Busy, StoreError
from ctx.store.record import TOO_LARGE, unfit

AWAY = "the database cannot be reached: check that it runs, and [store] url"
PASSWORDLESS = "the database asks for a password: put one into [store] url"
REFUSED = "the database refuses the user, the password or the database of [store] url: see its log"
POOLED = (
    "a pooler before the database gives each transaction another connection, and ctx needs one that stays: "
    "have it pool sessions (PgBouncer: pool_mode = session), or name the database itself in [store] url"
)
NO_ADDRESS = (
    "[store] url is not an address of a PostgreSQL: postgresql://user@host/database; in its password a % is "
    "written %25, an @ %40, a / %2F, a space %20"
)
UNKNOWN_PARAMETER = (
    "there is a parameter in [store] url that PostgreSQL's client does not know: take it out (sslmode, "
    "connect_timeout and the like are known)"
)
# Parts of libpq's error message -> our message. libpq reports a failed connection only in words, without an
# SQLSTATE. If the server's messages are in another language, the message is `REFUSED`. With several hosts,
# libpq's message has a line for each host, and the first entry that matches any line is used.
_REASONS = {
    ("connection slots", "too many c", "no more connections"): (
        "the database has no connection left: raise its max_connections, or the limit of the user or of the "
        "database, or have fewer programs use it"
    ),
    ("not permitted to log in",): "the user of [store] url may not log in: ALTER ROLE ... LOGIN",
    ("authentication failed",): "the database refuses the user or the password of [store] url",
    ("no password supplied",): PASSWORDLESS,
    ("no pg_hba.conf entry",): "its pg_hba.conf does not let this user in from this machine: change that",
    ('role "',): "the database knows no such user: create the one that [store] url names",
    ("does not exist",): "there is no such database: create the one that [store] url names",
    ("does not support SSL",): "the database has no TLS: set it up, or leave sslmode out of [store] url",
    ("certificate",): (
        "the certificate of the database is not trusted: name its authority in [store] url (sslrootcert)"
    ),
    ("statement pooling",): POOLED,
    ("invalid port number", "invalid integer value"): "a port, or another number, in [store] url is none",
    (' value: "',): "a parameter in [store] url (sslmode, target_session_attrs) has an unknown value",
    ("resolve host",): "no machine has the host name in [store] url: check it, or the name service",
    ("session is read-only", "hot standby"): (
        "no server of [store] url takes writes (a standby does not): promote one, or name the primary too"
    ),
}


def address_of(url: str) -> str:
    """The connection string for psycopg: the URL with ctx's default parameters. Raises `StoreError` if the
    URL is not valid.
    """
    try:
        parameters: dict[str, Any] = conninfo_to_dict(url)
        timeout_from_conninfo(parameters)
    except psycopg.ProgrammingError as error:
        # psycopg's own message is not shown, because it may contain a part of the password.
        unknown = "query parameter" in str(error)
        raise StoreError(UNKNOWN_PARAMETER if unknown else NO_ADDRESS) from error
    hosts = str(parameters.get("host")).split(",")
    # The password has an unescaped @ or /, so its rest was parsed as a host or a database name.
    if ("user" not in parameters and "@" in str(parameters.get("dbname"))) or any(
        "@" in host[1:] for host in hosts
    ):
        raise StoreError(NO_ADDRESS)
    defaults: dict[str, Any] = {
        "target_session_attrs": "read-write",  # with several hosts, use the server that accepts writes
        "client_encoding": "UTF8",
        "connect_timeout": 5,
        "application_name": "ctx",
        "keepalives_idle": 30,
        "tcp_user_timeout": 30_000,
    }
    return make_conninfo(url, **{**defaults, **parameters})


def check_reached(url: str, timeout_s: float) -> None:
    """Raises `StoreError` if no server of the URL accepts writes. `timeout_s` is the time for each host."""
    try:
        psycopg.connect(address_of(url), connect_timeout=max(2, round(timeout_s))).close()
    except psycopg.OperationalError as error:
        raise StoreError(connection_failure(error)) from error


def connection_failure(error: psycopg.OperationalError) -> str:
    """A message that says why the connection failed and how to fix it."""
    text, status = str(error), error.pgconn
    if status is not None and status.needs_password:
        return PASSWORDLESS
    for signs, reason in _REASONS.items():
        if any(sign in text for sign in signs):
            return reason
    return REFUSED if status is not None and status.used_password else AWAY


OLDEST = 14  # the oldest supported version of the server
FAILOVER_S = 20.0  # how long a transaction waits for a connection
AWAY_S = 1.0  # this wait while the database is known to be unreachable
CONNECTIONS = 16  # the largest number of connections of one process
RECONNECT_S = 1.0  # the pool gives up after this time and is checked again, so that its pauses stay short
_ESCAPE = "\x1a"  # PostgreSQL texts cannot contain U+0000, so it is stored as this character and a letter
# These limits are set on each connection, unless [store] url sets lock_timeout. They cannot be parameters of
# the address, because a pooler drops those.
_LIMITS = {"statement_timeout": "120s", "lock_timeout": "10s", "idle_in_transaction_session_timeout": "120s"}
_SET_LIMITS = "SELECT {} WHERE current_setting('lock_timeout') = '0'".format(
    ", ".join(f"set_config('{name}', '{limit}', false)" for name, limit in _LIMITS.items())
)
_MIGRATION_LOCK = 0x637478  # "ctx"

LOST = "the connection broke during the commit, so it is not known whether this was stored: check, and retry"
_ORDER = """
    SELECT pg_encoding_to_char(encoding), datcollate, current_database(), to_json(d)->>'datlocprovider'
    FROM pg_database d WHERE datname = current_database()
"""

_RETRY = "the catalog is being written by another process: try again"
_PASSING: dict[type[psycopg.Error], str] = {
    errors.LockNotAvailable: _RETRY,
    errors.DeadlockDetected: _RETRY,
    errors.SerializationFailure: _RETRY,
    errors.QueryCanceled: "the database took too long to answer: try again",
    errors.ReadOnlySqlTransaction: "the database takes no writes just now (it is a standby): try again",
}
_FINAL: dict[type[psycopg.Error], str] = {
    errors.NumericValueOutOfRange: TOO_LARGE,
    errors.ProgramLimitExceeded: TOO_LARGE,
    errors.DiskFull: "the disk of the database is full, and nothing was changed: free some space and retry",
    errors.InsufficientPrivilege: "the database refuses this to the user of [store] url: grant it, or name "
    "the owner of the database",
    errors.DuplicatePreparedStatement: POOLED,
    errors.InvalidSqlStatementName: POOLED,
}


def store_error(error: psycopg.Error) -> StoreError:
    """The `StoreError` to raise (with `from error`) for an error of PostgreSQL. Its message contains neither
    the address nor the statement.
    """
    for kind in type(error).__mro__:
        if kind in _PASSING:
            return Busy(_PASSING[kind])
        if kind in _FINAL:
            return StoreError(_FINAL[kind])
    if isinstance(error, psycopg.OperationalError):
        return StoreError(connection_failure(error))
    return StoreError("the database could not answer: see the log")


@contextmanager
def translating() -> Iterator[None]:
    """A context manager that turns psycopg's errors into `StoreError` and `Busy`, also those for values that
    PostgreSQL cannot store.
    """
    try:
        yield
    except PoolClosed as error:
        raise StoreError("the catalog is closed") from error
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
    """An SQL statement with psycopg's placeholders (`%s`) in place of `?`."""
    return sql.replace("%", "%%").replace("?", "%s").encode()


class _Native(psycopg.Connection[tuple[Any, ...]]):
    # The identifier that a server shares with its standbys; "-" if this user may not read it.
    system = "-"


class Connection:
    """A connection inside a transaction. Only one thread at a time may use it."""

    def __init__(self, native: _Native) -> None:
        self.native = native

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> "psycopg.Cursor[Any]":
        return self.native.execute(_native(sql), values or None)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> "psycopg.Cursor[Any]":
        """Runs a statement for each row. All statements are sent before the first reply is awaited."""
        cursor = self.native.cursor()
        cursor.executemany(_native(sql), list(rows))
        return cursor

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, read from the server a thousand at a time."""
        with self.native.cursor(name="stream") as cursor:
            cursor.itersize = 1000
            cursor.execute(_native(sql), values or None)
            yield from cursor


class Database:
    """A PostgreSQL database, with this process's pool of connections. Safe to use from several threads."""

    def __init__(self, url: str, *, timeout_s: float = FAILOVER_S) -> None:
        """Connects once to check the server. `timeout_s` is how long a transaction waits for a connection.

        Raises `StoreError` with the reason if the server cannot be reached, refuses the connection, is too
        old, or does not sort text by code point.
        """
        self._address = address_of(url)
        self._timeout_s = timeout_s
        self._away = False
        with translating(), psycopg.connect(self._address) as native:
            _check_server(native)
        self._pool = ConnectionPool(
            self._address,
            connection_class=_Native,
            min_size=0,
            max_size=CONNECTIONS,
            open=True,
            configure=_configure,
            check=self._check,
            reconnect_timeout=RECONNECT_S,
            reconnect_failed=ConnectionPool.check,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

    def _check(self, native: _Native) -> None:
        """The pool calls this before it hands out a connection. If the connection is broken, all connections
        are replaced, because the others are probably broken, too.
        """
        try:
            ConnectionPool.check_connection(native)
        except psycopg.OperationalError:
            self._pool.drain()
            raise

    @contextmanager
    def transaction(self, *, write: bool = False, timeout_s: float | None = None) -> Iterator[Connection]:
        """A context manager for a transaction: commits at the end of the block, and rolls back on any
        exception. With `write=False`, all queries read the same snapshot. `timeout_s` is how long to wait for
        a connection; None means the usual time.

        Raises `Busy` if other writers hold a lock for too long or all connections are in use, and
        `StoreError` for any other database error.
        """
        with translating():
            native = self._connection(timeout_s)
            try:
                with native:
                    native.read_only = not write
                    native.isolation_level = (
                        IsolationLevel.READ_COMMITTED if write else IsolationLevel.REPEATABLE_READ
                    )
                    yield Connection(native)
                    _commit(native, write)
            finally:
                self._pool.putconn(native)

    def _connection(self, timeout_s: float | None) -> _Native:
        usual_s = AWAY_S if self._away else self._timeout_s
        try:
            native = self._pool.getconn(usual_s if timeout_s is None else timeout_s)
        except PoolTimeout as error:
            was_away, self._away = self._away, self._away or timeout_s is None
            # The pool does not tell the reason. Connect directly, which raises it.
            psycopg.connect(self._address, connect_timeout=2).close()
            self._away = False
            if was_away and timeout_s is None:
                return self._connection(None)
            raise Busy("no connection to the database was free in time: try again") from error
        self._away = False
        return native

    def vacuum(self, tables: Sequence[str]) -> None:
        """Frees the space of deleted rows in these tables. Raises `StoreError`."""
        with translating(), psycopg.connect(self._address, autocommit=True) as native:
            native.execute(f"VACUUM {', '.join(tables)}".encode())

    def migrate(self, component: str, migrations: Sequence[str]) -> None:
        """Brings the tables of one component up to date. `migrations[n]` is the SQL that leads from version n
        to version n + 1. Raises `StoreError` for tables of a newer ctx.
        """
        with self.transaction() as connection:
            if _version(connection, component) == len(migrations):
                return
        with self.transaction(write=True) as connection:
            connection.execute("SET LOCAL statement_timeout = 0")
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


def _configure(native: _Native) -> None:
    native.adapters.register_dumper(str, _TextDumper)
    native.adapters.register_loader("text", _TextLoader)
    native.execute(_SET_LIMITS.encode())
    native.commit()
    try:
        row = native.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone()
        native.system = str(row[0]) if row else "-"
    except errors.InsufficientPrivilege:
        pass
    native.rollback()


def _commit(native: _Native, write: bool) -> None:
    try:
        native.commit()
    except psycopg.OperationalError as error:
        if write and native.broken:
            raise StoreError(LOST) from error
        raise


def _version(connection: Connection, component: str) -> int:
    if connection.execute("SELECT to_regclass('meta')").fetchone() == (None,):
        return 0
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (f"schema.{component}",)).fetchone()
    return int(row[0]) if row else 0


def _check_server(native: psycopg.Connection[Any]) -> None:
    version = native.info.server_version // 10_000
    if version < OLDEST:
        raise StoreError(f"the database is PostgreSQL {version}, and ctx needs {OLDEST} or newer: upgrade it")
    row = native.execute(_ORDER.encode()).fetchone()
    assert row is not None
    encoding, collation, name, provider = row
    # The builtin provider ("b") always sorts by code point; ICU ("i") never does.
    ordered = provider == "b" or (
        provider != "i" and collation.replace("-", "").lower() in ("c", "c.utf8", "posix")
    )
    if encoding != "UTF8" or not ordered:
        raise StoreError(
            f"the database sorts texts as {encoding} {collation}, and ctx needs C.UTF-8: make it anew with "
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C.UTF-8'"
        )
