"""The guard: one outermost layer before REST, MCP and the page.

In this order, cheapest and most general first: Host, Origin, preflight, key, rate, size of the body. What it finds out of a
request goes to the doors as an `Access` (policy.py), of which they build the `Caller` and ask whether a tool may be called. It is also
the top handler: every failure leaves here as one error body, every reply with its request id and the security headers.
"""

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ctx.errors import (
    BadRequest,
    Busy,
    CtxError,
    Misdirected,
    NotFound,
    OriginNotAllowed,
    PayloadTooLarge,
    Unauthorized,
)
from ctx.identity import BANK, BANK_RULE, RESERVED_BANKS
from ctx.server import errors
from ctx.server.policy import ACCESS, Access, Policy, wants_mcp
from ctx.types import JSON

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT = 512  # requests and open streams together: half of the descriptors that a process usually gets
STOP_GRACE_S = (
    0.4  # what a call may still take once the server was asked to stop: with the rest it stays below a second
)
BODY_PAUSE_S = 30.0  # how long the next piece of a body may take to come
DRAIN_BYTES = (
    8 << 20
)  # read and thrown away of a body too large, so that the client reads our answer before a reset
PREFLIGHT_MAX_AGE_S = 600

_PACK_MCP = re.compile(r"/packs/([^/]+)/mcp/?")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
_HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{0,1024}")
_WRONG_KEY = "this key is not valid"
_NEEDLESS_KEY = (
    "this key is not valid; most of this server needs none: remove the Authorization header, make one with 'ctx key create', or set"
    " the pack's variable (HINDSIGHT_API_TENANT_API_KEY, SEKHA_API_KEY) to the one that is sent"
)
_BANK_PATH = re.compile(r"/mcp/([^/]+)/?")
_EXPOSED = "Mcp-Session-Id, Mcp-Protocol-Version, Retry-After, WWW-Authenticate, X-Request-Id"

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class Guard:
    """The ASGI application that the server runs: `app` behind the policy."""

    def __init__(self, app: ASGIApp, policy: Policy, *, ending: Callable[[], None] = lambda: None) -> None:
        self._app = app
        self._policy = policy
        self._ending = ending
        self._tasks: set[asyncio.Task[object]] = set()
        self.closing = False
        self.start_failure: Exception | None = None  # what kept the services from starting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                await self._app(scope, receive, send)
            except Exception as error:
                self.start_failure = error  # for the runner to raise: ASGI would make a text of it
            return
        began_s = time.perf_counter()
        task = asyncio.current_task()
        exchange = _Exchange(scope, receive, send, self._policy.settings.max_body_bytes)
        if task is not None:
            self._tasks.add(task)
        try:
            await self._answer(exchange)
        except CtxError as error:
            await exchange.fail(error)
        except ClientDisconnect:
            pass  # nobody is there to be told
        except asyncio.CancelledError:
            if not self.closing:
                raise
            await exchange.fail(Busy("the server is stopping"))
        except Exception:
            if not exchange.finished or exchange.status >= 500:
                logger.exception("request failed id=%s", exchange.access_id)
                await exchange.fail(errors.internal(exchange.access_id))
        finally:
            if task is not None:
                self._tasks.discard(task)
            _log(exchange, began_s)

    def close(self) -> None:
        """Begins the stop, on the event loop: no new requests, streams ended, calls cut short after a grace."""
        if self.closing:
            return
        self.closing = True
        self._ending()
        asyncio.get_running_loop().call_later(STOP_GRACE_S, self._cut_short)

    def _cut_short(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    async def _answer(self, exchange: "_Exchange") -> None:
        policy, headers = self._policy, exchange.request_headers
        given = headers.get("x-request-id", "")
        access = Access(policy, given if _REQUEST_ID.fullmatch(given) else os.urandom(8).hex())
        exchange.access_id = access.request_id
        scope = exchange.scope
        path, method = scope["path"], scope["method"]
        host = headers.get("host", "")
        if not policy.host_allowed(host):
            raise Misdirected(
                "this server does not answer to that Host; add it to [server] allowed_hosts if it should"
            )
        preflight = method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers
        intended = headers["access-control-request-method"] if preflight else method
        access.zone = exchange.zone = policy.zone(path, intended, headers)
        exchange.error_body = policy.error_body(path) if access.zone == "pack" else None
        origin = headers.get("origin")
        if origin is not None:
            access.foreign = not policy.trusts(origin, host)
        if preflight:
            await self._preflight(exchange, access, origin or "")
            return
        if self.closing:
            raise Busy("the server is stopping")
        if len(self._tasks) > MAX_IN_FLIGHT:
            raise Busy("the server has too many requests open; try again shortly")
        if origin is not None and not access.private:
            self._share(exchange, access, origin)
        self._identify(scope, access, headers)
        if origin is not None and access.private:
            if access.foreign and access.grant is None:
                raise OriginNotAllowed(
                    "web pages of other sites need a key here, or their origin in [server] allowed_origins"
                )
            exchange.share_with = origin
        if policy.limiter is not None and not access.private and path.startswith(("/tools/", "/agents/")):
            access.spend()
        scope[ACCESS] = access
        exchange.refuse_large_body()
        await self._app(scope, exchange.receive, exchange.send)

    def _share(self, exchange: "_Exchange", access: Access, origin: str) -> None:
        # Refusals are shared too: a page that may call must be able to read why it failed.
        if self._policy.cors_any:
            exchange.share_with = "*"
        elif not access.foreign or self._policy.cors_allows(origin):
            exchange.share_with = origin
        else:
            raise OriginNotAllowed(
                "web pages of this origin may not call this server; see [server] cors_origins"
            )

    async def _preflight(self, exchange: "_Exchange", access: Access, origin: str) -> None:
        headers = exchange.request_headers
        wanted = headers.get("access-control-request-headers", "")
        if not _HEADER_NAMES.fullmatch(wanted):
            raise BadRequest("Access-Control-Request-Headers is not a list of header names")
        methods = "GET, POST, OPTIONS"
        if access.private:
            # A preflight never carries the key: a page that announces one is let through to present it.
            if access.foreign and not (self._policy.has_keys and "authorization" in wanted.lower()):
                raise OriginNotAllowed(
                    "web pages of other sites need a key here, or their origin in [server] allowed_origins"
                )
            exchange.share_with = origin
            methods = "GET, POST, DELETE, OPTIONS"
        else:
            self._share(exchange, access, origin)
        reply = {"access-control-allow-methods": methods, "access-control-max-age": str(PREFLIGHT_MAX_AGE_S)}
        if wanted:
            reply["access-control-allow-headers"] = wanted
        if not access.private and headers.get("access-control-request-private-network") == "true":
            reply["access-control-allow-private-network"] = "true"  # asked by older Chromium forks only
        await exchange.reply(204, b"", reply)

    def _identify(self, scope: Scope, access: Access, headers: Mapping[str, str]) -> None:
        policy, path = self._policy, scope["path"]
        self._bank(access, path, headers)
        key = _bearer(headers.get("authorization", ""))
        if key and policy.has_keys:
            access.grant = policy.grant(key)
            if access.grant is None and not _needs_no_key(scope, headers):
                raise Unauthorized(_WRONG_KEY if policy.closed else _NEEDLESS_KEY, data={"presented": True})
        grant = access.grant
        if grant is not None and access.bank is None and grant.banks is not None and len(grant.banks) == 1:
            access.bank = next(iter(grant.banks))
        client = scope.get("client")
        access.spender = grant.name if grant is not None else (client[0] if client else "local")
        if policy.closed and not _needs_no_key(scope, headers):
            if grant is None:
                raise Unauthorized("send 'Authorization: Bearer KEY'")
            if access.zone == "metrics":
                access.admit_documents()
        own = _PACK_MCP.fullmatch(path)
        if own is not None:
            if own[1] not in policy.packs:
                raise NotFound(f"no memory pack called {own[1][:64]} is enabled")
            access.admit_pack(own[1])
        if access.zone == "mcp" and path in ("/mcp", "/mcp/") and grant is None and policy.mcp_locked():
            raise Unauthorized("send 'Authorization: Bearer KEY'")
        if access.zone == "mcp" and access.bank is not None:
            if grant is None and policy.bank_locked():
                raise Unauthorized("this bank needs a key: send 'Authorization: Bearer KEY'")
            if grant is not None and not grant.covers(access.bank):
                raise Unauthorized("this key does not open this bank", data={"presented": True})

    @staticmethod
    def _bank(access: Access, path: str, headers: Mapping[str, str]) -> None:
        named = _BANK_PATH.fullmatch(path)
        if named is not None and named[1] in RESERVED_BANKS and access.zone == "mcp":
            raise NotFound(f"/mcp/{named[1]} is no bank: the name is reserved")
        if named is not None and access.zone == "mcp":
            access.bank, access.bank_fixed = named[1], True
        else:
            access.bank = headers.get("x-bank-id") or None
            access.bank_fixed = (
                access.bank is not None
            )  # a connection with a bank is bound to it for every tool
        if access.bank is not None and not BANK.fullmatch(access.bank):
            raise BadRequest(f"a bank's name has {BANK_RULE}")
        access.session_id = headers.get("x-session-id", "")[:128] or None


class _Exchange:
    """One request and its reply as the guard sees them: counts the body, marks the headers, remembers the status."""

    __slots__ = (
        "_abandoned",
        "_limit",
        "_received",
        "_seen",
        "_send",
        "_whole",
        "access_id",
        "error_body",
        "finished",
        "request_headers",
        "scope",
        "share_with",
        "started",
        "status",
        "zone",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        self.scope = scope
        self._received = receive
        self._send = send
        self._limit = limit
        self._seen = 0
        self._whole = False
        self._abandoned = (
            False  # the rest of the body is not waited for, so the connection cannot be used again
        )
        self.access_id = "-"
        self.zone = "open"
        self.error_body: Callable[[CtxError], JSON] | None = None  # a pack's own shape of errors
        self.share_with: str | None = None
        self.started = False
        self.finished = False
        self.status = 0
        self.request_headers = _headers(scope)

    async def receive(self) -> Message:
        """The next message of the body. A body over the limit is answered here, and the application sees the client gone."""
        if self.finished:
            return {"type": "http.disconnect"}
        message = await self._next()
        if message["type"] == "http.request":
            self._whole = not message.get("more_body", False)
            self._seen += len(message.get("body", b""))
            if self._seen > self._limit:
                # Not raised: between here and the guard a library could take it for a failure of its own.
                await self._refuse_rest(more=message.get("more_body", False))
                return {"type": "http.disconnect"}
        return message

    async def _next(self) -> Message:
        if self._whole:  # what comes now is the client's leaving, and that may take long
            return await self._received()
        try:
            async with asyncio.timeout(BODY_PAUSE_S):
                return await self._received()
        except TimeoutError:
            self._abandoned = True
            await self.fail(BadRequest(f"the rest of the body did not come within {BODY_PAUSE_S:g} s"))
            return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Passes a message of the reply on, with the headers that every reply carries."""
        if self.finished:
            return
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            message = {
                **message,
                "headers": [*message.get("headers", ()), *self._marks(message.get("headers", ()))],
            }
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            self.finished = True
        await self._send(message)

    def refuse_large_body(self) -> None:
        """Raises `PayloadTooLarge` where the announced length is over the limit and the client waits for leave to send it."""
        length = self.request_headers.get("content-length", "")
        if (
            length.isdecimal()
            and int(length) > self._limit
            and self.request_headers.get("expect", "").lower() == "100-continue"
        ):
            self._abandoned = True
            raise self._too_large()

    async def fail(self, error: CtxError) -> None:
        """Answers with an error, or ends a reply that has begun."""
        if self.finished:
            return
        if self.started:
            self.finished = True
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        shape = self.error_body or (
            errors.rpc_body if self.zone == "mcp" and self.scope["method"] == "POST" else errors.body
        )
        extra = {"content-type": "application/json", **errors.headers(error)}
        if self._abandoned:
            extra["connection"] = "close"
        await self.reply(errors.row(error).status, errors.encode(shape(error)), extra)

    async def reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """A whole reply."""
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        if status != 204:
            raw.append((b"content-length", str(len(body)).encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    async def _refuse_rest(self, *, more: bool) -> None:
        drained = 0
        while more and drained < DRAIN_BYTES:
            message = await self._next()
            if message["type"] != "http.request":
                self.finished = True
                return
            drained += len(message.get("body", b""))
            more = message.get("more_body", False)
        self._abandoned = more
        await self.fail(self._too_large())

    def _too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(f"the body is larger than {self._limit} bytes ([server] max_body_bytes)")

    def _marks(self, present: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        named = {name.lower(): value for name, value in present}
        marks = [
            (b"x-request-id", self.access_id.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]
        if b"cache-control" not in named:
            marks.append((b"cache-control", b"no-store"))
        if named.get(b"content-type", b"").startswith(b"text/html"):
            marks.append((b"content-security-policy", CSP.encode()))
        if self.share_with is not None:
            marks.append((b"access-control-allow-origin", self.share_with.encode("latin-1")))
            marks.append((b"access-control-expose-headers", _EXPOSED.encode()))
            if self.share_with != "*":
                marks.append((b"vary", b"Origin"))
        return marks


def _headers(scope: Scope) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1")
        # Two Hosts or two Origins are a smuggler's: together they match nothing.
        found[name] = (
            f"{found[name]}, {value.decode('latin-1')}" if name in found else value.decode("latin-1")
        )
    return found


def _bearer(authorization: str) -> str:
    scheme, space, key = authorization.strip().partition(" ")
    if not space:  # some clients of Hindsight send the key alone
        return "" if scheme.lower() == "bearer" else scheme
    return key.strip() if scheme.lower() == "bearer" else ""


def _needs_no_key(scope: Scope, headers: Mapping[str, str]) -> bool:
    # What a closed server shows everybody: that it lives, and the page, which holds nothing until it is given a key.
    path = scope["path"]
    if scope["method"] not in ("GET", "HEAD"):
        return False
    return (
        path == "/health"
        or path.startswith("/page/")
        or (path == "/" and not wants_mcp(scope["method"], headers))
    )


def _log(exchange: _Exchange, began_s: float) -> None:
    # At INFO only what went wrong: a tool call has its own line (app.py), and the rest is polling.
    level = logging.INFO if exchange.status >= 400 or not exchange.status else logging.DEBUG
    if logger.isEnabledFor(level):
        logger.log(
            level,
            "request id=%s method=%s path=%s status=%d ms=%.1f",
            exchange.access_id,
            exchange.scope["method"],
            exchange.scope.get("raw_path", b"").decode("ascii", "backslashreplace")[:200],
            exchange.status,
            (time.perf_counter() - began_s) * 1000,
        )
