"""Which MCP sessions are open, and which of them gives way to a new one.

A session costs memory and a task until its client ends it, and many never do. A new client always gets in:
what was never used goes first, then what has been idle longest. Whose session was ended is told 404, as the
protocol has it, and shakes hands anew.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import asynccontextmanager

logger = logging.getLogger(__name__)

MAX_SESSIONS = 1024
PEER_SESSIONS = 256  # of one key or address: a crowd of one's own must not end the sessions of others
UNUSED_S = 60.0  # for a client to go on after its `initialize`; those that mean it do at once


class Session:
    """One open session. `peer` is whose it is."""

    __slots__ = ("id", "in_flight", "peer", "requests", "used", "used_s")

    def __init__(self, id: str, peer: str, opened_s: float) -> None:
        self.id = id
        self.peer = peer
        self.used = False  # anything came after the `initialize`
        self.used_s = opened_s
        self.in_flight = 0
        self.requests: dict[str, asyncio.Event] = {}  # under way by id, with what their end sets

    @property
    def worth(self) -> tuple[bool, bool, float]:
        """The least gives way first."""
        return self.in_flight > 0, self.used, self.used_s


class Sessions:
    """The sessions of one server, on its event loop. `end(id)` ends one; `alive` holds the ids of those that
    have not ended.
    """

    def __init__(self, end: Callable[[str], Awaitable[None]], alive: Container[str]) -> None:
        self._end = end
        self._alive = alive
        self._sessions: dict[str, Session] = {}
        self._endings: set[asyncio.Task[None]] = set()

    async def make_room(self, peer: str) -> None:
        """Ends what must give way to one more session of `peer`."""
        self._sessions = {id: session for id, session in self._sessions.items() if id in self._alive}
        siblings = [session for session in self._sessions.values() if session.peer == peer]
        if len(siblings) >= PEER_SESSIONS:
            await self._drop(min(siblings, key=lambda session: session.worth), "too many of one client")
        elif len(self._sessions) >= MAX_SESSIONS:
            await self._drop(min(self._sessions.values(), key=lambda session: session.worth), "too many")

    def opened(self, id: str, peer: str) -> None:
        """Notes a session, which ends soon where its client does not go on."""
        loop = asyncio.get_running_loop()
        self._sessions[id] = Session(id, peer, loop.time())
        loop.call_later(UNUSED_S, self._drop_unused, id)

    @asynccontextmanager
    async def use(self, id: str | None, request: str | None = None) -> AsyncIterator[None]:
        """Around a request in a session. One whose id, `request`, is another's waits until that one has
        ended: the SDK keeps replies by id, and would answer one of the two.
        """
        session = self._sessions.get(id or "")
        if session is None:
            yield
            return
        session.used = True
        session.in_flight += 1
        try:
            async with _turn(session.requests, request):
                yield
        finally:
            session.in_flight -= 1
            session.used_s = asyncio.get_running_loop().time()

    def _drop_unused(self, id: str) -> None:
        session = self._sessions.get(id)
        if session is not None and not session.used:
            ending = asyncio.ensure_future(self._drop(session, "never used"))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)

    async def _drop(self, session: Session, reason: str) -> None:
        if self._sessions.pop(session.id, None) is None:
            return  # two reasons at once
        logger.info("mcp session ended reason=%r peer=%s", reason, session.peer)
        await self._end(session.id)


@asynccontextmanager
async def _turn(requests: dict[str, asyncio.Event], id: str | None) -> AsyncIterator[None]:
    if id is None:
        yield
        return
    while (earlier := requests.get(id)) is not None:
        await earlier.wait()
    requests[id] = ending = asyncio.Event()
    try:
        yield
    finally:
        del requests[id]
        ending.set()
