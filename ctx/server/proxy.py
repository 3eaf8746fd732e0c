"""`ctx mcp` as a proxy: forwards the messages of a client on standard input to a server over HTTP.

Each message is a separate POST, and its replies go back to the client. The server has no session, so it may
restart between requests. A failed request gets a JSON-RPC error that says what to do.
"""

import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import mcp_types as types
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp.shared.message import SessionMessage
from mcp_types import PROTOCOL_VERSION_META_KEY

from ctx.http import MAX_REPLY_BYTES, Upstream, is_loopback
from ctx.server.stdio import Incoming, Outgoing

logger = logging.getLogger(__name__)

CONNECT_S = 10.0
RESTART_S = 10.0  # how long a request waits for the project's server to come back
LOOK_S = 0.1
OWN_REPLY_BYTES = 256 << 20  # limit for replies from a server of the same user


_CONNECT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout)


class _Unreadable(ValueError):
    """A reply that cannot be read: it is too large or compressed."""


class Proxy:
    """Forwards the messages of one MCP client to one HTTP server, and the replies back."""

    def __init__(self, server: Upstream, find: Callable[[], Upstream | None] | None = None) -> None:
        """`find` is called before each message and returns the current server, or None while there is none.

        It is for a server of this user, which may restart at another address and with another key.
        """
        self._server = server
        self._find = find
        self._most_bytes = OWN_REPLY_BYTES if find else MAX_REPLY_BYTES
        host = urlsplit(server.url).hostname or ""
        if server.key and server.url.startswith("http:") and not is_loopback(host):
            logger.warning("the key goes to %s unencrypted; use https or a tunnel", host)
        headers = {
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",  # the size of a compressed reply cannot be checked
            "X-Session-Id": f"stdio-{uuid.uuid4().hex}",  # this process is one memory session
        }
        timeout = httpx2.Timeout(None, connect=CONNECT_S)
        # The HTTP proxy in the environment is not used for this machine.
        self._http = httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=not is_loopback(host))
        self._version: str | None = None  # negotiated by `initialize`
        self._calls: dict[str | int, anyio.CancelScope] = {}  # requests in flight

    async def run(self, reading: Incoming, writing: Outgoing) -> None:
        """Forwards messages until the client's input ends."""
        async with self._http, writing, anyio.create_task_group() as tasks:
            async for item in reading:
                message = item.message.model_dump(by_alias=True, exclude_unset=True)
                if message.get("method") == "notifications/cancelled":
                    self._cancel((message.get("params") or {}).get("requestId"))
                else:
                    tasks.start_soon(self._carry, message, writing)
            tasks.cancel_scope.cancel()  # only subscriptions are still open

    def _cancel(self, id: Any) -> None:
        """Cancels a request by closing its connection."""
        scope = self._calls.pop(id, None) if isinstance(id, str | int) else None
        if scope is not None:
            scope.cancel()

    async def _carry(self, message: dict[str, Any], writing: Outgoing) -> None:
        if message.get("method") == "initialize":  # later requests do not name the client
            info = (message.get("params") or {}).get("clientInfo")
            if isinstance(info, dict) and info.get("name"):
                self._http.headers["X-Ctx-Client"] = encode_header_value(str(info["name"])[:80])
        id = message.get("id") if "method" in message else None
        with anyio.CancelScope() as scope:
            if id is not None:
                self._calls[id] = scope
            error = await self._deliver(message, writing)
            if error is not None:
                logger.warning("%s", error)
            if error is not None and id is not None:
                failure = types.ErrorData(code=types.INTERNAL_ERROR, message=error)
                await writing.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=id, error=failure)))
        if id is not None and self._calls.get(id) is scope:
            del self._calls[id]

    async def _deliver(self, message: dict[str, Any], writing: Outgoing) -> str | None:
        """Sends a message. With `find`, waits up to `RESTART_S` for the server to be reachable.

        Returns an error message, or None on success.
        """
        if self._find is None:
            try:
                return await self._exchange(message, writing)
            except _CONNECT_ERRORS as error:
                return f"no server answers at {self._server.url}; is `ctx serve mcp` running there? ({error})"
        deadline_s = anyio.current_time() + RESTART_S
        while anyio.current_time() < deadline_s:
            if found := self._find():
                self._server = found
                with suppress(*_CONNECT_ERRORS):
                    return await self._exchange(message, writing)
            await anyio.sleep(LOOK_S)
        return "this project's server has stopped: start it with `ctx serve`, or reconnect the client"

    async def _exchange(self, message: dict[str, Any], writing: Outgoing) -> str | None:
        """Sends a message and passes the replies to the client.

        Returns an error message, or None on success. Raises the errors in `_CONNECT_ERRORS`.
        """
        try:
            async with self._http.stream(
                "POST", self._server.url, json=message, headers=self._headers(message)
            ) as reply:
                if reply.status_code in (202, 204):
                    return None
                answered = False
                async for data in _messages(reply, self._most_bytes):
                    answer = _parsed(data)
                    if answer is None or _is_refusal(reply, answer, message):
                        return self._refusal(reply, answer)
                    if isinstance(answer, types.JSONRPCResponse) and "protocolVersion" in answer.result:
                        self._version = str(answer.result["protocolVersion"])
                    await writing.send(SessionMessage(answer))
                    answered |= not isinstance(answer, types.JSONRPCNotification)
                if answered or "id" not in message:
                    return None
                return f"{self._server.url} sent no complete answer; the call may or may not have run"
        except _CONNECT_ERRORS:
            raise
        except (httpx2.SSEError, _Unreadable) as error:
            return f"{self._server.url}: {error}"
        except httpx2.HTTPError as error:
            broken = f"the connection to {self._server.url} was lost ({type(error).__name__})"
            return f"{broken}; the call may or may not have run"

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self._server.key}"} if self._server.key else {}
        params = message.get("params") or {}
        version, method = (params.get("_meta") or {}).get(PROTOCOL_VERSION_META_KEY), message.get("method")
        if not isinstance(version, str) or method is None:
            return headers | ({MCP_PROTOCOL_VERSION_HEADER: self._version} if self._version else {})
        headers |= {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: method}
        name = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
        return headers

    def _refusal(self, reply: httpx2.Response, answer: types.JSONRPCMessage | None) -> str:
        status = reply.status_code
        if status == 404:
            return f"{self._server.url} answered 404: no MCP server at this path; use /mcp or /mcp/BANK"
        if status == 200:
            return f"{self._server.url} did not answer with MCP; is it the address of a ctx server?"
        reason = f": {answer.error.message[:300]}" if isinstance(answer, types.JSONRPCError) else ""
        if status == 401 and self._server.key:
            return f"{self._server.url} refused the key (401){reason}"
        if status == 401:
            needed = "a key is needed: export it and name its variable with --key-env"
            return f"{self._server.url} answered 401: {needed}{reason}"
        return f"{self._server.url} answered {status}{reason}"


def _is_refusal(reply: httpx2.Response, answer: types.JSONRPCMessage, message: dict[str, Any]) -> bool:
    """Whether the server refused the request before MCP handled it: by its status, or by a wrong id."""
    if isinstance(answer, types.JSONRPCNotification):
        return False
    return answer.id != message.get("id") or reply.status_code in (401, 403, 413, 421, 429)


def _parsed(data: str | bytes) -> types.JSONRPCMessage | None:
    try:
        return types.jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValueError:
        return None


async def _messages(reply: httpx2.Response, most_bytes: int) -> AsyncIterator[str | bytes]:
    """The messages in a reply. Raises `_Unreadable` for one that is too large or compressed."""
    encoding = reply.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise _Unreadable(f"the reply has the encoding '{encoding[:40]}', which ctx does not accept")
    if reply.headers.get("content-type", "").startswith("text/event-stream"):
        async for event in httpx2.EventSource(reply, max_event_size=most_bytes):
            if event.data.strip():
                yield event.data
        return
    body = bytearray()
    async for piece in reply.aiter_raw():
        body += piece
        if len(body) > most_bytes:
            raise _Unreadable(f"the reply is larger than {most_bytes >> 20} MiB")
    yield bytes(body)
