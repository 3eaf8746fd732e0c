"""The server: REST, MCP and the page, behind the guard."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Protocol

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import Route, compile_path
from starlette.types import Receive, Scope, Send

from ctx import __version__
from ctx.errors import CtxError, NotFound
from ctx.server import errors, rest
from ctx.server.guard import Guard
from ctx.server.keys import KeyRing
from ctx.server.metrics import Metrics
from ctx.server.openapi import Described, describe
from ctx.server.policy import ACCESS, Access, Policy, ServerSettings, check_bind, wants_mcp
from ctx.server.work import Work
from ctx.tools.agents import Agents
from ctx.tools.base import NAME, Call, Toolbox
from ctx.types import JSON

logger = logging.getLogger(__name__)

PAGE = os.path.join(os.path.dirname(__file__), "page")
_PAGE_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
_MCP_PATHS = (
    "/mcp",
    "/mcp/",
    "/mcp/{bank}",
    "/mcp/{bank}/",
    "/packs/{pack}/mcp",
    "/packs/{pack}/mcp/",
)  # each by itself: a redirect loses a client's POST


class McpDoor(Protocol):
    """MCP over HTTP, as the server mounts it. One per server: it lives for one `lifespan`.

    `handle` answers POST and DELETE on every MCP path, and GET with a session; what the guard knows of the request is the
    `Access` in `scope["ctx.access"]`. `close` ends open streams, on the event loop, without waiting.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def lifespan(self) -> AbstractAsyncContextManager[None]: ...

    def close(self) -> None: ...


class Services(NamedTuple):
    """What the server serves. `start` and `stop` run in a thread, before the first request and after the last.

    `ending` is called when the stop begins, while the last requests are still answered; it must not wait. `health`
    gives at least `{"status": "ok"}`. `mcp` makes the MCP door; its calls share the server's `Work`.
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


def create_app(services: Services, settings: ServerSettings, *, page_folder: str = PAGE) -> Guard:
    """The ASGI application. Raises `ConfigError` where the settings would leave it open to a network without a key."""
    check_bind(settings, services.keys)
    work = services.work or Work()
    mcp = services.mcp(work) if services.mcp else None
    page = _read_page(page_folder)
    pack_routes = list(services.pack_routes)
    policy = Policy(
        settings,
        ring=services.keys,
        pack_paths=[compile_path(route.path)[0] for route in pack_routes],
        pack_errors=[
            (compile_path(route.path)[0], route.error_body) for route in pack_routes if route.error_body
        ],
    )
    services.toolbox.observe(_log_call)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(services.start)
        try:
            if mcp is None:
                yield
            else:
                async with mcp.lifespan():
                    yield
        finally:
            await asyncio.to_thread(services.stop)
            work.close()

    app = FastAPI(
        title="ctx", version=__version__, openapi_url=None, redirect_slashes=False, lifespan=lifespan
    )
    # The routes are plain ones: a tool's arguments are checked by the Toolbox, for every door alike, and once is enough.
    app.router.routes[:] = [
        *rest.pack_routes(pack_routes, work),
        *rest.tool_routes(services.toolbox, work),
        *rest.agent_routes(services.agents, work),
        rest.health_route(services.health, work),
        Route("/", _Root(mcp, page)),
        *(Route(path, _McpResource(mcp)) for path in _MCP_PATHS if mcp is not None),
        Route("/openapi.json", rest.Resource(get=_openapi(services, policy))),
        Route("/llms.txt", rest.Resource(get=_llms(services))),
        Route("/page/{name}", rest.Resource(get=_page_file(page))),
        *_metrics_routes(services, work, settings),
    ]
    app.add_exception_handler(CtxError, _on_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_surprise)

    def ending() -> None:
        services.ending()
        if mcp is not None:
            mcp.close()

    return Guard(app, policy, ending=ending)


class _McpResource:
    """An MCP path: everything to the door, but a GET without a session.

    To that 405 is the one answer which clients read as "no stream here"; at 400 or 404 they take the server for broken.
    """

    def __init__(self, mcp: McpDoor) -> None:
        self._mcp = mcp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        in_session = any(name == b"mcp-session-id" for name, _ in scope["headers"])
        if method not in ("POST", "DELETE") and not (method == "GET" and in_session):
            raise errors.method_not_allowed(scope["path"], method, ("POST", "DELETE"))
        await self._mcp.handle(scope, receive, send)


class _Root:
    """`/`: MCP for its clients, the page for a browser, a few words of JSON for the rest."""

    def __init__(self, mcp: McpDoor | None, page: Mapping[str, bytes]) -> None:
        self._mcp = _McpResource(mcp) if mcp else None
        self._read = rest.Resource(get=_root(page))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if self._mcp is not None and wants_mcp(scope["method"], headers):
            await self._mcp(scope, receive, send)
        else:
            await self._read(scope, receive, send)


def _root(page: Mapping[str, bytes]) -> rest.Handler:
    descriptor = {
        "name": "ctx",
        "version": __version__,
        "mcp": ["/", "/mcp", "/mcp/{bank}"],
        "rest": "/tools/list",
        "openapi": "/openapi.json",
        "health": "/health",
    }

    async def answer(request: rest.Request) -> Response:
        accept = next((value for name, value in request.scope["headers"] if name == b"accept"), b"")
        wanted = b"text/html" in accept and "index.html" in page
        response = _page_reply(page, "index.html") if wanted else rest.reply(descriptor)
        response.headers["vary"] = "Accept"
        return response

    return answer


def _page_file(page: Mapping[str, bytes]) -> rest.Handler:
    async def answer(request: rest.Request) -> Response:
        name = request.parameters["name"]
        if name not in page:
            raise NotFound(f"the page has no file called {name[:80]}")
        return _page_reply(page, name)

    return answer


def _page_reply(page: Mapping[str, bytes], name: str) -> Response:
    return Response(page[name], headers={"content-type": _PAGE_TYPES[os.path.splitext(name)[1]]})


def _read_page(folder: str) -> dict[str, bytes]:
    # A few small files, read once: what is asked for is looked up among their names, so no path leads out of the folder.
    page: dict[str, bytes] = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if os.path.splitext(name)[1] in _PAGE_TYPES:
            with open(os.path.join(folder, name), "rb") as file:
                page[name] = file.read()
    return page


def _openapi(services: Services, policy: Policy) -> rest.Handler:
    made: list[tuple[tuple[int, int], bytes]] = []
    changes = [0]  # of the agents; the Toolbox counts its own

    def count() -> None:
        changes[0] += 1

    services.agents.on_change(count)

    async def answer(request: rest.Request) -> Response:
        state = (services.toolbox.version, changes[0])
        if not made or made[0][0] != state:
            described = Described(services.toolbox.list(), services.agents.list(), key_needed=policy.closed)
            made[:] = [(state, errors.encode(describe(described)))]
        return Response(made[0][1], media_type="application/json")

    return answer


def _llms(services: Services) -> rest.Handler:
    async def answer(request: rest.Request) -> Response:
        lines = [
            "# ctx",
            "",
            "> A context server: search the documents of this machine and its team, read them, and call tools.",
            "",
            'Search with `POST /tools/search`, body `{"query": "...", "mode": "hybrid"}`; read a document with `POST /tools/get`,',
            'body `{"id": "..."}`. Every tool is `POST /tools/{name}` with a JSON object, and an MCP tool at `/mcp`.',
            "",
            "## Tools",
            "",
            *(f"- `{tool.name}`: {_line(tool.description)}" for tool in services.toolbox.list()),
            "",
            "## Descriptions",
            "",
            "- [OpenAPI](/openapi.json): every tool with its parameters",
            "- [Tools](/tools/list)",
            "- [Sources](/tools/sources): what is indexed, and how fresh it is",
            "",
        ]
        return Response("\n".join(lines), media_type="text/plain; charset=utf-8")

    return answer


def _line(text: str) -> str:
    return " ".join(text.split())


def _metrics_routes(services: Services, work: Work, settings: ServerSettings) -> list[Route]:
    if not settings.metrics:
        return []
    metrics = Metrics(services.toolbox, work, services.health)

    async def answer(request: rest.Request) -> Response:
        return Response(await asyncio.to_thread(metrics.render), headers={"content-type": metrics.media_type})

    return [Route("/metrics", rest.Resource(get=answer))]


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
    shape = errors.rpc_body if access.zone == "mcp" and request.scope["method"] == "POST" else errors.body
    row = errors.row(error)
    if row.status >= 500:
        # The cause is the operator's to see; without one there is nothing to see but the word.
        logger.warning(
            "error id=%s code=%s", access.request_id, error.word, exc_info=error if error.__cause__ else None
        )
    response = rest.reply(shape(error), row.status)
    response.headers.update(errors.headers(error))
    return response


async def _on_http_error(request: HTTPConnection, error: Exception) -> Response:
    # The router's own: no route matched.
    return await _on_error(request, NotFound(f"no route for {request.scope['path'][:80]}; see /openapi.json"))


async def _on_surprise(request: HTTPConnection, error: Exception) -> Response:
    # The guard, to which the error goes on, logs it.
    return rest.reply(errors.body(errors.internal(request.scope[ACCESS].request_id)), 500)
