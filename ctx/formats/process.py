"""Read documents in a separate process. If a hostile or damaged document crashes it or exceeds its limits,
only that document fails.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ctx.code.symbols import Definition
from ctx.errors import SourceError
from ctx.formats.base import Parsed
from ctx.formats.texts import Text, packed
from ctx.formats.worker import OUT_OF_MEMORY, REPLY, REQUEST, received
from ctx.models import JSON, Heading

CPU_S = 30  # per document; a thousand pages take 3 s
WALL_S = 300.0  # until a process counts as hung
MEMORY_MB = 1024
IDLE_S = 30  # after this time the process ends, to free its memory
MAX_REPLY_BYTES = 256 << 20

_BOOT = """
import sys; sys.path += sys.argv[4:]
from ctx.formats.worker import main; main(*map(int, sys.argv[1:4]))
"""
# Variables that a Python outside the system's folders may need to find its libraries.
_LOADER = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_END_TIMEOUT_S = 5.0


class _Ended(SourceError):
    """The process ended without a reply. `certain` is True if this document caused it, False if an earlier
    one may have.
    """

    def __init__(self, reason: str, *, certain: bool = False) -> None:
        super().__init__(reason)
        self.certain = certain


@dataclass(eq=False)
class _Request:
    """A document to read, and its reply. `reused` is True if the process had read other documents before."""

    message: bytes
    reused: bool = False
    reply: JSON = None
    ended: _Ended | None = None


class ReadingProcess:
    """A process that reads many documents. It is started for the first document and restarted if it ends.
    Thread-safe.
    """

    def __init__(
        self,
        *,
        cpu_s: int = CPU_S,
        wall_s: float = WALL_S,
        memory_mb: int = MEMORY_MB,
        idle_s: int = IDLE_S,
    ) -> None:
        self._cpu_s = cpu_s
        self._wall_s = wall_s
        self._memory_mb = memory_mb
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._current: _Request | None = None  # the request without a reply

    @property
    def pid(self) -> int | None:
        """The pid of the process; None if it is not running."""
        return self._process.pid if self._process else None

    def read(self, reader: str, data: bytes) -> Parsed:
        """Read bytes with the reader module `reader` of this package. Raises `SourceError`."""
        return _parsed(self._reply_to(self._begin(reader, data)))

    def begin_text(self, text: Text, data: bytes) -> Callable[[], tuple[str, Parsed] | None]:
        """Begin to run `texts.read_text` in the process. Returns a function that waits for the result; it
        raises `SourceError` if reading takes too much time or memory.
        """
        request = self._begin("texts", packed(text, data))

        def wait() -> tuple[str, Parsed] | None:
            reply = self._reply_to(request)
            return None if reply is None else (reply[0], _parsed(reply[1]))

        return wait

    def close(self) -> None:
        """End the process. The next document starts another."""
        with self._lock:
            self._end()

    def _begin(self, reader: str, data: bytes) -> _Request:
        """Send a request as soon as the process has replied to the previous one."""
        request = _Request(REQUEST.pack(len(reader), len(data)) + reader.encode() + data)
        with self._lock:
            self._receive()
            self._send(request)
        return request

    def _reply_to(self, request: _Request) -> JSON:
        """The reply to a request. Sends the request again if the process may have ended for another reason.
        Raises `SourceError`.
        """
        with self._lock:
            if self._current is request:
                self._receive()
            # The process may have ended because it was idle, or because of an earlier document.
            if request.ended is not None and request.reused and not request.ended.certain:
                self._receive()
                self._send(request)
                self._receive()
        if request.ended is not None:
            raise request.ended
        if isinstance(request.reply, dict):
            raise SourceError(str(request.reply["refused"]))
        return request.reply

    def _send(self, request: _Request) -> None:
        request.reused, request.ended = self._process is not None, None
        channel = self._channel or self._start()
        self._current = request
        try:
            channel.sendall(request.message)
        except OSError:
            pass  # the process has ended or hangs, so there will be no reply
        except BaseException:
            self._end()
            raise

    def _receive(self) -> None:
        """Receive the reply to the current request, if there is one without a reply."""
        request, channel, self._current = self._current, self._channel, None
        if request is None:
            return
        try:
            head = received(channel, REPLY.size) if channel else None
            size = REPLY.unpack(head)[0] if head else 0
            reply = received(channel, size) if channel and 0 < size <= MAX_REPLY_BYTES else None
        except TimeoutError:
            self._end()
            request.ended = _Ended(f"was not read within {self._wall_s:g} seconds", certain=True)
            return
        except OSError:
            reply = None
        except BaseException:  # after an interrupt, a late reply would be taken for the next one
            self._end()
            raise
        if reply is None:
            request.ended = self._ended(self._end(dying=True))
        else:
            request.reply = json.loads(reply)

    def _start(self) -> socket.socket:
        mine, theirs = socket.socketpair()
        mine.settimeout(self._wall_s)
        limits = map(str, (self._cpu_s, self._memory_mb, self._idle_s))
        paths = [os.path.abspath(path) for path in sys.path]
        environment = {name: os.environ[name] for name in _LOADER if name in os.environ}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT, *limits, *paths],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=environment,
                start_new_session=True,  # Ctrl-C in the terminal must reach the parent only
            )
        self._channel = mine
        return mine

    def _end(self, *, dying: bool = False) -> int:
        """End the process and return its exit code. `dying`: it has closed its socket and is
        about to exit.
        """
        process, channel = self._process, self._channel
        self._process = self._channel = None
        if process is None or channel is None:
            return 0
        channel.close()
        try:
            return process.wait(_END_TIMEOUT_S if dying else 0)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _ended(self, code: int) -> _Ended:
        if code == -signal.SIGXCPU:
            return _Ended(f"took more than {self._cpu_s} seconds of the processor to be read", certain=True)
        if code == OUT_OF_MEMORY:
            return _Ended(f"needs more than {self._memory_mb} MiB of memory to be read")
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        cause = f"it is damaged, or needs more than {self._memory_mb} MiB of memory"
        return _Ended(f"made its reader fail ({name}): {cause}")


def _parsed(reply: JSON) -> Parsed:
    body, headings, atoms, title, metadata, note, found = reply
    spans = tuple((start, end) for start, end in atoms)
    outline = tuple(Heading(*heading) for heading in headings)
    return Parsed(body, outline, spans, title, metadata, note, tuple(Definition(*each) for each in found))


READER = ReadingProcess()
"""The reading process that all code in this process uses."""

atexit.register(READER.close)
