"""The address of a PostgreSQL (`[store] url`), and the reasons why it cannot be reached."""

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo, timeout_from_conninfo

from ctx.errors import StoreError

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
