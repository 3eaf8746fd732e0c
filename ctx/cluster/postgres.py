"""The connection to PostgreSQL: a pool, transactions, errors and migrations.

The SQL of the other modules is SQLite's, with `?` for a value. psycopg_pool replaces broken connections, so
that after a failover the next transaction runs on the server that took over. Nothing is sent twice: a write
whose commit got no reply is reported as unknown (`LOST`).
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
# libpq reports a failed connection in words only, without an SQLSTATE. A server that speaks another language
# gets `REFUSED`. With several hosts each has a line; the first entry here that fits one counts.
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
    """The connection string for psycopg: the URL with ctx's defaults. Raises `StoreError`."""
    try:
        parameters: dict[str, Any] = conninfo_to_dict(url)
        timeout_from_conninfo(parameters)
    except psycopg.ProgrammingError as error:
        # psycopg's own message may hold a piece of the password.
        unknown = "query parameter" in str(error)
        raise StoreError(UNKNOWN_PARAMETER if unknown else NO_ADDRESS) from error
    hosts = str(parameters.get("host")).split(",")
    # An unescaped @ or / in a password: the rest of it was taken for a host or a database.
    if ("user" not in parameters and "@" in str(parameters.get("dbname"))) or any(
        "@" in host[1:] for host in hosts
    ):
        raise StoreError(NO_ADDRESS)
    defaults: dict[str, Any] = {
        "target_session_attrs": "read-write",  # of several hosts the one that takes writes
        "client_encoding": "UTF8",
        "connect_timeout": 5,
        "application_name": "ctx",
        "keepalives_idle": 30,
        "tcp_user_timeout": 30_000,
    }
    return make_conninfo(url, **{**defaults, **parameters})


def check_reached(url: str, timeout_s: float) -> None:
    """Raises `StoreError` where no server of the URL takes writes. `timeout_s` is for each host."""
    try:
        psycopg.connect(address_of(url), connect_timeout=max(2, round(timeout_s))).close()
    except psycopg.OperationalError as error:
        raise StoreError(connection_failure(error)) from error


def connection_failure(error: psycopg.OperationalError) -> str:
    """Why there is no connection, and what to do about it."""
    text, status = str(error), error.pgconn
    if status is not None and status.needs_password:
        return PASSWORDLESS
    for signs, reason in _REASONS.items():
        if any(sign in text for sign in signs):
            return reason
    return REFUSED if status is not None and status.used_password else AWAY


OLDEST = 14  # the server's version
FAILOVER_S = 20.0  # how long a transaction waits for a connection
AWAY_S = 1.0  # and once one has waited in vain, until the database is back
CONNECTIONS = 16  # of one process
RECONNECT_S = 1.0  # then the pool would give up; we start it again, or its pauses would double each time
_ESCAPE = "\x1a"  # PostgreSQL's texts cannot hold U+0000: it is stored as this character and a letter
# Set on each connection, unless [store] url sets them: a pooler drops them from the address.
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
    """Our error for one of PostgreSQL's; raise it `from` that one. It holds no address and no statement."""
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
    """Turns psycopg's errors, and values that it cannot store, into `StoreError` and `Busy`."""
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
    """A statement with psycopg's placeholders."""
    return sql.replace("%", "%%").replace("?", "%s").encode()


class _Native(psycopg.Connection[tuple[Any, ...]]):
    system = "-"  # the server's identifier, which its standbys share; "-" if this user may not read it


class Connection:
    """A transaction's connection. One thread at a time."""

    def __init__(self, native: _Native) -> None:
        self.native = native

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> "psycopg.Cursor[Any]":
        return self.native.execute(_native(sql), values or None)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> "psycopg.Cursor[Any]":
        """Runs a statement for each row; all of them are sent before a reply is awaited."""
        cursor = self.native.cursor()
        cursor.executemany(_native(sql), list(rows))
        return cursor

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Rows, read from the server a thousand at a time."""
        with self.native.cursor(name="stream") as cursor:
            cursor.itersize = 1000
            cursor.execute(_native(sql), values or None)
            yield from cursor


class Database:
    """A PostgreSQL database and this process's connections to it. Safe from several threads; close it."""

    def __init__(self, url: str, *, timeout_s: float = FAILOVER_S) -> None:
        """Connects once, to check the server. `timeout_s`: how long a transaction waits for a connection.

        Raises `StoreError` with the reason if the server cannot be reached, refuses the connection, is too
        old or does not sort texts by code point.
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
        """Runs when the pool hands out a connection. If one is broken the others probably are too."""
        try:
            ConnectionPool.check_connection(native)
        except psycopg.OperationalError:
            self._pool.drain()
            raise

    @contextmanager
    def transaction(self, *, write: bool = False, timeout_s: float | None = None) -> Iterator[Connection]:
        """A transaction: committed at the end, rolled back on any exception. Without `write` it reads one
        snapshot. `timeout_s`: how long to wait for a connection, if not as long as usual.

        Raises `Busy` where other writers hold a lock for too long or all connections are in use, and
        `StoreError` for everything else.
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
            # The pool does not say why: ask the server.
            psycopg.connect(self._address, connect_timeout=2).close()
            self._away = False
            if was_away and timeout_s is None:
                return self._connection(None)
            raise Busy("no connection to the database was free in time: try again") from error
        self._away = False
        return native

    def vacuum(self, tables: Sequence[str]) -> None:
        """Frees the space of deleted rows. Raises `StoreError`."""
        with translating(), psycopg.connect(self._address, autocommit=True) as native:
            native.execute(f"VACUUM {', '.join(tables)}".encode())

    def migrate(self, component: str, migrations: Sequence[str]) -> None:
        """Brings one component's tables up to date; `migrations[n]` leads from version n to n + 1.

        Raises `StoreError` for tables of a newer ctx.
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
    # The builtin provider ("b") only knows code point order; ICU ("i") does not know it.
    ordered = provider == "b" or (
        provider != "i" and collation.replace("-", "").lower() in ("c", "c.utf8", "posix")
    )
    if encoding != "UTF8" or not ordered:
        raise StoreError(
            f"the database sorts texts as {encoding} {collation}, and ctx needs C.UTF-8: make it anew with "
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C.UTF-8'"
        )
