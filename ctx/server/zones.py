"""Zones: groups of routes with the same access rules.

`RouteMiddleware` looks up each path in `Routes` once. The other middlewares check the zone of the route they
get, and the application runs that same route, so they cannot disagree about a path. The server does not start
if a route is missing from `TABLE`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from starlette.routing import Route
from starlette.types import Scope

from ctx.errors import BadRequest
from ctx.models import BANK, BANK_RULE
from ctx.server import errors
from ctx.server.policy import Access

MATCH = "ctx.match"  # the key of the `Match` in the ASGI scope
# With and without the final slash: with a redirect instead, clients would lose the body of a POST.
MCP_PATHS = (
    *("/mcp", "/mcp/", "/mcp/{bank}", "/mcp/{bank}/"),
    *("/packs/{pack}/mcp", "/packs/{pack}/mcp/"),
)

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ENCODED_STEP = re.compile(rb"%2[ef]|%5c", re.IGNORECASE)  # a dot, a slash, a backslash

Headers = Mapping[str, str]
Parameters = Mapping[str, str]


class Zone(NamedTuple):
    """A group of routes, and who may call them.

    `private`: a web page of another site must be listed in `allowed_origins` or send a key; if false, CORS
    decides. `admit` raises an error for a caller that may not use these routes.
    """

    private: bool
    admit: Callable[[Access], None] = lambda access: None
    shown: bool = False  # may be read without a key, even on a closed server
    counted: bool = False  # every request counts against the caller's rate
    rpc: bool = False  # errors of a POST are in JSON-RPC format
    door: str = "rest"


OPEN = Zone(private=False)
CALLS = Zone(private=False, counted=True)
SHOWN = Zone(private=False, shown=True)
PAGE = Zone(private=True, admit=Access.admit_documents)  # used by the server's own page and by Prometheus
LOG = Zone(private=True, admit=Access.admit_log)
MCP = Zone(private=True, admit=Access.admit_mcp, rpc=True, door="mcp")
PACK = Zone(private=True)  # each route checks its caller itself

TABLE: Mapping[str, Zone] = {
    "/": SHOWN,  # requests of MCP clients have another entry: see `Entry.serves`
    "/activity": PAGE,
    "/agents/list": CALLS,
    "/banks": PACK,
    "/clients": PAGE,
    "/health": SHOWN,
    "/llms.txt": OPEN,
    "/log": LOG,
    "/metrics": PAGE,
    "/openapi.json": OPEN,
    "/page/{name}": SHOWN,
    "/tools/list": CALLS,
    "/agents/{name}/prompt": CALLS,
    "/tools/sources": CALLS,
    "/tools/{name}": CALLS,
    **dict.fromkeys(MCP_PATHS, MCP),
}


class Entry(NamedTuple):
    """A route and its zone.

    `serves(method, headers)` chooses between routes with the same path. `error_body` builds the bodies of a
    pack's errors.
    """

    route: Route
    zone: Zone
    serves: Callable[[str, Headers], bool] | None = None
    error_body: errors.Shape | None = None


class Match(NamedTuple):
    """The route found for a request. Without an `entry` the reply is 404, after all checks."""

    zone: Zone
    entry: Entry | None = None
    parameters: Parameters = MappingProxyType({})


class Routes:
    """The routes of one server, in order. The first with a matching path is used, whatever its methods."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)

    def match(self, path: str, method: str, headers: Headers) -> Match:
        """The route of a request."""
        for entry in self._entries:
            found = entry.route.path_regex.fullmatch(
                path
            )  # with `match`, its `$` would allow a final newline
            if found is not None and (entry.serves is None or entry.serves(method, headers)):
                return Match(entry.zone, entry, found.groupdict())
        return Match(OPEN)


def check_path(scope: Scope) -> None:
    """Raises `BadRequest` for a path with control characters, or with an encoded slash, backslash or dot.

    No route needs them, and a proxy may interpret them differently.
    """
    raw: bytes = scope.get("raw_path") or b""
    if _CONTROL.search(scope["path"]) or _ENCODED_STEP.search(raw):
        raise BadRequest("a path must not have control characters or encoded slashes or dots")


def note(access: Access, match: Match, headers: Headers) -> None:
    """Stores the interface, pack, bank and session of a request. Raises `BadRequest` for a bad bank name."""
    access.door = match.zone.door
    access.session_id = headers.get("x-session-id", "")[:128] or None
    named = match.parameters if match.zone is MCP else {}
    access.pack = named.get("pack")
    access.bank = bank = named.get("bank") or headers.get("x-bank-id")
    access.bank_fixed = bank is not None  # a request with a bank uses it for every tool
    if bank == "":
        raise BadRequest("X-Bank-Id is empty: name a bank, or leave out the header for the default bank")
    if bank is not None and not BANK.fullmatch(bank):
        raise BadRequest(f"a bank's name has {BANK_RULE}")


def error_body(match: Match, method: str) -> errors.Shape:
    """The function that formats a route's errors: the route's own if it has one, JSON-RPC for POST in an RPC
    zone, else the default.
    """
    if match.entry is not None and match.entry.error_body is not None:
        return match.entry.error_body
    return errors.rpc_body if match.zone.rpc and method == "POST" else errors.body


def wants_mcp(method: str, headers: Headers) -> bool:
    """Whether a request for `/` is for MCP and not for the page or the descriptor."""
    if method in ("POST", "DELETE"):
        return True
    accept = headers.get("accept", "")
    return method == "GET" and "text/event-stream" in accept and "text/html" not in accept
