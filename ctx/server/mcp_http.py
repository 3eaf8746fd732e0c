"""MCP over HTTP: which session a request belongs to, and requests that belong to none.

Two of the SDK's managers stand behind one door. The stateful one serves the handshake era and the stateless
2026 era; the other answers bare POSTs that never shook hands (seed 000's `curl`). A session is bound to the
bank and key it was opened with: elsewhere it is unknown.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pydantic_core
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from ctx.server.exchange import header, read_body
from ctx.server.mcp import Context, Entrance, McpServer
from ctx.server.mcp_sessions import Sessions
from ctx.server.mcp_shapes import NAMELESS, has_no_name, params_fault
from ctx.server.policy import ACCESS, Access

logger = logging.getLogger(__name__)

SESSION_IDLE_S = 1800
MAX_BODY_BYTES = 1 << 30  # the guard has its own, smaller cap
# Its session keeps what a client says of itself for as long as it lasts, in 27 times the bytes at worst; real
# ones say a kilobyte, and their icons, which nobody looks at here.
MAX_HANDSHAKE_BYTES = 16 << 10


def enter_http(context: Context) -> Entrance:
    """Who a request over HTTP comes from: what the guard found out."""
    access: Access = context.request.scope[ACCESS]
    return access


def _in_one_line(record: logging.LogRecord) -> bool:
    """The SDK logs a traceback where a client hangs up, or a session ends, while a reply is on its way: the
    name of what happened is enough.
    """
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and not logging.getLogger().isEnabledFor(logging.DEBUG):
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        record.msg, record.args = f"{record.getMessage()} reason={type(error).__name__}", None
        record.exc_info = record.exc_text = None
    return True


class HttpDoor:
    """The ASGI side of MCP. One per server; it lives for one `lifespan`."""

    def __init__(self, mcp: McpServer) -> None:
        self._mcp = mcp
        # Host and Origin were checked by the guard, for every route alike.
        security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        self._sessions = StreamableHTTPSessionManager(
            mcp.server,
            session_idle_timeout=SESSION_IDLE_S,
            max_sessions=None,  # see mcp_sessions.py
            max_request_body_size=MAX_BODY_BYTES,
            security_settings=security,
        )
        self._bare = StreamableHTTPSessionManager(
            mcp.server,
            json_response=True,
            stateless=True,
            max_request_body_size=MAX_BODY_BYTES,
            security_settings=security,
        )
        self._transports = self._sessions._server_instances  # the SDK has no public name for it (2.3)
        self._book = Sessions(self._end, self._transports)
        self._closing: set[asyncio.Task[Any]] = set()
        logging.getLogger("mcp.server.streamable_http").addFilter(_in_one_line)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        self._mcp.start()
        async with self._sessions.run(), self._bare.run():
            yield

    def close(self) -> None:
        """Ends the open streams, on the event loop, without waiting."""
        self._mcp.close()
        for transport in list(self._transports.values()):
            task = asyncio.ensure_future(transport.terminate())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _end(self, id: str) -> None:
        transport = self._transports.get(id)
        if transport is not None:
            await transport.terminate()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        access: Access = scope[ACCESS]
        # No events are kept, so a stream that is taken up again begins anew: the SDK would answer nothing.
        headers = [pair for pair in scope["headers"] if pair[0].lower() != b"last-event-id"]
        scope = {**scope, "user": _owner(access), "headers": headers}
        session_id = header(scope, b"mcp-session-id")
        request = None
        if scope["method"] == "POST":
            body = await read_body(receive)
            message = _parsed(body)
            fault = _media_fault(scope) or _fault(message)
            if fault is not None:
                # The SDK would answer -32602, which is for the parameters of a known method.
                await JSONResponse(_refusal(fault), 400)(scope, receive, send)
                return
            fault = params_fault(message)
            if message.get("method") == "initialize":
                body = _handshake(message, body)
                if len(body) > MAX_HANDSHAKE_BYTES:
                    fault = f"a handshake has at most {MAX_HANDSHAKE_BYTES:,} bytes"
            if fault is not None:
                await JSONResponse(_refusal(fault, message.get("id")))(scope, receive, send)
                return
            receive = _replay(body, receive)
            if session_id is None and not _modern(scope):
                await self._sessionless(scope, receive, send, message.get("method"))
                return
            request = _request(message)
        async with self._book.use(session_id, request):
            await self._sessions.handle_request(scope, receive, send)

    async def _sessionless(self, scope: Scope, receive: Receive, send: Send, method: str | None) -> None:
        """A message of the older era without a session: it opens one, or it is a bare call."""
        if method == "initialize":
            peer = scope[ACCESS].spender
            await self._book.make_room(peer)
            await self._sessions.handle_request(scope, receive, self._noting(send, peer))
        elif method is None:
            await self._sessions.handle_request(scope, receive, send)
        else:
            scope["headers"] = [pair for pair in scope["headers"] if pair[0] != b"accept"]
            scope["headers"].append((b"accept", b"application/json, text/event-stream"))
            await self._bare.handle_request(scope, receive, send)

    def _noting(self, send: Send, peer: str) -> Send:
        """`send`, with an eye on the session that the reply opens."""

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                id = header(message, b"mcp-session-id")
                if id is not None:
                    self._book.opened(id, peer)
            await send(message)

        return noting


def _owner(access: Access) -> AuthenticatedUser:
    """Whose a session is: bound to bank, pack and key, it is unknown to everybody else."""
    principal = access.grant.name if access.grant else "open"
    client = f"{principal}@{access.bank if access.bank_fixed else ''}/{access.pack or ''}"
    return AuthenticatedUser(AccessToken(token="-", client_id=client, scopes=[]))  # noqa: S106 - no secret


def _modern(scope: Scope) -> bool:
    return (header(scope, b"mcp-protocol-version") or "") >= "2026"


def _replay(body: bytes, receive: Receive) -> Receive:
    unread = [body]

    async def replayed() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return replayed


def _parsed(body: bytes) -> Any:
    """The JSON, `_BROKEN` where it is none: the SDK says what is wrong with it. Read by what the SDK of that
    era reads it with: what another parser refuses (a NaN) would be a message there, and looked at by nobody.
    """
    try:
        return pydantic_core.from_json(body)
    except ValueError:
        return _BROKEN


def _handshake(message: dict[str, Any], body: bytes) -> bytes:
    """The body of a handshake, without the pictures of the client where it has some."""
    params = message.get("params")
    about = params.get("clientInfo") if isinstance(params, dict) else None
    if not isinstance(about, dict) or about.pop("icons", None) is None:
        return body
    return pydantic_core.to_json(message)


def _media_fault(scope: Scope) -> str | None:
    media_type = (header(scope, b"content-type") or "").lower()  # judged as the SDK does, which says no mend
    return (
        None if media_type.startswith("application/json") else "send it with Content-Type: application/json"
    )


def _fault(message: Any) -> str | None:
    """What is wrong with a body as a message; None where nothing is, and of one that is no JSON."""
    if message is _BROKEN:
        return None
    # A batch is none: the protocol has none since 2025-06-18.
    known = isinstance(message, dict) and message.get("jsonrpc") == "2.0"
    if not known or message.keys().isdisjoint(_MESSAGE_KEYS):
        return "a body is one JSON-RPC 2.0 message; batches are not answered"
    return NAMELESS if has_no_name(message) else None


def _request(message: Any) -> str | None:
    """The id of a request as the SDK tells them apart; None where the message is another."""
    if "method" not in message or message.get("id") is None:
        return None
    return str(message["id"])


def _refusal(fault: str, id: Any = None) -> dict[str, Any]:
    """Of a message, or of the parameters of the request with this id."""
    code, subject = (types.INVALID_REQUEST, "request") if id is None else (types.INVALID_PARAMS, "params")
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": f"Invalid {subject}: {fault}"}}


_BROKEN: dict[str, Any] = {}  # told from a body `{}` by being this very one
_MESSAGE_KEYS = frozenset({"method", "result", "error"})
