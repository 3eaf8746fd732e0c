"""MCP on standard input and output: `ctx mcp`.

Nothing but JSON-RPC leaves on standard output, whatever prints (`frames.take_wire`). The SDK answers a broken
line with silence; here it gets -32700 or -32600, as JSON-RPC has it.
"""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import CancelledError
from itertools import chain
from typing import Any

import mcp_types as types
from mcp.server.stdio import stdio_server

from ctx.server.frames import MAX_LINE_BYTES, TOO_LONG, Frames
from ctx.server.mcp import Context, Entrance, McpServer
from ctx.server.mcp_shapes import NAMELESS, has_no_name, params_fault
from ctx.server.opening import CHANGES, Early, Opening, Requests
from ctx.types import JSON, Caller, as_table

logger = logging.getLogger(__name__)

_FAULTS = {
    types.PARSE_ERROR: "Parse error",
    types.INVALID_REQUEST: "Invalid request",
    types.INVALID_PARAMS: "Invalid params",
}
LAST_WORDS_S = 30.0  # how long a client that has closed its end (`echo ... | ctx mcp`) is still answered


class _Fault(Exception):
    """What is wrong with a message."""

    def __init__(self, id: JSON, code: int, reason: str) -> None:
        super().__init__(reason)
        self.id = id
        self.code = code

    def reply(self) -> bytes:
        error = {"code": self.code, "message": _FAULTS[self.code], "data": {"details": str(self)}}
        return json.dumps({"jsonrpc": "2.0", "id": self.id, "error": error}).encode()


class PipeEntrance:
    """Whoever started the process: they own the files, so nothing is refused them."""

    spender = "stdio"

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


def enter_pipe(caller: Caller) -> Callable[[Context], Entrance]:
    """Every request of this process comes from `caller`."""
    entrance = PipeEntrance(caller)
    return lambda context: entrance


class Wire:
    """The messages of one client, and what is answered to each."""

    def __init__(
        self,
        frames: Frames,
        *,
        lenient: bool = False,
        early: Early | None = None,
        opening: Opening | None = None,
    ) -> None:
        """`lenient`: an `initialize` without parameters gets some (claude-recall's own client sends none).
        `early` is what was said and answered already, `opening` where replies are recorded for the next
        start.
        """
        self._frames = frames
        self._lenient = lenient
        self._early = early or Early()
        self._opening = opening
        self._requests = Requests()
        self._recorded: dict[JSON, tuple[str, str]] = {}  # requests under way by id: method, key
        self._in_use: set[JSON] = set()  # ids of requests whose reply is not on its way yet
        self._unanswered: set[str | int] = set()  # ids of requests whose reply is not delivered yet
        self._all_answered = asyncio.Event()

    # What the SDK writes to: one line a message.
    async def write(self, text: str) -> None:
        message = json.loads(text) if self._unanswered or self._early.replies else {}
        id = None if "method" in message else message.get("id")
        self._in_use.discard(id)  # before the client has the reply: it may use the id again at once
        early_reply, recorded = self._early.replies.pop(id, None), self._recorded.pop(id, None)
        data = text.rstrip("\n").encode("utf-8", "replace")
        await asyncio.to_thread(self._deliver, data, message.get("result"), early_reply, recorded)
        if message and "method" not in message and id not in self._in_use:
            self._answered(id)

    def _deliver(self, data: bytes, reply: JSON, early_reply: JSON, recorded: tuple[str, str] | None) -> None:
        """Sends what the SDK says, unless the client was given the `early_reply` already, and records it.
        Where the two differ, the client is told to ask anew.
        """
        if early_reply is None:
            self._frames.send(data)
        if recorded is None:
            return
        method, key = recorded
        if self._opening is not None and reply is not None:
            self._opening.note(key, reply)
        if early_reply is not None and early_reply != reply:
            self._announce(method, key)

    def _announce(self, method: str, key: str) -> None:
        logger.warning("%s was answered from a record that no longer holds", method)
        if method in CHANGES and not key.startswith("\n"):  # after a handshake, which announces such news
            self._frames.send(CHANGES[method])

    def _answered(self, id: JSON) -> None:
        if isinstance(id, str | int):
            self._unanswered.discard(id)
        if not self._unanswered:
            self._all_answered.set()

    async def flush(self) -> None:
        pass

    # What the SDK reads from: only what is JSON-RPC.
    async def __aiter__(self) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[bytes | None] = asyncio.Queue(64)

        def listen() -> None:
            # A daemon thread, not a pool's: a blocked read must not keep a stopping process alive.
            for message in chain(self._early.messages, iter(self._frames.next, None), (None,)):
                delivery = arrived.put(message)
                try:
                    asyncio.run_coroutine_threadsafe(delivery, loop).result()
                except (RuntimeError, CancelledError):  # Ctrl-C has ended the loop, and nobody takes it
                    delivery.close()
                    return

        threading.Thread(target=listen, name="ctx-stdin", daemon=True).start()
        while (message := await arrived.get()) is not None:
            try:
                text = self._checked(message)
                request = json.loads(text)
                if request.get("id") in self._in_use and await self._taken(request):
                    reason = "the id is that of a request under way; each request has its own"
                    raise _Fault(request["id"], types.INVALID_REQUEST, reason)
            except _Fault as fault:
                self._frames.send(fault.reply())
                continue
            self._expect(request)
            yield text
        if self._unanswered:
            # The SDK drops what it is still about when the input ends.
            await self.finish(asyncio.ensure_future(self._all_answered.wait()))

    async def finish(self, under_way: "asyncio.Future[Any]") -> None:
        """Waits, once the client has closed its end, for what is under way, as long as somebody reads the
        replies.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LAST_WORDS_S
        while not (under_way.done() or self._frames.deserted or loop.time() > until_s):
            await asyncio.wait([under_way], timeout=0.2)

    async def _taken(self, request: dict[str, JSON]) -> bool:
        """Whether the id of a request is still another's. What was answered early the client takes for ended:
        there the SDK's own reply is waited for.
        """
        if "method" not in request:
            return False
        if request["id"] in self._early.replies:
            await self._all_answered.wait()
        return request["id"] in self._in_use

    def _call_off(self, request: JSON) -> None:
        if isinstance(request, str | int):
            self._in_use.discard(request)
            self._recorded.pop(request, None)
        self._answered(request)

    def _expect(self, message: dict[str, JSON]) -> None:
        method, id = message.get("method"), message.get("id")
        if method == "notifications/cancelled":  # what was called off is not answered
            self._call_off(as_table(message.get("params")).get("requestId"))
        elif isinstance(id, str | int) and method not in (None, "subscriptions/listen"):
            # A subscription ends with the client.
            key = None if self._opening is None else self._requests.key(message)
            if key is not None:
                self._recorded[id] = (str(method), key)
            self._in_use.add(id)
            self._unanswered.add(id)
            self._all_answered.clear()

    def _checked(self, line: bytes) -> str:
        """The message as text. Raises `_Fault` for what is no JSON-RPC."""
        message = _parsed(line)
        id = message.get("id")
        request_id = id if isinstance(id, str | int) and not isinstance(id, bool) else None
        if has_no_name(message):
            raise _Fault(None, types.INVALID_REQUEST, NAMELESS)
        if self._lenient and message.get("method") == "initialize":
            _complete(message)
        fault = params_fault(message)
        if fault is not None:
            raise _Fault(request_id, types.INVALID_PARAMS, fault)
        text = json.dumps(message)
        try:
            types.jsonrpc_message_adapter.validate_json(text, by_name=False)
        except ValueError as error:
            reason = 'a request has "jsonrpc": "2.0", an id and a method'
            raise _Fault(request_id, types.INVALID_REQUEST, reason) from error
        return text


def _complete(handshake: dict[str, JSON]) -> None:
    """Adds what a handshake leaves out."""
    params = handshake.get("params") or {}
    if isinstance(params, dict):
        handshake["params"] = {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "clientInfo": {"name": "unknown", "version": "0"},
            **params,
        }


def _parsed(line: bytes) -> dict[str, JSON]:
    """The message in a line. Raises `_Fault` for what is no JSON object."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        too_long = f"a message has at most {MAX_LINE_BYTES:,} bytes"
        reason = too_long if line == TOO_LONG else str(error)[:200]
        raise _Fault(None, types.PARSE_ERROR, reason) from error
    if not isinstance(message, dict):
        raise _Fault(None, types.INVALID_REQUEST, "a message is one JSON object; batches are not answered")
    return message


async def serve_pipes(mcp: McpServer, wire: Wire) -> None:
    """Serves one client until it closes its end."""
    mcp.start()
    streams: Any = wire
    try:
        async with stdio_server(stdin=streams, stdout=streams) as (reading, writing):
            await mcp.server.run(reading, writing, mcp.server.create_initialization_options())
    finally:
        mcp.close()
