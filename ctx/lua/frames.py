"""The messages between the server and a worker: four bytes of length, one letter, the bytes.

    server -> worker   C  a job (`pack_job`)            h  the answer to a host call: "+" bytes, or "-" JSON
    worker -> server   H  a host call: op NUL payload   R  the end: "+" result, or "-" failure, both JSON

The worker's side is hostile: a script may have taken it over. So lengths are capped before a byte is kept,
unknown letters end the conversation, and at most one frame may be under way.
"""

import select
import socket
import struct
import time
from threading import Event
from typing import NamedTuple

MAX_FRAME_BYTES = 16 << 20
MAX_RESULT_BYTES = 4 << 20  # JSON grows tenfold as Python objects
HEADER_BYTES = 5

# Between the server and the zygote, in messages of a fixed length.
ORDER = struct.Struct("=ci")  # F fork, P fork a probe, K kill; the probe's number or the pid
REPORT = struct.Struct("=cii")  # F forked, X ended; the pid; the wait status

JOB, REPLY, HOST_CALL, RESULT = b"C", b"h", b"H", b"R"
_CAPS = {HOST_CALL: MAX_FRAME_BYTES, RESULT: MAX_RESULT_BYTES}
_READ_BYTES = 1 << 18
_SLICE_S = 0.02  # how often a wait looks at a cancel event


class FrameError(Exception):
    """The worker broke the protocol, or a frame is over its cap."""


class WorkerGone(Exception):
    """The other end is closed."""


class NothingRan(WorkerGone):
    """It was closed before the worker had read its job."""


class DeadlinePassed(Exception):
    """The time is up."""


class Cancelled(Exception):
    """The caller does not want the answer any more."""


class Deadline:
    """When an answer is owed, on the clock of `time.monotonic()`, and an event that calls the whole thing
    off.
    """

    __slots__ = ("at_s", "cancel")

    def __init__(self, timeout_s: float, cancel: Event | None = None) -> None:
        self.at_s = time.monotonic() + timeout_s
        self.cancel = cancel

    def step_s(self) -> float:
        """How long a wait may last before it must look again. Raises `DeadlinePassed` or `Cancelled`."""
        left_s = self.at_s - time.monotonic()
        if left_s <= 0:
            raise DeadlinePassed
        if self.cancel is None:
            return left_s
        if self.cancel.is_set():
            raise Cancelled
        return min(left_s, _SLICE_S)


class Wire(NamedTuple):
    """A job as it crosses: everything but the source is short text or JSON."""

    kind: bytes
    entry: bytes
    name: bytes
    source: bytes
    arguments: bytes
    context: bytes
    grants: bytes
    seed: bytes


_LENGTHS = struct.Struct(f">{len(Wire._fields)}I")


def pack_job(wire: Wire) -> bytes:
    return _LENGTHS.pack(*map(len, wire)) + b"".join(wire)


def unpack_job(payload: bytes) -> Wire:
    offset = _LENGTHS.size
    fields = []
    for length in _LENGTHS.unpack_from(payload):
        fields.append(payload[offset : offset + length])
        offset += length
    return Wire(*fields)


class Channel:
    """The server's end of a worker's socket: no call outlasts its deadline, whatever the other end does."""

    __slots__ = ("_buffer", "_reader", "_socket", "_writer")

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._buffer = b""
        self._reader = select.poll()
        self._reader.register(end, select.POLLIN)
        self._writer: select.poll | None = None

    def close(self) -> None:
        self._socket.close()

    def send(self, letter: bytes, payload: bytes, deadline: Deadline) -> None:
        """Raises `FrameError` (too long), `WorkerGone`, `DeadlinePassed`, `Cancelled`."""
        if len(payload) > MAX_FRAME_BYTES:
            raise FrameError(f"{len(payload)} bytes are more than a worker takes ({MAX_FRAME_BYTES})")
        frame = len(payload).to_bytes(4, "big") + letter + payload
        try:
            count = self._socket.send(frame)
        except BlockingIOError:
            count = 0
        except OSError as error:
            raise WorkerGone from error
        if count < len(frame):
            self._send_on(memoryview(frame)[count:], deadline)

    def _send_on(self, pending: memoryview, deadline: Deadline) -> None:
        if self._writer is None:
            self._writer = select.poll()
            self._writer.register(self._socket, select.POLLOUT)
        while pending:
            if not self._writer.poll(deadline.step_s() * 1000):
                continue
            try:
                pending = pending[self._socket.send(pending) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise WorkerGone from error

    def receive(self, deadline: Deadline) -> tuple[bytes, bytes]:
        """The next frame as (letter, bytes). Raises `FrameError`, `WorkerGone`, `DeadlinePassed`,
        `Cancelled`.
        """
        data = self._buffer or self._read(deadline)
        while len(data) < HEADER_BYTES:
            data += self._read(deadline)
        letter = data[4:5]
        length = int.from_bytes(data[:4], "big")
        if length > _CAPS.get(letter, -1):
            raise FrameError(
                f"a frame of {length} bytes is over its cap" if letter in _CAPS else "an unknown frame"
            )
        end = HEADER_BYTES + length
        if len(data) < end:
            parts = [data]
            have = len(data)
            while have < end:
                parts.append(self._read(deadline))
                have += len(parts[-1])
            data = b"".join(parts)
        self._buffer = data[end:]
        return letter, data[HEADER_BYTES:end]

    @property
    def unread(self) -> bool:
        """Whether the worker sent more than it was asked for."""
        return bool(self._buffer)

    def _read(self, deadline: Deadline) -> bytes:
        while True:
            if not self._reader.poll(deadline.step_s() * 1000):
                continue
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                raise WorkerGone from error
            if not data:
                raise WorkerGone
            return data
