"""The fixed endpoints, built with FastAPI: lists, health, descriptions and the web page. Tools and agents are
registered while the server runs; their routes are in rest.py.

The response models are only for the OpenAPI description. The handlers encode the replies with errors.py,
because pydantic rejects lone surrogates, which come from file names that are not UTF-8.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from starlette.types import Receive, Scope, Send

from ctx import __version__
from ctx.errors import NotFound
from ctx.server.errors import encode, json_reply, method_not_allowed
from ctx.server.metrics import Metrics
from ctx.server.model_tools import listed_over_rest, llms_txt
from ctx.server.openapi import describe
from ctx.server.overview import Overview
from ctx.server.policy import ACCESS, Access
from ctx.server.services import Services
from ctx.server.work import Work
from ctx.tools.toolbox import Agent, Tool

T = TypeVar("T")

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
    """A FastAPI route with our 405 error and with HEAD: it runs as GET, and the server drops the body."""

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


router = APIRouter(route_class=Endpoint, generate_unique_id_function=lambda route: route.name)
page_router = APIRouter(route_class=Endpoint, include_in_schema=False)  # for the page, and other formats


def routes() -> list[Endpoint]:
    """The fixed endpoints. They read the `state` of the application, which `create_app` fills."""
    return [route for route in (*router.routes, *page_router.routes) if isinstance(route, Endpoint)]


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def _probed(request: Request, answer: Callable[[], T]) -> T:
    """Runs `answer` in the `probes` worker thread and returns its result."""
    work: Work = request.app.state.work
    return await work.probes.run(answer)


def _tools(request: Request) -> list[Tool]:
    """The tools that the caller may see."""
    services, shows = _services(request), request.scope[ACCESS].shows
    tools = services.toolbox.list()
    return [listed_over_rest(tool, services.semantic) for tool in tools if shows(tool.pack)]


def _agents(request: Request) -> list[Agent]:
    """The agents that the caller may see."""
    shows = request.scope[ACCESS].shows
    return [agent for agent in _services(request).agents.list() if shows(agent.pack)]


@router.get("/tools/list", response_model=ToolList, summary="List the tools", tags=["tools"])
async def list_tools(request: Request) -> Response:
    rows = [{name: getattr(tool, name) for name in ToolRow.model_fields} for tool in _tools(request)]
    return json_reply({"tools": rows})


@router.get("/agents/list", response_model=AgentList, summary="List the agents", tags=["agents"])
async def list_agents(request: Request) -> Response:
    rows = [
        {
            "name": agent.name,
            "description": agent.description,
            "tools": list(agent.tools),
            "source": agent.source,
            "arguments": [argument._asdict() for argument in agent.arguments],
        }
        for agent in _agents(request)
    ]
    return json_reply({"agents": rows})


FRESHNESS = "Whether the server is running and how fresh its index is"


@router.get("/health", response_model=HealthState, summary=FRESHNESS, tags=["server"])
async def health(request: Request) -> Response:
    # Names of sources and folders are hidden from pages of other sites, and from callers who may not read
    # documents.
    access: Access = request.scope[ACCESS]
    state = await _probed(request, _services(request).health)
    whole = access.keyed and access.shows(None) and not access.foreign
    return json_reply(state if whole else {"status": state["status"]})


@page_router.get("/activity")
async def activity(request: Request) -> Response:
    return json_reply(await _probed(request, _overview(request).activity))


@page_router.get("/clients")
async def clients(request: Request, url: str = "") -> Response:
    return json_reply(await _probed(request, partial(_overview(request).clients, url)))


@page_router.api_route("/log", methods=["GET", "DELETE"])
async def log(request: Request) -> Response:
    """The latest calls of clients; `DELETE` clears the log."""
    overview = _overview(request)
    return json_reply(
        await _probed(request, overview.clear_log if request.method == "DELETE" else overview.log)
    )


@page_router.get("/banks")
async def banks(request: Request) -> Response:
    # A key for some banks lists only those banks.
    access: Access = request.scope[ACCESS]
    pack = _overview(request).pack_at_banks()
    if pack is None:
        raise NotFound("no memory pack with banks is enabled")
    access.admit_pack(pack.name)
    counts = await _probed(request, pack.bank_counts)
    rows = [{"bank": bank, "memories": count} for bank, count in counts.items() if access.opens_bank(bank)]
    return json_reply({"banks": rows[:MAX_BANKS], "total": len(rows), "default": pack.default_bank})


def _overview(request: Request) -> Overview:
    overview = _services(request).overview
    if overview is None:
        raise NotFound("this server has no overview")
    return overview


@page_router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    tools, agents, key_needed = _tools(request), _agents(request), request.app.state.key_needed

    def text() -> bytes:
        return encode(describe(tools, agents, router.routes, key_needed=key_needed))

    return Response(await _probed(request, text), media_type="application/json")


@page_router.get("/llms.txt")
async def llms(request: Request) -> Response:
    words = llms_txt(_tools(request), _services(request).semantic)
    return Response(words, media_type="text/plain; charset=utf-8")


@page_router.get("/")
async def root(request: Request) -> Response:
    # Browsers get the page, other clients a short description. MCP requests never come here (zones.py).
    page: Mapping[str, bytes] = request.app.state.page
    browser = "text/html" in request.headers.get("accept", "") and "index.html" in page
    response = _page_reply(page, "index.html") if browser else json_reply(_DESCRIPTOR)
    response.headers["vary"] = "Accept"
    return response


@page_router.get("/page/{name}")
async def page_file(request: Request, name: str) -> Response:
    page: Mapping[str, bytes] = request.app.state.page
    if name not in page:
        raise NotFound(f"the page has no file called {name[:80]}")
    return _page_reply(page, name)


def _page_reply(page: Mapping[str, bytes], name: str) -> Response:
    return Response(page[name], headers={"content-type": _PAGE_TYPES[os.path.splitext(name)[1]]})


def read_page(folder: str) -> dict[str, bytes]:
    """The contents of the page's files, by file name.

    Requests are looked up in this dictionary, so a request path cannot reach files outside of the folder.
    """
    page: dict[str, bytes] = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if os.path.splitext(name)[1] in _PAGE_TYPES:
            with open(os.path.join(folder, name), "rb") as file:
                page[name] = file.read()
    return page


@page_router.get("/metrics")  # served if `[server] metrics` is on
async def metrics(request: Request) -> Response:
    figures: Metrics = request.app.state.metrics
    return Response(await asyncio.to_thread(figures.render), headers={"content-type": figures.media_type})
