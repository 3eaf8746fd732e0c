"""Runs tool calls in threads, off the event loop.

Searches, calls that return whole documents, and scripts each have their own thread pool (a `Lane`), so that
slow calls do not delay a search. A fourth pool is for `/health` and similar requests. A pool has a fixed
number of threads and a bounded queue; when the queue is full, calls raise `Busy`. In the pool for scripts,
the calls of one tool, and those of one caller, can use only a share of the threads and the queue.
"""

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from ctx.errors import Busy
from ctx.lua.pool import Shares
from ctx.models import JSON, Caller
from ctx.tools.toolbox import Agent, Agents, Prompt, Tool, Toolbox

T = TypeVar("T")
Share = tuple[str, str]
"""(tool, caller). The calls of one tool, and those of one caller, may use only a part of a lane's threads."""

# Searches use the CPU all the time, so more threads than cores do not help.
SEARCH_THREADS = max(2, min(8, os.cpu_count() or 2))
SCRIPT_THREADS = 32  # each thread waits for a child process or an index run
DOCUMENT_THREADS = 2  # one thread reads a document while the other assembles a reply
QUEUE = 128  # calls that may wait in a lane; at 1 ms per search, the last one waits about a tenth of a second
NO_SHARE = ("", "")


class Lane:
    """A pool of `threads` threads with a queue of at most `waiting` calls.

    Its methods must be called on the event loop.
    """

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self.name = name
        self.unfinished = 0  # the number of calls that wait or run
        self._threads = threads
        self._capacity = threads + waiting
        self._started = 0
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._shares = Shares(threads)  # counts calls that are in the queue or run in a thread
        # Counts calls that wait because their tool or caller has used up its share.
        self._aside = Shares(waiting)
        self._freed = asyncio.Event()  # set when a call has ended and given back its share

    async def run(self, function: Callable[[], T], share: Share = NO_SHARE) -> T:
        """Calls `function` in a thread and returns its result. Raises `Busy` if the queue is full.

        If the caller is cancelled, a waiting call is not made, and the result of a running call is dropped.
        """
        if self.unfinished >= self._capacity:
            raise Busy("the server is busy; try again shortly")
        if not (self._shares.allow(*share) or self._aside.allow(*share)):
            raise Busy("too many calls of this tool or by this caller are already waiting; try again shortly")
        self.unfinished += 1
        try:
            await self._take_share(share)
        except BaseException:
            self.unfinished -= 1
            raise
        loop = asyncio.get_running_loop()
        future: Future[T] = Future()

        def ended(_: object) -> None:
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(self._end, share)

        future.add_done_callback(ended)
        if self._started < min(self._threads, self.unfinished):
            self._started += 1
            # A daemon thread, because a tool that never returns must not keep the server from stopping.
            name = f"ctx-{self.name}-{self._started}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._jobs.put((future, function))
        return await asyncio.wrap_future(future)

    async def _take_share(self, share: Share) -> None:
        """Counts a call of this tool and this caller. Waits until both may have one more call."""
        if not self._shares.allow(*share):
            self._aside.acquire(*share)
            try:
                while not self._shares.allow(*share):
                    self._freed.clear()
                    await self._freed.wait()
            finally:
                self._aside.release(*share)
        self._shares.acquire(*share)

    def _end(self, share: Share) -> None:
        self.unfinished -= 1
        self._shares.release(*share)
        self._freed.set()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except StopIteration:  # an asyncio future cannot raise this exception
                    future.set_exception(RuntimeError("a tool raised StopIteration"))
                except BaseException as error:
                    future.set_exception(error)
            del job, future, function  # an idle thread must not keep the last reply alive

    def close(self) -> None:
        """Ends the idle threads. Running calls are not interrupted."""
        for _ in range(self._started):
            self._jobs.put(None)


class Work:
    """The thread pools of one server."""

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

    async def call(self, toolbox: Toolbox, tool: Tool, arguments: JSON, caller: Caller) -> JSON:
        """Runs `toolbox.call` in a lane. Also raises `Busy`.

        Built-in tools that only read are fast, so they use `searches`; those that return whole documents use
        `documents`, and all others `scripts`.
        """
        lane = self.documents if tool.lengthy else self.searches
        if not (tool.builtin and tool.annotations.read_only):
            lane = self.scripts
        share = (tool.name, caller.share) if lane is self.scripts else NO_SHARE
        return await lane.run(lambda: toolbox.call(tool.name, arguments, caller), share)

    async def prompt(
        self, agents: Agents, agent: Agent | None, name: str, arguments: JSON, caller: Caller
    ) -> Prompt:
        """Runs `agents.prompt` in a lane. Also raises `Busy`.

        `agent` is None if no agent with this name is loaded; its script may be loaded by the call.
        """
        lane = self.searches if agent is not None and agent.source == "toml" else self.scripts
        share = (f"agent {name}", caller.share) if lane is self.scripts else NO_SHARE
        return await lane.run(lambda: agents.prompt(name, arguments, caller), share)

    def close(self) -> None:
        for lane in (self.searches, self.documents, self.scripts, self.probes):
            lane.close()
