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

from ctx.errors import BadRequest, NotFound
from ctx.identity import BANK, BANK_RULE, RESERVED_BANKS
from ctx.server import errors
from ctx.server.policy import Access

MATCH = "ctx.match"  # the key of the `Match` in the ASGI scope
# With and without the final slash: a redirect loses a client's POST.
MCP_PATHS = ("/mcp", "/mcp/", "/mcp/{bank}", "/mcp/{bank}/")
PACK_MCP_PATHS = ("/packs/{pack}/mcp", "/packs/{pack}/mcp/")

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ENCODED_STEP = re.compile(rb"%2[ef]|%5c", re.IGNORECASE)  # a dot, a slash, a backslash

Headers = Mapping[str, str]
Parameters = Mapping[str, str]


class Zone(NamedTuple):
    """A kind of route, and who may call it.

    `private`: a web page of another site must be listed in `allowed_origins` or bring a key; else CORS
    decides. `admit` raises for a caller whose key opens the server but not this.
    """

    name: str
    private: bool
    admit: Callable[[Access, Parameters], None]
    shown: bool = False  # may be read without a key, on a closed server too
    counted: bool = False  # every request counts against the caller's rate
    rpc: bool = False  # errors of a POST are JSON-RPC
    door: str = "rest"


def _anyone(access: Access, parameters: Parameters) -> None:
    pass


def _reader(access: Access, parameters: Parameters) -> None:
    access.admit_documents()


def _log_reader(access: Access, parameters: Parameters) -> None:
    access.admit_log()


def _pack_client(access: Access, parameters: Parameters) -> None:
    name = parameters["pack"]
    if not access.knows_pack(name):
        raise NotFound(f"no memory pack called {name[:64]} is enabled")
    access.admit_pack(name)


def _mcp_client(access: Access, parameters: Parameters) -> None:
    if access.bank_fixed and access.bank in RESERVED_BANKS:
        raise NotFound(f"/mcp/{access.bank} is not a bank: the name is reserved")
    access.admit_mcp()


OPEN = Zone("open", private=False, admit=_anyone)
CALLS = Zone("calls", private=False, admit=_anyone, counted=True)
SHOWN = Zone("shown", private=False, admit=_anyone, shown=True)
PAGE = Zone("page", private=True, admit=_reader)  # only our own page asks for it
LOG = Zone("log", private=True, admit=_log_reader)
METRICS = Zone("metrics", private=True, admit=_reader)
MCP = Zone("mcp", private=True, admit=_mcp_client, rpc=True, door="mcp")
PACK = Zone("pack", private=True, admit=_anyone)  # each route checks its caller itself
PACK_MCP = Zone("pack mcp", private=True, admit=_pack_client, rpc=True, door="mcp")

TABLE: Mapping[str, Zone] = {
    "/": SHOWN,  # to MCP's clients MCP: see `Entry.serves`
    "/activity": PAGE,
    "/agents/list": CALLS,
    "/banks": PACK,
    "/clients": PAGE,
    "/health": SHOWN,
    "/llms.txt": OPEN,
    "/log": LOG,
    "/metrics": METRICS,
    "/openapi.json": OPEN,
    "/page/{name}": SHOWN,
    "/tools/list": CALLS,
    "/agents/{name}/prompt": CALLS,
    "/tools/sources": CALLS,
    "/tools/{name}": CALLS,
    **dict.fromkeys(MCP_PATHS, MCP),
    **dict.fromkeys(PACK_MCP_PATHS, PACK_MCP),
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
    access.pack = match.parameters.get("pack") if match.zone is PACK_MCP else None
    access.bank = _bank(match, headers)
    access.bank_fixed = access.bank is not None  # a connection with a bank is bound to it for every tool
    access.session_id = headers.get("x-session-id", "")[:128] or None


def _bank(match: Match, headers: Headers) -> str | None:
    fixed = match.parameters.get("bank") if match.zone is MCP else None
    bank = fixed or headers.get("x-bank-id")
    if bank == "":
        raise BadRequest("X-Bank-Id is empty: name a bank, or leave out the header for the default bank")
    if bank is not None and not BANK.fullmatch(bank):
        raise BadRequest(f"a bank's name has {BANK_RULE}")
    return bank


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
