"""What passes between a process and the database: how often it waits, and what it makes of one that fails."""

import re
import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import postgres
import pytest
from store_tree import make

from ctx.errors import BadRequest, Busy, StoreError

if TYPE_CHECKING:  # psycopg comes with an extra
    from ctx.cluster.postgres import Database

pytestmark = pytest.mark.cluster


class Relay:
    """Stands between a client and a server, and closes connections on request."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.away = False  # connections are closed at once, and counted
        self.attempts = 0
        self.version = b""  # that the server says it has, instead of its own
        self._clients: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            if self.away:
                self.attempts += 1
                client.close()
                continue
            self._clients.append(client)
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            while True:
                for speaker in select.select([client, server], [], [])[0]:
                    try:
                        data = speaker.recv(1 << 16)
                    except OSError:
                        return
                    if not data:
                        return
                    if self.version and speaker is server:
                        data = re.sub(rb"server_version\0..", b"server_version\0" + self.version, data)
                    (server if speaker is client else client).sendall(data)

    def leave(self) -> None:
        """As a server that dies."""
        self.away = True
        for client in self._clients:
            with suppress(OSError):  # closed already
                client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


class Pooler:
    """Stands between clients and a server as PgBouncer does: it says who it is itself, keeps the time limits
    that a client asks for, and lends a connection of the server's for a session, or for a transaction.
    """

    def __init__(self, port: int, *, sessions: bool) -> None:
        self._port = port
        self._sessions = sessions
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._free: list[socket.socket] = []  # the last that was given back is the next that is lent
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            greeting = client.recv(1 << 16)
            while len(greeting) == 8:  # asks for TLS
                client.sendall(b"N")
                greeting = client.recv(1 << 16)
            wishes = re.sub(rb"options\0[^\0]*\0", b"", greeting[4:])
            server = socket.create_connection(("127.0.0.1", self._port))
            server.sendall(struct.pack("!i", len(wishes) + 4) + wishes)
            said = b""
            while not said.endswith(b"Z\0\0\0\x05I"):
                said += server.recv(1 << 16)
            client.sendall(re.sub(rb"K\0\0\0\x0c....", b"K\0\0\0\x0c\0\0\0\x01", said, flags=re.DOTALL))
            self._free.append(server)
            while select.select([client], [], []) and client.recv(1, socket.MSG_PEEK) not in (b"", b"X"):
                self._lend(client)

    def _lend(self, client: socket.socket) -> None:
        """Carries what is said until the server is at rest between two transactions, or the client leaves."""
        server = self._free.pop()
        parts = {client: b"", server: b""}
        owed, resting = 0, False
        while self._sessions or owed or not resting:
            for speaker in select.select([client, server], [], [])[0]:
                spoken = speaker.recv(1 << 16)
                if not spoken:
                    server.close()
                    return
                parts[speaker] += spoken
                for kind, content in self._messages(parts, speaker):
                    if speaker is client:
                        owed += kind in (b"Q", b"S")
                    elif kind == b"Z":
                        owed, resting = owed - 1, content == b"I"
                if resting and not owed and not self._sessions:
                    self._free.append(server)  # before the client knows, who may ask for another at once
                (server if speaker is client else client).sendall(spoken)

    def _messages(
        self, parts: dict[socket.socket, bytes], speaker: socket.socket
    ) -> Iterator[tuple[bytes, bytes]]:
        while len(parts[speaker]) >= 5:
            end = 1 + struct.unpack("!i", parts[speaker][1:5])[0]
            if len(parts[speaker]) < end:
                return
            message, parts[speaker] = parts[speaker][:end], parts[speaker][end:]
            yield message[:1], message[5:]

    def close(self) -> None:
        self._listener.close()
        for server in self._free:
            server.close()


@contextmanager
def pooled(database_url: str, *, sessions: bool) -> Iterator[tuple[Pooler, str]]:
    port = urlsplit(database_url).port or 0
    pooler = Pooler(port, sessions=sessions)
    try:
        yield pooler, database_url.replace(f":{port}/", f":{pooler.port}/")
    finally:
        pooler.close()


@pytest.fixture
def relay(database_url: str) -> Iterator[tuple[Relay, str]]:
    port = urlsplit(database_url).port or 0
    between = Relay(port)
    yield between, database_url.replace(f":{port}/", f":{between.port}/")
    between.close()


@contextmanager
def bare_table(url: str) -> Iterator["Database"]:
    from ctx.cluster.postgres import Database

    with Database(url) as database:
        with database.transaction(write=True) as connection:
            connection.execute("CREATE TABLE rivers (name TEXT PRIMARY KEY)")
        yield database


def names(database: "Database") -> list[str]:
    with database.transaction() as connection:
        return [row[0] for row in connection.execute("SELECT name FROM rivers ORDER BY name")]


def test_what_a_statement_changed_is_known_as_soon_as_it_is_asked_for(database_url: str) -> None:
    with bare_table(database_url) as database:
        with database.transaction(write=True) as connection:
            connection.executemany("INSERT INTO rivers VALUES (?)", [("Aare",), ("Rhine",)])
            again = "INSERT INTO rivers VALUES (?) ON CONFLICT DO NOTHING"
            assert connection.execute(again, ("Aare",)).rowcount == 0
            assert connection.execute(again, ("Inn",)).rowcount == 1
            assert list(connection.stream("SELECT name FROM rivers ORDER BY name")) == [
                ("Aare",),
                ("Inn",),
                ("Rhine",),
            ]
        assert names(database) == ["Aare", "Inn", "Rhine"]


def put(database: "Database", *rivers: str, error: Exception | None = None) -> None:
    with database.transaction(write=True) as connection:
        for river in rivers:
            connection.execute("INSERT INTO rivers VALUES (?)", (river,))
        if error is not None:
            raise error


def test_an_error_that_nobody_waited_for_ends_the_write(database_url: str) -> None:
    with bare_table(database_url) as database:
        with pytest.raises(StoreError, match="could not answer"):
            put(database, "Aare", "Aare")
        with pytest.raises(BadRequest):
            put(database, "Inn", error=BadRequest("not that one"))
        assert names(database) == []
        put(database, "Rhine")
        assert names(database) == ["Rhine"]


def put_and_break(database: "Database", url: str) -> None:
    import psycopg

    with database.transaction(write=True) as connection:
        connection.execute("INSERT INTO rivers VALUES ('Aare')")
        [process] = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", (process,))
        connection.execute("SELECT 1").fetchone()


def test_a_connection_that_breaks_before_the_commit_stored_nothing_and_says_so(database_url: str) -> None:
    with bare_table(database_url) as database:
        with pytest.raises(StoreError, match="cannot be reached"):
            put_and_break(database, database_url)
        assert names(database) == []


def put_and_lose(database: "Database", between: Relay) -> None:
    with database.transaction(write=True) as connection:
        connection.execute("INSERT INTO rivers VALUES ('Aare')")
        between.leave()


def test_a_commit_without_a_reply_is_reported_as_unknown(relay: tuple[Relay, str]) -> None:
    between, url = relay
    with bare_table(url) as database:
        with pytest.raises(StoreError, match="not known whether this was stored"):
            put_and_lose(database, between)
        between.away = False
        assert names(database) == []


def test_a_database_that_is_away_is_an_error_in_time_and_is_found_again(relay: tuple[Relay, str]) -> None:
    between, url = relay
    with bare_table(url) as database:
        put(database, "Aare")
        between.leave()
        with (
            pytest.raises(StoreError, match="cannot be reached"),
            database.transaction(timeout_s=0.5),
        ):
            pass
        assert between.attempts > 0
        between.away = False
        assert names(database) == ["Aare"]


def test_all_connections_in_use_is_busy_and_not_away(database_url: str) -> None:
    from ctx.cluster.postgres import CONNECTIONS

    with bare_table(database_url) as database, ExitStack() as held:
        for _ in range(CONNECTIONS):
            held.enter_context(database.transaction())
        with pytest.raises(Busy, match="free in time"), database.transaction(timeout_s=0.1):
            pass


def test_a_pooler_of_transactions_is_told_by_its_statements(database_url: str) -> None:
    from ctx.cluster.postgres import Database

    with (
        pooled(database_url, sessions=False) as (_, url),
        bare_table(url) as first,
        Database(url) as second,
        pytest.raises(StoreError, match="pool_mode = session"),
    ):
        [names(database) for _ in range(10) for database in (first, second)]


def test_a_pooler_of_sessions_needs_no_setting_of_its_own(database_url: str) -> None:
    from ctx.cluster.catalog import PostgresCatalog

    with pooled(database_url, sessions=True) as (_, url), PostgresCatalog(url) as catalog:
        assert catalog.put_documents([make("git:x", "a", ["one"])]) == 1
        with catalog.database.transaction() as connection:
            assert connection.execute("SHOW lock_timeout").fetchone() == ("10s",)
        _, line = catalog.server() or (False, "")
        assert "behind a pooler" in line


def test_a_server_that_is_too_old_is_refused_before_anything_is_made_there(relay: tuple[Relay, str]) -> None:
    from ctx.cluster.catalog import PostgresCatalog
    from ctx.cluster.postgres import Database

    between, url = relay
    between.version = b"13"
    with pytest.raises(StoreError, match="the database is PostgreSQL 13, and ctx needs 14 or newer"):
        PostgresCatalog(url)
    between.version = b""
    with Database(url) as database, database.transaction() as connection:
        assert connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone() == (0,)


REFUSALS = {
    "postgresql://ctx:wrong@127.0.0.1:{port}/postgres": "refuses the user or the password",
    "postgresql://ctx@127.0.0.1:{port}/postgres": "put one into",
    "postgresql://ctx:right@127.0.0.1:{port}/absent": "no such database",
    "postgresql://ctx:right@127.0.0.1:{port}/postgres?sslmode=require": "has no TLS",
    "postgresql://ctx:right@127.0.0.1:{port}/template1": "does not let this user in",
    "postgresql://crowd:right@127.0.0.1:{port}/postgres": "no connection left: .*the limit of the user",
    "postgresql://locked:right@127.0.0.1:{port}/postgres": "may not log in",
    # Nothing that is looked for is in its words, as where a server speaks another language.
    "postgresql://guest:right@127.0.0.1:{port}/closed": "refuses the user, the password or the database",
    "postgresql://ctx:right@127.0.0.1:{port}/postgres?options=-cdefault_transaction_read_only%3Don": (
        "no server of .* takes writes"
    ),
    "postgresql://ctx:right@nowhere.invalid/postgres": "host name",
    "postgresql://ctx:right@127.0.0.1:abc/postgres": "port",
    "postgresql://ctx:ri@ht@127.0.0.1:{port}/postgres": "in its password .* an @ %40",
    "postgresql://ctx:ri/ht@127.0.0.1:{port}/postgres": "in its password .* a / %2F",
    "postgresql://ctx:ri%ht@127.0.0.1:{port}/postgres": "in its password a % is written %25",
    "postgresql://ctx:right@127.0.0.1:{port}/postgres?sslmode=yes": "a parameter in .* has an unknown value",
    "postgresql://ctx:right@127.0.0.1:{port}/postgres?ssl=on": "a parameter in .* does not know",
}


def test_a_server_that_refuses_is_told_from_one_that_is_away(
    postgres_programs: postgres.Programs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import psycopg

    from ctx.cluster.postgres import Database

    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    server = postgres.Server(postgres_programs).create()
    try:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("ALTER ROLE ctx PASSWORD 'right'")
            connection.execute("CREATE ROLE guest LOGIN PASSWORD 'right'")
            connection.execute("CREATE ROLE crowd LOGIN PASSWORD 'right' CONNECTION LIMIT 0")
            connection.execute("CREATE ROLE locked NOLOGIN PASSWORD 'right'")
            connection.execute("CREATE DATABASE closed")
            connection.execute("REVOKE CONNECT ON DATABASE closed FROM PUBLIC")
            rules = "host postgres,absent,closed all 127.0.0.1/32 scram-sha-256\n"
            (server.data / "pg_hba.conf").write_text(rules)
            connection.execute("SELECT pg_reload_conf()")
        for url, message in REFUSALS.items():
            with pytest.raises(StoreError, match=message), Database(url.format(port=server.port)) as database:
                names(database)
    finally:
        server.discard()
