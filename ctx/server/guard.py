"""The guard: one outermost layer before REST, MCP and the page.

In this order, cheapest and most general first: Host, path, Origin, preflight, key, zone (zones.py), rate,
size of the body. What it finds out of a request goes to the doors as an `Access` (policy.py), of which they
build the `Caller` and ask whether a tool may be called. It is also the top handler: every failure leaves here
as one error body, every reply with its request id and the security headers.
"""

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ctx.errors import BadRequest, Busy, CtxError
from ctx.refusals import Misdirected, OriginNotAllowed, Unauthorized
from ctx.server import errors
from ctx.server.exchange import SLOW_BODY_S, Exchange
from ctx.server.policy import ACCESS, Access, Policy
from ctx.server.zones import MATCH, Headers, Match, Routes, check_path, error_body, note

logger = logging.getLogger(__name__)

# Requests without a reply yet: half of the descriptors that a process usually gets. Who reads one slowly, or
# holds a stream open, is bounded by the connections (run.py), and keeps nobody else from being let in.
MAX_IN_FLIGHT = 512
# Of all their bodies, as far as they have come; twice the largest single one where that is more.
MAX_BODY_BYTES = 128 << 20
# What a call may still take once the server was asked to stop: with the rest below a second.
STOP_GRACE_S = 0.4
PREFLIGHT_MAX_AGE_S = 600
PAGES = "pages of other sites"

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
_HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{0,1024}")
_WRONG_KEY = "this key is not valid"
_NEEDLESS_KEY = (
    "this key is not valid; most of this server needs none: remove the Authorization header, make one with "
    "'ctx key create', or set the pack's variable (HINDSIGHT_API_TENANT_API_KEY, SEKHA_API_KEY) to the one "
    "that is sent"
)
_CROWDED = "the server has too many requests open; try again shortly"
_FOREIGN = "web pages of other sites need a key here, or their origin in [server] allowed_origins"


class Guard:
    """The ASGI application that the server runs: `app`, whose routes are `routes`, behind the policy."""

    def __init__(
        self, app: ASGIApp, policy: Policy, routes: Routes, *, ending: Callable[[], None] = lambda: None
    ) -> None:
        self._app = app
        self._policy = policy
        self._routes = routes
        self._ending = ending
        self._open: dict[asyncio.Task[object], Exchange] = {}  # oldest first
        self._look: asyncio.TimerHandle | None = None  # at what the bodies take
        self.closing = False
        self.start_failure: Exception | None = None  # what kept the services from starting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                await self._app(scope, receive, _without_traceback(send))
            except Exception as error:
                self.start_failure = error  # for the runner to raise: ASGI would make a text of it
            return
        began_s = time.perf_counter()
        limit = self._policy.settings.max_body_bytes
        exchange = Exchange(scope, receive, send, limit, self._check_bodies)
        task = asyncio.current_task()
        assert task is not None, "a request is answered in a task of its own"
        self._open[task] = exchange
        try:
            await self._answer_or_fail(exchange)
        except asyncio.CancelledError:
            if not self.closing:
                raise  # else it was being told of a failure, and does not read
        finally:
            self._open.pop(task, None)
            _log(exchange, began_s)

    async def _answer_or_fail(self, exchange: Exchange) -> None:
        try:
            await self._answer(exchange)
        except CtxError as error:
            await exchange.fail(error)
        except ClientDisconnect:
            pass  # nobody is there to be told
        except asyncio.CancelledError:
            if not self.closing and not exchange.abandoned:
                raise
            await exchange.fail(Busy("the server is stopping" if self.closing else _CROWDED))
        except Exception:
            if not exchange.finished or exchange.status >= 500:
                logger.exception("request failed id=%s", exchange.request_id)
                await exchange.fail(errors.internal(exchange.request_id))

    def close(self) -> None:
        """Begins the stop, on the event loop: no new requests, streams ended, calls cut after a grace."""
        if self.closing:
            return
        self.closing = True
        self._ending()
        asyncio.get_running_loop().call_later(STOP_GRACE_S, self._cut_short)

    def _cut_short(self) -> None:
        for task in tuple(self._open):
            task.cancel()

    async def _answer(self, exchange: Exchange) -> None:
        policy, headers, scope = self._policy, exchange.request_headers, exchange.scope
        access = Access(policy, _request_id(headers))
        exchange.request_id = access.request_id
        self._check_host(headers)
        intended = _intended_method(scope["method"], headers)
        method = intended or scope["method"]
        match = self._routes.match(scope["path"], method, headers)
        exchange.error_body = access.error_body = error_body(match, scope["method"])
        check_path(scope)
        origin = headers.get("origin")
        access.foreign = _is_foreign(policy, origin, headers)
        if intended is not None:
            await self._preflight(exchange, access, match)
            return
        self._check_room()
        if origin is not None and not match.zone.private:
            # Before anything is refused: a page that may call must be able to read why it failed.
            exchange.share_with = policy.shared_with(origin, foreign=access.foreign)
        self._identify(scope, access, match, headers)
        if match.zone.private:
            if access.foreign and access.grant is None:
                raise OriginNotAllowed(_FOREIGN)
            exchange.share_with = origin
        if match.zone.counted:
            access.spend()
        scope[ACCESS], scope[MATCH] = access, match
        exchange.refuse_large_body()
        await self._app(scope, exchange.receive, exchange.send)

    def _check_host(self, headers: Headers) -> None:
        if not self._policy.host_allowed(headers.get("host", "")):
            raise Misdirected(
                "this server does not answer to that Host; add it to [server] allowed_hosts if it should"
            )

    def _check_room(self) -> None:
        if self.closing:
            raise Busy("the server is stopping")
        if len(self._open) <= MAX_IN_FLIGHT:
            return
        unanswered = sum(not exchange.started for exchange in self._open.values())
        if unanswered > MAX_IN_FLIGHT and self._end_slowest() is None:
            raise Busy(_CROWDED)

    def _check_bodies(self) -> None:
        """Ends who sends slowly where all bodies together take too much memory."""
        total = sum(exchange.body_bytes for exchange in self._open.values() if not exchange.abandoned)
        while total > max(MAX_BODY_BYTES, 2 * self._policy.settings.max_body_bytes):
            ended = self._end_slowest()
            if ended is None:
                self._look_again()
                return
            total -= ended.body_bytes

    def _look_again(self) -> None:
        """Looks once more when those whose bodies have just begun to come are late, too."""
        if self._look is None or self._look.when() <= asyncio.get_running_loop().time():
            self._look = asyncio.get_running_loop().call_later(SLOW_BODY_S + 0.1, self._check_bodies)

    def _end_slowest(self) -> Exchange | None:
        """Ends the oldest request whose body has yet to come: whoever sends slowly gives way to whoever is
        ready. None where nobody does.
        """
        for task, exchange in self._open.items():
            if exchange.sending_slowly:
                exchange.abandoned = True
                task.cancel()
                return exchange
        return None

    async def _preflight(self, exchange: Exchange, access: Access, match: Match) -> None:
        headers, private = exchange.request_headers, match.zone.private
        origin = headers["origin"]
        names = headers.get("access-control-request-headers", "")
        if not _HEADER_NAMES.fullmatch(names):
            raise BadRequest("Access-Control-Request-Headers is not a list of header names")
        if private:
            # A preflight never carries the key: a page that announces one is let through to present it.
            if access.foreign and not (self._policy.has_keys and "authorization" in names.lower()):
                raise OriginNotAllowed(_FOREIGN)
            exchange.share_with = origin
        else:
            exchange.share_with = self._policy.shared_with(origin, foreign=access.foreign)
        network = not private and headers.get("access-control-request-private-network") == "true"
        await exchange.reply(204, b"", _preflight_headers(names, private=private, network=network))

    def _identify(self, scope: Scope, access: Access, match: Match, headers: Headers) -> None:
        """Notes who asks and for what. Raises where they may not come in."""
        note(access, match, headers)
        access.closed = self._policy.closed_to(headers)
        readable = match.zone.shown and scope["method"] in ("GET", "HEAD")
        self._let_in(access, headers, readable=readable)
        if access.foreign and access.grant is None:
            # Whatever it calls its session: of each name's calls the sandbox takes its share, and of pages'
            # all together.
            access.session_id = PAGES
        elif access.foreign and match.zone.private:
            # It is in by its key alone, so that it gets what this key opens and not what is open here.
            access.closed = True
        access.settle(scope.get("client"))
        match.zone.admit(access, match.parameters)

    def _let_in(self, access: Access, headers: Headers, *, readable: bool) -> None:
        """Notes what the key that is shown opens. Raises where it is none, or one is needed, but for what
        anybody may read.
        """
        key = _bearer(headers.get("authorization", ""))
        if key and self._policy.has_keys:
            access.grant = self._policy.grant(key)
            if access.grant is None and not readable:
                raise Unauthorized(_WRONG_KEY if access.closed else _NEEDLESS_KEY, presented=True)
        if access.closed and access.grant is None and not readable:
            raise Unauthorized("send 'Authorization: Bearer KEY'")


def _is_foreign(policy: Policy, origin: str | None, headers: Headers) -> bool:
    """Whether a web page of another site asks. What it has as a picture or a script comes without an Origin,
    and browsers say so in a header of their own; a link that a person follows is theirs.
    """
    if origin is not None:
        return not policy.trusts(origin, headers.get("host", ""))
    return headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-dest") != "document"


def _request_id(headers: Headers) -> str:
    claimed = headers.get("x-request-id", "")
    return claimed if _REQUEST_ID.fullmatch(claimed) else os.urandom(8).hex()


def _intended_method(method: str, headers: Headers) -> str | None:
    """The method that a preflight asks leave for; None where it is none."""
    if method != "OPTIONS" or "origin" not in headers:
        return None
    return headers.get("access-control-request-method")


def _preflight_headers(names: str, *, private: bool, network: bool) -> dict[str, str]:
    """What a preflight is told. `names`: the headers that the page announces."""
    reply = {
        "access-control-allow-methods": "GET, POST, DELETE, OPTIONS" if private else "GET, POST, OPTIONS",
        "access-control-max-age": str(PREFLIGHT_MAX_AGE_S),
    }
    if names:
        reply["access-control-allow-headers"] = names
    if network:
        reply["access-control-allow-private-network"] = "true"  # asked by older Chromium forks only
    return reply


def _bearer(authorization: str) -> str:
    scheme, space, key = authorization.strip().partition(" ")
    if not space:  # some clients of Hindsight send the key alone
        return "" if scheme.lower() == "bearer" else scheme
    return key.strip() if scheme.lower() == "bearer" else ""


def _without_traceback(send: Send) -> Send:
    """Sends what a part says of its start without the text of a traceback, which the server would log: the
    runner raises the error itself.
    """

    async def tell(message: Message) -> None:
        await send({"type": message["type"]})

    return tell


def _log(exchange: Exchange, began_s: float) -> None:
    # At INFO only what went wrong: a tool call has its own line (app.py), and the rest is polling.
    level = logging.INFO if exchange.status >= 400 or not exchange.status else logging.DEBUG
    if logger.isEnabledFor(level):
        logger.log(
            level,
            "request id=%s method=%s path=%s status=%d ms=%.1f",
            exchange.request_id,
            exchange.scope["method"],
            exchange.scope.get("raw_path", b"").decode("ascii", "backslashreplace")[:200],
            exchange.status,
            (time.perf_counter() - began_s) * 1000,
        )
