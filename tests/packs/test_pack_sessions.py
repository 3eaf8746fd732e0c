"""Sessions by themselves, with clocks of their own."""

import json
import os
import stat
from pathlib import Path

from ctx.packs.sessions import IDLE_MS, MAX_SESSIONS, FileSessions


class Clock:
    """A time that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


def test_a_session_is_resumed_by_id_and_by_place_in_another_process(tmp_path: Path) -> None:
    path, clock = str(tmp_path / "new" / "sessions.json"), Clock()
    first = FileSessions(path, clock=clock)
    folder, named = first.open(None, place="/project"), first.open("given")
    first.set(folder, "seen", [1, None])
    clock.now += 5000
    second = FileSessions(path, clock=clock)
    assert second.open(None, place="/project") == folder
    assert second.get(folder, "seen") == [1, None]
    assert second.data(named)["startTime"] == 1_000_000
    assert second.open(None, place="/elsewhere") != folder
    third = first.open(
        None, place="/elsewhere"
    )  # begun by the other process after this one had read the file
    assert third == second.open(None, place="/elsewhere")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "new").st_mode) == 0o700


def test_a_session_ends_after_a_day_without_a_call_and_its_place_begins_another(tmp_path: Path) -> None:
    clock = Clock()
    sessions = FileSessions(str(tmp_path / "sessions.json"), clock=clock)
    first = sessions.open(None, place="/project")
    clock.now += IDLE_MS - 1
    assert sessions.open(None, place="/project") == first  # which was a sign of life
    clock.now += IDLE_MS
    second = sessions.open(None, place="/project")
    assert second != first
    assert sessions.open(None, place="/project") == second


def test_what_another_process_wrote_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "sessions.json"
    ours = FileSessions(str(path))
    mine = ours.open("mine")
    entries = json.loads(path.read_text())
    path.write_text(json.dumps([["theirs", {"a": 1}], 7, *entries]))
    ours.set(mine, "k", "v")
    entries_of_file = json.loads(path.read_text())
    assert entries_of_file[:2] == [["theirs", {"a": 1}], 7]
    assert entries_of_file[2][1]["kv"] == {"k": "v"}
    path.write_text(json.dumps([["theirs", {"a": 2}]]))
    ours.close()  # nothing of ours changed: nothing is written
    assert json.loads(path.read_text()) == [["theirs", {"a": 2}]]


def test_active_are_those_of_the_last_five_minutes() -> None:
    clock = Clock()
    sessions = FileSessions(None, clock=clock)
    sessions.open("old")
    clock.now += 5 * 60_000
    sessions.open("new")
    assert sessions.counts() == (2, 1)


def test_no_flood_of_session_names_grows_without_end() -> None:
    sessions = FileSessions(None, clock=Clock())
    for number in range(MAX_SESSIONS + 5):
        sessions.open(f"s{number}")
    assert sessions.counts()[0] == MAX_SESSIONS


def test_a_folder_that_cannot_be_written_costs_no_call(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    sessions = FileSessions(str(blocked / "sessions.json"))
    assert sessions.open("a") == "a"
    sessions.touch("a")
