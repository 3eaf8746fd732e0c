"""Builds the server of a workspace: its parts (`Services`), and the ASGI application with all routes, behind
the middlewares of middleware.py.
"""

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import NamedTuple, cast

import mcp_types as types
from fastapi import FastAPI
from mcp.server.streamable_http import check_accept_headers
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ctx import __version__
from ctx.background import Background
from ctx.errors import ConfigError, CtxError, NotFound
from ctx.indexing.status import FIRST_ANSWERS_AT_MOST_S, FIRST_ANSWERS_S
from ctx.models import JSON
from ctx.server import errors, middleware, rest
from ctx.server.keys import Keys, key_ring
from ctx.server.mcp import Context, McpServer, mcp_server
from ctx.server.mcp_shapes import MessageFault, read_message
from ctx.server.overview import Metrics, Overview, health
from ctx.server.policy import ACCESS, MCP, Access, PackPolicy, Policy, ServerSettings, check_bind
from ctx.server.rest import PackRoute
from ctx.server.work import Work
from ctx.tools.toolbox import NAME, Agents, Call, Toolbox, Window
from ctx.workspace import Workspace

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 1 << 30  # bytes; effectively no limit, because BodySizeMiddleware enforces a smaller one
VERSION = "mcp-protocol-version"
JSON_TYPE = "application/json"
# Each path with and without the final slash: if one redirected to the other, clients would lose the body of a
# POST.
MCP_PATHS = (
    *("/mcp", "/mcp/", "/mcp/{bank}", "/mcp/{bank}/"),
    *("/packs/{pack}/mcp", "/packs/{pack}/mcp/"),
)


# -- MCP over HTTP: one stateless endpoint for all MCP paths and both protocol eras --------------------------
# MCP has two protocol eras: the legacy era begins with an `initialize` handshake, the modern era has none.


def http_access(context: Context) -> Access:
    """The `Access` of an HTTP request, which the middlewares filled in."""
    return cast(Access, context.request.scope[ACCESS])


class McpEndpoint:
    """Serves MCP over ASGI, without sessions. Create one per server; it works only while its `lifespan` runs,
    which can run only once.

    Only POST is allowed. Other methods get 405, from which clients conclude that there is no stream to read;
    from 400 or 404 they would conclude that the server is broken.
    """

    def __init__(self, mcp: McpServer) -> None:
        manager = partial(
            StreamableHTTPSessionManager, mcp.server, stateless=True, max_request_body_size=MAX_BODY_BYTES
        )
        self._json, self._stream = manager(json_response=True), manager(json_response=False)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        async with self._json.run(), self._stream.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a POST with JSON; with an event stream if the client wants progress or accepts no JSON."""
        if scope["method"] != "POST":
            raise errors.method_not_allowed(scope["path"], scope["method"], ("POST",))
        request = Request(scope)
        try:
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON_TYPE:
                reason = f"send the message with Content-Type: {JSON_TYPE}"
                raise MessageFault(None, types.INVALID_REQUEST, reason)
            message = read_message(scope[ACCESS].body)
            _check_version(request.headers.get(VERSION), message)
        except MessageFault as fault:
            reply = fault.reply.model_dump_json(by_alias=True, exclude_unset=True)
            await Response(reply, 400, media_type=JSON_TYPE)(scope, receive, send)
            return
        accepts_json, accepts_stream = check_accept_headers(request)
        streams = accepts_stream and ("progressToken" in _meta(message) or not accepts_json)
        manager = self._stream if streams else self._json
        await manager.handle_request(_plain(scope, message), receive, send)


def _check_version(version: str | None, message: dict[str, JSON]) -> None:
    if not version or version in KNOWN_PROTOCOL_VERSIONS or message.get("method") == "initialize":
        return
    if types.PROTOCOL_VERSION_META_KEY in _meta(message):
        return  # in a request of the modern era, the SDK checks the version
    reason = f"MCP {version[:40]} is not supported; use one of {', '.join(KNOWN_PROTOCOL_VERSIONS)}"
    data: dict[str, JSON] = {"supported": [*KNOWN_PROTOCOL_VERSIONS], "requested": version[:40]}
    raise MessageFault(message.get("id"), types.UNSUPPORTED_PROTOCOL_VERSION, reason, **data)


def _meta(message: dict[str, JSON]) -> dict[str, JSON]:
    meta = (message.get("params") or {}).get("_meta")
    return meta if isinstance(meta, dict) else {}


def _plain(scope: Scope, message: dict[str, JSON]) -> Scope:
    """The request scope with headers that the SDK accepts.

    `Accept` is replaced. The version header of a legacy `initialize` is removed, because the client and the
    server negotiate the version in the body.
    """
    dropped = {b"accept"}
    if message.get("method") == "initialize" and types.PROTOCOL_VERSION_META_KEY not in _meta(message):
        dropped.add(VERSION.encode())
    headers = [
        pair for pair in scope["headers"] if pair[0] not in dropped and pair != (VERSION.encode(), b"")
    ]
    return {**scope, "headers": [*headers, (b"accept", b"application/json, text/event-stream")]}


# -- the server ---------------------------------------------------------------------------------------------


class Services(NamedTuple):
    """The parts of a server. `start` and `stop` run in a thread, before the first request and after the last.

    `begin` is called on the event loop after the first requests were answered; it starts background work,
    which takes longer with more sources. `health` returns at least `{"status": "ok"}`. `mcp` creates the MCP
    endpoint, whose calls share the server's `Work` (its thread pools).
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
    work: Work | None = None  # None means a `Work` of the default size
    # Counts calls for rate_limit_per_minute in [server]; None counts them in memory.
    window: Window | None = None
    semantic: bool = True  # whether documents have embeddings, so that semantic and hybrid search work
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
        mcp=(lambda work: McpEndpoint(mcp_server(workspace, work, http_access))) if mcp else None,
        window=Window(config.server.rate_limit_per_minute, workspace.rates, "server"),
    )


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


def create_app(services: Services, settings: ServerSettings) -> middleware.RequestMiddleware:
    """Build the ASGI application.

    Raises `ConfigError` if the settings would open the server to a network without a key.
    """
    check_bind(settings, services.keys)
    work = services.work or Work()
    mcp = services.mcp(work) if services.mcp else None
    window = services.window or Window(settings.rate_limit_per_minute)
    policy = Policy(settings, ring=services.keys, window=window)
    services.toolbox.observe(_log_call)
    metrics = Metrics(services.toolbox, work, services.health) if settings.metrics else None
    app = FastAPI(openapi_url=None, redirect_slashes=False, lifespan=partial(_lifespan, services, work, mcp))
    for kind in (CtxError, Exception):
        app.add_exception_handler(kind, _failure)
    app.state.services = services
    app.state.work = work
    app.state.metrics = metrics
    app.router.routes.clear()  # the application must not find routes: RouteMiddleware does, see `_run_route`
    app.router.default = _run_route
    # The routes of memory packs come first: some are below /mcp, and the first route that matches is used.
    entries = [*rest.pack_entries(services.pack_routes, work), *rest.entries(metrics=settings.metrics)]
    if mcp is not None:
        paths = [middleware.Entry(Route(path, mcp), MCP) for path in MCP_PATHS]
        entries = [middleware.Entry(Route("/", mcp), MCP, serves=_wants_mcp), *entries, *paths]
    inner: ASGIApp = middleware.BodySizeMiddleware(app, max_bytes=settings.max_body_bytes)
    inner = middleware.OriginMiddleware(middleware.CallerMiddleware(inner), policy)
    inner = middleware.RouteMiddleware(inner, entries, policy)
    return middleware.RequestMiddleware(inner, policy, lifespan=app)


@asynccontextmanager
async def _lifespan(
    services: Services, work: Work, mcp: McpEndpoint | None, app: FastAPI
) -> AsyncIterator[None]:
    async def begin() -> None:  # start the background work as soon as no search is waiting or running
        await asyncio.sleep(FIRST_ANSWERS_S)
        while work.searches.unfinished:  # noqa: ASYNC110 - a queue has no signal for being empty
            await asyncio.sleep(FIRST_ANSWERS_S / 10)
        services.begin()

    await asyncio.to_thread(services.start)
    # Objects loaded so far live as long as the server. After `freeze`, the garbage collector does not scan
    # them; a scan would delay a search by 30 ms now and then.
    gc.freeze()
    gc.enable()
    try:
        async with mcp.lifespan() if mcp else nullcontext():
            beginning = asyncio.create_task(begin())
            yield
            beginning.cancel()
    finally:
        await asyncio.to_thread(services.stop)
        work.close()


def _wants_mcp(method: str, headers: middleware.Headers) -> bool:
    """Whether a request for `/` is for MCP, not for the web page or the short description of the server."""
    accept = headers.get("accept", "")
    asks_for_events = "text/event-stream" in accept and "text/html" not in accept
    return method in ("POST", "DELETE") or (method == "GET" and asks_for_events)


async def _run_route(scope: Scope, receive: Receive, send: Send) -> None:
    """Runs the route that RouteMiddleware found. Raises `NotFound` if it found none."""
    if "route" not in scope:
        raise NotFound(f"no route for {scope['path'][:80]}; see /openapi.json")
    await scope["route"].handle(scope, receive, send)


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
    if not isinstance(error, CtxError):
        error = errors.internal(access.request_id)
    elif errors.row_of(type(error)).status >= 500:
        errors.log_failure(error, access.request_id)
    return errors.error_reply(error, access.error_body)
