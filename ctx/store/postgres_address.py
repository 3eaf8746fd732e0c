"""Where a PostgreSQL is, by [store] url, and why it is not reached."""

import queue
import threading
import time
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo, timeout_from_conninfo

from ctx.errors import StoreError

CONNECT_TIMEOUT_S = 5
# A statement of ours takes seconds at most; one that hangs must not hold a lock for ever.
STATEMENT_TIMEOUT_MS = 120_000
LIMITS_MS = {
    "statement_timeout": STATEMENT_TIMEOUT_MS,
    "lock_timeout": 10_000,
    # Of a transaction whose process is gone or stuck: what it holds comes free then.
    "idle_in_transaction_session_timeout": 120_000,
}

AWAY = "the database cannot be reached: check that it runs, and [store] url"
UNPROVEN = "the database asks for a password: put one into [store] url"
REFUSED = (
    "the database refuses the user, the password or the database of [store] url: its own words are in the log"
)
POOLED = (
    "a pooler before the database gives each transaction another connection, and ctx needs one that stays: "
    "have it pool sessions (PgBouncer: pool_mode = session), or name the database itself in [store] url"
)
NO_ADDRESS = (
    "[store] url is no address of a PostgreSQL: postgresql://user@host/database; in its password a % is "
    "written %25, an @ %40, a / %2F, a space %20"
)
UNKNOWN_PARAMETER = (
    "there is a parameter in [store] url that PostgreSQL's client does not know: take it out (sslmode, "
    "connect_timeout and the like are known)"
)
# What a server, or the client, says of a connection that does not come about. There are words only: of a
# server's refusal libpq keeps the text and not the SQLSTATE, and a server speaks the language of its
# lc_messages, so that elsewhere `REFUSED` has to do. What the client says is English in psycopg's wheels. Of
# several hosts each says something: the first line that fits counts. True where waiting may help.
_NOT_CONNECTED = (
    (
        # Of clients, or connections for a role or a database; the last is a pooler's.
        ("connection slots", "too many c", "no more connections"),
        "the database has no connection left: raise its max_connections, or the limit of the user or of the "
        "database, or have fewer programs use it",
        True,
    ),
    (("not permitted to log in",), "the user of [store] url may not log in: ALTER ROLE ... LOGIN", False),
    (("authentication failed",), "the database refuses the user or the password of [store] url", False),
    (("no password supplied",), UNPROVEN, False),  # by one of several hosts
    (
        ("no pg_hba.conf entry",),
        "the database does not admit this user from this machine: let its pg_hba.conf do so",
        False,
    ),
    (('role "',), "the database knows no such user: create the one that [store] url names", False),
    (("does not exist",), "there is no such database: create the one that [store] url names", False),
    (
        ("does not support SSL",),
        "the database speaks no TLS: set it up there, or leave sslmode out of [store] url",
        False,
    ),
    (
        ("certificate",),
        "the certificate of the database is not trusted: name its authority in [store] url (sslrootcert)",
        False,
    ),
    (
        ("unsupported startup parameter",),
        "a pooler before the database refuses the time limits that ctx asks for: have it ignore them, they "
        "are set later (PgBouncer: ignore_startup_parameters = options)",
        False,
    ),
    (("statement pooling",), POOLED, False),
    (
        ("bouncer config error", "no such database", "no such user"),
        "a pooler before the database knows no such database, or no such user: have it know them",
        False,
    ),
    (("invalid port number",), "the port in [store] url is none", False),
    (
        (' value: "',),
        "a parameter in [store] url (sslmode, target_session_attrs) has a value that there is not: check it",
        False,
    ),
    (("invalid integer value",), "a port, or another number, in [store] url is none", False),
    (
        ("resolve host",),
        "no machine is known by the host name in [store] url: check it, or the name service",
        True,
    ),
    (
        ("session is read-only", "hot standby"),
        "no server of [store] url takes writes (a standby does not): promote one, or name the primary too",
        True,
    ),
)


def _is_misread(parameters: dict[str, Any]) -> bool:
    """Whether what stands behind an @ or a / of a password was taken for a host or a database."""
    if "user" not in parameters and "@" in str(parameters.get("dbname")):
        return True
    return any("@" in host[1:] for host in str(parameters.get("host")).split(","))


def address_of(url: str) -> str:
    """What psycopg connects to: the URL, and what ctx asks of every connection unless the URL says otherwise.
    Raises `StoreError`.
    """
    try:
        parameters = conninfo_to_dict(url)
        timeout_from_conninfo(parameters)
    except psycopg.ProgrammingError as error:
        # Its own words may hold a piece of the password.
        unknown = "query parameter" in str(error)
        raise StoreError(UNKNOWN_PARAMETER if unknown else NO_ADDRESS) from error
    if _is_misread(parameters):
        raise StoreError(NO_ADDRESS)
    limits = [f"-c {name}={limit}" for name, limit in LIMITS_MS.items()]
    options = " ".join([*limits, str(parameters.get("options") or "")])
    defaults: dict[str, Any] = {
        "target_session_attrs": "read-write",  # of several hosts the one that takes writes
        "client_encoding": "UTF8",
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": "ctx",
        "keepalives_idle": 30,
        "tcp_user_timeout": 30_000,
    }
    return make_conninfo(url, **{**defaults, **parameters, "options": options.strip()})


def check_reached(url: str, timeout_s: float) -> None:
    """Raises `StoreError` where no server of the URL takes writes, or none answers within so long. Each host
    is asked once, all of them at the same time.
    """
    address = address_of(url)
    places = _places(address)
    replies: queue.SimpleQueue[psycopg.OperationalError | None] = queue.SimpleQueue()

    def ask(host: str, port: str) -> None:
        try:
            psycopg.connect(make_conninfo(address, host=host, port=port)).close()
            replies.put(None)
        except psycopg.OperationalError as error:
            replies.put(error)

    for place in places:
        threading.Thread(target=ask, args=place, daemon=True).start()
    ends_s = time.monotonic() + timeout_s
    reasons = []
    for _ in places:
        try:
            error = replies.get(timeout=max(0.0, ends_s - time.monotonic()))
        except queue.Empty:
            break
        if error is None:
            return
        reasons.append(not_connected(error)[0])
    raise StoreError(next((reason for reason in reasons if reason != AWAY), AWAY))


def answering_first(address: str, host: str, port: int) -> str:
    """An address with the host that answered last before the others: one that is dead costs every connection
    its timeout, since they are tried in order.
    """
    places = _places(address)
    # Stable, and one port without a number is libpq's own.
    places.sort(key=lambda place: place[0] != host or place[1] not in ("", str(port)))
    if len(places) == 1 or "hostaddr" in conninfo_to_dict(address):
        return address
    hosts, ports = map(",".join, zip(*places, strict=True))
    return make_conninfo(address, host=hosts, port=ports)


def _places(address: str) -> list[tuple[str, str]]:
    """The hosts of an address with their ports, in order."""
    parameters = conninfo_to_dict(address)
    hosts = str(parameters.get("host") or "").split(",")
    ports = str(parameters.get("port") or "").split(",")
    return list(zip(hosts, ports if len(ports) == len(hosts) else ports * len(hosts), strict=True))


def not_connected(error: psycopg.OperationalError) -> tuple[str, bool]:
    """Why there is no connection, with the mend, and whether waiting may help: where a server is starting,
    promoting or away, and not where one refuses.
    """
    text, status = str(error), error.pgconn
    if status is not None and status.needs_password:
        return UNPROVEN, False
    for signs, reason, passing in _NOT_CONNECTED:
        if any(sign in text for sign in signs):
            return reason, passing
    if status is not None and status.used_password:  # it came as far as that
        return REFUSED, True
    return AWAY, True
