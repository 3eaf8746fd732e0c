"""Searches that are answered by processes beside: the same answers, and none lost with a process."""

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from faults import Server, eventually, serving
from kit import project, workspace

from ctx.errors import BadRequest, StoreError
from ctx.searchers.pool import LINES, SearchProcesses
from ctx.types import JSON, Caller
from ctx.workspace import Workspace

REST = Caller("rest")
HELD = "a search that lasts"
EMBEDDED = '[connectors.filesystem.docs]\nroot = "./docs"\n'
PAGES = {
    f"page-{number}.md": f"# Page {number}\n\nThe {word} of valve {number} opens at {number * 7} bar.\n"
    for number, word in enumerate(("inlet", "outlet", "bypass", "drain", "vent", "relief") * 5)
}
QUESTIONS: list[dict[str, Any]] = [
    {"query": "which valve opens at 49 bar", "mode": "keyword"},
    {"query": "outlet", "limit": 30, "offset": 2, "explain": True},
    {"query": "where does air leave", "mode": "semantic"},
    {"query": "drain valve", "mode": "hybrid", "per_document": 3, "explain": True},
    {"query": "relif valve"},
    {"query": "val", "prefix": True, "filters": {"path": "page-1*.md", "type": "prose"}},
    {"query": "valve", "source": "no-such-source"},
    {"query": "valve bar", "limit": 100, "max_tokens": 200},
]


class Searches:
    """The searches of a project, of which one lasts, so that others meet it; `here` counts those answered by
    this process.
    """

    def __init__(self, space: Workspace, **options: Any) -> None:
        self.here = 0
        self._held, self._released = threading.Event(), threading.Event()
        self._tool = space.toolbox.get("search")
        tool = self._tool._replace(run=self._counted)
        options = {"limit": 1, "pressure": 1} | options
        self.processes = SearchProcesses(space.config, tool, space, **options)
        self._thread = threading.Thread(target=self.ask, args=({"query": HELD},))

    def _counted(self, arguments: JSON, caller: Caller) -> JSON:
        if arguments["query"] == HELD:
            self._held.set()
            assert self._released.wait(120)
        else:
            self.here += 1
        return self._tool.run(arguments, caller)

    def ask(self, arguments: JSON) -> JSON:
        return self.processes.run(self._tool.check(dict(arguments)), REST)

    def ask_alone(self, arguments: JSON) -> JSON:
        return self._tool.run(self._tool.check(dict(arguments)), REST)

    def hold(self) -> None:
        self._thread.start()
        assert self._held.wait(60)

    def begin(self) -> int:
        """Has a process started by a search that meets another one; its number."""
        self.hold()
        self.ask({"query": "valve"})
        eventually(lambda: bool(self.processes.pids))
        self.here = 0
        return self.processes.pids[0]

    def release(self) -> None:
        self._released.set()
        if self._thread.ident:
            self._thread.join()

    def close(self) -> None:
        self.release()
        self.processes.close()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@contextmanager
def searching(config: Path, **options: Any) -> Iterator[tuple[Workspace, Searches]]:
    with workspace(config) as space:
        space.refresh([])
        searches = Searches(space, **options)
        try:
            yield space, searches
        finally:
            searches.close()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return project(tmp_path, PAGES)


def test_a_process_answers_what_this_one_would_to_the_last_character(tmp_path: Path) -> None:
    with searching(project(tmp_path, PAGES, EMBEDDED)) as (_, searches):
        searches.begin()
        for question in QUESTIONS:
            assert searches.ask(question) == searches.ask_alone(question), question
        assert searches.here == 0


def test_beside_another_search_none_runs_where_connections_are_served(config: Path) -> None:
    with searching(config) as (_, searches):
        beside = searches.begin()
        os.kill(beside, signal.SIGSTOP)
        askers = [threading.Thread(target=searches.ask, args=({"query": "inlet"},)) for _ in range(2)]
        askers[0].start()
        eventually(lambda: len(searches.processes._vacant) == LINES - 1)
        searches.release()
        askers[1].start()
        eventually(lambda: len(searches.processes._vacant) == LINES - 2)
        os.kill(beside, signal.SIGCONT)
        for asker in askers:
            asker.join()
        assert searches.here == 0


def test_what_is_written_is_found_by_the_next_search(config: Path) -> None:
    with searching(config) as (space, searches):
        searches.begin()
        for number in range(5):
            (config.parent / "docs" / "later.md").write_text(f"# Later\n\nThe manometer{number} is new.\n")
            space.refresh([])
            (hit,) = searches.ask({"query": f"manometer{number}"})["results"]
            assert hit["source_id"] == "later.md"
        assert searches.here == 0


def test_a_killed_process_loses_no_search_and_another_takes_its_place(config: Path) -> None:
    with searching(config) as (_, searches):
        first = searches.begin()
        os.kill(first, signal.SIGKILL)
        assert len(searches.ask({"query": "inlet"})["results"]) == 5
        eventually(lambda: first not in searches.processes.pids)
        searches.ask({"query": "inlet"})
        eventually(lambda: bool(searches.processes.pids))
        searches.here = 0
        assert len(searches.ask({"query": "inlet"})["results"]) == 5
        assert searches.here == 0
        assert gone(first)


def test_a_process_that_does_not_answer_is_asked_no_more(config: Path) -> None:
    with searching(config, answer_s=0.2) as (_, searches):
        pid = searches.begin()
        os.kill(pid, signal.SIGSTOP)
        assert len(searches.ask({"query": "inlet"})["results"]) == 5
        assert searches.here == 1
        eventually(lambda: gone(pid))


def test_an_error_is_worded_as_it_is_here(config: Path) -> None:
    with searching(config) as (_, searches):
        searches.begin()
        with pytest.raises(BadRequest, match="embeddings are disabled"):
            searches.ask({"query": "inlet", "mode": "semantic"})
        with pytest.raises(BadRequest, match=r"filters\.since"):
            searches.ask({"query": "inlet", "filters": {"since": "yesterday"}})
        assert len(searches.ask({"query": "inlet"})["results"]) == 5


def test_what_the_server_lacks_is_told_by_the_process_too(config: Path) -> None:
    with searching(config) as (space, searches):
        searches.begin()
        space.lacking = lambda: "the moon is not indexed yet"  # type: ignore[method-assign]
        assert searches.ask({"query": "inlet"})["partial"] == "the moon is not indexed yet"
        assert searches.here == 0


def test_a_store_that_fails_takes_no_line_away(config: Path) -> None:
    def fail() -> None:
        raise StoreError("the disk is gone")

    with searching(config) as (space, searches):
        searches.begin()
        lacking = space.lacking
        for _ in range(LINES + 1):
            space.lacking = fail  # type: ignore[method-assign]
            with pytest.raises(StoreError):
                searches.ask({"query": "inlet"})
        space.lacking = lacking  # type: ignore[method-assign]
        searches.here = 0
        assert len(searches.ask({"query": "inlet"})["results"]) == 5
        assert searches.here == 0


def test_an_idle_process_ends_and_is_started_again_when_needed(config: Path) -> None:
    with searching(config, idle_s=0.5) as (_, searches):
        pid = searches.begin()
        eventually(lambda: gone(pid) and not searches.processes.pids)
        searches.ask({"query": "inlet"})
        eventually(lambda: bool(searches.processes.pids))


def test_with_another_store_at_its_path_a_process_ends(config: Path) -> None:
    with searching(config) as (space, searches):
        pid = searches.begin()
        store = Path(space.config.db.path)
        other = store.with_name("other.db")
        other.write_bytes(store.read_bytes())
        other.replace(store)
        assert "results" in searches.ask({"query": "inlet"})
        assert searches.here == 1
        eventually(lambda: gone(pid))


def test_searches_that_meet_nobody_start_nothing(config: Path) -> None:
    with searching(config) as (_, searches):
        for _ in range(20):
            searches.ask({"query": "inlet"})
        assert searches.here == 20
        assert not searches.processes.pids


def test_a_client_that_asks_a_few_at_once_starts_nothing(config: Path) -> None:
    with searching(config, pressure=50) as (_, searches):
        searches.hold()
        for _ in range(49):
            searches.ask({"query": "inlet"})
        assert not searches.processes._beginning
        searches.ask({"query": "inlet"})
        eventually(lambda: bool(searches.processes.pids))


def test_no_more_are_started_than_allowed(config: Path) -> None:
    with searching(config, limit=0) as (_, searches):
        searches.hold()
        for _ in range(20):
            searches.ask({"query": "inlet"})
        assert searches.here == 20
        assert not searches.processes._beginning


def test_a_process_that_cannot_be_started_is_told_and_put_off(
    config: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with searching(config) as (_, searches):
        searches.hold()
        for _ in range(3):
            assert len(searches.ask({"query": "inlet"})["results"]) == 5
        eventually(lambda: not searches.processes._beginning)
        assert len(searches.ask({"query": "inlet"})["results"]) == 5
        assert not searches.processes._beginning
    assert [record.getMessage() for record in caplog.records if "search process" in record.getMessage()] == [
        "no search process: No such file or directory; the next try is in a minute"
    ]


def test_a_process_that_does_not_open_the_store_is_put_off(
    config: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ctx.searchers.process._BOOT", "raise SystemExit(3)")
    with searching(config) as (_, searches):
        searches.hold()
        searches.ask({"query": "inlet"})
        eventually(lambda: "it did not open the store" in caplog.text)
        assert len(searches.ask({"query": "inlet"})["results"]) == 5


def test_closing_waits_for_no_process_that_begins(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctx.searchers.process._BOOT", "import time; time.sleep(1000)")
    with searching(config) as (_, searches):
        searches.hold()
        searches.ask({"query": "inlet"})
        eventually(lambda: bool(searches.processes._starting))
        (process,) = searches.processes._starting
    assert gone(process.pid)


def test_closing_ends_the_processes_and_what_they_were_asked_is_answered(config: Path) -> None:
    with searching(config) as (_, searches):
        pid = searches.begin()
        os.kill(pid, signal.SIGSTOP)
        replies: list[JSON] = []
        client = threading.Thread(target=lambda: replies.append(searches.ask({"query": "inlet"})))
        client.start()
        eventually(lambda: len(searches.processes._vacant) == LINES - 1)
        searches.processes.close()
        client.join(60)
        assert len(replies[0]["results"]) == 5
        assert gone(pid)
        assert len(searches.ask({"query": "inlet"})["results"]) == 5


def crowd(server: Server, stopping: threading.Event, answers: list[list[str]]) -> list[threading.Thread]:
    """Eight clients that ask one question after the other."""

    def ask() -> None:
        while not stopping.is_set():
            answers.append(server.search("inlet"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    return threads


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a process beside needs a core beside")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.slow
def test_a_crowd_gets_a_process_that_ends_with_the_server(config: Path, end: signal.Signals) -> None:
    with serving(config) as server:
        eventually(lambda: len(server.search("inlet")) == 5)
        stopping, answers = threading.Event(), list[list[str]]()
        threads = crowd(server, stopping, answers)
        eventually(lambda: "search process started" in server.log())
        count = len(answers)
        eventually(lambda: len(answers) > count + 100)
        stopping.set()
        for thread in threads:
            thread.join()
        assert {tuple(answer) for answer in answers} == {tuple(server.search("inlet"))}
        (pid,) = map(int, re.findall(r"search process started pid=(\d+)", server.log()))
        assert not gone(pid)
        server.process.send_signal(end)
        server.process.wait(60)
        eventually(lambda: gone(pid))
