"""MCP over HTTP: one stateless endpoint for all MCP paths and both protocol eras. There are no sessions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import mcp_types as types
from mcp.server.streamable_http import check_accept_headers
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ctx.models import JSON
from ctx.server.mcp import Auth, Context, McpServer
from ctx.server.mcp_shapes import MessageFault, read_message
from ctx.server.middleware import replay
from ctx.server.policy import ACCESS, Access

MAX_BODY_BYTES = 1 << 30  # effectively no limit: BodySizeMiddleware enforces a smaller one
VERSION = "mcp-protocol-version"
JSON_TYPE = "application/json"


def http_auth(context: Context) -> Auth:
    """The `Access` of an HTTP request, which the middlewares filled in."""
    access: Access = context.request.scope[ACCESS]
    return access


class McpEndpoint:
    """Serves MCP over ASGI. Create one per server; it works only within its `lifespan`, which runs once."""

    def __init__(self, mcp: McpServer) -> None:
        self._mcp = mcp
        self._json = self._manager(json_response=True)
        self._stream = self._manager(json_response=False)

    def _manager(self, *, json_response: bool) -> StreamableHTTPSessionManager:
        return StreamableHTTPSessionManager(
            self._mcp.server,
            stateless=True,
            json_response=json_response,
            max_request_body_size=MAX_BODY_BYTES,
            # The middlewares have checked Host and Origin.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        async with self._json.run(), self._stream.run():
            yield

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a POST: with JSON, or with an event stream if the client wants progress or no JSON."""
        request = Request(scope, receive)
        body = await request.body()
        try:
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON_TYPE:
                reason = f"send the message with Content-Type: {JSON_TYPE}"
                raise MessageFault(None, types.INVALID_REQUEST, reason)
            message = read_message(body)
            _check_version(request.headers.get(VERSION), message)
        except MessageFault as fault:
            reply = fault.reply().model_dump_json(by_alias=True, exclude_unset=True)
            await Response(reply, 400, media_type=JSON_TYPE)(scope, receive, send)
            return
        accepts_json, accepts_stream = check_accept_headers(request)
        streams = accepts_stream and ("progressToken" in _meta(message) or not accepts_json)
        manager = self._stream if streams else self._json
        await manager.handle_request(_plain(scope, message), replay(body, receive), send)


def _check_version(version: str | None, message: dict[str, JSON]) -> None:
    if not version or version in KNOWN_PROTOCOL_VERSIONS or message.get("method") == "initialize":
        return
    if types.PROTOCOL_VERSION_META_KEY in _meta(message):
        return  # a request of the modern era: the SDK checks its version
    reason = f"MCP {version[:40]} is not supported; use one of {', '.join(KNOWN_PROTOCOL_VERSIONS)}"
    data: dict[str, JSON] = {"supported": [*KNOWN_PROTOCOL_VERSIONS], "requested": version[:40]}
    raise MessageFault(message.get("id"), types.UNSUPPORTED_PROTOCOL_VERSION, reason, **data)


def _meta(message: dict[str, JSON]) -> dict[str, JSON]:
    meta = (message.get("params") or {}).get("_meta")
    return meta if isinstance(meta, dict) else {}


def _plain(scope: Scope, message: dict[str, JSON]) -> Scope:
    """The request scope with headers that the SDK accepts.

    `Accept` is replaced. The version header of a legacy `initialize` is removed, because the version is
    negotiated from the body.
    """
    dropped = {"accept"}
    if message.get("method") == "initialize" and types.PROTOCOL_VERSION_META_KEY not in _meta(message):
        dropped.add(VERSION)
    headers = [pair for pair in scope["headers"] if pair[0].decode("latin-1").lower() not in dropped]
    headers = [pair for pair in headers if pair != (VERSION.encode(), b"")]
    return {**scope, "headers": [*headers, (b"accept", b"application/json, text/event-stream")]}
