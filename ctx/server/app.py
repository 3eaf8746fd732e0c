"""The ASGI application: REST, MCP and the web page, behind the middlewares (middleware.py)."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ctx.errors import CtxError, NotFound
from ctx.indexing.status import FIRST_ANSWERS_S
from ctx.server import endpoints, errors, rest
from ctx.server.metrics import Metrics
from ctx.server.middleware import (
    BodySizeMiddleware,
    CallerMiddleware,
    OriginMiddleware,
    RequestMiddleware,
    RouteMiddleware,
)
from ctx.server.policy import ACCESS, Access, Policy, ServerSettings, check_bind
from ctx.server.services import Endpoint, Services
from ctx.server.work import Work
from ctx.server.zones import MATCH, MCP, MCP_PATHS, TABLE, Entry, Match, Routes, wants_mcp
from ctx.tools.toolbox import NAME, Call, Window

logger = logging.getLogger(__name__)

CLIENT_GONE = 499  # as nginx logs it


def create_app(
    services: Services, settings: ServerSettings, *, page_folder: str | None = None
) -> RequestMiddleware:
    """Build the ASGI application.

    `page_folder` is a folder of files to serve in place of the built-in page. Raises `ConfigError` if the
    settings would open the server to a network without a key.
    """
    check_bind(settings, services.keys)
    work = services.work or Work()
    mcp = services.mcp(work) if services.mcp else None
    policy = Policy(settings, ring=services.keys)
    services.toolbox.observe(_log_call)
    metrics = Metrics(services.toolbox, work, services.health) if settings.metrics else None
    app = FastAPI(openapi_url=None, redirect_slashes=False, lifespan=_lifespan(services, work, mcp))
    for kind in (CtxError, ClientDisconnect, Exception):
        app.add_exception_handler(kind, _failure)
    app.state.services = services
    app.state.work = work
    app.state.metrics = metrics
    app.state.key_needed = policy.closed
    app.state.page = endpoints.read_page(page_folder or endpoints.PAGE)
    app.router.routes.clear()  # RouteMiddleware finds the route, see `_run_route`
    app.router.default = _run_route
    window = services.window or Window(settings.rate_limit_per_minute)
    routes = Routes(_entries(services, work, mcp, metrics=settings.metrics))
    inner: ASGIApp = BodySizeMiddleware(app, max_bytes=settings.max_body_bytes)
    inner = OriginMiddleware(CallerMiddleware(inner, policy, window), policy)
    inner = RouteMiddleware(inner, routes, bind=settings.bind, allowed_hosts=settings.allowed_hosts)
    return RequestMiddleware(inner, policy, lifespan=app)


def _lifespan(
    services: Services, work: Work, mcp: Endpoint | None
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(services.start)
        # Objects loaded so far live as long as the server. Frozen, they are not scanned by the garbage
        # collector, which would delay a search by 30 ms now and then.
        gc.freeze()
        gc.enable()
        try:
            async with AsyncExitStack() as stack:
                if mcp is not None:
                    await stack.enter_async_context(mcp.lifespan())
                beginning = asyncio.create_task(begin_behind_answers(services, work))
                yield
                beginning.cancel()
        finally:
            await asyncio.to_thread(services.stop)
            work.close()

    return lifespan


async def begin_behind_answers(services: Services, work: Work) -> None:
    """Calls `services.begin` after a short delay, as soon as no search is waiting or running."""
    await asyncio.sleep(FIRST_ANSWERS_S)
    while work.searches.unfinished:  # noqa: ASYNC110 - a queue has no signal for being empty
        await asyncio.sleep(FIRST_ANSWERS_S / 10)
    services.begin()


def _entries(services: Services, work: Work, mcp: Endpoint | None, *, metrics: bool) -> list[Entry]:
    """All routes with their zones. The routes of packs come first, since some are below /mcp."""
    entries = [*rest.pack_entries(services.pack_routes, work)]
    if mcp is not None:
        resource = _McpResource(mcp)
        entries.append(Entry(Route("/", resource), MCP, serves=wants_mcp))
        entries += [Entry(Route(path, resource), TABLE[path]) for path in MCP_PATHS]
    routes = [
        *(route for route in endpoints.routes() if metrics or route.path != "/metrics"),
        *rest.tool_routes(services.toolbox, work),
        *rest.agent_routes(services.agents, work),
    ]
    return [*entries, *(Entry(route, TABLE[route.path]) for route in routes)]


async def _run_route(scope: Scope, receive: Receive, send: Send) -> None:
    """Runs the route that RouteMiddleware found. Raises `NotFound` if it found none."""
    match: Match = scope[MATCH]
    if match.entry is None:
        raise NotFound(f"no route for {scope['path'][:80]}; see /openapi.json")
    route = match.entry.route
    scope.update(path_params=dict(match.parameters), endpoint=route.endpoint, route=route)
    await route.handle(scope, receive, send)


class _McpResource:
    """The ASGI application of an MCP path. Only POST is allowed.

    The error for other methods is 405, which clients read as "no stream here". They read 400 and 404 as
    "broken".
    """

    def __init__(self, mcp: Endpoint) -> None:
        self._mcp = mcp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            raise errors.method_not_allowed(scope["path"], scope["method"], ("POST",))
        await self._mcp.handle(scope, receive, send)


def _log_call(call: Call) -> None:
    logger.debug(
        "call tool=%s door=%s ms=%.1f outcome=%s id=%s",
        call.tool if NAME.fullmatch(call.tool) else "?",
        call.caller.door,
        call.duration_s * 1000,
        call.outcome,
        call.caller.request_id,
    )


async def _failure(request: HTTPConnection, error: Exception) -> Response:
    """The reply to a request that failed. RequestMiddleware logs an unexpected error."""
    access: Access = request.scope[ACCESS]
    if isinstance(error, ClientDisconnect):
        return Response(status_code=CLIENT_GONE)  # only the log shows this status: the client has gone
    if not isinstance(error, CtxError):
        error = errors.internal(access.request_id)
    elif errors.row(error).status >= 500:
        errors.log_failure(error, access.request_id)
    return errors.error_reply(error, access.error_body)
