"""The server: REST, MCP and the page, behind the guard."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import NamedTuple, Protocol

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ctx import __version__
from ctx.errors import CtxError, NotFound
from ctx.indexing.status import FIRST_ANSWERS_S
from ctx.server import errors, rest
from ctx.server.advice import Advice
from ctx.server.guard import Guard
from ctx.server.keys import Keys
from ctx.server.metrics import Metrics
from ctx.server.overview import Overview
from ctx.server.policy import ACCESS, Access, Policy, ServerSettings, check_bind
from ctx.server.work import Work
from ctx.server.zones import (
    FIXED,
    MATCH,
    MCP,
    MCP_PATHS,
    METRICS,
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

Handler = Callable[[HTTPConnection, Exception], Awaitable[Response]]
CLIENT_GONE = 499  # as nginx logs it


class Endpoint(Protocol):
    """A part of the server that answers its own paths: MCP, or the fixed endpoints. It lives for one
    `lifespan`. What the guard knows of a request is the `Access` in `scope["ctx.access"]`.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def lifespan(self) -> AbstractAsyncContextManager[None]: ...


class Services(NamedTuple):
    """What the server serves. `start` and `stop` run in a thread, before the first request and after the
    last.

    `begin` is called behind the first answers, on the event loop: what grows with the sources waits for it.
    `ending` is called when the stop begins, while the last requests are still answered; it must not wait.
    `health` gives at least `{"status": "ok"}`. `mcp` makes the MCP endpoint, whose calls share the server's
    `Work`.
    """

    toolbox: Toolbox
    agents: Agents
    health: Callable[[], dict[str, JSON]] = lambda: {"status": "ok", "version": __version__}
    start: Callable[[], None] = lambda: None
    begin: Callable[[], None] = lambda: None
    ending: Callable[[], None] = lambda: None
    stop: Callable[[], None] = lambda: None
    mcp: Callable[[Work], Endpoint] | None = None
    pack_routes: Iterable[rest.PackRoute] = ()
    keys: Keys | None = None
    work: Work | None = None  # None: one of the usual size
    advice: Advice = Advice()  # what models are told of it
    overview: Overview | None = None  # what the page shows beside the tools


def create_app(services: Services, settings: ServerSettings, *, page_folder: str | None = None) -> Guard:
    """The ASGI application; `page_folder` instead of the page's own. Raises `ConfigError` where the settings
    would leave it open to a network without a key.
    """
    check_bind(settings, services.keys)
    work = services.work or Work()
    mcp = services.mcp(work) if services.mcp else None
    policy = Policy(settings, ring=services.keys)
    services.toolbox.observe(_log_call)
    metrics = Metrics(services.toolbox, work, services.health) if settings.metrics else None
    handlers: dict[type[Exception], Handler] = {
        CtxError: partial(_on_error, errors.Failures()),
        ClientDisconnect: _on_leaving,
        Exception: _on_surprise,
    }

    from ctx.server.endpoints import Endpoints, State  # FastAPI with pydantic: 0.35 s

    toolbox, agents, advice = services.toolbox, services.agents, services.advice
    state = State(toolbox, agents, work, services.health, advice, services.overview, metrics)
    endpoints = Endpoints(state, handlers, key_needed=policy.closed, page_folder=page_folder)
    entries = _entries(services, work, mcp, endpoints, metrics=settings.metrics)
    app = Starlette(
        routes=[entry.route for entry in entries],
        exception_handlers=handlers,
        lifespan=_lifespan(services, work, [mcp] if mcp is not None else []),
    )
    app.router.middleware_stack = _Dispatch(app.router.middleware_stack)

    return Guard(app, policy, Routes(entries), ending=services.ending)


def _lifespan(
    services: Services, work: Work, parts: Iterable[Endpoint]
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await asyncio.to_thread(services.start)
        try:
            async with AsyncExitStack() as stack:
                for part in parts:
                    await stack.enter_async_context(part.lifespan())
                beginning = asyncio.create_task(begin_behind_answers(services, work))
                yield
                beginning.cancel()
        finally:
            await asyncio.to_thread(services.stop)
            work.close()

    return lifespan


async def begin_behind_answers(services: Services, work: Work) -> None:
    """Lets the rest begin once who waited for the server has their answers."""
    await asyncio.sleep(FIRST_ANSWERS_S)
    while work.searches.unfinished:  # noqa: ASYNC110 - a lane tells nobody when it is empty
        await asyncio.sleep(FIRST_ANSWERS_S / 10)
    services.begin()


def _entries(
    services: Services, work: Work, mcp: Endpoint | None, endpoints: Endpoint, *, metrics: bool
) -> list[Entry]:
    """Every route in its zone. A pack's own come first: some stand below /mcp."""
    entries = [*rest.pack_entries(services.pack_routes, work)]
    if mcp is not None:
        resource = _McpResource(mcp)
        entries.append(Entry(Route("/", resource), MCP, serves=wants_mcp))
        entries += [Entry(Route(path, resource), TABLE[path]) for path in (*MCP_PATHS, *PACK_MCP_PATHS)]
    fixed = _Resource(endpoints)
    routes = [
        *(Route(path, fixed) for path in FIXED if metrics or TABLE[path] is not METRICS),
        *rest.tool_routes(services.toolbox, work),
        *rest.agent_routes(services.agents, work),
    ]
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


class _Resource:
    """A path that an endpoint answers, whatever the method."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._endpoint.handle(scope, receive, send)


class _McpResource(_Resource):
    """An MCP path. It answers POST only: clients read 405 as "no stream here", 400 or 404 as "broken"."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            raise errors.method_not_allowed(scope["path"], scope["method"], ("POST",))
        await super().__call__(scope, receive, send)


def _log_call(call: Call) -> None:
    logger.log(
        # A script that calls in a loop writes thousands of lines a second; its own call has one.
        logging.DEBUG if call.caller.door == "script" else logging.INFO,
        "call tool=%s door=%s ms=%.1f outcome=%s id=%s",
        call.tool if NAME.fullmatch(call.tool) else "?",
        call.caller.door,
        call.duration_s * 1000,
        call.outcome,
        call.caller.request_id,
    )


async def _on_error(failures: errors.Failures, request: HTTPConnection, error: Exception) -> Response:
    assert isinstance(error, CtxError), "it is registered for ours alone"
    access: Access = request.scope[ACCESS]
    row = errors.row(error)
    if row.status >= 500:
        failures.note(error, access.request_id)
    response = rest.reply(access.error_body(error), row.status)
    response.headers.update(errors.headers(error))
    return response


async def _on_leaving(request: HTTPConnection, error: Exception) -> Response:
    # To nobody: it is what the log says, where 500 would raise an alarm.
    return Response(status_code=CLIENT_GONE)


async def _on_surprise(request: HTTPConnection, error: Exception) -> Response:
    # The guard, to which the error goes on, logs it.
    access: Access = request.scope[ACCESS]
    return rest.reply(access.error_body(errors.internal(access.request_id)), 500)
