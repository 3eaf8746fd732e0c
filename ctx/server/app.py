"""Builds the server of a workspace: its parts, and the ASGI application behind the middlewares
(middleware.py)."""

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import NamedTuple

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ctx import __version__
from ctx.background import Background
from ctx.errors import ConfigError, CtxError, NotFound
from ctx.indexing.status import FIRST_ANSWERS_AT_MOST_S, FIRST_ANSWERS_S
from ctx.models import JSON
from ctx.server import errors, rest
from ctx.server.keys import Keys, key_ring
from ctx.server.mcp import mcp_server
from ctx.server.mcp_http import McpEndpoint, http_auth
from ctx.server.middleware import (
    MATCH,
    BodySizeMiddleware,
    CallerMiddleware,
    Entry,
    Headers,
    Match,
    OriginMiddleware,
    RequestMiddleware,
    RouteMiddleware,
)
from ctx.server.overview import Metrics, Overview, health
from ctx.server.policy import ACCESS, MCP, Access, PackPolicy, Policy, ServerSettings, check_bind
from ctx.server.rest import PackRoute
from ctx.server.work import Work
from ctx.tools.toolbox import NAME, Agents, Call, Toolbox, Window
from ctx.workspace import Workspace

logger = logging.getLogger(__name__)

CLIENT_GONE = 499  # as nginx logs it
# With and without the final slash: with a redirect instead, clients would lose the body of a POST.
MCP_PATHS = (
    *("/mcp", "/mcp/", "/mcp/{bank}", "/mcp/{bank}/"),
    *("/packs/{pack}/mcp", "/packs/{pack}/mcp/"),
)


class Services(NamedTuple):
    """The parts of a server. `start` and `stop` run in a thread, before the first request and after the last.

    `begin` is called on the event loop after the first requests were answered; it starts work that takes
    longer with more sources. `health` returns at least `{"status": "ok"}`. `mcp` creates the MCP endpoint,
    whose calls share the server's `Work`.
    """

    toolbox: Toolbox
    agents: Agents
    health: Callable[[], dict[str, JSON]] = lambda: {"status": "ok", "version": __version__}
    start: Callable[[], None] = lambda: None
    begin: Callable[[], None] = lambda: None
    stop: Callable[[], None] = lambda: None
    mcp: Callable[[Work], McpEndpoint] | None = None
    pack_routes: Iterable[PackRoute] = ()
    keys: Keys | None = None
    work: Work | None = None  # None: a `Work` of the default size
    window: Window | None = None  # counts calls; None: in memory, by [server] rate_limit_per_minute
    semantic: bool = True  # documents have embeddings, so semantic and hybrid search work
    overview: Overview | None = None  # data for the web page


def services(workspace: Workspace) -> Services:
    """The `Services` of a workspace."""
    config = workspace.config
    mcp = config.mcp.enabled and all(pack.mcp_enabled for pack in workspace.packs)
    background = Background(workspace)
    keys = key_ring(config)
    keys.follow()

    def stop() -> None:
        keys.close()
        workspace.close()

    return Services(
        toolbox=workspace.toolbox,
        agents=workspace.agents,
        health=partial(health, workspace),
        start=partial(background.start, patience_s=FIRST_ANSWERS_AT_MOST_S),
        begin=background.begin,
        stop=stop,
        keys=keys,
        semantic=config.embedding.provider != "disabled",
        overview=Overview(workspace),
        pack_routes=[
            PackRoute(
                route.method,
                route.path,
                pack.name,
                pack.route_answer(route, workspace.toolbox),
                keyed=pack.dialect.key_required,
                error_body=pack.envelope if pack.dialect.enveloped else None,
            )
            for pack in workspace.packs
            for route in pack.dialect.routes
        ],
        mcp=mcp_endpoint(workspace) if mcp else None,
        window=Window(config.server.rate_limit_per_minute, workspace.rates, "server"),
    )


def mcp_endpoint(workspace: Workspace) -> Callable[[Work], McpEndpoint]:
    """Returns a function that creates the MCP endpoint of a workspace."""
    return lambda work: McpEndpoint(mcp_server(workspace, work, http_auth))


def server_settings(
    workspace: Workspace, *, insecure_no_auth: bool = False, owner_key: str = ""
) -> ServerSettings:
    """The settings of the server. Raises `ConfigError` if the variable of `api_key_env` is not set."""
    server = workspace.config.server
    key = os.environ.get(server.api_key_env) if server.api_key_env else None
    if server.api_key_env and not key:
        raise ConfigError(
            f"[server] api_key_env: the environment variable {server.api_key_env} is not set; export it "
            "or delete the line"
        )
    return ServerSettings(
        **vars(server),
        api_keys=(key,) if key else (),
        insecure_no_auth=insecure_no_auth,
        owner_key=owner_key,
        packs=tuple(
            PackPolicy(pack.name, pack.keys, pack.dialect.key_required, pack.dialect.at_banks)
            for pack in workspace.packs
        ),
    )


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
    app.state.page = rest.read_page(page_folder or rest.PAGE_FOLDER)
    app.router.routes.clear()  # RouteMiddleware finds the route, see `_run_route`
    app.router.default = _run_route
    window = services.window or Window(settings.rate_limit_per_minute)
    # The routes of packs come first, since some are below /mcp.
    entries = [
        *rest.pack_entries(services.pack_routes, work),
        *_mcp_entries(mcp),
        *rest.entries(metrics=settings.metrics),
    ]
    inner: ASGIApp = BodySizeMiddleware(app, max_bytes=settings.max_body_bytes)
    inner = OriginMiddleware(CallerMiddleware(inner, policy, window), policy)
    inner = RouteMiddleware(inner, entries, bind=settings.bind, allowed_hosts=settings.allowed_hosts)
    return RequestMiddleware(inner, policy, lifespan=app)


def _lifespan(
    services: Services, work: Work, mcp: McpEndpoint | None
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


def _mcp_entries(mcp: McpEndpoint | None) -> list[Entry]:
    if mcp is None:
        return []
    resource = _McpResource(mcp)
    root = Entry(Route("/", resource), MCP, serves=_wants_mcp)
    return [root, *(Entry(Route(path, resource), MCP) for path in MCP_PATHS)]


def _wants_mcp(method: str, headers: Headers) -> bool:
    """Whether a request for `/` is for MCP and not for the page or the descriptor."""
    if method in ("POST", "DELETE"):
        return True
    accept = headers.get("accept", "")
    return method == "GET" and "text/event-stream" in accept and "text/html" not in accept


async def _run_route(scope: Scope, receive: Receive, send: Send) -> None:
    """Runs the route that RouteMiddleware found. Raises `NotFound` if it found none."""
    match: Match = scope[MATCH]
    route = match.route
    if route is None:
        raise NotFound(f"no route for {scope['path'][:80]}; see /openapi.json")
    scope.update(path_params=dict(match.parameters), endpoint=route.endpoint, route=route)
    await route.handle(scope, receive, send)


class _McpResource:
    """The ASGI application of an MCP path. Only POST is allowed.

    The error for other methods is 405, which clients read as "no stream here". They read 400 and 404 as
    "broken".
    """

    def __init__(self, mcp: McpEndpoint) -> None:
        self._mcp = mcp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            raise errors.method_not_allowed(scope["path"], scope["method"], ("POST",))
        await self._mcp.handle(scope, receive, send)


def _log_call(call: Call) -> None:
    logger.debug(
        "call tool=%s interface=%s ms=%.1f outcome=%s id=%s",
        call.tool if NAME.fullmatch(call.tool) else "?",
        call.caller.interface,
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
