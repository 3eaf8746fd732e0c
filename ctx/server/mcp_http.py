"""MCP over HTTP: which session a request belongs to, and requests that belong to none.

Two of the SDK's managers stand behind one door. The stateful one serves the handshake era and the stateless 2026 era; the other answers
bare POSTs that never shook hands (seed 000's `curl`). A session is bound to the bank and key it was opened with: used elsewhere it is unknown.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import orjson
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from ctx.server.mcp import Context, McpServer
from ctx.server.policy import ACCESS, Access
from ctx.tools.agents import Agent
from ctx.tools.base import Tool
from ctx.types import Caller

logger = logging.getLogger(__name__)

SESSION_IDLE_S = 1800
MAX_SESSIONS = 1024
MAX_BODY_BYTES = 1 << 30  # the guard has its own, smaller cap


class HttpEntrance:
    """The guard's knowledge of one HTTP request."""

    def __init__(self, access: Access, session_id: str | None, pack: str | None) -> None:
        self._access = access
        self._session_id = session_id
        self._pack = pack

    def caller(self, progress: Callable[[float, float | None, str], None] | None) -> Caller:
        return self._access.caller("mcp", session_id=self._session_id, pack=self._pack, progress=progress)

    def admit(self, tool: Tool) -> None:
        self._access.admit(tool)

    def admit_documents(self) -> None:
        self._access.admit_documents()

    def admit_agent(self, agent: Agent) -> None:
        self._access.admit_agent(agent)

    def spend(self) -> None:
        self._access.spend()


def enter_http(context: Context) -> HttpEntrance:
    """Who a request over HTTP comes from."""
    scope: Scope = context.request.scope
    return HttpEntrance(scope[ACCESS], _header(scope, b"mcp-session-id"), scope["path_params"].get("pack"))


class HttpDoor:
    """The ASGI side of MCP. One per server; it lives for one `lifespan`."""

    def __init__(self, mcp: McpServer) -> None:
        self._mcp = mcp
        # Host and Origin were checked by the guard, for every route alike.
        security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        self._sessions = StreamableHTTPSessionManager(
            mcp.server,
            session_idle_timeout=SESSION_IDLE_S,
            max_sessions=MAX_SESSIONS,
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
        self._closing: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        self._mcp.start()
        async with self._sessions.run(), self._bare.run():
            yield

    def close(self) -> None:
        """Ends the open streams, on the event loop, without waiting."""
        self._mcp.close()
        for transport in list(
            self._sessions._server_instances.values()
        ):  # the SDK has no public name for it (2.3)
            task = asyncio.ensure_future(transport.terminate())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        access: Access = scope[ACCESS]
        principal = access.grant.name if access.grant else "open"
        client = (
            f"{principal}@{access.bank if access.bank_fixed else ''}/{scope['path_params'].get('pack', '')}"
        )
        scope = {**scope, "user": AuthenticatedUser(AccessToken(token="-", client_id=client, scopes=[]))}  # noqa: S106 - no secret
        if scope["method"] == "POST":
            body = await _read(receive)
            if body is None:
                return
            message = _parsed(body)
            if message is not _BROKEN and not _is_message(message):
                # The SDK would answer -32602, which is for the parameters of a known method.
                await _refuse_message(scope, receive, send)
                return
            receive = _replay(body, receive)
            bare = _header(scope, b"mcp-session-id") is None and not _modern(scope)
            if bare and message is not _BROKEN and message.get("method") not in ("initialize", None):
                scope["headers"] = [pair for pair in scope["headers"] if pair[0] != b"accept"]
                scope["headers"].append((b"accept", b"application/json, text/event-stream"))
                await self._bare.handle_request(scope, receive, send)
                return
        await self._sessions.handle_request(scope, receive, send)


def _header(scope: Scope, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


def _modern(scope: Scope) -> bool:
    return (_header(scope, b"mcp-protocol-version") or "") >= "2026"


async def _read(receive: Receive) -> bytes | None:
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None  # the client went away
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    unread = [body]

    async def replayed() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return replayed


def _parsed(body: bytes) -> Any:
    """The JSON, `_BROKEN` where it is none: the SDK says what is wrong with it."""
    try:
        return orjson.loads(body)
    except ValueError:
        return _BROKEN


def _is_message(message: Any) -> bool:
    """Whether it is one JSON-RPC message (a batch is not answered: the protocol has none since 2025-06-18)."""
    return (
        isinstance(message, dict)
        and message.get("jsonrpc") == "2.0"
        and not message.keys().isdisjoint(_MESSAGE_KEYS)
    )


_BROKEN: Any = object()
_MESSAGE_KEYS = frozenset({"method", "result", "error"})
_NO_MESSAGE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": None,
    "error": {
        "code": types.INVALID_REQUEST,
        "message": "Invalid request: a body is one JSON-RPC 2.0 message; batches are not answered",
    },
}


async def _refuse_message(scope: Scope, receive: Receive, send: Send) -> None:
    await JSONResponse(_NO_MESSAGE, 400)(scope, receive, send)
