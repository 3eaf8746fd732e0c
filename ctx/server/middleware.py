"""The middlewares in front of REST, MCP and the page, outermost first:

`RequestMiddleware` (id, headers of every reply, log) → `RouteMiddleware` (`Host`, route and zone) →
`OriginMiddleware` (web pages) → `CallerMiddleware` (key and rate) → `BodySizeMiddleware`.

A middleware refuses a request by raising an error. A zone (policy.py) is a group of routes with the same
rules. The middlewares store what they know about a request in its `Access` (policy.py), with which the
endpoints check whether the caller may call a tool.
"""

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ctx.config.settings import LOOPBACK_HOSTS
from ctx.errors import (
    BadRequest,
    Busy,
    CtxError,
    Misdirected,
    OriginNotAllowed,
    PayloadTooLarge,
    Unauthorized,
)
from ctx.models import BANK, BANK_RULE
from ctx.server import errors
from ctx.server.policy import ACCESS, Access, Policy, Zone, host_name, plain_origin

logger = logging.getLogger(__name__)

PREFLIGHT_MAX_AGE_S = 600
# If a body is too large, this many bytes of it are still read and dropped, so that the client sees the reply
# and not a reset connection.
DRAIN_BYTES = 8 << 20
PAGES = "pages of other sites"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ENCODED_STEP = re.compile(rb"%2[ef]|%5c", re.IGNORECASE)  # an encoded dot, slash or backslash
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
_ORIGIN = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+)(?::\d{1,5})?")
_EXPOSED = "Mcp-Session-Id, Mcp-Protocol-Version, Retry-After, WWW-Authenticate, X-Request-Id"
_WRONG_KEY = "this key is not valid"
_NEEDLESS_KEY = (
    "this key is not valid. Most of this server needs no key: remove the Authorization header, make a key "
    "with 'ctx key create', or set the pack's variable (HINDSIGHT_API_TENANT_API_KEY, SEKHA_API_KEY) to "
    "the key you send"
)
_FOREIGN = "web pages of other sites need a key, or their origin in [server] allowed_origins"

Headers = Mapping[str, str]


class Entry(NamedTuple):
    """A route and its zone.

    `serves(method, headers)` chooses between routes with the same path. `error_body` builds the bodies of
    error replies; memory packs have their own format.
    """

    route: Route
    zone: Zone
    serves: Callable[[str, Headers], bool] | None = None
    error_body: errors.Shape | None = None


def _joined_headers(scope: Scope) -> dict[str, str]:
    """Header name -> value. The values of a repeated header are joined with commas, so a request with two
    `Host` or `Origin` headers matches no allowed value.
    """
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


async def _refuse(error: CtxError, scope: Scope, receive: Receive, send: Send) -> None:
    access: Access = scope[ACCESS]
    await errors.error_reply(error, access.error_body)(scope, receive, send)


class RequestMiddleware:
    """Gives each request an id and an `Access`, and each reply its security headers. Turns the errors of the
    inner middlewares into replies, and logs requests and failures.

    `start_failure` is the exception that the application raised when it started; run.py raises it again.
    """

    def __init__(self, app: ASGIApp, policy: Policy, lifespan: ASGIApp) -> None:
        self._app = app
        self._policy = policy
        self._lifespan = lifespan
        self.start_failure: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                await self._lifespan(scope, receive, send)
            except Exception as error:
                self.start_failure = error
            return
        began_s = time.perf_counter()
        headers = _joined_headers(scope)
        claimed = headers.get("x-request-id", "")
        request_id = claimed if _REQUEST_ID.fullmatch(claimed) else os.urandom(8).hex()
        address = scope["client"][0] if scope.get("client") else "local"
        scope[ACCESS] = Access(self._policy, request_id, headers, address)
        status = 0  # 0: the reply has not started

        async def send_reply(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = message.get("headers", ())
                message = {**message, "headers": [*present, *_security_headers(present, request_id)]}
            await send(message)

        failure: CtxError | None = None
        try:
            await self._app(scope, receive, send_reply)
        except ClientDisconnect:
            pass  # the client has closed the connection
        except CtxError as error:
            failure = error
        except asyncio.CancelledError:  # the server stops, and has waited long enough for this request
            failure = Busy("the server is stopping")
        except Exception:
            logger.exception("request failed id=%s", request_id)
            failure = errors.internal(request_id)
        if failure is not None and not status:
            await _refuse(failure, scope, receive, send_reply)
        # Successful requests are logged at DEBUG only: a tool call has its own log line (app.py), and most
        # other requests only ask for the current state.
        logger.log(
            logging.INFO if status >= 400 or not status else logging.DEBUG,
            "request id=%s method=%s path=%s status=%d ms=%.1f",
            request_id,
            scope["method"],
            scope.get("raw_path", b"").decode("ascii", "backslashreplace")[:200],
            status,
            (time.perf_counter() - began_s) * 1000,
        )


def _security_headers(present: Iterable[tuple[bytes, bytes]], request_id: str) -> list[tuple[bytes, bytes]]:
    named = {name.lower(): value for name, value in present}
    headers = [
        (b"x-request-id", request_id.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    ]
    if b"cache-control" not in named:
        headers.append((b"cache-control", b"no-store"))
    if named.get(b"content-type", b"").startswith(b"text/html"):
        headers.append((b"content-security-policy", CSP.encode()))
    return headers


class RouteMiddleware:
    """Finds the route of a request and its zone, and stores both for the other middlewares and the
    application, so that these cannot disagree about a path. The first of `entries` that matches is used.

    Accepts only the `Host` names of this machine, of `bind` and of `allowed_hosts`. This blocks DNS
    rebinding: a web page whose own host name resolves to this machine. Refuses paths with control characters,
    or with an encoded slash, backslash or dot: no route needs them, and a proxy may read them in another way.
    """

    def __init__(self, app: ASGIApp, entries: Iterable[Entry], policy: Policy) -> None:
        self._app = app
        self._entries = list(entries)
        # An entry may also be an address, such as http://box.lan:7331.
        allowed = (host_name(plain_origin(entry).split("/")[-1]) for entry in policy.settings.allowed_hosts)
        self._hosts = policy.own_hosts.union(allowed) - {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        access: Access = scope[ACCESS]
        headers = access.headers
        if host_name(headers.get("host", "")) not in self._hosts:
            raise Misdirected(
                "this server does not accept that Host; to allow it, add it to [server] allowed_hosts"
            )
        self._find_route(scope, access, _preflighted(scope, headers) or scope["method"])
        if _CONTROL.search(scope["path"]) or _ENCODED_STEP.search(scope.get("raw_path") or b""):
            raise BadRequest("a path must not have control characters or encoded slashes or dots")
        await self._app(scope, receive, send)

    def _find_route(self, scope: Scope, access: Access, method: str) -> None:
        """Stores the route and its zone. If there is no route, the reply is 404, sent after all checks."""
        path = scope["path"]
        tidy = re.sub("//+", "/", path)  # a proxy may have added slashes
        for spelling in dict.fromkeys((path, tidy)):
            for entry in self._entries:
                # With `match`, the `$` of the expression would allow a final newline.
                match = entry.route.path_regex.fullmatch(spelling)
                if match is not None and (entry.serves is None or entry.serves(method, access.headers)):
                    scope.update(
                        path_params=match.groupdict(), endpoint=entry.route.endpoint, route=entry.route
                    )
                    access.zone = entry.zone
                    default = errors.rpc_body if entry.zone.rpc and scope["method"] == "POST" else errors.body
                    access.error_body = entry.error_body or default
                    return


def _preflighted(scope: Scope, headers: Headers) -> str | None:
    """The method that a CORS preflight asks for; None if the request is not a preflight."""
    if scope["method"] != "OPTIONS" or "origin" not in headers:
        return None
    return headers.get("access-control-request-method")


class OriginMiddleware:
    """Sends CORS headers, and checks `Origin` in private zones.

    Web pages from `cors_origins` may call routes that are not private, without credentials. In a private
    zone, the origin of a web page from another site must be in `allowed_origins`, or the page must send a
    key. Starlette's CORSMiddleware is not enough: it has one rule for all routes, and refuses no request.
    """

    def __init__(self, app: ASGIApp, policy: Policy) -> None:
        self._app = app
        self._cors = frozenset(map(plain_origin, policy.settings.cors_origins))
        self._allowed = frozenset(map(plain_origin, policy.settings.allowed_origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        access: Access = scope[ACCESS]
        headers, private = access.headers, access.zone.private
        access.foreign = self._is_foreign(headers)
        preflight = _preflighted(scope, headers) is not None
        readers = self._readers(access, preflight=preflight)

        async def send_shared(message: Message) -> None:
            # In a private zone, a page of another site with a wrong key cannot read even the error.
            unproven = private and access.foreign and access.grant is None and not preflight
            if message["type"] == "http.response.start" and readers is not None and not unproven:
                shared = [
                    (b"access-control-allow-origin", readers.encode("latin-1")),
                    (b"access-control-expose-headers", _EXPOSED.encode()),
                    *([] if readers == "*" else [(b"vary", b"Origin")]),
                ]
                message = {**message, "headers": [*message.get("headers", ()), *shared]}
            await send(message)

        if preflight:
            allowed = {
                "access-control-allow-methods": f"GET, POST, {'DELETE, ' if private else ''}OPTIONS",
                "access-control-max-age": str(PREFLIGHT_MAX_AGE_S),
            }
            if names := headers.get("access-control-request-headers"):
                allowed["access-control-allow-headers"] = names
            await Response(status_code=204, headers=allowed)(scope, receive, send_shared)
            return
        try:
            await self._app(scope, receive, send_shared)
        except CtxError as error:  # answered here, with CORS headers, so that the web page can read the error
            await _refuse(error, scope, receive, send_shared)

    def _is_foreign(self, headers: Headers) -> bool:
        """Whether the request comes from a web page of another site.

        The server's own origin, other origins of this machine, and `allowed_origins` are not foreign.
        Requests for images and scripts have no `Origin`, but browsers mark them with `Sec-Fetch-Site`. A
        request from a link that a person followed is not foreign.
        """
        origin = headers.get("origin")
        if origin is None:
            cross_site = headers.get("sec-fetch-site") == "cross-site"
            return cross_site and headers.get("sec-fetch-dest") != "document"
        match = _ORIGIN.fullmatch(origin)
        # No match: "null" (a local file) or a browser extension.
        if match is None or origin.lower() in self._allowed:
            return origin.lower() not in self._allowed
        is_own = origin.lower().partition("://")[2] == headers.get("host", "").lower()
        return not is_own and host_name(match[1]) not in LOOPBACK_HOSTS

    def _readers(self, access: Access, *, preflight: bool) -> str | None:
        """The value for `Access-Control-Allow-Origin`; None for no CORS headers.

        Raises `OriginNotAllowed` if pages of this origin may not send the request.
        """
        headers = access.headers
        origin = headers.get("origin")
        if access.zone.private:
            # A preflight has no key. It is allowed if it announces one; the request itself is then checked.
            names = headers.get("access-control-request-headers", "").lower()
            announced = "authorization" in names if preflight else bool(_bearer(headers))
            if access.foreign and not (announced and access.policy.has_keys):
                raise OriginNotAllowed(_FOREIGN)
            return origin
        if origin is None:
            return None
        if "*" in self._cors:
            return "*"
        if access.foreign and origin.lower() not in self._cors:
            raise OriginNotAllowed(
                "web pages of this origin may not call this server; see [server] cors_origins"
            )
        return origin


class CallerMiddleware:
    """Finds out who calls: the key, the bank or pack, and the session. Counts REST calls against the caller's
    rate limit. MCP and the routes of packs count their calls themselves, with `Access.spend`.

    Refuses a wrong key, a missing key where one is needed, and callers that the zone does not admit.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        access: Access = scope[ACCESS]
        headers, zone = access.headers, access.zone
        named = scope["path_params"] if zone.rpc else {}
        access.pack = named.get("pack")
        access.bank = named.get("bank") or headers.get("x-bank-id")
        # If the request names a bank, all its tool calls use this bank.
        access.bank_fixed = access.bank is not None
        if access.bank == "":
            raise BadRequest("X-Bank-Id is empty: name a bank, or leave out the header for the default bank")
        if access.bank is not None and not BANK.fullmatch(access.bank):
            raise BadRequest(f"a bank's name has {BANK_RULE}")
        access.closed = access.policy.closed_to(headers)
        key, shown = _bearer(headers), zone.shown and scope["method"] in ("GET", "HEAD")
        grant = access.grant = access.policy.grant(key) if key else None
        if grant is None and not shown:
            if key and access.policy.has_keys:
                raise Unauthorized(_WRONG_KEY if access.closed else _NEEDLESS_KEY, presented=True)
            if access.closed:
                raise Unauthorized("send 'Authorization: Bearer KEY'")
        # The sandbox for scripts limits each session. All web pages of other sites that send no key share one
        # session.
        session_id = PAGES if access.foreign and grant is None else headers.get("x-session-id", "")[:128]
        access.session_id = session_id or None
        if access.foreign and grant is not None and zone.private:
            # The page was admitted only because of its key, so it may do only what the key allows.
            access.closed = True
        if access.bank is None and grant is not None and grant.banks is not None and len(grant.banks) == 1:
            access.bank = next(iter(grant.banks))
        zone.admit(access)
        if zone.counted:
            access.spend()
        await self._app(scope, receive, send)


def _bearer(headers: Headers) -> str:
    scheme, space, key = headers.get("authorization", "").strip().partition(" ")
    if not space:  # some clients of Hindsight send the key without "Bearer"
        return "" if scheme.lower() == "bearer" else scheme
    return key.strip() if scheme.lower() == "bearer" else ""


class BodySizeMiddleware:
    """Reads the whole body of a request, of at most `max_bytes`, before it calls the application."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, size, more = bytearray(), 0, True
        while more and size <= self._max_bytes + DRAIN_BYTES:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            piece = message.get("body", b"")
            size += len(piece)
            if size <= self._max_bytes:
                body += piece
            more = message.get("more_body", False)
        if size > self._max_bytes:
            raise PayloadTooLarge(
                f"the body is larger than {self._max_bytes} bytes ([server] max_body_bytes)"
            )
        scope[ACCESS].body = bytes(body)
        unread = [scope[ACCESS].body]

        async def replayed() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            return await receive()

        await self._app(scope, replayed, send)
