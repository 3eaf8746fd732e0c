"""MCP on standard input and output: `ctx mcp`.

Nothing but JSON-RPC leaves on standard output, whatever prints: descriptor 1 is turned to standard error
before anything runs, and the wire is kept on a private copy. The SDK answers a broken line with silence; here
it gets -32700 or -32600, as JSON-RPC has it.
"""

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, BinaryIO

import mcp_types as types
from mcp.server.stdio import stdio_server

from ctx.server.mcp import Context, Entrance, McpServer, Progress
from ctx.server.mcp_shapes import NAMELESS, has_no_name
from ctx.types import JSON, Caller

MAX_LINE_BYTES = 16 << 20
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


def take_wire() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output for the protocol alone. From here on `print`, C libraries and child processes
    reach standard error.
    """
    sys.stdout.flush()
    reading = os.fdopen(os.dup(0), "rb", buffering=0)
    writing = os.fdopen(os.dup(1), "wb", buffering=0)
    silence = os.open(os.devnull, os.O_RDONLY)
    os.dup2(silence, 0)
    os.close(silence)
    os.dup2(2, 1)
    return reading, writing


class Wire:
    """Messages on a pair of pipes, one a line (or with `Content-Length` heads, where the client began so)."""

    def __init__(self, reading: BinaryIO, writing: BinaryIO, *, lenient: bool = False) -> None:
        """`lenient`: an `initialize` without parameters gets some (claude-recall's own client sends none)."""
        self._reading = reading
        self._writing = writing
        self._lenient = lenient
        self._framed = False
        self._lock = threading.Lock()
        self._unanswered: set[str | int] = set()  # ids of requests
        self._all_answered = asyncio.Event()

    # What the SDK writes to: one line a message.
    async def write(self, text: str) -> None:
        await asyncio.to_thread(self.send, text.rstrip("\n").encode("utf-8", "replace"))
        if self._unanswered:
            message = json.loads(text)
            if "method" not in message:
                self._answered(message.get("id"))

    def _answered(self, id: JSON) -> None:
        if isinstance(id, str | int):
            self._unanswered.discard(id)
        if not self._unanswered:
            self._all_answered.set()

    async def flush(self) -> None:
        pass

    def send(self, message: bytes) -> None:
        """Writes one message, whole."""
        data = b"Content-Length: %d\r\n\r\n%s" % (len(message), message) if self._framed else message + b"\n"
        with self._lock:
            view = memoryview(data)
            while view:
                view = view[self._writing.write(view) :]

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
            self._unanswered.add(id)
            self._all_answered.clear()

    def _raw(self) -> Any:
        buffered = _Lines(self._reading)
        while (line := buffered.line()) is not None:
            if line.lower().startswith(b"content-length:"):
                size = line.split(b":", 1)[1].strip()
                if not size.isdigit() or int(size) > MAX_LINE_BYTES:
                    self._refuse(None, types.PARSE_ERROR, "Parse error", "Content-Length is not a length")
                    continue
                while (head := buffered.line()) not in (b"", None):  # further heads, then the empty line
                    del head
                self._framed = True
                body = buffered.take(int(size))
                if body is None:
                    return
                yield body
            elif line.strip():
                yield line

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
        self.send(json.dumps(reply).encode())


class _Lines:
    """Lines and exact byte counts from an unbuffered pipe."""

    def __init__(self, reading: BinaryIO) -> None:
        self._reading = reading
        self._held = bytearray()

    def line(self) -> bytes | None:
        while (end := self._held.find(b"\n")) < 0:
            if not self._fill() or len(self._held) > MAX_LINE_BYTES:
                tail, self._held = bytes(self._held), bytearray()
                return tail or None
        line = bytes(self._held[:end]).rstrip(b"\r")
        del self._held[: end + 1]
        return line

    def take(self, size: int) -> bytes | None:
        while len(self._held) < size:
            if not self._fill():
                return None
        data = bytes(self._held[:size])
        del self._held[:size]
        return data

    def _fill(self) -> bool:
        data = self._reading.read(65536)
        self._held += data or b""
        return bool(data)


async def serve_pipes(mcp: McpServer, wire: Wire) -> None:
    """Serves one client until it closes its end."""
    mcp.start()
    streams: Any = wire
    try:
        async with stdio_server(stdin=streams, stdout=streams) as (reading, writing):
            await mcp.server.run(reading, writing, mcp.server.create_initialization_options())
    finally:
        mcp.close()
