"""Commands as a person runs them, in forks of a process that has loaded what they import.

Most of a short command's time is importing. The process that is forked has loaded modules and done nothing
else, so a command finds what it would in one of its own: its arguments, folder, environment and streams, and
it ends as any. That `python -m ctx` starts is tested by tests/cli/test_processes.py.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parent.parent
MAX_REQUEST_BYTES = 100_000  # of arguments and environment, in one message
# What an interpreter reads as it starts: with another value of these a command needs one of its own.
STARTING = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "OMP_", "OPENBLAS_")
HEAVY = ("ctx.workspace", "ctx.server.app", "ctx.indexing.indexer", "tantivy", "numpy")


def starting(environ: dict[str, str]) -> dict[str, str]:
    """What an interpreter reads of an environment as it starts."""
    return {name: value for name, value in environ.items() if name.startswith(STARTING)}


STARTED_WITH = starting({**os.environ, "PYTHONWARNINGS": "ignore"})


class Forks:
    """The process that forks, from the side of the tests. One command at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._connection, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with end:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(end.fileno())],
                pass_fds=[end.fileno()],
                env={**os.environ, **STARTED_WITH, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        atexit.register(self.close)

    def close(self) -> None:
        self._connection.close()
        self._process.wait()

    def run(
        self, command: list[str], cwd: Path, environ: dict[str, str], timeout_s: float, text: str
    ) -> subprocess.CompletedProcess[str]:
        """What `subprocess.run` gives for `python -m ctx`."""
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            streams[0].write(text.encode())
            streams[0].seek(0)
            request = json.dumps([command, str(cwd), environ]).encode()
            socket.send_fds(self._connection, [request], [stream.fileno() for stream in streams])
            pid = int(self._connection.recv(32))
            self._connection.settimeout(timeout_s)
            try:
                status = int(self._connection.recv(32))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._connection.settimeout(None)
                self._connection.recv(32)
                raise subprocess.TimeoutExpired(command, timeout_s) from None
            self._connection.settimeout(None)
            texts = []
            for stream in streams[1:]:
                stream.seek(0)
                texts.append(stream.read().decode().replace("\r\n", "\n"))
        return subprocess.CompletedProcess(command, status, *texts)


@functools.cache
def forks() -> Forks:
    """The one of this process, started when first needed."""
    return Forks()


def run_command(
    command: list[str], cwd: Path, environ: dict[str, str], timeout_s: float, text: str | None
) -> subprocess.CompletedProcess[str]:
    """`python -m ctx` with these arguments, from a fork where that makes no difference."""
    usual = starting(environ) == STARTED_WITH
    small = sum(map(len, [*command, *environ, *environ.values()])) < MAX_REQUEST_BYTES / 4
    if sys.platform == "linux" and usual and small:  # elsewhere no socket keeps messages apart
        forker = forks()
        if forker.lock.acquire(blocking=False):
            try:
                return forker.run(command, cwd, environ, timeout_s, text or "")
            finally:
                forker.lock.release()
    return subprocess.run(
        [sys.executable, "-m", "ctx", *command],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        input=text,
    )


# -- the process that forks --


def become(command: list[str], cwd: str, environ: dict[str, str], streams: list[int]) -> NoReturn:
    """Goes on as the command."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    os.chdir(cwd)
    sys.argv = [str(ROOT / "ctx" / "__main__.py"), *command]
    sys.path[0] = cwd
    from ctx.cli import main

    status: object = 1
    try:
        status = main()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    # As an interpreter ends, but for taking 1,500 modules apart, most of which the command has not asked for.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            file.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


def serve(connection: socket.socket) -> None:
    from ctx.cli import COMMANDS

    for name in (*HEAVY, *(module for module, _ in COMMANDS.values())):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that a command's look for garbage touches, and copies, nothing of this
    while True:
        request, streams, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 3)
        if not request:
            return
        arguments: Any = json.loads(request)
        child = os.fork()
        if child == 0:
            connection.close()
            become(*arguments, streams)
        for stream in streams:
            os.close(stream)
        connection.send(str(child).encode())
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
