"""The process that reads documents, with few privileges: it gets untrusted bytes and returns text.

It serves one request at a time on its standard input, which is a socket (`process.py` is the other end). It
keeps no state between documents, and ends when it is idle.
"""

import gc
import json
import resource
import socket
import struct
import sys
import time
from importlib import import_module

from ctx.errors import SourceError

REQUEST = struct.Struct(">HQ")  # length of the reader's name, length of the data
REPLY = struct.Struct(">Q")
OUT_OF_MEMORY = 3  # exit code if a reader exceeds the memory limit

_MAX_OPEN_FILES = 64
_LARGE = 1 << 20  # above so many bytes of a document and its reply, collect garbage at once


def _request(channel: socket.socket, idle_s: int) -> tuple[bytes, bytes] | None:
    """The next request: the reader's name and the data. None if the other end closed, or if no request came
    in time.
    """
    channel.settimeout(idle_s)
    try:
        head = received(channel, REQUEST.size)
    except TimeoutError:
        return None
    if head is None:
        return None
    channel.settimeout(None)
    name_length, size = REQUEST.unpack(head)
    name, data = received(channel, name_length), received(channel, size)
    return None if name is None or data is None else (name, data)


def main(cpu_s: int, memory_mb: int, idle_s: int) -> None:
    """Serve requests until the other end closes, or no request comes for `idle_s` seconds."""
    channel = socket.socket(fileno=0)
    _give_up_rights(memory_mb)
    while True:
        request = _request(channel, idle_s)
        if request is None:
            return
        name, data = request
        _limit_cpu(cpu_s)
        try:
            answer = _answer(name.decode("ascii"), data)
        except MemoryError:
            sys.exit(OUT_OF_MEMORY)
        channel.sendall(REPLY.pack(len(answer)) + answer)
        large = len(data) + len(answer) > _LARGE
        del request, data, answer
        if large:  # garbage collection takes as long as reading a small file
            gc.collect()
            if _peak_mb() > memory_mb // 2:
                return  # let a new process start, rather than run out of memory because of earlier documents


def received(channel: socket.socket, size: int) -> bytes | None:
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
        parsed = import_module(f"ctx.formats.{name}").parse(data)
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
    """The peak memory use of this program in MiB. The value from `getrusage` includes that of the parent
    process.
    """
    try:
        with open("/proc/self/status") as status:
            (line,) = (line for line in status if line.startswith("VmHWM:"))
        return int(line.split()[1]) >> 10
    except (OSError, ValueError):
        pass  # not Linux
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak >> 20 if sys.platform == "darwin" else peak >> 10
