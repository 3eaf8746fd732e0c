"""MCP on standard input and output: `ctx mcp`.

Nothing but JSON-RPC leaves on standard output, whatever prints (`frames.take_wire`). The SDK answers a broken
line with silence; here it gets -32700 or -32600, as JSON-RPC has it.
"""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import mcp_types as types
from mcp.server.stdio import stdio_server

from ctx.server.frames import Frames
from ctx.server.mcp import Context, Entrance, McpServer, Progress
from ctx.server.mcp_shapes import NAMELESS, has_no_name
from ctx.server.opening import CHANGES, Early, Opening, Requests
from ctx.types import JSON, Caller

logger = logging.getLogger(__name__)

LAST_WORDS_S = 30.0  # how long a client that has closed its end (`echo ... | ctx mcp`) is still answered


class PipeEntrance:
    """Whoever started the process: they own the files, so nothing is refused them but the pack's own rate."""

    def __init__(self, caller: Caller, spend: Callable[[Caller], None] | None) -> None:
        self._caller = caller
        self._spend = spend

    def caller(self, progress: Progress | None = None) -> Caller:
        return self._caller._replace(progress=progress)

    def admit(self, tool: Any) -> None:
        pass

    def admit_documents(self) -> None:
        return None

    def admit_agent(self, agent: Any) -> None:
        pass

    def spend(self) -> None:
        if self._spend is not None:
            self._spend(self._caller)


def enter_pipe(
    caller: Caller, spend: Callable[[Caller], None] | None = None
) -> Callable[[Context], Entrance]:
    """Every request of this process comes from `caller`; `spend` raises `RateLimited` when it has called too
    often.
    """
    entrance = PipeEntrance(caller, spend)
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
        """`lenient`: an `initialize` without parameters gets some (claude-recall's own client sends none). `early` is
        what was said and answered already, `opening` where replies are recorded for the next start.
        """
        self._frames = frames
        self._lenient = lenient
        self._early = early or Early()
        self._opening = opening
        self._requests = Requests()
        self._recorded: dict[str | int, tuple[str, str]] = {}  # requests under way by id: method, key
        self._unanswered: set[str | int] = set()  # ids of requests
        self._all_answered = asyncio.Event()

    # What the SDK writes to: one line a message.
    async def write(self, text: str) -> None:
        message = json.loads(text) if self._unanswered else {}
        await asyncio.to_thread(self._deliver, text.rstrip("\n").encode("utf-8", "replace"), message)
        if message and "method" not in message:
            self._answered(message.get("id"))

    def _deliver(self, data: bytes, message: dict[str, Any]) -> None:
        """Sends what the SDK says, unless it was said already, and records it."""
        id = None if "method" in message else message.get("id")
        if id not in self._early.replies:
            self._frames.send(data)
        if id in self._recorded:
            self._note(id, message)

    def _note(self, id: str | int, message: dict[str, JSON]) -> None:
        """Records a reply of the SDK's. Where another one was given already, the client is told to ask anew."""
        method, key = self._recorded.pop(id)
        reply = message.get("result")
        if self._opening is not None and reply is not None:
            self._opening.note(key, reply)
        if id in self._early.replies and self._early.replies.pop(id) != reply:
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
    def __aiter__(self) -> AsyncIterator[str]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[bytes | None] = asyncio.Queue(64)

        def listen() -> None:
            # A daemon thread, not a pool's: a blocked read must not keep a stopping process alive.
            for message in self._raw():
                asyncio.run_coroutine_threadsafe(arrived.put(message), loop).result()
            asyncio.run_coroutine_threadsafe(arrived.put(None), loop).result()

        threading.Thread(target=listen, name="ctx-stdin", daemon=True).start()
        while (message := await arrived.get()) is not None:
            text = self._checked(message)
            if text is not None:
                self._expect(json.loads(text))
                yield text
        if self._unanswered:
            # The SDK drops what it is still about when the input ends.
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._all_answered.wait()

    def _expect(self, message: dict[str, JSON]) -> None:
        method, id = message.get("method"), message.get("id")
        if method == "notifications/cancelled":  # what was called off is not answered
            params = message.get("params")
            self._answered(params.get("requestId") if isinstance(params, dict) else None)
        elif isinstance(id, str | int) and method not in (
            None,
            "subscriptions/listen",
        ):  # a subscription ends with the client
            key = None if self._opening is None else self._requests.key(message)
            if key is not None:
                self._recorded[id] = (str(method), key)
            self._unanswered.add(id)
            self._all_answered.clear()

    def _raw(self) -> Iterator[bytes]:
        yield from self._early.messages
        while (message := self._frames.next()) is not None:
            yield message

    def _checked(self, line: bytes) -> str | None:
        """The message as text, or None where the client was told what is wrong with it."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            self._refuse(None, types.PARSE_ERROR, "Parse error", str(error)[:200])
            return None
        if not isinstance(message, dict):
            self._refuse(
                None,
                types.INVALID_REQUEST,
                "Invalid request",
                "a message is one JSON object; batches are not answered",
            )
            return None
        id = message.get("id")
        request_id = id if isinstance(id, str | int) and not isinstance(id, bool) else None
        if has_no_name(message):
            self._refuse(None, types.INVALID_REQUEST, "Invalid request", NAMELESS)
            return None
        if self._lenient and message.get("method") == "initialize":
            message["params"] = {
                "protocolVersion": "2024-11-05",
                "capabilities": {},
                "clientInfo": {"name": "unknown", "version": "0"},
                **(message.get("params") or {}),
            }
        text = json.dumps(message)
        try:
            types.jsonrpc_message_adapter.validate_json(text, by_name=False)
        except ValueError:
            self._refuse(
                request_id,
                types.INVALID_REQUEST,
                "Invalid request",
                'a request has "jsonrpc": "2.0", an id and a method',
            )
            return None
        return text

    def _refuse(self, id: JSON, code: int, message: str, details: str) -> None:
        reply = {
            "jsonrpc": "2.0",
            "id": id,
            "error": {"code": code, "message": message, "data": {"details": details}},
        }
        self._frames.send(json.dumps(reply).encode())


async def serve_pipes(mcp: McpServer, wire: Wire) -> None:
    """Serves one client until it closes its end."""
    mcp.start()
    streams: Any = wire
    try:
        async with stdio_server(stdin=streams, stdout=streams) as (reading, writing):
            await mcp.server.run(reading, writing, mcp.server.create_initialization_options())
    finally:
        mcp.close()
