"""The server: REST, MCP and the page, behind the guard."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import NamedTuple, Protocol

from fastapi import FastAPI
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ctx import __version__
from ctx.errors import CtxError, NotFound
from ctx.server import errors, rest
from ctx.server.advice import Advice
from ctx.server.endpoints import PAGE, State, metrics_router, read_page, router
from ctx.server.guard import Guard
from ctx.server.keys import Keys
from ctx.server.metrics import Metrics
from ctx.server.openapi import Description
from ctx.server.overview import Overview
from ctx.server.policy import ACCESS, Access, Policy, ServerSettings, check_bind
from ctx.server.work import Work
from ctx.server.zones import (
    MATCH,
    MCP,
    MCP_PATHS,
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


class McpDoor(Protocol):
    """MCP over HTTP, as the server mounts it. One per server: it lives for one `lifespan`.

    `handle` answers POST and DELETE on every MCP path, and GET with a session; what the guard knows of the
    request is the `Access` in `scope["ctx.access"]`. `close` ends open streams, on the event loop, without
    waiting.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def lifespan(self) -> AbstractAsyncContextManager[None]: ...

    def close(self) -> None: ...


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
    keys: Keys | None = None
    work: Work | None = None  # None: one of the usual size
    advice: Advice = Advice()  # what models are told of it
    overview: Overview | None = None  # what the page shows beside the tools


def create_app(services: Services, settings: ServerSettings, *, page_folder: str = PAGE) -> Guard:
    """The ASGI application. Raises `ConfigError` where the settings would leave it open to a network without
    a key.
    """
    check_bind(settings, services.keys)
    work = services.work or Work()
    mcp = services.mcp(work) if services.mcp else None
    policy = Policy(settings, ring=services.keys)
    services.toolbox.observe(_log_call)
    app = FastAPI(
        title="ctx",
        version=__version__,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=_lifespan(services, work, mcp),
    )
    app.state.ctx = _state(services, work, policy, page_folder)
    entries = _entries(services, work, mcp, metrics=settings.metrics)
    app.router.routes[:] = [entry.route for entry in entries]
    app.router.middleware_stack = _Dispatch(app.router.middleware_stack)
    app.add_exception_handler(CtxError, _on_error)
    app.add_exception_handler(Exception, _on_surprise)

    def ending() -> None:
        services.ending()
        if mcp is not None:
            mcp.close()

    return Guard(app, policy, Routes(entries), ending=ending)


def _lifespan(
    services: Services, work: Work, mcp: McpDoor | None
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(services.start)
        try:
            async with mcp.lifespan() if mcp else nullcontext():
                yield
        finally:
            await asyncio.to_thread(services.stop)
            work.close()

    return lifespan


def _state(services: Services, work: Work, policy: Policy, page_folder: str) -> State:
    toolbox, agents, advice = services.toolbox, services.agents, services.advice
    return State(
        toolbox=toolbox,
        agents=agents,
        work=work,
        health=services.health,
        advice=advice,
        description=Description(toolbox, agents, advice, router.routes, key_needed=policy.closed),
        page=read_page(page_folder),
        overview=services.overview,
        metrics=Metrics(toolbox, work, services.health) if policy.settings.metrics else None,
    )


def _entries(services: Services, work: Work, mcp: McpDoor | None, *, metrics: bool) -> list[Entry]:
    """Every route in its zone. A pack's own come first: some stand below /mcp."""
    routes = [
        *(
            route
            for route in (*router.routes, *(metrics_router.routes if metrics else ()))
            if isinstance(route, Route)
        ),
        *rest.tool_routes(services.toolbox, work),
        *rest.agent_routes(services.agents, work),
    ]
    entries = [*rest.pack_entries(services.pack_routes, work)]
    if mcp is not None:
        resource = _McpResource(mcp)
        entries.append(Entry(Route("/", resource), MCP, serves=wants_mcp))
        entries += [Entry(Route(path, resource), TABLE[path]) for path in (*MCP_PATHS, *PACK_MCP_PATHS)]
    return [*entries, *(Entry(route, TABLE[route.path]) for route in routes)]


class _Dispatch:
    """Runs the route that the guard has matched, in the place of the router's own search."""

    def __init__(self, router: ASGIApp) -> None:
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._router(scope, receive, send)
            return
        match: Match = scope[MATCH]
        if match.entry is None:
            raise NotFound(f"no route for {scope['path'][:80]}; see /openapi.json")
        route = match.entry.route
        scope.update(path_params=dict(match.parameters), endpoint=route.endpoint, route=route)
        await route.handle(scope, receive, send)


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


async def _on_error(request: HTTPConnection, error: Exception) -> Response:
    if not isinstance(error, CtxError):  # pragma: no cover - it is registered for ours alone
        raise error
    access: Access = request.scope[ACCESS]
    row = errors.row(error)
    if row.status >= 500:
        # The cause is the operator's to see; without one there is nothing to see but the word.
        cause = error if error.__cause__ else None
        logger.warning("error id=%s code=%s", access.request_id, error.word, exc_info=cause)
    response = rest.reply(access.error_body(error), row.status)
    response.headers.update(errors.headers(error))
    return response


async def _on_surprise(request: HTTPConnection, error: Exception) -> Response:
    # The guard, to which the error goes on, logs it.
    return rest.reply(errors.body(errors.internal(request.scope[ACCESS].request_id)), 500)
