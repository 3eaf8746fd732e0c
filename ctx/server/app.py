"""The server: REST, MCP and the page, behind the guard."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import NamedTuple, Protocol

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ctx import __version__
from ctx.server import errors, rest
from ctx.server.advice import Advice
from ctx.server.dispatch import dispatched
from ctx.server.guard import Guard
from ctx.server.keys import KeyRing
from ctx.server.metrics import Metrics
from ctx.server.overview import Overview
from ctx.server.policy import Policy, ServerSettings, check_bind
from ctx.server.work import Work
from ctx.server.zones import (
    FIXED_PATHS,
    MATCH,
    MCP,
    MCP_PATHS,
    METRICS_PATH,
    PACK_MCP_PATHS,
    TABLE,
    Entry,
    Match,
    Routes,
    wants_mcp,
)
from ctx.tools.agents import Agents
from ctx.tools.base import NAME, Call, Toolbox
from ctx.types import JSON

logger = logging.getLogger(__name__)

# Until what is dear to import is made although nobody came for it: the first answers go first, also those that load a model.
UNASKED_S = 1.5


class McpDoor(Protocol):
    """MCP over HTTP, as the server mounts it. One per server: it lives for one `lifespan`.

    `handle` answers POST and DELETE on every MCP path, and GET with a session; what the guard knows of the
    request is the `Access` in `scope["ctx.access"]`. `close` ends open streams, on the event loop, without
    waiting.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def lifespan(self) -> AbstractAsyncContextManager[None]: ...

    def close(self) -> None: ...


class State(NamedTuple):
    """What the fixed endpoints answer from (endpoints.py)."""

    toolbox: Toolbox
    agents: Agents
    work: Work
    health: Callable[[], dict[str, JSON]]
    advice: Advice
    key_needed: bool
    overview: Overview | None = None
    metrics: Metrics | None = None


class Services(NamedTuple):
    """What the server serves. `start` and `stop` run in a thread, before the first request and after the
    last.

    `ending` is called when the stop begins, while the last requests are still answered; it must not wait.
    `health` gives at least `{"status": "ok"}`. `mcp` makes the MCP door; its calls share the server's `Work`.
    """

    toolbox: Toolbox
    agents: Agents
    health: Callable[[], dict[str, JSON]] = lambda: {"status": "ok", "version": __version__}
    start: Callable[[], None] = lambda: None
    ending: Callable[[], None] = lambda: None
    stop: Callable[[], None] = lambda: None
    mcp: Callable[[Work], McpDoor] | None = None
    pack_routes: Iterable[rest.PackRoute] = ()
    keys: KeyRing | None = None
    work: Work | None = None  # None: one of the usual size
    advice: Advice = Advice()  # what models are told of it
    overview: Overview | None = None  # what the page shows beside the tools


def create_app(services: Services, settings: ServerSettings, *, page_folder: str | None = None) -> Guard:
    """The ASGI application. Raises `ConfigError` where the settings would leave it open to a network without
    a key.
    """
    check_bind(settings, services.keys)
    work = services.work or Work()
    mcp = services.mcp(work) if services.mcp else None
    policy = Policy(settings, ring=services.keys)
    services.toolbox.observe(_log_call)
    fixed = _Fixed(_state(services, work, policy), page_folder)
    app = dispatched(Starlette(lifespan=_lifespan(services, work, mcp, fixed)))
    entries = _entries(services, work, mcp, fixed, settings)
    app.router.routes[:] = [entry.route for entry in entries]

    def ending() -> None:
        services.ending()
        if mcp is not None:
            mcp.close()

    return Guard(app, policy, Routes(entries), ending=ending)


def _lifespan(
    services: Services, work: Work, mcp: McpDoor | None, fixed: "_Fixed"
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await asyncio.to_thread(services.start)
        making = asyncio.create_task(fixed.made_unasked())
        try:
            async with mcp.lifespan() if mcp else nullcontext():
                yield
        finally:
            making.cancel()
            await asyncio.to_thread(services.stop)
            work.close()

    return lifespan


def _state(services: Services, work: Work, policy: Policy) -> State:
    return State(
        toolbox=services.toolbox,
        agents=services.agents,
        work=work,
        health=services.health,
        advice=services.advice,
        key_needed=policy.closed,
        overview=services.overview,
        metrics=Metrics(services.toolbox, work, services.health) if policy.settings.metrics else None,
    )


def _entries(
    services: Services, work: Work, mcp: McpDoor | None, fixed: ASGIApp, settings: ServerSettings
) -> list[Entry]:
    """Every route in its zone. A pack's own come first: some stand below /mcp."""
    routes = [
        *(Route(path, fixed) for path in (*FIXED_PATHS, *([METRICS_PATH] if settings.metrics else ()))),
        *rest.tool_routes(services.toolbox, work),
        *rest.agent_routes(services.agents, work),
    ]
    entries = [*rest.pack_entries(services.pack_routes, work)]
    if mcp is not None:
        resource = _McpResource(mcp)
        entries.append(Entry(Route("/", resource), MCP, serves=wants_mcp))
        entries += [Entry(Route(path, resource), TABLE[path]) for path in (*MCP_PATHS, *PACK_MCP_PATHS)]
    return [*entries, *(Entry(route, TABLE[route.path]) for route in routes)]


class _Fixed:
    """The endpoints of FastAPI's, made when the first of them is asked for.

    FastAPI and pydantic are a quarter of a second of a start, and no search needs them.
    """

    def __init__(self, state: State, page_folder: str | None) -> None:
        self._state = state
        self._page_folder = page_folder
        self._made: tuple[ASGIApp, Mapping[str, Route]] | None = None
        self._making = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app, routes = self._made or await self._ready()
        match: Match = scope[MATCH]
        assert match.entry is not None, "no other request comes here"
        entry = match.entry._replace(route=routes[match.entry.route.path])
        await app({**scope, MATCH: match._replace(entry=entry)}, receive, send)

    async def made_unasked(self) -> None:
        """Makes them although nobody came, so that whoever asks whether the server lives need not wait."""
        await asyncio.sleep(UNASKED_S)
        await self._ready()

    async def _ready(self) -> tuple[ASGIApp, Mapping[str, Route]]:
        async with self._making:
            if self._made is None:
                self._made = await asyncio.to_thread(self._make)
        return self._made

    def _make(self) -> tuple[ASGIApp, Mapping[str, Route]]:
        from ctx.server.endpoints import application

        return application(self._state, self._page_folder)


class _McpResource:
    """An MCP path: everything to the door, but a GET without a session.

    To that 405 is the one answer which clients read as "no stream here"; at 400 or 404 they take the server
    for broken.
    """

    def __init__(self, mcp: McpDoor) -> None:
        self._mcp = mcp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        in_session = any(name == b"mcp-session-id" for name, _ in scope["headers"])
        if method not in ("POST", "DELETE") and not (method == "GET" and in_session):
            raise errors.method_not_allowed(scope["path"], method, ("POST", "DELETE"))
        await self._mcp.handle(scope, receive, send)


def _log_call(call: Call) -> None:
    logger.info(
        "call tool=%s door=%s ms=%.1f outcome=%s id=%s",
        call.tool if NAME.fullmatch(call.tool) else "?",
        call.caller.door,
        call.duration_s * 1000,
        call.outcome,
        call.caller.request_id,
    )
