"""The fixed endpoints: lists, health, descriptions, the page. What is registered while the server runs is in rest.py.

Starlette's routes, each with what the OpenAPI document says of it; FastAPI would do the same for three endpoints, and
a quarter of a second of every start (docs/decisions/0021-starting-with-less.md).
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ctx import __version__
from ctx.errors import NotFound
from ctx.server import errors
from ctx.server.advice import Advice
from ctx.server.metrics import Metrics
from ctx.server.openapi import Description, Operation
from ctx.server.overview import Overview
from ctx.server.policy import ACCESS
from ctx.server.rest import reply
from ctx.server.work import Work
from ctx.tools.agents import Agent, Agents
from ctx.tools.base import Tool, Toolbox
from ctx.types import JSON

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
_DESCRIPTOR = {
    "name": "ctx",
    "version": __version__,
    "mcp": ["/", "/mcp", "/mcp/{bank}"],
    "rest": "/tools/list",
    "openapi": "/openapi.json",
    "health": "/health",
}


def _record(**properties: JSON) -> JSON:
    """The schema of an object with all of these."""
    return {"properties": properties, "type": "object", "required": list(properties)}


def _many(items: JSON) -> JSON:
    return {"items": items, "type": "array"}


_TEXT, _OBJECT = {"type": "string"}, {"type": "object"}
_TOOL_LIST = _record(
    tools=_many(_record(name=_TEXT, description=_TEXT, builtin={"type": "boolean"}, parameters=_OBJECT))
)
_AGENT_LIST = _record(
    agents=_many(
        _record(name=_TEXT, description=_TEXT, tools=_many(_TEXT), source=_TEXT, arguments=_many(_OBJECT))
    )
)
_HEALTH = _record(status=_TEXT)

Handler = Callable[[Request], Awaitable[Response]]


class Endpoint(Route):
    """A route for GET with our 405, and with HEAD: GET without the body, which the server leaves out."""

    def __init__(self, path: str, handler: Handler, operation: Operation | None) -> None:
        super().__init__(path, handler, methods=["GET"])
        self.operation = operation  # None: the OpenAPI document does not speak of it

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if method == "HEAD":
            scope = {**scope, "method": "GET"}
        elif method != "GET":
            raise errors.method_not_allowed(scope["path"], method, ("GET", "HEAD"))
        await super().handle(scope, receive, send)


class Endpoints:
    """The endpoints of one file, as they are written down."""

    def __init__(self) -> None:
        self.routes: list[Endpoint] = []

    @property
    def operations(self) -> dict[str, Operation]:
        """What the OpenAPI document says of them, by path."""
        return {route.path: route.operation for route in self.routes if route.operation is not None}

    def get(self, path: str, operation: Operation | None = None) -> Callable[[Handler], Handler]:
        """Serves `path` by the function below."""

        def add(handler: Handler) -> Handler:
            self.routes.append(Endpoint(path, handler, operation))
            return handler

        return add


class State(NamedTuple):
    """What the endpoints answer from: `app.state.ctx`."""

    toolbox: Toolbox
    agents: Agents
    work: Work
    health: Callable[[], dict[str, JSON]]
    advice: Advice
    description: Description
    page: Mapping[str, bytes]
    overview: Overview | None = None
    metrics: Metrics | None = None


router = Endpoints()


def _state(request: Request) -> State:
    state: State = request.app.state.ctx
    return state


@router.get("/tools/list", Operation("list_tools", "List the tools", "tools", _TOOL_LIST))
async def _list_tools(request: Request) -> Response:
    state = _state(request)
    rows = [_tool_row(state.advice.listed(tool)) for tool in state.toolbox.list()]
    return reply({"tools": rows})


def _tool_row(tool: Tool) -> JSON:
    return {
        "name": tool.name,
        "description": tool.description,
        "builtin": tool.builtin,
        "parameters": tool.parameters,
    }


@router.get("/agents/list", Operation("list_agents", "List the agents", "agents", _AGENT_LIST))
async def _list_agents(request: Request) -> Response:
    return reply({"agents": [_agent_row(agent) for agent in _state(request).agents.list()]})


def _agent_row(agent: Agent) -> JSON:
    return {
        "name": agent.name,
        "description": agent.description,
        "tools": list(agent.tools),
        "source": agent.source,
        "arguments": [argument._asdict() for argument in agent.arguments],
    }


@router.get(
    "/health", Operation("health", "Whether the server lives and how fresh its index is", "server", _HEALTH)
)
async def _health(request: Request) -> Response:
    # A closed server tells those without a key that it lives, and no more.
    state, access = _state(request), request.scope[ACCESS]
    health = await state.work.probes.run(state.health)
    return reply(health if access.keyed else {"status": health["status"]})


@router.get("/activity")
async def _activity(request: Request) -> Response:
    return reply(await _state(request).work.probes.run(_overview(request).activity))


@router.get("/map")
async def _map(request: Request) -> Response:
    # Seconds of work where the store is large, in the lane of what takes long: searches do not wait for it.
    return reply(await _state(request).work.scripts.run(_overview(request).atlas, ("map", "page")))


def _overview(request: Request) -> Overview:
    overview = _state(request).overview
    if overview is None:
        raise NotFound("this server keeps no overview")
    return overview


@router.get("/openapi.json")
async def _openapi(request: Request) -> Response:
    return Response(_state(request).description.render(), media_type="application/json")


@router.get("/llms.txt")
async def _llms(request: Request) -> Response:
    state = _state(request)
    return Response(state.advice.words(state.toolbox.list()), media_type="text/plain; charset=utf-8")


@router.get("/")
async def _root(request: Request) -> Response:
    # The page for a browser, a few words of JSON for the rest; who wants MCP is led elsewhere (zones.py).
    page = _state(request).page
    browser = "text/html" in request.headers.get("accept", "") and "index.html" in page
    response = _page_reply(page, "index.html") if browser else reply(_DESCRIPTOR)
    response.headers["vary"] = "Accept"
    return response


@router.get("/page/{name}")
async def _page_file(request: Request) -> Response:
    name, page = request.path_params["name"], _state(request).page
    if name not in page:
        raise NotFound(f"the page has no file called {name[:80]}")
    return _page_reply(page, name)


def _page_reply(page: Mapping[str, bytes], name: str) -> Response:
    return Response(page[name], headers={"content-type": _PAGE_TYPES[os.path.splitext(name)[1]]})


def read_page(folder: str) -> dict[str, bytes]:
    """The files of the page, by name. Looked up among these, no path leads out of the folder."""
    page: dict[str, bytes] = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if os.path.splitext(name)[1] in _PAGE_TYPES:
            with open(os.path.join(folder, name), "rb") as file:
                page[name] = file.read()
    return page


metrics_router = Endpoints()  # served where `[server] metrics` asks for it


@metrics_router.get("/metrics")
async def _metrics(request: Request) -> Response:
    metrics = _state(request).metrics
    assert metrics is not None, "the route is there with the figures"
    return Response(await asyncio.to_thread(metrics.render), headers={"content-type": metrics.media_type})
