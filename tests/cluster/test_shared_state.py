"""What servers on one database know of each other's keys, sessions and scripts' values."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ctx.clock import now_ms
from ctx.cluster.memory_db import FRESH_S, MIGRATIONS, PostgresRows, SharedKeyRing, SharedScriptStore
from ctx.cluster.postgres import Database
from ctx.errors import BadRequest, Busy, NotFound, StoreError
from ctx.memory.activity import IDLE_MS, MAX_SESSIONS, Sessions
from ctx.memory.schema import COMPONENT
from ctx.server.keys import Grant, match

pytestmark = pytest.mark.cluster


@pytest.fixture
def databases(database_url: str) -> Iterator[list[Database]]:
    """Two servers' connections to one database."""
    with Database(database_url) as first, Database(database_url) as second:
        yield [first, second]


def _until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


# -- keys ----------------------------------------------------------------------------------------------------
def test_a_key_of_one_server_opens_the_other_until_it_is_revoked(databases: list[Database]) -> None:
    command, server = (SharedKeyRing(database) for database in databases)
    server.follow()
    assert not server.closed
    key, record = command.create("laptop", ["alice"])
    _until(lambda: match(key, server.candidates()) is not None)
    assert match(key, server.candidates()) == Grant("key:laptop", frozenset({"alice"}))
    assert server.closed
    command.revoke(record.id)
    _until(lambda: match(key, server.candidates()) is None)
    assert server.closed  # revoking the last key opens no door
    assert [entry.revoked_ms is None for entry in server.list()] == [False]
    server.close()


def test_a_ring_that_follows_nothing_looks_by_itself(
    databases: list[Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    command, server = (SharedKeyRing(database) for database in databases)
    key, _ = command.create("laptop")
    monkeypatch.setattr(server, "_read_s", -FRESH_S)
    assert match(key, server.candidates()) is not None
    with pytest.raises(BadRequest, match="exists"):
        server.create("laptop")
    with pytest.raises(NotFound, match="nobody"):
        server.revoke("nobody")
    assert len(command.list()) == 1


def test_servers_that_make_keys_at_once_lose_none(databases: list[Database]) -> None:
    rings = [SharedKeyRing(database) for database in databases]

    def create(writer: int) -> None:
        for number in range(5):
            rings[writer % 2].create(f"{writer}-{number}")

    threads = [threading.Thread(target=create, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(SharedKeyRing(databases[0]).list()) == 20


def test_keys_still_count_while_the_database_is_away(postgres_programs: Any) -> None:
    import postgres

    server = postgres.Server(postgres_programs).create()
    try:
        with Database(server.url()) as database:
            ring = SharedKeyRing(database)
            key, _ = ring.create("laptop")
            ring.follow()
            server.kill()
            assert match(key, ring.candidates()) is not None
            assert ring.closed
            ring.close()
    finally:
        server.discard()


# -- sessions ------------------------------------------------------------------------------------------------
def test_a_database_of_a_version_without_sessions_is_brought_up_to_date(database_url: str) -> None:
    with Database(database_url) as database:
        database.migrate(COMPONENT, MIGRATIONS[:1])
        with database.transaction(write=True) as connection:
            connection.execute("INSERT INTO memory_banks (bank, created_ms) VALUES ('alice', 1)")
        rows = PostgresRows(database)
        assert Sessions(lambda: rows, "sekha").open("given") == "given"
        assert Sessions(lambda: rows, "sekha").counts() == (1, 1)
        with rows.reading() as reader:
            assert reader.banks() == ["alice"]


class Clock:
    """A time that stands until it is moved."""

    def __init__(self) -> None:
        self.now = now_ms()

    def __call__(self) -> int:
        return self.now


def test_a_session_goes_on_at_another_server(databases: list[Database]) -> None:
    clock = Clock()
    stores = [PostgresRows(database) for database in databases]
    first, second = (Sessions(lambda rows=rows: rows, "claude-recall", clock=clock) for rows in stores)  # type: ignore[misc]
    folder, named = first.open(place="/project"), first.open("given")
    clock.now += 5000
    assert second.open(place="/project") == folder
    assert second.open(named) == named
    assert second.started_ms(named) == clock.now - 5000
    assert second.open(place="/elsewhere") != folder
    assert first.counts() == (3, 3)
    assert Sessions(lambda: stores[0], "sekha").counts() == (0, 0)
    clock.now += IDLE_MS
    assert second.counts() == (3, 0)
    assert second.open(place="/project") != folder


def test_the_oldest_sessions_are_forgotten(databases: list[Database]) -> None:
    rows = PostgresRows(databases[0])
    sessions = Sessions(lambda: rows, "p", clock=Clock())
    with databases[0].transaction(write=True) as connection:
        connection.execute(
            "INSERT INTO client_sessions SELECT 'p', 'old ' || n, NULL, n, n FROM generate_series(1, ?) AS g (n)",
            (MAX_SESSIONS,),
        )
    sessions.open("new")
    assert sessions.counts()[0] == MAX_SESSIONS
    assert sessions.started_ms("old 1") is None


# -- what scripts keep ---------------------------------------------------------------------------------------
def test_what_servers_add_at_once_is_added_once_each(databases: list[Database]) -> None:
    stores = [SharedScriptStore(database) for database in databases]

    def add(writer: int) -> None:
        for _ in range(10):
            stores[writer % 2].call("add", "script", {"key": "count", "number": 1}, time.monotonic() + 120)

    threads = [threading.Thread(target=add, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count, ends_s = {"key": "count"}, time.monotonic() + 60
    assert stores[0].call("get", "script", count, ends_s) == 40
    assert stores[1].call("keys", "script", {}, ends_s) == ["count"]
    assert stores[1].call("get", "another", count, ends_s) is None


def test_a_call_ends_by_its_deadline_while_another_one_holds_the_values(databases: list[Database]) -> None:
    store = SharedScriptStore(databases[0])
    with databases[1].transaction(write=True) as connection:
        # Its reply is waited for: a statement that is only sent may hold nothing yet.
        connection.execute("SELECT pg_advisory_xact_lock(8, hashtext('script'))").fetchone()
        with pytest.raises(Busy):
            store.call("set", "script", {"key": "key", "value": 1}, time.monotonic() + 0.2)
        store.call("set", "another", {"key": "key", "value": 1}, time.monotonic() + 60)
    store.call("set", "script", {"key": "key", "value": 1}, time.monotonic() + 60)


def test_a_database_that_is_not_there_says_so() -> None:
    with pytest.raises(StoreError, match="reached"):
        Database("postgresql://ctx@127.0.0.1:1/nowhere")
