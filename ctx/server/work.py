"""Tool calls off the event loop: bounded lanes of threads.

A lane has so many threads and so long a queue; what comes beyond is `Busy`, at once. Two lanes, so that slow scripts never stand
before a search; a third for `/health`, which must answer when both are full.

The threads are daemons: a tool that never returns must not keep a stopping server alive.
"""

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ctx.errors import Busy
from ctx.tools.base import Tool, Toolbox
from ctx.types import JSON, Caller

T = TypeVar("T")

SEARCH_THREADS = max(
    2, min(8, os.cpu_count() or 2)
)  # searches are arithmetic: more threads than cores only take turns
SCRIPT_THREADS = 32  # each of these waits for a child process or an index run
QUEUE = 128  # at 1 ms a search the last one waits a tenth of a second


class _Job(Generic[T]):
    __slots__ = ("function", "future", "loop", "state")

    def __init__(self, function: Callable[[], T], loop: asyncio.AbstractEventLoop) -> None:
        self.function = function
        self.loop = loop
        self.future: asyncio.Future[T] = loop.create_future()
        self.state = "queued"  # queued | running | dropped

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
        self._lock = threading.Lock()
        self._unfinished = 0  # queued and running, without the dropped
        self._started = 0
        self._closed = False

    @property
    def unfinished(self) -> int:
        """Calls that wait or run."""
        return self._unfinished

    @property
    def crowded(self) -> bool:
        """Whether a call made now would have to wait for a thread."""
        return self._unfinished >= self._threads

    async def run(self, function: Callable[[], T]) -> T:
        """What `function` returns or raises, from a thread of the lane. Raises `Busy` where the queue is full.

        Cancelled while it waits, the call is never made; cancelled while it runs, its result is thrown away.
        """
        job: _Job[T] = _Job(function, asyncio.get_running_loop())
        with self._lock:
            if self._closed or self._unfinished >= self._capacity:
                raise Busy("the server is busy; try again shortly")
            self._unfinished += 1
            if self._started < self._threads and self._unfinished > self._started:
                threading.Thread(
                    target=self._work, name=f"ctx-{self.name}-{self._started}", daemon=True
                ).start()
                self._started += 1
        self._jobs.put(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            with self._lock:
                if job.state == "queued":
                    job.state = "dropped"
                    self._unfinished -= 1
            raise

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
                self._unfinished -= 1
            try:
                job.loop.call_soon_threadsafe(job.settle, result, failure)
            except RuntimeError:
                pass  # the loop has closed: nobody waits for this result
            del job, result, failure  # an idle thread must not keep the last reply alive

    def close(self) -> None:
        """Ends the idle threads; a running call is left to end by itself."""
        with self._lock:
            self._closed = True
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
        self.scripts = Lane("script", script_threads, waiting)
        self.probes = Lane("probe", 1, waiting)

    def lane(self, tool: Tool) -> Lane:
        """The lane that suits the tool: what only reads and is our own is quick."""
        return self.searches if tool.builtin and tool.annotations.read_only else self.scripts

    async def call(self, toolbox: Toolbox, tool: Tool, arguments: JSON, caller: Caller) -> JSON:
        """`toolbox.call` in the tool's lane. Raises what the call raises, and `Busy`."""
        return await self.lane(tool).run(lambda: toolbox.call(tool.name, arguments, caller))

    def close(self) -> None:
        for lane in (self.searches, self.scripts, self.probes):
            lane.close()
