"""JSON-RPC on a pair of pipes: where a message ends. Nothing here knows what a message says."""

import os
import select
import sys
import threading
from typing import BinaryIO

MAX_LINE_BYTES = 16 << 20
TOO_LONG = b"\0"  # in place of a longer line, which is read over; no message is this


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


class Frames:
    """Messages on a pair of pipes, one a line (or with `Content-Length` heads, where the client began so)."""

    def __init__(self, reading: BinaryIO, writing: BinaryIO) -> None:
        self._reading = reading
        self._writing = writing
        self._framed = False
        self._lock = threading.Lock()
        self._buffer = bytearray()

    def send(self, message: bytes) -> None:
        """Writes one message, whole. From any thread."""
        data = b"Content-Length: %d\r\n\r\n%s" % (len(message), message) if self._framed else message + b"\n"
        with self._lock:
            view = memoryview(data)
            while view:
                view = view[self._writing.write(view) :]

    def waiting(self, timeout_s: float | None, *, other: int) -> bool:
        """Waits for something to read, here or at the descriptor `other`; whether there is something here."""
        if self._buffer:
            return True
        descriptor = self._reading.fileno()
        readable, _, _ = select.select([descriptor, other], [], [], timeout_s)
        return descriptor in readable

    @property
    def deserted(self) -> bool:
        """Whether nobody reads what is sent any more: the process at the other end is gone."""
        poll = select.poll()
        poll.register(self._writing.fileno(), 0)
        return bool(poll.poll(0))

    def next(self) -> bytes | None:
        """The next message, waited for; None at the end."""
        while (line := self._line()) is not None:
            if line.lower().startswith(b"content-length:"):
                size = line.split(b":", 1)[1].strip()
                if not size.isdigit() or int(size) > MAX_LINE_BYTES:
                    return line  # it is no JSON either, and answered so
                while self._line() not in (b"", None):
                    pass  # further heads, then the empty line
                self._framed = True
                return self._take(int(size))
            if line.strip():
                return line
        return None

    def _line(self) -> bytes | None:
        too_long, looked_to = False, 0
        while (end := self._buffer.find(b"\n", looked_to)) < 0:
            if len(self._buffer) > MAX_LINE_BYTES:
                too_long = True
                self._buffer.clear()
            looked_to = len(self._buffer)
            if not self._fill():
                tail, self._buffer = bytes(self._buffer), bytearray()
                return TOO_LONG if too_long else tail or None
        line = bytes(self._buffer[:end]).rstrip(b"\r")
        del self._buffer[: end + 1]
        return TOO_LONG if too_long else line

    def _take(self, size: int) -> bytes | None:
        while len(self._buffer) < size:
            if not self._fill():
                return None
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def _fill(self) -> bool:
        data = self._reading.read(65536)
        self._buffer += data or b""
        return bool(data)
