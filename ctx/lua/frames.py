"""Messages between the server and a worker: four bytes of length, one letter, the payload.

    server -> worker   C  a marshalled job (a tuple)   h  the answer to a host call: "+" bytes, or "-" JSON
    worker -> server   H  a host call: op NUL payload   R  the end: "+" result, or "-" failure, both JSON

A hostile script may control the worker. So the server checks the length before it reads the payload, ends the
call at an unknown letter, and accepts only one frame at a time.
"""

import select
import socket
import struct
import time
from typing import NamedTuple

MAX_FRAME_BYTES = 16 << 20
MAX_RESULT_BYTES = 4 << 20  # bytes of JSON; the parsed Python objects take ten times as much
HEADER_BYTES = 5

# Messages between the server and the zygote (the process that forks workers). They have a fixed length.
# (letter: F fork, P fork a probe of the self-test, K kill; number of the probe, or pid).
ORDER = struct.Struct("=ci")
# The answer to F and P is the pid, or 0 if the fork failed; to K the wait status, or -1 if unknown.
ANSWER = struct.Struct("=i")

JOB, REPLY, HOST_CALL, RESULT = b"C", b"h", b"H", b"R"
_CAPS = {HOST_CALL: MAX_FRAME_BYTES, RESULT: MAX_RESULT_BYTES}
_READ_BYTES = 1 << 18


class FrameError(Exception):
    """The worker broke the protocol, or a frame is too long."""


class WorkerGone(Exception):
    """The worker closed its socket."""


class DeadlinePassed(TimeoutError):
    """The deadline has passed."""


class Deadline:
    """The time at which a call must end, on the clock of `time.monotonic()`. It may be moved."""

    def __init__(self, ends_s: float) -> None:
        self.ends_s = ends_s

    def left_s(self) -> float:
        """The seconds left. Raises `DeadlinePassed` if there are none."""
        left_s = self.ends_s - time.monotonic()
        if left_s <= 0:
            raise DeadlinePassed
        return left_s


class ItemProblem(NamedTuple):
    """Takes the place of an item that a scan yielded and that cannot be written as JSON."""

    message: str


class Channel:
    """The server's end of a worker's socket. No call outlasts its deadline, whatever the worker does."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._buffer = bytearray()
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(end, select.POLLIN)
        self._writable.register(end, select.POLLOUT)

    def close(self) -> None:
        self._socket.close()

    def has_input(self) -> bool:
        """Whether the worker has sent something or has ended. Does not wait."""
        return bool(self._readable.poll(0))

    def send(self, letter: bytes, payload: bytes, deadline: Deadline) -> None:
        """Send a frame. Raises `FrameError` (too long), `WorkerGone`, `DeadlinePassed`."""
        if len(payload) > MAX_FRAME_BYTES:
            raise FrameError(f"{len(payload)} bytes are more than a worker accepts ({MAX_FRAME_BYTES})")
        pending = memoryview(len(payload).to_bytes(4, "big") + letter + payload)
        while True:
            try:
                pending = pending[self._socket.send(pending) :]
            except BlockingIOError:
                pass
            except OSError as error:
                raise WorkerGone from error
            if not pending:
                return
            # `left_s` checks the deadline, even if the worker reads all the time.
            self._writable.poll(deadline.left_s() * 1000)

    def receive(self, deadline: Deadline) -> tuple[bytes, bytes]:
        """The next frame as (letter, payload). Raises the same errors as `send`."""
        while len(self._buffer) < HEADER_BYTES:
            self._read(deadline)
        letter = bytes(self._buffer[4:5])
        length = int.from_bytes(self._buffer[:4], "big")
        if length > _CAPS.get(letter, -1):
            raise FrameError(
                f"a frame of {length} bytes is too long" if letter in _CAPS else "an unknown frame"
            )
        end = HEADER_BYTES + length
        while len(self._buffer) < end:
            self._read(deadline)
        payload = bytes(self._buffer[HEADER_BYTES:end])
        del self._buffer[:end]
        return letter, payload

    @property
    def unread(self) -> bool:
        """Whether the worker has sent more bytes after the last received frame."""
        return bool(self._buffer)

    def _read(self, deadline: Deadline) -> None:
        while not self._readable.poll(deadline.left_s() * 1000):
            pass
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError as error:
            raise WorkerGone from error
        if not data:
            raise WorkerGone
        self._buffer += data
