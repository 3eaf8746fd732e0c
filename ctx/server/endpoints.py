"""The fixed endpoints, by FastAPI: lists, health, descriptions, the page. Tools and agents, which are
registered while the server runs, are in rest.py.

The replies are typed for the description only. The handlers encode them themselves (errors.py): pydantic
would refuse a lone surrogate, which a file name that is not UTF-8 brings along.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from starlette.types import Receive, Scope, Send

from ctx import __version__
from ctx.errors import NotFound
from ctx.models import JSON
from ctx.server.advice import Advice
from ctx.server.errors import encode, json_reply, method_not_allowed
from ctx.server.metrics import Metrics
from ctx.server.openapi import Described, describe
from ctx.server.overview import Overview
from ctx.server.policy import ACCESS
from ctx.server.work import Work
from ctx.tools.toolbox import Agent, Agents, Tool, Toolbox

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
MAX_BANKS = 500  # shown by the page
_DESCRIPTOR = {
    "name": "ctx",
    "version": __version__,
    "mcp": ["/", "/mcp", "/mcp/{bank}"],
    "rest": "/tools/list",
    "openapi": "/openapi.json",
    "health": "/health",
}


class Endpoint(APIRoute):
    """A route of FastAPI's with our 405, and with HEAD: GET without the body, which the server leaves out."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, allowed = scope["method"], tuple(sorted(self.methods or ()))
        if method == "HEAD" and "GET" in allowed:
            scope = {**scope, "method": "GET"}
        elif method not in allowed:
            raise method_not_allowed(scope["path"], method, (*allowed, "HEAD"))
        await super().handle(scope, receive, send)


class ToolRow(BaseModel):
    name: str
    description: str
    builtin: bool
    parameters: dict[str, Any]


class ToolList(BaseModel):
    tools: list[ToolRow]


class AgentRow(BaseModel):
    name: str
    description: str
    tools: list[str]
    source: str
    arguments: list[dict[str, Any]]


class AgentList(BaseModel):
    agents: list[AgentRow]


class HealthState(BaseModel):
    model_config = ConfigDict(extra="allow")
    status: str


class State(NamedTuple):
    """What the endpoints answer from."""

    toolbox: Toolbox
    agents: Agents
    work: Work
    health: Callable[[], dict[str, JSON]]
    advice: Advice
    overview: Overview | None = None
    metrics: Metrics | None = None
    key_needed: bool = False


router = APIRouter(route_class=Endpoint)


def routes() -> list[Endpoint]:
    """The fixed endpoints, for an application whose `state` has `ctx` and `page`."""
    return [route for route in router.routes if isinstance(route, Endpoint)]


def _state(request: Request) -> State:
    state: State = request.app.state.ctx
    return state


@router.get(
    "/tools/list",
    response_model=ToolList,
    operation_id="list_tools",
    summary="List the tools",
    tags=["tools"],
)
async def _list_tools(request: Request) -> Response:
    advice = _state(request).advice
    tools = [advice.listed(tool) for tool in _tools(request)]
    return json_reply(
        {"tools": [{name: getattr(tool, name) for name in ToolRow.model_fields} for tool in tools]}
    )


@router.get(
    "/agents/list",
    response_model=AgentList,
    operation_id="list_agents",
    summary="List the agents",
    tags=["agents"],
)
async def _list_agents(request: Request) -> Response:
    shows = request.scope[ACCESS].shows
    agents = [agent for agent in _state(request).agents.list() if shows(agent.pack)]
    return json_reply({"agents": [_agent_row(agent) for agent in agents]})


def _tools(request: Request) -> list[Tool]:
    """The tools that the caller may see."""
    shows = request.scope[ACCESS].shows
    return [tool for tool in _state(request).toolbox.list() if shows(tool.pack)]


def _agent_row(agent: Agent) -> JSON:
    return {
        "name": agent.name,
        "description": agent.description,
        "tools": list(agent.tools),
        "source": agent.source,
        "arguments": [argument._asdict() for argument in agent.arguments],
    }


@router.get(
    "/health",
    response_model=HealthState,
    operation_id="health",
    summary="Whether the server is running and how fresh its index is",
    tags=["server"],
)
async def _health(request: Request) -> Response:
    # Names of sources and folders are not for pages of other sites, nor for callers who may read no document.
    state, access = _state(request), request.scope[ACCESS]
    health = await state.work.probes.run(state.health)
    whole = access.keyed and access.shows(None) and not access.foreign
    return json_reply(health if whole else {"status": health["status"]})


@router.get("/activity", include_in_schema=False)
async def _activity(request: Request) -> Response:
    return json_reply(await _state(request).work.probes.run(_overview(request).activity))


@router.get("/clients", include_in_schema=False)
async def _clients(request: Request) -> Response:
    overview, url = _overview(request), request.query_params.get("url", "")
    return json_reply(await _state(request).work.probes.run(lambda: overview.clients(url)))


@router.api_route("/log", methods=["GET", "DELETE"], include_in_schema=False)
async def _log(request: Request) -> Response:
    """What clients asked; `DELETE` clears it."""
    overview = _overview(request)
    answer = overview.clear_log if request.method == "DELETE" else overview.log
    return json_reply(await _state(request).work.probes.run(answer))


@router.get("/banks", include_in_schema=False)
async def _banks(request: Request) -> Response:
    # A key for some banks lists only those.
    state, access = _state(request), request.scope[ACCESS]
    pack = _overview(request).pack_at_banks()
    if pack is None:
        raise NotFound("no memory pack with banks is enabled")
    access.admit_pack(pack.name)
    counts = await state.work.probes.run(pack.bank_counts)
    rows = [{"bank": bank, "memories": count} for bank, count in counts.items() if access.opens_bank(bank)]
    return json_reply({"banks": rows[:MAX_BANKS], "total": len(rows), "default": pack.default_bank})


def _overview(request: Request) -> Overview:
    overview = _state(request).overview
    if overview is None:
        raise NotFound("this server has no overview")
    return overview


@router.get("/openapi.json", include_in_schema=False)
async def _openapi(request: Request) -> Response:
    state, shows = _state(request), request.scope[ACCESS].shows
    described = Described(
        [state.advice.listed(tool) for tool in _tools(request)],
        [agent for agent in state.agents.list() if shows(agent.pack)],
        router.routes,
        key_needed=state.key_needed,
    )
    text = await state.work.probes.run(lambda: encode(describe(described)))
    return Response(text, media_type="application/json")


@router.get("/llms.txt", include_in_schema=False)
async def _llms(request: Request) -> Response:
    words = _state(request).advice.words(_tools(request))
    return Response(words, media_type="text/plain; charset=utf-8")


@router.get("/", include_in_schema=False)
async def _root(request: Request) -> Response:
    # The page for a browser, else a short description. MCP requests go elsewhere (zones.py).
    page: Mapping[str, bytes] = request.app.state.page
    browser = "text/html" in request.headers.get("accept", "") and "index.html" in page
    response = _page_reply(page, "index.html") if browser else json_reply(_DESCRIPTOR)
    response.headers["vary"] = "Accept"
    return response


@router.get("/page/{name}", include_in_schema=False)
async def _page_file(request: Request) -> Response:
    name = request.path_params["name"]
    page: Mapping[str, bytes] = request.app.state.page
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


@router.get("/metrics", include_in_schema=False)  # served if `[server] metrics` is on
async def _metrics(request: Request) -> Response:
    metrics = _state(request).metrics
    assert metrics is not None, "this route exists only with metrics"
    return Response(await asyncio.to_thread(metrics.render), headers={"content-type": metrics.media_type})
