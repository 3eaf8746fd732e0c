"""Zones: which route belongs to which, and who may call it.

`RouteMiddleware` looks a path up in `Routes` once; the other middlewares check its zone, and that very route
is run, so that they cannot disagree about a path. The server does not start with a route that the table does
not name.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from starlette.routing import Route
from starlette.types import Scope

from ctx.errors import BadRequest
from ctx.identity import BANK, BANK_RULE
from ctx.server import errors
from ctx.server.policy import Access

MATCH = "ctx.match"  # the key of the `Match` in the ASGI scope
# With and without the final slash: a redirect loses a client's POST.
MCP_PATHS = (
    *("/mcp", "/mcp/", "/mcp/{bank}", "/mcp/{bank}/"),
    *("/packs/{pack}/mcp", "/packs/{pack}/mcp/"),
)

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ENCODED_STEP = re.compile(rb"%2[ef]|%5c", re.IGNORECASE)  # a dot, a slash, a backslash

Headers = Mapping[str, str]
Parameters = Mapping[str, str]


class Zone(NamedTuple):
    """A kind of route, and who may call it.

    `private`: a web page of another site must be listed in `allowed_origins` or bring a key; else CORS
    decides. `admit` raises for a caller whose key opens the server but not this.
    """

    private: bool
    admit: Callable[[Access], None] = lambda access: None
    shown: bool = False  # may be read without a key, on a closed server too
    counted: bool = False  # every request counts against the caller's rate
    rpc: bool = False  # errors of a POST are JSON-RPC
    door: str = "rest"


OPEN = Zone(private=False)
CALLS = Zone(private=False, counted=True)
SHOWN = Zone(private=False, shown=True)
PAGE = Zone(private=True, admit=Access.admit_documents)  # only our own page asks for it, and Prometheus
LOG = Zone(private=True, admit=Access.admit_log)
MCP = Zone(private=True, admit=Access.admit_mcp, rpc=True, door="mcp")
PACK = Zone(private=True)  # each route checks its caller itself

TABLE: Mapping[str, Zone] = {
    "/": SHOWN,  # to MCP's clients MCP: see `Entry.serves`
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
    """A route and its zone. `serves(method, headers)` tells routes of one path apart; `error_body` makes the
    bodies of a pack's errors.
    """

    route: Route
    zone: Zone
    serves: Callable[[str, Headers], bool] | None = None
    error_body: errors.Shape | None = None


class Match(NamedTuple):
    """The route of a path. Without an `entry` the answer is 404, after all checks."""

    zone: Zone
    entry: Entry | None = None
    parameters: Parameters = MappingProxyType({})


class Routes:
    """The routes of one server, in order: the first whose path fits is taken, whatever its methods."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)

    def match(self, path: str, method: str, headers: Headers) -> Match:
        """The route of a request."""
        for entry in self._entries:
            found = entry.route.path_regex.fullmatch(path)  # its `$` alone would let a newline pass
            if found is not None and (entry.serves is None or entry.serves(method, headers)):
                return Match(entry.zone, entry, found.groupdict())
        return Match(OPEN)


def check_path(scope: Scope) -> None:
    """Raises `BadRequest` for a path with control characters, or with an encoded slash, backslash or dot.

    No path of ours has any, and a proxy may read them differently.
    """
    raw: bytes = scope.get("raw_path") or b""
    if _CONTROL.search(scope["path"]) or _ENCODED_STEP.search(raw):
        raise BadRequest("a path must not have control characters or encoded slashes or dots")


def note(access: Access, match: Match, headers: Headers) -> None:
    """Notes the interface, bank and session of a request. Raises `BadRequest` for a bad bank name."""
    access.door = match.zone.door
    access.session_id = headers.get("x-session-id", "")[:128] or None
    named = match.parameters if match.zone is MCP else {}
    access.pack = named.get("pack")
    access.bank = bank = named.get("bank") or headers.get("x-bank-id")
    access.bank_fixed = bank is not None  # a connection with a bank is bound to it for every tool
    if bank == "":
        raise BadRequest("X-Bank-Id is empty: name a bank, or leave out the header for the default bank")
    if bank is not None and not BANK.fullmatch(bank):
        raise BadRequest(f"a bank's name has {BANK_RULE}")


def error_body(match: Match, method: str) -> errors.Shape:
    """What makes the error bodies of a route: its pack, JSON-RPC, or the usual shape."""
    if match.entry is not None and match.entry.error_body is not None:
        return match.entry.error_body
    return errors.rpc_body if match.zone.rpc and method == "POST" else errors.body


def wants_mcp(method: str, headers: Headers) -> bool:
    """Whether a request for `/` is for MCP and not for the page or the descriptor."""
    if method in ("POST", "DELETE"):
        return True
    accept = headers.get("accept", "")
    return method == "GET" and "text/event-stream" in accept and "text/html" not in accept
