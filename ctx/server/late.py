"""Doors that are made once the server listens.

The MCP SDK costs half a second to import, FastAPI with pydantic a third of one. A search over REST need not
wait for them, and who comes to such a door meanwhile waits that long.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from starlette.types import Receive, Scope, Send

from ctx.server.work import Lane

# Until it is made although nobody came: the first answers go first, also those that load a model.
UNASKED_S = 1.5


class Door(Protocol):
    """A part of the server that answers by itself: MCP over HTTP, the fixed endpoints. It lives for one
    `lifespan`.

    MCP's `handle` answers POST and DELETE on every MCP path, and GET with a session; what the guard knows of
    the request is the `Access` in `scope["ctx.access"]`. `close` ends open streams, on the event loop,
    without waiting.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def lifespan(self) -> AbstractAsyncContextManager[None]: ...

    def close(self) -> None: ...


class LateDoor:
    """Stands for the door that `make` gives, in a thread; what that raises, every request is told."""

    def __init__(self, name: str, make: Callable[[], Door]) -> None:
        self._name = name
        self._make = make
        self._door: Door | None = None
        self._made: asyncio.Future[Door] | None = None
        self._asked = asyncio.Event()
        self._ending = asyncio.Event()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        self._made = asyncio.get_running_loop().create_future()
        life = asyncio.create_task(self._live(self._made))
        try:
            yield
        finally:
            self._ending.set()
            if self._door is None:
                life.cancel()  # an import cannot be interrupted, but need not be waited for
            await asyncio.wait([life])
            if not self._made.done():
                self._made.cancel()

    async def _live(self, made: "asyncio.Future[Door]") -> None:
        try:
            await asyncio.wait_for(self._asked.wait(), UNASKED_S)
        except TimeoutError:
            pass  # nobody came yet
        try:
            door = await self._build()
            async with door.lifespan():
                self._door = door
                made.set_result(door)
                await self._ending.wait()
        except Exception as error:
            if made.done():
                raise
            made.set_exception(error)  # the requests' to report: they go through the server's top handler
            made.exception()  # seen, though perhaps by no request

    async def _build(self) -> Door:
        # Not asyncio's own thread: for that the end of the process would wait.
        lane = Lane(self._name, threads=1, waiting=0)
        try:
            return await lane.run(self._make)
        finally:
            lane.close()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        door = self._door
        if door is None:
            self._asked.set()
            assert self._made is not None, "the server is not running"
            door = await asyncio.shield(self._made)
        await door.handle(scope, receive, send)

    def close(self) -> None:
        if self._door is not None:
            self._door.close()
