"""`ctx mcp`: MCP on standard input and output, answered by this process or forwarded to a server over HTTP.

Input lines pass a filter before the MCP SDK reads them. The SDK does not answer an invalid line, so the
filter answers it with the error -32700 or -32600. Only JSON-RPC reaches standard output, whatever the process
prints.
"""

import asyncio
import json
import logging
import os
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TextIO
from urllib.parse import urlsplit

import anyio
import httpx2
import mcp_types as types
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server import subscriptions
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.shared import inbound
from mcp.shared.message import SessionMessage
from mcp_types import PROTOCOL_VERSION_META_KEY

from ctx.http import MAX_REPLY_BYTES, Upstream, is_loopback
from ctx.models import JSON
from ctx.server.keys import Grant
from ctx.server.mcp import Context, McpServer
from ctx.server.mcp_shapes import MessageFault, read_message
from ctx.server.policy import Access, Policy, ServerSettings, Zone

logger = logging.getLogger(__name__)

LAST_REPLIES_S = 30.0  # how long replies are still sent after the input has ended (`echo ... | ctx mcp`)
CONNECT_S = 10.0
RESTART_S = 10.0  # how long a request waits for the project's server to come back
LOOK_S = 0.1
ANNOUNCE_DELAY_S = 0.02  # merges the announcements of a reload, which replaces several tools
OWN_REPLY_BYTES = 256 << 20  # largest reply accepted from a server of the same user, in bytes

_OLDEST_VERSION = "2024-11-05"  # assumed if `initialize` names no version
_CONNECT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout)

Incoming = Any  # a stream of SessionMessage; the SDK has no public name for its type
Outgoing = MemoryObjectSendStream[SessionMessage]


def take_stdio() -> tuple[TextIO, TextIO]:
    """Reserves standard input and output for the protocol, and returns them.

    From then on, `print`, C libraries and child processes write to standard error.
    """
    sys.stdout.flush()
    source = os.fdopen(os.dup(0), encoding="utf-8", errors="replace")
    sink = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return source, sink


@asynccontextmanager
async def client_streams(source: TextIO, sink: TextIO) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Two streams: messages from the client at `source`, and messages to the client at `sink`.

    After the input has ended, the first stream ends when all requests have their replies.
    """
    outgoing, replies = anyio.create_memory_object_stream[SessionMessage]()
    pending: set[JSON] = set()  # the ids of requests without a reply
    answered = asyncio.Event()

    async def valid_lines() -> AsyncIterator[str]:
        async for line in _lines(source):
            try:
                message = read_message(line)
            except MessageFault as fault:
                await outgoing.send(SessionMessage(fault.reply))
                continue
            method, id = message.get("method"), message.get("id")
            if method == "initialize":  # needed because the client of Claude Recall sends no parameters
                message["params"] = {"protocolVersion": _OLDEST_VERSION, **(message.get("params") or {})}
            if method == "notifications/cancelled":  # a cancelled request gets no reply
                cancelled = (message.get("params") or {}).get("requestId")
                if isinstance(cancelled, str | int):
                    pending.discard(cancelled)
            elif method is not None and id is not None and method != "subscriptions/listen":
                pending.add(id)
            yield json.dumps(message)
        with anyio.move_on_after(LAST_REPLIES_S):
            while pending:
                answered.clear()
                await answered.wait()

    async def send_replies() -> None:
        async with replies, writing:
            async for reply in replies:
                await writing.send(reply)
                if isinstance(reply.message, types.JSONRPCResponse | types.JSONRPCError):
                    pending.discard(reply.message.id)
                    answered.set()

    stdin: Any = valid_lines()
    async with (
        stdio_server(stdin=stdin, stdout=anyio.wrap_file(sink)) as (reading, writing),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(send_replies)
        async with reading, outgoing:
            yield reading, outgoing


async def _lines(source: TextIO) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        with suppress(RuntimeError):  # the loop has ended
            for line in source:
                loop.call_soon_threadsafe(arrived.put_nowait, line)
            loop.call_soon_threadsafe(arrived.put_nowait, None)

    # A daemon thread, because a thread that waits for input must not keep the process from ending.
    threading.Thread(target=read, name="ctx-stdin", daemon=True).start()
    while (line := await arrived.get()) is not None:
        if line.strip():
            yield line


def run(serving: Coroutine[Any, Any, None], sink: TextIO) -> None:
    """Runs `serving` until it ends or the client closes one of the streams."""
    try:
        asyncio.run(serving)
    except* (BrokenPipeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        logger.info("the client stopped reading")
        # The interpreter would flush unsent output at exit; this discards it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sink.fileno())


# -- answered by this process --------------------------------------------------------------------------------


def stdio_access(bank: str | None, pack: str | None) -> Callable[[Context], Access]:
    """The `access` function for `McpServer` over stdio: every request comes from the user of this process.

    Nothing is refused, since the user owns the files.
    """
    zone = Zone(private=False, interface="stdio")
    access = Access(Policy(ServerSettings()), "-", {}, zone=zone, closed=False, grant=Grant(None))
    access.bank, access.bank_fixed, access.pack = bank, bank is not None, pack
    return lambda context: access


async def serve_stdio(mcp: McpServer, reading: Incoming, writing: Outgoing) -> None:
    """Serves one client until its input ends.

    Tells the client when tools or prompts change: in the legacy era with a notification, in the modern one on
    its `subscriptions/listen` stream.
    """
    loop = asyncio.get_running_loop()
    bus = subscriptions.InMemorySubscriptionBus()
    session: Any = None  # the session of a client of the legacy protocol era

    async def initialized(context: Context, params: Any) -> None:
        nonlocal session
        session = context.session

    pending: dict[type, asyncio.Task[None]] = {}  # kind of event -> its announcement

    async def announce(event: Any, notify: Callable[[Any], Awaitable[None]]) -> None:
        await asyncio.sleep(ANNOUNCE_DELAY_S)  # a reload may replace several tools
        del pending[type(event)]
        await bus.publish(event)
        if session is not None:
            await notify(session)

    def schedule(event: Any, notify: Callable[[Any], Awaitable[None]]) -> None:
        if type(event) not in pending:
            pending[type(event)] = loop.create_task(announce(event, notify))

    def changed(event: Any, notify: Callable[[Any], Awaitable[None]]) -> None:  # may be called in any thread
        with suppress(RuntimeError):  # the server has stopped
            loop.call_soon_threadsafe(schedule, event, notify)

    mcp.server.add_notification_handler("notifications/initialized", types.NotificationParams, initialized)
    mcp.server.add_request_handler(
        "subscriptions/listen", types.SubscriptionsListenRequestParams, subscriptions.ListenHandler(bus)
    )
    tools, prompts = subscriptions.ToolsListChanged(), subscriptions.PromptsListChanged()
    mcp.toolbox.on_change(lambda: changed(tools, lambda session: session.send_tool_list_changed()))
    mcp.agents.on_change(lambda: changed(prompts, lambda session: session.send_prompt_list_changed()))
    changes = NotificationOptions(tools_changed=True, prompts_changed=True)
    await mcp.server.run(reading, writing, mcp.server.create_initialization_options(changes))


# -- forwarded to a server -----------------------------------------------------------------------------------


class _Undelivered(Exception):
    """A message was not delivered, or has no usable reply. The text says what to do."""


class Proxy:
    """Forwards the messages of one MCP client to one HTTP server, and the replies back.

    Each message is a separate POST. The server has no session, so it may restart between requests.
    """

    def __init__(self, server: Upstream, find: Callable[[], Upstream | None] | None = None) -> None:
        """`find` is called before each message and returns the current server, or None while there is none.

        Pass it for a server of this user, which may restart at another address and with another key.
        """
        self._server = server
        self._find = find
        self._most_bytes = OWN_REPLY_BYTES if find else MAX_REPLY_BYTES
        host = urlsplit(server.url).hostname or ""
        if server.key and server.url.startswith("http:") and not is_loopback(host):
            logger.warning("the key goes to %s unencrypted; use https or a tunnel", host)
        headers = {
            "Accept": "application/json, text/event-stream",
            # No compression, because the size of a compressed reply cannot be checked.
            "Accept-Encoding": "identity",
            "X-Session-Id": f"stdio-{uuid.uuid4().hex}",  # for memories, this process is one session
        }
        timeout = httpx2.Timeout(None, connect=CONNECT_S)
        # The HTTP proxy in the environment is not used for this machine.
        self._http = httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=not is_loopback(host))
        self._version: str | None = None  # the MCP version that `initialize` negotiated
        self._calls: dict[str | int, anyio.CancelScope] = {}  # the requests that wait for a reply

    async def run(self, reading: Incoming, writing: Outgoing) -> None:
        """Forwards messages until the client's input ends."""
        async with self._http, writing, anyio.create_task_group() as tasks:
            async for item in reading:
                message = item.message.model_dump(by_alias=True, exclude_unset=True)
                if message.get("method") == "notifications/cancelled":
                    id = (message.get("params") or {}).get("requestId")
                    if isinstance(id, str | int) and id in self._calls:
                        self._calls[id].cancel()  # closes its connection, which ends the call
                else:
                    tasks.start_soon(self._carry, message, writing)
            tasks.cancel_scope.cancel()  # ends the subscriptions, which are the only requests still open

    async def _carry(self, message: dict[str, Any], writing: Outgoing) -> None:
        if message.get("method") == "initialize":  # keep the client's name: later requests do not have it
            info = (message.get("params") or {}).get("clientInfo")
            if isinstance(info, dict) and info.get("name"):
                self._http.headers["X-Ctx-Client"] = inbound.encode_header_value(str(info["name"])[:80])
        id = message.get("id") if "method" in message else None
        with anyio.CancelScope() as scope:
            if id is not None:
                self._calls[id] = scope
            try:
                await self._deliver(message, writing)
            except _Undelivered as error:
                logger.warning("%s", error)
                if id is not None:
                    failure = types.ErrorData(code=types.INTERNAL_ERROR, message=str(error))
                    reply = types.JSONRPCError(jsonrpc="2.0", id=id, error=failure)
                    await writing.send(SessionMessage(reply))
        if id is not None and self._calls.get(id) is scope:
            del self._calls[id]

    async def _deliver(self, message: dict[str, Any], writing: Outgoing) -> None:
        """Sends a message. With `find`, waits up to `RESTART_S` for the server to be reachable."""
        if self._find is None:
            try:
                return await self._exchange(message, writing)
            except _CONNECT_ERRORS as error:
                raise _Undelivered(
                    f"no server answers at {self._server.url}; is `ctx serve mcp` running there? ({error})"
                ) from error
        deadline_s = anyio.current_time() + RESTART_S
        while anyio.current_time() < deadline_s:
            if server := self._find():
                self._server = server
                with suppress(*_CONNECT_ERRORS):
                    return await self._exchange(message, writing)
            await anyio.sleep(LOOK_S)
        raise _Undelivered(
            "this project's server has stopped: start it with `ctx serve`, or reconnect the client"
        )

    async def _exchange(self, message: dict[str, Any], writing: Outgoing) -> None:
        """Sends a message and passes the replies to the client. Raises the errors in `_CONNECT_ERRORS`."""
        url, headers, answered = self._server.url, self._headers(message), False
        try:
            async with self._http.stream("POST", url, json=message, headers=headers) as reply:
                if reply.status_code in (202, 204):
                    return
                async for data in _messages(reply, self._most_bytes):
                    answer = self._checked(data, reply, message)
                    if isinstance(answer, types.JSONRPCResponse) and "protocolVersion" in answer.result:
                        self._version = str(answer.result["protocolVersion"])
                    await writing.send(SessionMessage(answer))
                    answered |= not isinstance(answer, types.JSONRPCNotification)
        except _CONNECT_ERRORS:
            raise
        except httpx2.SSEError as error:
            raise _Undelivered(f"{url}: {error}") from error
        except httpx2.HTTPError as error:
            broken = f"the connection to {url} was lost ({type(error).__name__})"
            raise _Undelivered(f"{broken}; the call may or may not have run") from error
        if not answered and "id" in message:
            raise _Undelivered(f"{url} sent no complete answer; the call may or may not have run")

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self._server.key}"} if self._server.key else {}
        params = message.get("params") or {}
        version, method = (params.get("_meta") or {}).get(PROTOCOL_VERSION_META_KEY), message.get("method")
        if not isinstance(version, str) or method is None:
            return headers | ({inbound.MCP_PROTOCOL_VERSION_HEADER: self._version} if self._version else {})
        headers |= {inbound.MCP_PROTOCOL_VERSION_HEADER: version, inbound.MCP_METHOD_HEADER: method}
        name = params.get(inbound.NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            headers[inbound.MCP_NAME_HEADER] = inbound.encode_header_value(name)
        return headers

    def _checked(
        self, data: str | bytes, reply: httpx2.Response, message: dict[str, Any]
    ) -> types.JSONRPCMessage:
        """Parses a message in an HTTP reply. Raises `_Undelivered` if the server refused the request before
        MCP handled it (the status or a wrong id shows that), or if the answer is not MCP.
        """
        url, status, reason = self._server.url, reply.status_code, ""
        with suppress(ValueError):
            answer = types.jsonrpc_message_adapter.validate_json(data, by_name=False)
            if isinstance(answer, types.JSONRPCNotification):
                return answer
            if answer.id == message.get("id") and status not in (401, 403, 413, 421, 429):
                return answer
            if isinstance(answer, types.JSONRPCError):
                reason = f": {answer.error.message[:300]}"
        if status == 404:
            raise _Undelivered(f"{url} answered 404: no MCP server at this path; use /mcp or /mcp/BANK")
        if status == 200:
            raise _Undelivered(f"{url} did not answer with MCP; is it the address of a ctx server?")
        if status == 401 and self._server.key:
            raise _Undelivered(f"{url} refused the key (401){reason}")
        if status == 401:
            reason = f": a key is needed: export it and name its variable with --key-env{reason}"
        raise _Undelivered(f"{url} answered {status}{reason}")


async def _messages(reply: httpx2.Response, most_bytes: int) -> AsyncIterator[str | bytes]:
    """The messages in an HTTP reply. Raises `_Undelivered` if the reply is too large or compressed."""
    encoding = reply.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise _Undelivered(
            f"{reply.url}: the reply has the encoding '{encoding[:40]}', which ctx does not accept"
        )
    if reply.headers.get("content-type", "").startswith("text/event-stream"):
        async for event in httpx2.EventSource(reply, max_event_size=most_bytes):
            if event.data.strip():
                yield event.data
        return
    body = bytearray()
    async for piece in reply.aiter_raw():
        body += piece
        if len(body) > most_bytes:
            raise _Undelivered(f"{reply.url}: the reply is larger than {most_bytes >> 20} MiB")
    yield bytes(body)
