"""Read documents in a separate process. If a hostile or damaged document crashes it or exceeds its limits,
that is one line of the report.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading

from ctx.code.symbols import Definition
from ctx.errors import SourceError
from ctx.formats.base import Parsed
from ctx.formats.texts import Text, packed
from ctx.formats.worker import OUT_OF_MEMORY, REPLY, REQUEST, received
from ctx.models import JSON, Heading

CPU_S = 30  # a thousand pages take 3 s
WALL_S = 300.0  # for a process that hangs
MEMORY_MB = 1024
IDLE_S = 30  # after which the process ends, to free its memory
MAX_REPLY_BYTES = 256 << 20

_BOOT = """
import sys; sys.path += sys.argv[4:]
from ctx.formats.worker import main; main(*map(int, sys.argv[1:4]))
"""
# A Python outside the system's folders may need these to find its libraries.
_LOADER = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_END_TIMEOUT_S = 5.0


class _Ended(SourceError):
    """The process ended without a reply. `certain`: this document caused it, not an earlier one."""

    def __init__(self, reason: str, *, certain: bool = False) -> None:
        super().__init__(reason)
        self.certain = certain


class ReadingProcess:
    """One process for many documents, started for the first one and restarted if it ends. Thread-safe."""

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

    @property
    def pid(self) -> int | None:
        """The pid of the process; None if it does not run."""
        return self._process.pid if self._process else None

    def read(self, reader: str, data: bytes) -> Parsed:
        """Read bytes with a reader of this package. Raises `SourceError`."""
        return _parsed(self._reply(reader, data))

    def read_text(self, text: Text, data: bytes) -> tuple[str, Parsed] | None:
        """Run `texts.read_text` in the process. Raises `SourceError` if it takes too much time or memory."""
        reply = self._reply("texts", packed(text, data))
        return None if reply is None else (reply[0], _parsed(reply[1]))

    def _reply(self, reader: str, data: bytes) -> JSON:
        """The reply of the process. Raises `SourceError`."""
        with self._lock:
            reused = self._process is not None
            try:
                reply = self._ask(reader, data)
            except _Ended as end:
                if end.certain or not reused:
                    raise
                # The process may have ended because it was idle, or because of an earlier document.
                reply = self._ask(reader, data)
        if isinstance(reply, dict):
            raise SourceError(str(reply["refused"]))
        return reply

    def close(self) -> None:
        """End the process. The next document starts another."""
        with self._lock:
            self._end()

    def _ask(self, reader: str, data: bytes) -> JSON:
        """The reply. Raises `_Ended` if the process has ended."""
        channel = self._channel or self._start()
        try:
            channel.sendall(REQUEST.pack(len(reader), len(data)) + reader.encode() + data)
            head = received(channel, REPLY.size)
            size = REPLY.unpack(head)[0] if head else 0
            reply = received(channel, size) if 0 < size <= MAX_REPLY_BYTES else None
        except TimeoutError as error:
            self._end()
            raise _Ended(f"was not read within {self._wall_s:g} seconds", certain=True) from error
        except OSError:
            reply = None  # it ended during the write
        except BaseException:  # interrupted: a late reply would look like the next one's
            self._end()
            raise
        if reply is None:
            raise self._ended(self._end(dying=True))
        return json.loads(reply)

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
        """End the process and return its exit code. `dying`: it closed its socket and is about to exit."""
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
"""The one that this process has."""

atexit.register(READER.close)
