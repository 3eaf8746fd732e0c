"""The searches of a server, shared out between it and the processes beside it."""

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from ctx.config import Config
from ctx.tools.base import Tool
from ctx.types import JSON, Caller

if TYPE_CHECKING:  # pipes and programs are 10 ms of a start, and few servers need them
    from ctx.searchers.process import Answer, Line, SearchProcess
    from ctx.workspace import Workspace

logger = logging.getLogger(__name__)

LINES = 4  # to each process: its next question lies there when it has answered one
IDLE_S = 30.0  # after which a process ends by itself: what it holds in memory is given back
ANSWER_S = 10.0  # a search of a million chunks, of files that nothing has read yet, takes one
# Searches that met another one, within PRESSURE_S: a client that asks three at once starts nothing.
PRESSURE = 50
PRESSURE_S = 5.0
RETRY_S = 60.0  # after a process that could not begin


class SearchProcesses:
    """Runs the `search` tool here, and where another search is under way in a process beside. Safe from
    several threads.

    `limit` processes at most are started, each once searches have met each other for a while. What a process
    does not answer, for whatever reason, is answered here.
    """

    def __init__(
        self,
        config: Config,
        tool: Tool,
        workspace: "Workspace",
        *,
        limit: int,
        idle_s: float = IDLE_S,
        answer_s: float = ANSWER_S,
        pressure: int = PRESSURE,
    ) -> None:
        self._config = config
        self._tool = tool
        self._workspace = workspace
        self._limit = limit
        self._idle_s = idle_s
        self._answer_s = answer_s
        self._lock = threading.Lock()
        self._under_way = 0
        self._vacant: list[Line] = []
        self._processes: set[SearchProcess] = set()
        self._starting: set[SearchProcess] = set()
        self._keepers: list[threading.Thread] = []
        self._encounters: deque[float] = deque(maxlen=pressure)
        self._not_before_s = 0.0
        self._beginning = False
        self._closed = False

    @property
    def threads(self) -> int:
        """How many searches can be under way: one here, and those that the processes hold."""
        return 1 + self._limit * LINES

    @property
    def pids(self) -> list[int]:
        """Of the processes that answer now."""
        with self._lock:
            return [process.pid for process in self._processes]

    def run(self, arguments: dict[str, JSON], caller: Caller) -> JSON:
        """The tool's answer. Raises what the tool raises."""
        with self._lock:
            line = self._line_beside() if self._under_way else None
            self._under_way += 1
        try:
            answer = line and self._answer_of(line, arguments)
            return answer.reply if answer else self._tool.run(arguments, caller)
        finally:
            with self._lock:
                self._under_way -= 1

    def close(self) -> None:
        """Ends the processes. What they were asked is answered here."""
        with self._lock:
            self._closed = True
            processes = [*self._processes, *self._starting]
            keepers = list(self._keepers)
        for process in processes:
            process.kill()
        for keeper in keepers:
            keeper.join()

    def _line_beside(self) -> "Line | None":
        """A line to a process, before anything is searched for here, where connections are served as well;
        None if none is free. With the lock held.
        """
        if self._vacant:
            return self._vacant.pop(0)
        if self._pressed():
            self._beginning = True
            keeper = threading.Thread(target=self._keep, name="ctx-searcher", daemon=True)
            self._keepers = [each for each in self._keepers if each.is_alive()]
            self._keepers.append(keeper)
            keeper.start()
        return None

    def _answer_of(self, line: "Line", arguments: dict[str, JSON]) -> "Answer | None":
        try:
            answer = line.ask(arguments, self._workspace.lacking(), self._answer_s)
        finally:
            self._put_back(line)
        return answer

    def _put_back(self, line: "Line") -> None:
        with self._lock:
            usable = line.sound and not self._closed
            if usable:
                self._vacant.append(line)
        if not usable:
            line.close()

    def _pressed(self) -> bool:
        """Whether this search, which meets another one and finds no process free, is one too many."""
        now_s = time.monotonic()
        self._encounters.append(now_s)
        often = len(self._encounters) == self._encounters.maxlen and now_s - self._encounters[0] < PRESSURE_S
        room = len(self._processes) < self._limit and not self._beginning and not self._closed
        return often and room and now_s > self._not_before_s

    def _keep(self) -> None:
        """Starts a process, and is there until it ends."""
        from ctx.searchers.process import SearchProcess

        try:
            process = SearchProcess(self._config, lines=LINES, idle_s=self._idle_s)
        except OSError as error:
            self._put_off(error.strerror or "no process can be started")
            return
        with self._lock:
            self._starting.add(process)
            closed = self._closed
        if not closed and process.wait_until_ready():
            self._serve(process)
        else:
            process.kill()
            self._put_off("it did not open the store")
        process.wait()
        self._forget(process)

    def _serve(self, process: "SearchProcess") -> None:
        """Lets a process answer until it ends."""
        with self._lock:
            self._starting.remove(process)
            self._processes.add(process)
            self._vacant += process.lines
            self._beginning = False
            self._encounters.clear()
            if self._closed:
                process.kill()
        logger.info("search process started pid=%d", process.pid)
        process.wait()
        logger.info("search process ended pid=%d", process.pid)

    def _put_off(self, reason: str) -> None:
        """Tries no other process for a while."""
        with self._lock:
            self._beginning = False
            self._encounters.clear()
            self._not_before_s = time.monotonic() + RETRY_S
            closed = self._closed
        if not closed:
            logger.warning("no search process: %s; the next try is in a minute", reason)

    def _forget(self, process: "SearchProcess") -> None:
        with self._lock:
            self._starting.discard(process)
            self._processes.discard(process)
            unused = [line for line in self._vacant if line in process.lines]
            self._vacant = [line for line in self._vacant if line not in process.lines]
        for line in unused:  # whoever waits on another one closes it
            line.close()
