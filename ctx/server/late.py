"""An MCP door that is made once the server listens.

The MCP SDK costs half a second to import. A search over REST need not wait for it, and who comes to `/mcp` meanwhile waits that long.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.types import Receive, Scope, Send

from ctx.server.app import McpDoor

UNASKED_S = 1.5  # until it is made although nobody came: the first answers go first, also those that load a model


class LateDoor:
    """Stands for the door that `make` gives. `make` runs in a thread; what it raises, every request is told."""

    def __init__(self, make: Callable[[], McpDoor]) -> None:
        self._make = make
        self._door: McpDoor | None = None
        self._made: asyncio.Future[McpDoor] | None = None
        self._asked = asyncio.Event()
        self._ending = asyncio.Event()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        self._made = asyncio.get_running_loop().create_future()
        living = asyncio.create_task(self._live(self._made))
        try:
            yield
        finally:
            self._ending.set()
            if self._door is None:
                living.cancel()  # an import cannot be interrupted, but need not be waited for
            await asyncio.wait([living])
            if not self._made.done():
                self._made.cancel()

    async def _live(self, made: "asyncio.Future[McpDoor]") -> None:
        try:
            await asyncio.wait_for(self._asked.wait(), UNASKED_S)
        except TimeoutError:
            pass  # nobody came yet
        try:
            door = await _in_thread(self._make)
        except Exception as error:  # it is the requests' to report: they go through the server's top handler
            made.set_exception(error)
            made.exception()  # seen, though perhaps by no request
            return
        async with door.lifespan():
            self._door = door
            made.set_result(door)
            await self._ending.wait()

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


def _in_thread(make: Callable[[], McpDoor]) -> "asyncio.Future[McpDoor]":
    """What `make` gives, made in a thread that the end of the process does not wait for, as it would for asyncio's own."""
    loop = asyncio.get_running_loop()
    made: asyncio.Future[McpDoor] = loop.create_future()

    def tell(door: McpDoor | None, error: Exception | None) -> None:
        if made.cancelled():
            return
        if door is None:
            made.set_exception(error or RuntimeError("no door was made"))
        else:
            made.set_result(door)

    def work() -> None:
        door, failure = None, None
        try:
            door = make()
        except Exception as error:
            failure = error
        try:
            loop.call_soon_threadsafe(tell, door, failure)
        except RuntimeError:
            pass  # the server has stopped meanwhile

    threading.Thread(target=work, name="ctx-mcp", daemon=True).start()
    return made
