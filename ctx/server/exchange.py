"""One request and its reply as the guard sees them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from ctx.errors import BadRequest, CtxError
from ctx.refusals import PayloadTooLarge
from ctx.server import errors
from ctx.types import JSON

BODY_PAUSE_S = 30.0  # how long the next piece of a body may take to come
SLOW_BODY_S = 0.5  # after which, in a crowd, it is not waited for any longer
LARGE_BYTES = 65_536  # up to which a body is not worth a look at what all of them take
DRAIN_BYTES = 8 << 20  # thrown away of a body too large, so that the client reads our answer before a reset
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_EXPOSED = "Mcp-Session-Id, Mcp-Protocol-Version, Retry-After, WWW-Authenticate, X-Request-Id"


def header(scope: Scope | Message, name: bytes) -> str | None:
    """The first header of that name, of a request or of a reply that begins."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name), None)


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request. Raises `ClientDisconnect` where its client goes away before the end."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class Exchange:
    """One request and its reply as the guard sees them: counts the body, marks the headers, remembers the
    status.
    """

    __slots__ = (
        "_limit",
        "_on_large",
        "_receive",
        "_send",
        "_waiting_since_s",
        "_whole",
        "abandoned",
        "body_bytes",
        "error_body",
        "finished",
        "request_headers",
        "request_id",
        "scope",
        "share_with",
        "started",
        "status",
    )

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, limit: int, on_large: Callable[[], None]
    ) -> None:
        """`on_large` is called at each piece of a body that is more than a few arguments."""
        self.scope = scope
        self._on_large = on_large
        self._receive = receive
        self._send = send
        self._limit = limit
        self.body_bytes = 0  # of the body, as far as it has come
        self._whole = False
        self._waiting_since_s: float | None = None
        # The rest of the body is not waited for, so the connection cannot be used again.
        self.abandoned = False
        self.request_id = "-"
        self.error_body: Callable[[CtxError], JSON] = errors.body  # the shape of errors where it leads
        self.share_with: str | None = None
        self.started = False
        self.finished = False
        self.status = 0
        self.request_headers = _headers(scope)

    async def receive(self) -> Message:
        """The next message of the body. A body over the limit is answered here, and the application sees the
        client gone.
        """
        if self.finished:
            return {"type": "http.disconnect"}
        message = await self._next()
        if message["type"] == "http.request":
            self._whole = not message.get("more_body", False)
            self.body_bytes += len(message.get("body", b""))
            if self.body_bytes > LARGE_BYTES:
                self._on_large()
            if self.body_bytes > self._limit:
                # Not raised: between here and the guard a library could take it for a failure of its own.
                await self._refuse_rest(more=message.get("more_body", False))
                return {"type": "http.disconnect"}
        return message

    @property
    def sending_slowly(self) -> bool:
        """Whether the body is read and has been coming for a while."""
        if self._waiting_since_s is None or self._whole or self.abandoned:
            return False
        return asyncio.get_running_loop().time() - self._waiting_since_s > SLOW_BODY_S

    async def _next(self) -> Message:
        # What comes now is the client's leaving, and that may take long; or the whole body is here, as
        # Uvicorn knows, whose `receive` is a method of what reads the request.
        if self._whole or not getattr(getattr(self._receive, "__self__", None), "more_body", True):
            return await self._receive()
        if self._waiting_since_s is None:
            self._waiting_since_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(BODY_PAUSE_S):
                return await self._receive()
        except TimeoutError:
            self.abandoned = True
            await self.fail(BadRequest(f"the rest of the body did not come within {BODY_PAUSE_S:g} s"))
            return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Passes a message of the reply on, with the headers that every reply carries."""
        if self.finished:
            return
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            headers = message.get("headers", ())
            message = {**message, "headers": [*headers, *self._marks(headers)]}
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            self.finished = True
        await self._send(message)

    def refuse_large_body(self) -> None:
        """Raises `PayloadTooLarge` where the announced length is over the limit and the client waits for
        leave to send it.
        """
        length = self.request_headers.get("content-length", "")
        if (
            length.isdecimal()
            and int(length) > self._limit
            and self.request_headers.get("expect", "").lower() == "100-continue"
        ):
            self.abandoned = True
            raise self._too_large()

    async def fail(self, error: CtxError) -> None:
        """Answers with an error, or ends a reply that has begun."""
        if self.finished:
            return
        if self.started:
            self.finished = True
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        extra = {"content-type": "application/json", **errors.headers(error)}
        if self.abandoned:
            extra["connection"] = "close"
        await self.reply(errors.row(error).status, errors.encode(self.error_body(error)), extra)

    async def reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """A whole reply."""
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        if status != 204:
            raw.append((b"content-length", str(len(body)).encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    async def _refuse_rest(self, *, more: bool) -> None:
        self.abandoned = more
        drained = 0
        while self.abandoned and drained < DRAIN_BYTES:
            message = await self._next()
            if message["type"] != "http.request":
                self.finished = True
                return
            drained += len(message.get("body", b""))
            self.abandoned = message.get("more_body", False)
        await self.fail(self._too_large())

    def _too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(f"the body is larger than {self._limit} bytes ([server] max_body_bytes)")

    def _marks(self, present: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        named = {name.lower(): value for name, value in present}
        marks = [
            (b"x-request-id", self.request_id.encode()),
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
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        # Two Hosts or two Origins are a smuggler's: together they match nothing.
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
