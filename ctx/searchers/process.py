"""One process that answers searches, as the server sees it (worker.py is what it does)."""

import os
import pickle
import subprocess
import sys
from multiprocessing.connection import Connection, Pipe
from typing import Any, NamedTuple

from ctx.config import Config
from ctx.types import JSON

READY_S = 60.0  # until it has opened everything, on a machine that is busy with searches

_BOOT = """
import sys; sys.path += sys.argv[3:]
from ctx.searchers.worker import main; main(float(sys.argv[1]), *map(int, sys.argv[2].split(",")))
"""


class Answer(NamedTuple):
    reply: JSON


class Line:
    """A connection to a process that holds one question at a time.
    A process that fails one is ended, and no line to it `sound`.
    """

    def __init__(self, process: "SearchProcess", connection: "Connection[Any, Any]") -> None:
        self._process = process
        self._connection = connection
        self.sound = True

    def ask(self, arguments: JSON, remark: str | None, wait_s: float) -> Answer | None:
        """The answer; None where the process has none, or has ended. `remark` is what results may lack."""
        try:
            self._connection.send((arguments, remark))
            if self._connection.poll(wait_s):
                answer = self._connection.recv()
                return None if answer is None else Answer(*answer)
        except (OSError, EOFError, pickle.UnpicklingError):
            pass
        self.sound = False
        self._process.kill()
        return None

    def close(self) -> None:
        self.sound = False
        self._connection.close()


class SearchProcess:
    """A process of our own, that reads the store of this configuration."""

    def __init__(self, config: Config, *, lines: int, idle_s: float) -> None:
        pipes = [Pipe() for _ in range(lines)]
        far_ends = [theirs.fileno() for _, theirs in pipes]
        paths = [os.path.abspath(path) for path in sys.path]
        self._first = pipes[0][0]
        self.lines = [Line(self, ours) for ours, _ in pipes]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT, str(idle_s), ",".join(map(str, far_ends)), *paths],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # what fails there is tried again here, and said here
                cwd="/",
                pass_fds=far_ends,
                start_new_session=True,  # an interrupt at the terminal is the server's
            )
        finally:
            for _, theirs in pipes:
                theirs.close()
        self._config = config

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> bool:
        """Whether the process has opened the store, which takes as long as a server's start."""
        try:
            self._first.send(self._config)
            return self._first.poll(READY_S) and self._first.recv() is None
        except (OSError, EOFError):
            return False

    def wait(self) -> None:
        """Returns when the process has ended."""
        self._process.wait()

    def kill(self) -> None:
        """Ends it at once: it writes nothing."""
        self._process.kill()
