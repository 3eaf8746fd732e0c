"""Sessions of clients beside the memories, with a clock that is moved by hand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctx.errors import StoreError
from ctx.memory.activity import IDLE_MS, MAX_SESSIONS, Sessions
from ctx.memory.rows import SqliteRows


class Clock:
    """A time that changes only when it is set."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[SqliteRows]:
    opened = SqliteRows(str(tmp_path / "ctx.db"))
    yield opened
    opened.close()


def sessions_of(rows: SqliteRows, clock: Clock, pack: str = "claude-recall") -> Sessions:
    return Sessions(lambda: rows, pack, clock=clock)


def test_two_processes_agree_on_the_session_of_a_place_and_of_a_name(
    tmp_path: Path, rows: SqliteRows
) -> None:
    clock = Clock()
    first, other_rows = sessions_of(rows, clock), SqliteRows(str(tmp_path / "ctx.db"))
    second = sessions_of(other_rows, clock)
    folder, named = first.open(place="/project"), first.open("given")
    clock.now += 5000
    assert second.open(place="/project") == folder
    assert second.open("given") == named == "given"
    assert second.started_ms("given") == 1_000_000
    assert first.open(place="/elsewhere") == second.open(place="/elsewhere") != folder
    assert second.counts() == (3, 3)
    assert sessions_of(rows, clock, "sekha").counts() == (0, 0)
    assert sessions_of(rows, clock, "sekha").started_ms("given") is None
    other_rows.close()


def test_a_session_ends_after_a_day_without_a_call_and_its_place_begins_another(rows: SqliteRows) -> None:
    clock = Clock()
    sessions = sessions_of(rows, clock)
    first = sessions.open(place="/project")
    clock.now += IDLE_MS - 1
    assert sessions.open(place="/project") == first  # which counts as a use
    clock.now += IDLE_MS
    second = sessions.open(place="/project")
    assert second != first
    assert sessions.open(place="/project") == second


def test_active_are_those_of_the_last_five_minutes(rows: SqliteRows) -> None:
    clock = Clock()
    sessions = sessions_of(rows, clock)
    sessions.open("old")
    clock.now += 5 * 60_000
    sessions.open("new")
    assert sessions.counts() == (2, 1)


def test_no_flood_of_session_names_grows_without_end(rows: SqliteRows) -> None:
    clock = Clock()
    with rows.change() as engine:
        engine.connection.executemany(
            "INSERT INTO client_sessions VALUES ('claude-recall', ?, NULL, ?, ?)",
            [(f"s{number}", number, number) for number in range(MAX_SESSIONS + 5)],
        )
    sessions = sessions_of(rows, clock)
    sessions.open("new")
    assert sessions.counts()[0] == MAX_SESSIONS
    assert sessions.started_ms("s0") is None
    assert sessions.started_ms("new") == clock.now


def test_a_store_that_cannot_be_written_costs_no_call(rows: SqliteRows) -> None:
    def broken() -> SqliteRows:
        raise StoreError("the disk is full")

    sessions = Sessions(broken, "claude-recall")
    assert sessions.open("a") == "a"
    assert sessions.open(place="/project").startswith("session_")
