"""Read documents in a separate process with few privileges, which gets untrusted bytes and returns text. If a
hostile or damaged document crashes it or exceeds its limits, only that document fails.

The two ends talk over a socket. The process serves one request at a time, keeps no state between documents,
and ends when it is idle.
"""

import atexit
import gc
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ctx.code.symbols import Definition
from ctx.errors import SourceError
from ctx.files import loader_variables
from ctx.formats.base import Parsed
from ctx.formats.table import function_of
from ctx.models import JSON, Heading

CPU_S = 30  # CPU time per document; a thousand pages take 3 s
WALL_S = 300.0  # a process that takes longer for one document counts as hung
MEMORY_MB = 1024
IDLE_S = 30  # an idle process ends after this time, to free its memory
MAX_REPLY_BYTES = 256 << 20
REQUEST = struct.Struct(">HQ")  # length of the reader's name, length of the data
REPLY = struct.Struct(">Q")
OUT_OF_MEMORY = 3  # exit code if a reader exceeds the memory limit

_MAX_OPEN_FILES = 64
_LARGE = 1 << 20  # if a document and its reply have more bytes than this, collect garbage at once

_BOOT = """
import sys; sys.path += sys.argv[4:]
from ctx.formats.process import serve; serve(*map(int, sys.argv[1:4]))
"""
_END_TIMEOUT_S = 5.0


class Text(NamedTuple):
    """Facts about a text that are known before it is read: the declared media type and charset, and the
    file's name.

    `decoded`: the text was already decoded, so its bytes are UTF-8. `grammar`: source code may be parsed with
    a grammar, which is native code.
    """

    media_type: str | None
    charset: str | None
    name: str
    decoded: bool
    grammar: bool = False


@dataclass(eq=False)
class _Request:
    """A document to read, and its reply. `reused` is True if the process had read other documents before.

    `ended` is why the process ended without a reply. `certain` is True if this document caused it, False if
    an earlier one may have.
    """

    message: bytes
    reused: bool = False
    reply: JSON = None
    ended: str | None = None
    certain: bool = False


@dataclass(eq=False)
class ReadingProcess:
    """A process that reads many documents. It is started for the first document and restarted if it ends.
    Thread-safe.
    """

    cpu_s: int = CPU_S
    wall_s: float = WALL_S
    memory_mb: int = MEMORY_MB

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._current: _Request | None = None  # the request without a reply

    @property
    def pid(self) -> int | None:
        """The pid of the process; None if it is not running."""
        return self._process.pid if self._process else None

    def read(self, reader: str, data: bytes) -> Parsed:
        """Read bytes with a function of this package, such as `pdf.parse`. Raises `SourceError`."""
        return _parsed(self._reply_to(self._begin(reader, data)))

    def begin_text(self, text: Text, data: bytes) -> Callable[[], tuple[str, Parsed] | None]:
        """Begin to run `extract.read_text` in the process. Returns a function that waits for the result; it
        raises `SourceError` if reading takes too much time or memory.
        """
        request = self._begin("extract.read_packed", json.dumps(text).encode() + b"\n" + data)

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
            if request.ended is not None and request.reused and not request.certain:
                self._receive()
                self._send(request)
                self._receive()
        if request.ended is not None:
            raise SourceError(request.ended)
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
            head = _received(channel, REPLY.size) if channel else None
            size = REPLY.unpack(head)[0] if head else 0
            reply = _received(channel, size) if channel and 0 < size <= MAX_REPLY_BYTES else None
        except TimeoutError:
            self._end()
            request.ended, request.certain = f"was not read within {self.wall_s:g} seconds", True
            return
        except OSError:
            reply = None
        except BaseException:  # after an interrupt, a late reply must not be taken for the next reply
            self._end()
            raise
        if reply is None:
            code = self._end(dying=True)
            request.ended, request.certain = self._why_ended(code), code == -signal.SIGXCPU
        else:
            request.reply = json.loads(reply)

    def _start(self) -> socket.socket:
        mine, theirs = socket.socketpair()
        mine.settimeout(self.wall_s)
        limits = map(str, (self.cpu_s, self.memory_mb, IDLE_S))
        paths = [os.path.abspath(path) for path in sys.path]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT, *limits, *paths],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=loader_variables(),
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

    def _why_ended(self, code: int) -> str:
        if code == -signal.SIGXCPU:
            return f"took more than {self.cpu_s} seconds of the processor to be read"
        if code == OUT_OF_MEMORY:
            return f"needs more than {self.memory_mb} MiB of memory to be read"
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        cause = f"it is damaged, or needs more than {self.memory_mb} MiB of memory"
        return f"made its reader fail ({name}): {cause}"


def _parsed(reply: JSON) -> Parsed:
    body, headings, atoms, title, metadata, note, found = reply
    spans = tuple((start, end) for start, end in atoms)
    outline = tuple(Heading(*heading) for heading in headings)
    return Parsed(body, outline, spans, title, metadata, note, tuple(Definition(*each) for each in found))


READER = ReadingProcess()
"""The reading process that all code in this process uses."""

atexit.register(READER.close)


# -- the process itself --------------------------------------------------------------------------------------


def serve(cpu_s: int, memory_mb: int, idle_s: int) -> None:
    """Serve requests until the other end closes, or no request comes for `idle_s` seconds."""
    channel = socket.socket(fileno=0)
    _give_up_rights(memory_mb)
    while True:
        channel.settimeout(idle_s)
        try:
            head = _received(channel, REQUEST.size)
        except TimeoutError:
            return
        channel.settimeout(None)
        name_length, size = REQUEST.unpack(head) if head else (0, 0)
        name, data = _received(channel, name_length), _received(channel, size)
        if not name or data is None:
            return
        _limit_cpu(cpu_s)
        try:
            answer = _answer(name.decode("ascii"), data)
        except MemoryError:
            sys.exit(OUT_OF_MEMORY)
        channel.sendall(REPLY.pack(len(answer)) + answer)
        large = len(data) + len(answer) > _LARGE
        del data, answer
        if large:  # only for large files, because garbage collection takes as long as reading a small file
            gc.collect()
            if _peak_mb() > memory_mb // 2:
                return  # let a new process start, rather than run out of memory because of earlier documents


def _received(channel: socket.socket, size: int) -> bytes | None:
    """Read exactly `size` bytes; None if the other end closes first. Raises `OSError` and `TimeoutError`."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        count = channel.recv_into(view, min(len(view), 1 << 20))
        if not count:
            return None
        view = view[count:]
    return bytes(buffer)


def _give_up_rights(memory_mb: int) -> None:
    limits = {
        resource.RLIMIT_AS: memory_mb << 20,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: _MAX_OPEN_FILES,
    }
    for kind, limit in limits.items():
        try:
            resource.setrlimit(kind, (limit, limit))
        except (OSError, ValueError):
            pass  # not supported by this system; the other limits and the parent's timeout still apply


def _limit_cpu(cpu_s: int) -> None:
    """Limit the CPU time of the next document. The kernel kills the process when it is exceeded."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1 + cpu_s, hard))


def _answer(name: str, data: bytes) -> bytes:
    """The reply as JSON: the fields of a `Parsed` as a list, or `{"refused": reason}`. Raises
    `MemoryError`.
    """
    try:
        parsed = function_of(name)(data)
        return json.dumps(parsed, ensure_ascii=False).encode()
    except SourceError as error:
        reason = error.message
    except MemoryError:
        raise
    except ImportError as error:
        reason = f"cannot be read: the Python package {error.name} is not installed here"
    except Exception as error:  # hostile bytes can make a reader fail in any way
        reason = f"is damaged, or not what its name says ({type(error).__name__})"
    return json.dumps({"refused": reason}).encode()


def _peak_mb() -> int:
    """The peak memory use of this program in MiB. `getrusage` is only a fallback, because its value includes
    the memory of the parent process.
    """
    try:
        with open("/proc/self/status") as status:
            (line,) = (line for line in status if line.startswith("VmHWM:"))
        return int(line.split()[1]) >> 10
    except (OSError, ValueError):
        pass  # the system is not Linux
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak >> 20 if sys.platform == "darwin" else peak >> 10
