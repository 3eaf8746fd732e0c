"""REST: `/tools/{name}`, `/agents/{name}/prompt`, and the routes of packs (docs/http-api.md).

These are plain Starlette routes, because tools and agents are registered while the server runs, and the
Toolbox checks the arguments for all interfaces. The fixed endpoints use FastAPI (endpoints.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qs

import orjson
from starlette import requests
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ctx.errors import BadRequest, CtxError
from ctx.models import JSON, Caller
from ctx.server import errors
from ctx.server.policy import ACCESS, Access
from ctx.server.work import Lane, Work
from ctx.server.zones import PACK, Entry
from ctx.tools.toolbox import Agents, Toolbox

T = TypeVar("T")

MAX_DEPTH = 64  # of nested values in a body


class PackRoute(NamedTuple):
    """A route that a pack adds.

    `answer(parameters of path and query string, body, caller)` runs in a thread. It returns the whole reply
    or raises a `CtxError`. `keyed`: the route always needs a key, not only when the pack's tools do.
    `error_body` builds the bodies of errors; None for the default.
    """

    method: str
    path: str  # Starlette's: "/mcp/tools/{tool}"
    pack: str
    answer: Callable[[Mapping[str, list[str]], dict[str, JSON], Caller], JSON]
    keyed: bool = False
    error_body: Callable[[CtxError], JSON] | None = None


class Request(requests.Request):
    """An HTTP request with the caller's `Access` and its parameters."""

    @property
    def access(self) -> Access:
        access: Access = self.scope[ACCESS]
        return access

    def texts(self) -> dict[str, list[str]]:
        """The parameters of the path and the query string by name. The path takes precedence."""
        texts = parse_qs(self.scope["query_string"].decode("latin-1"))
        return {**texts, **{name: [value] for name, value in self.path_params.items()}}

    async def arguments(self) -> dict[str, JSON]:
        """The JSON object in the body; `{}` if there is no body. Raises `BadRequest`."""
        body = await self.body()
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        # Web pages may send forms and text/plain without a preflight, so these must never run a tool.
        if (body or kind) and not _is_json(kind):
            raise BadRequest("send the arguments as JSON, with 'Content-Type: application/json'")
        return _object_in(body) if body else {}

    async def while_connected(self, lane: Lane, answer: Awaitable[T]) -> T:
        """Awaits `answer` and returns its result.

        While all threads of the lane are busy, a call is cancelled if its client disconnects.
        """
        if not lane.crowded:
            return await answer
        calling = asyncio.ensure_future(answer)
        leaving = asyncio.ensure_future(self.receive())
        try:
            await asyncio.wait((calling, leaving), return_when=asyncio.FIRST_COMPLETED)
            if calling.done():
                return calling.result()
            raise ClientDisconnect
        finally:
            calling.cancel()
            leaving.cancel()


Handler = Callable[[Request], Awaitable[Response]]


class Resource:
    """The handlers of a path, by method. HEAD uses the handler of GET; other methods get 405 with `Allow`."""

    def __init__(self, **handlers: Handler) -> None:
        self._handlers = {method.upper(): handler for method, handler in handlers.items()}
        head = ("HEAD",) if "GET" in self._handlers else ()
        self.methods = (*self._handlers, *head)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        handler = self._handlers.get("GET" if method == "HEAD" else method)
        if handler is None:
            raise errors.method_not_allowed(scope["path"], method, self.methods)
        response = await handler(Request(scope, receive))
        await response(scope, receive, send)


def tool_routes(toolbox: Toolbox, work: Work) -> list[Route]:
    """The routes `/tools/{name}` and `/tools/sources`. The latter allows GET too."""

    async def call(request: Request) -> Response:
        tool = toolbox.get(request.path_params.get("name", "sources"))
        request.access.admit(tool)
        arguments = await request.arguments()
        answer = work.call(toolbox, tool, arguments, request.access.caller())
        result = await request.while_connected(work.lane(tool), answer)
        return errors.json_reply(result if tool.bare else {"result": result})

    return [
        Route("/tools/sources", Resource(get=call, post=call)),
        Route("/tools/{name}", Resource(post=call)),
    ]


def agent_routes(agents: Agents, work: Work) -> list[Route]:
    """The route `/agents/{name}/prompt`."""

    async def prompt(request: Request) -> Response:
        name = request.path_params["name"]
        agent = next((agent for agent in agents.list() if agent.name == name), None)
        if agent is not None:
            request.access.admit_agent(agent)
        arguments = await request.arguments()
        caller = request.access.caller()
        answer = work.prompt(agents, agent, name, arguments, caller)
        resolved = await request.while_connected(work.agent_lane(agent), answer)
        return errors.json_reply(resolved._asdict())

    return [Route("/agents/{name}/prompt", Resource(post=prompt))]


def pack_entries(routes: Iterable[PackRoute], work: Work) -> list[Entry]:
    """The routes of packs, with one entry for each path."""
    by_path: dict[str, list[PackRoute]] = {}
    for route in routes:
        by_path.setdefault(route.path, []).append(route)
    return [
        Entry(
            Route(path, Resource(**{route.method.lower(): _pack_handler(route, work) for route in group})),
            PACK,
            error_body=next((route.error_body for route in group if route.error_body), None),
        )
        for path, group in by_path.items()
    ]


def _pack_handler(route: PackRoute, work: Work) -> Handler:
    async def answer(request: Request) -> Response:
        request.access.admit_pack(route.pack, required=route.keyed)
        request.access.spend()
        arguments = await request.arguments()
        caller = request.access.caller(pack=route.pack)
        texts = request.texts()
        share = (f"{route.method} {route.path}", caller.share)
        return errors.json_reply(
            await work.scripts.run(lambda: route.answer(texts, arguments, caller), share)
        )

    return answer


def _is_json(kind: str) -> bool:
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _object_in(body: bytes) -> dict[str, JSON]:
    """The JSON object of a body. Raises `BadRequest`."""
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
    level = [value]
    for _ in range(depth):
        level = [
            item
            for parent in level
            if isinstance(parent, dict | list)
            for item in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True
