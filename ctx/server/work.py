"""Tool calls in threads, off the event loop.

Searches, whole documents and scripts have a lane each, so that slow calls never delay a search; one more lane
is for `/health`. A lane has a number of threads and a bounded queue; further calls are `Busy`. In the lane of
scripts, one tool and one caller can take only a share of both.
"""

import asyncio
import os
import queue
import threading
from collections import deque
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
"""A tool and a caller, whose calls are counted together."""

# Searches are arithmetic: more threads than cores only take turns.
SEARCH_THREADS = max(2, min(8, os.cpu_count() or 2))
SCRIPT_THREADS = 32  # each waits for a child process or an index run
DOCUMENT_THREADS = 2  # one reads while the other assembles
QUEUE = 128  # at 1 ms a search the last one waits a tenth of a second
NO_SHARE = ("", "")


class Lane:
    """`threads` threads and a queue of at most `waiting` calls. Its methods are called on the event loop."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self.name = name
        self.unfinished = 0  # calls that wait or run
        self._threads = threads
        self._capacity = threads + waiting
        self._started = 0
        self._closed = False
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._shares = Shares(threads)  # of calls in the queue or a thread
        self._aside: deque[tuple[Share, asyncio.Future[None]]] = deque()  # calls whose share is used up
        self._aside_shares = Shares(waiting)

    @property
    def crowded(self) -> bool:
        """Whether a call made now might have to wait for a thread."""
        return self.unfinished >= self._threads or bool(self._aside)

    async def run(self, function: Callable[[], T], share: Share = NO_SHARE) -> T:
        """What `function` returns or raises in a thread. Raises `Busy` if the queue is full.

        If cancelled while it waits, the call is never made; while it runs, its result is thrown away.
        """
        if self._closed or self.unfinished >= self._capacity:
            raise Busy("the server is busy; try again shortly")
        if not (self._shares.allow(*share) or self._aside_shares.allow(*share)):
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
            # A daemon: a tool that never returns must not keep a stopping server alive.
            name = f"ctx-{self.name}-{self._started}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._jobs.put((future, function))
        return await asyncio.wrap_future(future)

    async def _take_share(self, share: Share) -> None:
        """Takes a share, once there is one."""
        if self._shares.allow(*share):
            self._shares.acquire(*share)
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (share, granted)
        self._aside.append(entry)
        self._aside_shares.acquire(*share)
        try:
            await granted
        except asyncio.CancelledError:
            if entry in self._aside:
                self._aside.remove(entry)
            else:
                self._give_back(share)
            raise
        finally:
            self._aside_shares.release(*share)

    def _give_back(self, share: Share) -> None:
        """Gives a share to the first call that waits for it."""
        self._shares.release(*share)
        for entry in self._aside:
            waiting, granted = entry
            if self._shares.allow(*waiting):
                self._shares.acquire(*waiting)
                self._aside.remove(entry)
                granted.set_result(None)
                return

    def _end(self, share: Share) -> None:
        self.unfinished -= 1
        self._give_back(share)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except StopIteration:  # asyncio cannot pass it on
                    future.set_exception(RuntimeError("a tool raised StopIteration"))
                except BaseException as error:
                    future.set_exception(error)
            del job, future, function  # an idle thread must not keep the last reply alive

    def close(self) -> None:
        """Ends the idle threads. Running calls are not interrupted."""
        self._closed = True
        while self._aside:
            self._aside.popleft()[1].set_exception(Busy("the server is stopping"))
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
        """The lane for a tool. Built-in tools that only read are quick, except for whole documents."""
        if not (tool.builtin and tool.annotations.read_only):
            return self.scripts
        return self.documents if tool.lengthy else self.searches

    def agent_lane(self, agent: Agent | None) -> Lane:
        """The lane for an agent; None: its script may have yet to load."""
        return self.searches if agent is not None and agent.source == "toml" else self.scripts

    async def call(self, toolbox: Toolbox, tool: Tool, arguments: JSON, caller: Caller) -> JSON:
        """`toolbox.call` in the tool's lane. Also raises `Busy`."""
        lane = self.lane(tool)
        share = (tool.name, caller.share) if lane is self.scripts else NO_SHARE
        return await lane.run(lambda: toolbox.call(tool.name, arguments, caller), share)

    async def prompt(
        self, agents: Agents, agent: Agent | None, name: str, arguments: JSON, caller: Caller
    ) -> Prompt:
        """`agents.prompt` in the agent's lane. Also raises `Busy`."""
        lane = self.agent_lane(agent)
        share = (f"agent {name}", caller.share) if lane is self.scripts else NO_SHARE
        return await lane.run(lambda: agents.prompt(name, arguments, caller), share)

    def close(self) -> None:
        for lane in (self.searches, self.documents, self.scripts, self.probes):
            lane.close()
