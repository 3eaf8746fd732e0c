"""REST and the web page: tools, agents, lists, health, descriptions, and the routes of packs
(docs/http-api.md).

The endpoints are FastAPI routes. The routes of tools, agents and packs declare no arguments to FastAPI: tools
and agents may change while the server runs, and the Toolbox checks the arguments for all interfaces. The
response models are only for the OpenAPI description. The handlers encode the replies with errors.py, because
pydantic rejects lone surrogates, which come from file names that are not UTF-8.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import parse_qs

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from starlette.types import Receive, Scope, Send

from ctx import __version__
from ctx.errors import BadRequest, CtxError, NotFound
from ctx.models import JSON, Caller
from ctx.server.errors import json_reply, method_not_allowed
from ctx.server.middleware import Entry
from ctx.server.openapi import FAILURES, describe, listed_over_rest, llms_txt
from ctx.server.overview import Metrics, Overview
from ctx.server.policy import ACCESS, CALLS, LOG, OPEN, PACK, PAGE, SHOWN, Access, Zone
from ctx.server.work import Work
from ctx.tools.toolbox import Agent, Tool

if TYPE_CHECKING:
    from ctx.server.app import Services

MAX_DEPTH = 64  # how deeply the values in a body may be nested
MAX_BANKS = 500  # the page shows at most this many banks
PAGE_FOLDER = Path(__file__).parent / "page"
_PAGE_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_DESCRIPTOR = {
    "name": "ctx",
    "version": __version__,
    "mcp": ["/", "/mcp", "/mcp/{bank}"],
    "rest": "/tools/list",
    "openapi": "/openapi.json",
    "health": "/health",
}
ZONES: Mapping[str, Zone] = {
    "/": SHOWN,  # for requests of MCP clients to this path, app.py has another entry
    "/activity": PAGE,
    "/agents/list": CALLS,
    "/agents/{name}/prompt": CALLS,
    "/banks": PACK,
    "/clients": PAGE,
    "/health": SHOWN,
    "/llms.txt": OPEN,
    "/log": LOG,
    "/metrics": PAGE,
    "/openapi.json": OPEN,
    "/page/{name}": SHOWN,
    "/tools/list": CALLS,
    "/tools/sources": CALLS,
    "/tools/{name}": CALLS,
}
"""The zone of each endpoint. The server does not start if one is missing."""


class Endpoint(APIRoute):
    """A FastAPI route with our 405 error. It also accepts HEAD, which runs as GET; the server then drops the
    body of the reply.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        methods = self.methods or set()
        allowed = sorted({*methods, "HEAD"} if "GET" in methods else methods)
        if method not in allowed:
            raise method_not_allowed(scope["path"], method, allowed)
        await super().handle({**scope, "method": "GET"} if method == "HEAD" else scope, receive, send)


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


router = APIRouter(
    route_class=Endpoint, generate_unique_id_function=lambda route: route.name, responses=FAILURES
)
# Routes that FastAPI must not describe: of the page, in other formats than JSON, and those that openapi.py
# describes.
hidden_router = APIRouter(route_class=Endpoint, include_in_schema=False)


def entries(*, metrics: bool) -> list[Entry]:
    """The endpoints of the server, without packs. They read the `state` of the application (app.py)."""
    return [
        Entry(route, ZONES[route.path])
        for route in (*router.routes, *hidden_router.routes)
        if isinstance(route, Endpoint) and (metrics or route.path != "/metrics")
    ]


# -- requests ------------------------------------------------------------------------------------------------


def _services(request: Request) -> "Services":
    return cast("Services", request.app.state.services)


def _work(request: Request) -> Work:
    return cast(Work, request.app.state.work)


def _access(request: Request) -> Access:
    return cast(Access, request.scope[ACCESS])


def _arguments(request: Request) -> dict[str, JSON]:
    """The JSON object in the body; `{}` if there is no body. Raises `BadRequest`."""
    body = _access(request).body
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
    # Web pages may send forms and text/plain without a preflight, so these must never run a tool.
    if (body or kind) and not is_json:
        raise BadRequest("send the arguments as JSON, with 'Content-Type: application/json'")
    if not body:
        return {}
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object")
    if _deeper_than(value, MAX_DEPTH):
        raise BadRequest(f"the body is nested more than {MAX_DEPTH} deep")
    return value


def _deeper_than(value: JSON, depth: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list) and (not depth or any(_deeper_than(item, depth - 1) for item in value))


# -- tools and agents ----------------------------------------------------------------------------------------


def _tools(request: Request) -> list[Tool]:
    """The tools that the caller may see."""
    services, shows = _services(request), _access(request).shows
    tools = services.toolbox.list()
    return [listed_over_rest(tool, services.semantic) for tool in tools if shows(tool.pack)]


def _agents(request: Request) -> list[Agent]:
    """The agents that the caller may see."""
    shows = _access(request).shows
    return [agent for agent in _services(request).agents.list() if shows(agent.pack)]


@router.get("/tools/list", response_model=ToolList, summary="List the tools", tags=["tools"])
async def list_tools(request: Request) -> Response:
    rows = [{name: getattr(tool, name) for name in ToolRow.model_fields} for tool in _tools(request)]
    return json_reply({"tools": rows})


@router.get("/agents/list", response_model=AgentList, summary="List the agents", tags=["agents"])
async def list_agents(request: Request) -> Response:
    agents = _agents(request)
    rows = [{name: getattr(agent, name) for name in AgentRow.model_fields} for agent in agents]
    for row in rows:
        row["arguments"] = [argument._asdict() for argument in row["arguments"]]
    return json_reply({"agents": rows})


@hidden_router.post("/tools/{name}")
@hidden_router.api_route("/tools/sources", methods=["GET", "POST"])  # added first, so it is matched first
async def call_tool(request: Request) -> Response:
    toolbox, work, access = _services(request).toolbox, _work(request), _access(request)
    tool = toolbox.get(request.path_params.get("name", "sources"))
    access.admit(tool)
    result = await work.call(toolbox, tool, _arguments(request), access.caller())
    return json_reply(result if tool.bare else {"result": result})


@hidden_router.post("/agents/{name}/prompt")
async def prompt(request: Request, name: str) -> Response:
    agents, work, access = _services(request).agents, _work(request), _access(request)
    agent = next((agent for agent in agents.list() if agent.name == name), None)
    if agent is not None:
        access.admit(agent)
    resolved = await work.prompt(agents, agent, name, _arguments(request), access.caller())
    return json_reply(resolved._asdict())


# -- the server ----------------------------------------------------------------------------------------------


FRESHNESS = "Whether the server is running and how fresh its index is"


@router.get("/health", response_model=HealthState, summary=FRESHNESS, tags=["server"])
async def health(request: Request) -> Response:
    # Web pages of other sites, and callers who may not read documents, do not see the names of sources and
    # folders.
    access = _access(request)
    state = await _work(request).probes.run(_services(request).health)
    keyed = access.grant is not None or not access.closed
    whole = keyed and access.shows(None) and not access.foreign
    return json_reply(state if whole else {"status": state["status"]})


@hidden_router.get("/activity")
async def activity(request: Request) -> Response:
    return json_reply(await _work(request).probes.run(_overview(request).activity))


@hidden_router.get("/clients")
async def clients(request: Request, url: str = "") -> Response:
    return json_reply(await _work(request).probes.run(partial(_overview(request).clients, url)))


@hidden_router.api_route("/log", methods=["DELETE", "GET"])
async def log(request: Request) -> Response:
    """The latest calls of clients; `DELETE` clears the log."""
    log_of = partial(_overview(request).log, clear=request.method == "DELETE")
    return json_reply(await _work(request).probes.run(log_of))


@hidden_router.get("/banks")
async def banks(request: Request) -> Response:
    # A key for some banks lists only those banks.
    access = _access(request)
    pack = _overview(request).pack_at_banks()
    if pack is None:
        raise NotFound("no memory pack with banks is enabled")
    access.admit_pack(pack.name)
    counts = await _work(request).probes.run(pack.bank_counts)
    rows = [
        {"bank": bank, "memories": count}
        for bank, count in counts.items()
        if access.grant is None or access.grant.covers(bank)
    ]
    return json_reply({"banks": rows[:MAX_BANKS], "total": len(rows), "default": pack.default_bank})


def _overview(request: Request) -> Overview:
    overview = _services(request).overview
    if overview is None:
        raise NotFound("this server has no overview")
    return overview


@hidden_router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    tools, agents, key_needed = _tools(request), _agents(request), _access(request).policy.closed

    described = partial(describe, tools, agents, router.routes, key_needed=key_needed)
    return json_reply(await _work(request).probes.run(described))


@hidden_router.get("/llms.txt")
async def llms(request: Request) -> Response:
    words = llms_txt(_tools(request), _services(request).semantic)
    return Response(words, media_type="text/plain; charset=utf-8")


@hidden_router.get("/")
async def root(request: Request) -> Response:
    # Browsers get the page, other clients a short description. MCP requests have their own entry in app.py.
    browser = "text/html" in request.headers.get("accept", "")
    response = _page_reply("index.html") if browser else json_reply(_DESCRIPTOR)
    response.headers["vary"] = "Accept"
    return response


@hidden_router.get("/page/{name}")
async def page_file(name: str) -> Response:
    if name not in read_page():
        raise NotFound(f"the page has no file called {name[:80]}")
    return _page_reply(name)


def _page_reply(name: str) -> Response:
    return Response(read_page()[name], headers={"content-type": _PAGE_TYPES[Path(name).suffix]})


@cache
def read_page() -> dict[str, bytes]:
    """The contents of the page's files, by file name.

    Request paths are looked up in this dictionary, so they cannot reach files outside the page's folder.
    """
    return {
        path.name: path.read_bytes() for path in sorted(PAGE_FOLDER.iterdir()) if path.suffix in _PAGE_TYPES
    }


@hidden_router.get("/metrics")  # served if `[server] metrics` is on
async def metrics(request: Request) -> Response:
    figures: Metrics = request.app.state.metrics
    return Response(await asyncio.to_thread(figures.render), headers={"content-type": figures.media_type})


# -- packs ---------------------------------------------------------------------------------------------------


class PackRoute(NamedTuple):
    """A route that a pack adds.

    `answer(parameters of path and query string, body, caller)` runs in a thread. It returns the JSON of the
    reply, or raises a `CtxError`. With `keyed`, the route always needs a key, even if the pack's tools need
    none. `error_body` builds the bodies of error replies; None for the default format.
    """

    method: str
    path: str  # in the syntax of Starlette: "/mcp/tools/{tool}"
    pack: str
    answer: Callable[[Mapping[str, list[str]], dict[str, JSON], Caller], JSON]
    keyed: bool = False
    error_body: Callable[[CtxError], JSON] | None = None


def pack_entries(routes: Iterable[PackRoute], work: Work) -> list[Entry]:
    """The routes of packs, with one entry for each path."""
    by_path: dict[str, dict[str, PackRoute]] = {}
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = route
    return [
        Entry(_pack_endpoint(path, group, work), PACK, error_body=next(iter(group.values())).error_body)
        for path, group in by_path.items()
    ]


def _pack_endpoint(path: str, by_method: Mapping[str, PackRoute], work: Work) -> Endpoint:
    async def answer(request: Request) -> Response:
        route, access = by_method[request.method], _access(request)
        access.admit_pack(route.pack, required=route.keyed)
        access.spend()
        arguments = _arguments(request)
        caller = access.caller(pack=route.pack)
        # The parameters of the path take precedence over those of the query string.
        texts = parse_qs(request.scope["query_string"].decode("latin-1"))
        texts |= {name: [value] for name, value in request.path_params.items()}
        share = (f"{route.method} {route.path}", caller.share)
        return json_reply(await work.scripts.run(lambda: route.answer(texts, arguments, caller), share))

    return Endpoint(path, answer, methods=list(by_method))
