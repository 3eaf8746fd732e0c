"""Tool calls off the event loop: bounded lanes of threads.

A lane has so many threads and so long a queue; what comes beyond is `Busy`, at once. Slow scripts, and whole
documents of megabytes, have lanes of their own, so that they never stand before a search; one more is for
`/health`, which must answer when all are full. In the scripts' lane a tool and a caller have only a share of
the threads and of the queue: what goes beyond it waits aside, and the next one's call passes.

The threads are daemons: a tool that never returns must not keep a stopping server alive.
"""

import asyncio
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ctx.errors import Busy
from ctx.lua.shares import Shares
from ctx.models import JSON, Caller
from ctx.tools.agents import Agent, Agents, Prompt
from ctx.tools.toolbox import Tool, Toolbox

T = TypeVar("T")

# Searches are arithmetic: more threads than cores only take turns.
SEARCH_THREADS = max(2, min(8, os.cpu_count() or 2))
SCRIPT_THREADS = 32  # each of these waits for a child process or an index run
DOCUMENT_THREADS = 2  # one waits for the disk while the other puts megabytes together
QUEUE = 128  # at 1 ms a search the last one waits a tenth of a second


NO_SHARE = ("", "")


class _Job(Generic[T]):
    __slots__ = ("function", "future", "loop", "share", "state")

    def __init__(
        self, function: Callable[[], T], loop: asyncio.AbstractEventLoop, share: tuple[str, str]
    ) -> None:
        self.function = function
        self.loop = loop
        self.share = share
        self.future: asyncio.Future[T] = loop.create_future()
        self.state = "aside"  # aside (its share is used up) | queued | running | dropped

    def settle(self, result: T | None, error: BaseException | None) -> None:
        if self.future.done():  # the caller went away
            return
        if error is None:
            self.future.set_result(result)  # type: ignore[arg-type]
        else:
            self.future.set_exception(error)


class Lane:
    """`threads` workers behind a queue of at most `waiting`. `run` is called on the event loop."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self.name = name
        self._threads = threads
        self._capacity = threads + waiting
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._aside: deque[_Job[Any]] = deque()
        self._lock = threading.Lock()
        self._queued_shares = Shares(threads)  # of what is queued or runs
        self._aside_shares = Shares(waiting)
        self._unfinished = 0  # aside, queued and running, without the dropped
        self._started = 0
        self._closed = False

    @property
    def unfinished(self) -> int:
        """Calls that wait or run."""
        return self._unfinished

    @property
    def crowded(self) -> bool:
        """Whether a call made now might have to wait for a thread."""
        return self._unfinished >= self._threads or bool(self._aside)

    async def run(self, function: Callable[[], T], share: tuple[str, str] = NO_SHARE) -> T:
        """What `function` returns or raises, from a thread of the lane. Raises `Busy` where the queue is
        full.

        `share` is the tool's name and the caller's, against whose shares the call counts. Cancelled while it
        waits, the call is never made; cancelled while it runs, its result is thrown away.
        """
        job: _Job[T] = _Job(function, asyncio.get_running_loop(), share)
        with self._lock:
            self._accept(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            with self._lock:
                self._drop(job)
            raise

    # ------------------------------------------------------------------ with the lock held

    def _accept(self, job: _Job[Any]) -> None:
        if self._closed or self._unfinished >= self._capacity:
            raise Busy("the server is busy; try again shortly")
        if self._queued_shares.room(*job.share):
            self._unfinished += 1
            self._queue(job)
            return
        if not self._aside_shares.room(*job.share):
            raise Busy("too many calls of this tool or by this caller are waiting already; try again shortly")
        self._unfinished += 1
        self._aside_shares.take(*job.share)
        self._aside.append(job)

    def _queue(self, job: _Job[Any]) -> None:
        self._queued_shares.take(*job.share)
        job.state = "queued"
        if self._started < self._threads and self._unfinished > self._started:
            name = f"ctx-{self.name}-{self._started}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
            self._started += 1
        self._jobs.put(job)

    def _drop(self, job: _Job[Any]) -> None:
        if job.state == "aside":
            self._aside.remove(job)
            self._aside_shares.give_back(*job.share)
            self._unfinished -= 1
        elif job.state == "queued":
            self._end(job)
        else:
            return
        job.state = "dropped"

    def _end(self, job: _Job[Any]) -> None:
        """One call less; the first of those aside that has a share now comes into the queue."""
        self._unfinished -= 1
        self._queued_shares.give_back(*job.share)
        for waiting in self._aside:
            if self._queued_shares.room(*waiting.share):
                self._aside.remove(waiting)
                self._aside_shares.give_back(*waiting.share)
                self._queue(waiting)
                return

    # ------------------------------------------------------------------ the threads

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._lock:
                if job.state == "dropped":
                    continue
                job.state = "running"
            result, failure = None, None
            try:
                result = job.function()
            except BaseException as error:  # whatever it is, it is raised again where the result is awaited
                failure = (
                    RuntimeError("a tool raised StopIteration") if isinstance(error, StopIteration) else error
                )
            with self._lock:
                self._end(job)
            try:
                job.loop.call_soon_threadsafe(job.settle, result, failure)
            except RuntimeError:
                pass  # the loop has closed: nobody waits for this result
            del job, result, failure  # an idle thread must not keep the last reply alive

    def close(self) -> None:
        """Ends the idle threads; a running call is left to end by itself."""
        with self._lock:
            self._closed = True
            while self._aside:
                job = self._aside.popleft()
                job.state = "dropped"
                job.loop.call_soon_threadsafe(job.settle, None, Busy("the server is stopping"))
        for _ in range(self._started):
            self._jobs.put(None)


class Work:
    """The lanes of one server."""

    def __init__(
        self,
        *,
        search_threads: int = SEARCH_THREADS,
        script_threads: int = SCRIPT_THREADS,
        waiting: int = QUEUE,
    ) -> None:
        self.searches = Lane("search", search_threads, waiting)
        self.documents = Lane("document", DOCUMENT_THREADS, waiting)
        self.scripts = Lane("script", script_threads, waiting)
        self.probes = Lane("probe", 1, waiting)

    def lane(self, tool: Tool) -> Lane:
        """The lane that suits the tool: what only reads and is our own is quick, but for whole documents."""
        if not (tool.builtin and tool.annotations.read_only):
            return self.scripts
        return self.documents if tool.lengthy else self.searches

    def agent_lane(self, agent: Agent | None) -> Lane:
        """The lane that suits the agent: one that the configuration spells out is quick. None: its script may
        have yet to load.
        """
        return self.searches if agent is not None and agent.source == "toml" else self.scripts

    async def call(self, toolbox: Toolbox, tool: Tool, arguments: JSON, caller: Caller) -> JSON:
        """`toolbox.call` in the tool's lane. Raises what the call raises, and `Busy`."""
        lane = self.lane(tool)
        share = (tool.name, caller.share) if lane is self.scripts else NO_SHARE
        return await lane.run(lambda: toolbox.call(tool.name, arguments, caller), share)

    async def prompt(
        self, agents: Agents, agent: Agent | None, name: str, arguments: JSON, caller: Caller
    ) -> Prompt:
        """`agents.prompt` in the agent's lane. Raises what that raises, and `Busy`."""
        lane = self.agent_lane(agent)
        share = (f"agent {name}", caller.share) if lane is self.scripts else NO_SHARE
        return await lane.run(lambda: agents.prompt(name, arguments, caller), share)

    def close(self) -> None:
        for lane in (self.searches, self.documents, self.scripts, self.probes):
            lane.close()
