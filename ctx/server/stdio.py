"""MCP on standard input and output: `ctx mcp`.

Uses the SDK's stdio transport behind a filter for lines. The SDK does not answer an invalid line; the filter
answers with the error -32700 or -32600. Only JSON-RPC reaches standard output, whatever the process prints.
"""

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TextIO

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ToolsListChanged,
)
from mcp.shared.message import SessionMessage

from ctx.models import JSON, Caller
from ctx.server.mcp import Auth, Context, McpServer
from ctx.server.mcp_shapes import MessageFault, read_message

logger = logging.getLogger(__name__)

LAST_REPLIES_S = 30.0  # how long replies are still sent after the input has ended (`echo ... | ctx mcp`)
ANNOUNCE_DELAY_S = 0.02  # merges the announcements of a reload, which replaces several tools

_OLDEST_VERSION = "2024-11-05"  # for an `initialize` that names no version

Incoming = Any  # a stream of SessionMessage; the SDK has no public name for its type
Outgoing = MemoryObjectSendStream[SessionMessage]


class StdioAuth:
    """The user who started the process. Nothing is refused, since the user owns the files."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def caller(self) -> Caller:
        return self._caller

    def admit(self, tool: Any) -> None:
        pass

    def shows(self, pack: str | None) -> bool:
        return True

    def admit_agent(self, agent: Any) -> None:
        pass

    def spend(self) -> None:
        pass


def stdio_auth(caller: Caller) -> Callable[[Context], Auth]:
    """An `auth` function for `McpServer`: every request comes from `caller`."""
    auth = StdioAuth(caller)
    return lambda context: auth


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
async def client_streams(
    source: TextIO, sink: TextIO, *, lenient: bool = False
) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Two streams: messages from the client at `source`, and messages to the client at `sink`.

    After the input has ended, the first stream ends when all requests have their replies.

    `lenient`: completes an `initialize` without parameters, which the client of Claude Recall sends.
    """
    outgoing, replies = anyio.create_memory_object_stream[SessionMessage]()
    pending: set[JSON] = set()  # the ids of requests without a reply
    answered = asyncio.Event()

    async def valid_lines() -> AsyncIterator[str]:
        async for line in _lines(source):
            try:
                message = read_message(line)
            except MessageFault as fault:
                await outgoing.send(SessionMessage(fault.reply()))
                continue
            method, id = message.get("method"), message.get("id")
            if method == "initialize" and lenient:
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


async def serve_stdio(mcp: McpServer, reading: Incoming, writing: Outgoing) -> None:
    """Serves one client until its input ends."""
    _announce_changes(mcp)
    changes = NotificationOptions(tools_changed=True, prompts_changed=True)
    await mcp.server.run(reading, writing, mcp.server.create_initialization_options(changes))


async def _lines(source: TextIO) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        try:
            for line in source:
                loop.call_soon_threadsafe(arrived.put_nowait, line)
            loop.call_soon_threadsafe(arrived.put_nowait, None)
        except RuntimeError:
            pass  # the loop has ended

    # A daemon thread: one that waits for input must not keep the process from ending.
    threading.Thread(target=read, name="ctx-stdin", daemon=True).start()
    while (line := await arrived.get()) is not None:
        if line.strip():
            yield line


def _announce_changes(mcp: McpServer) -> None:
    """Tells the client when tools or prompts change: in the legacy era with a notification, in the modern one
    on its `subscriptions/listen` stream.
    """
    loop = asyncio.get_running_loop()
    bus = InMemorySubscriptionBus()
    session: Any = None  # of a legacy client
    scheduled: dict[str, asyncio.Task[None]] = {}

    async def initialized(context: Context, params: Any) -> None:
        nonlocal session
        session = context.session

    async def announce(what: str) -> None:
        await asyncio.sleep(ANNOUNCE_DELAY_S)
        del scheduled[what]
        await bus.publish(ToolsListChanged() if what == "tools" else PromptsListChanged())
        if session is not None:
            await (
                session.send_tool_list_changed() if what == "tools" else session.send_prompt_list_changed()
            )

    def schedule(what: str) -> None:
        if what not in scheduled:
            scheduled[what] = loop.create_task(announce(what))

    def changed(what: str) -> None:  # called in any thread
        try:
            loop.call_soon_threadsafe(schedule, what)
        except RuntimeError:
            pass  # the server has stopped

    mcp.server.add_notification_handler("notifications/initialized", types.NotificationParams, initialized)
    mcp.server.add_request_handler(
        "subscriptions/listen", types.SubscriptionsListenRequestParams, ListenHandler(bus)
    )
    mcp.toolbox.on_change(lambda: changed("tools"))
    mcp.agents.on_change(lambda: changed("prompts"))


def run(serving: Coroutine[Any, Any, None], sink: TextIO) -> None:
    """Runs `serving` until it ends or the client closes one of the streams."""
    try:
        asyncio.run(serving)
    except* (BrokenPipeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        logger.info("the client stopped reading")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sink.fileno())  # discards unsent output
