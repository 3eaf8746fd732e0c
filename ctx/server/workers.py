"""Worker processes that answer on one socket, supervised by uvicorn: one that dies is replaced."""

import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from ctx.errors import CtxError
from ctx.server.run import address, leave_in_time, uvicorn_config

logger = logging.getLogger(__name__)

START_S = 60  # a worker has this long to start, on a busy machine too
CANNOT_START = STARTUP_FAILURE  # the exit code of a worker that would fail the same way again


class Workers(Multiprocess):
    """`count` worker processes on open sockets. `run` blocks the main thread until SIGINT or SIGTERM, and
    returns once all have ended.
    """

    def __init__(
        self,
        make_app: Callable[[], Any],
        sockets: Sequence[socket.socket],
        count: int,
        *,
        announce: Callable[[str], None],
    ) -> None:
        """`make_app` is pickled and called in each worker. `announce` is given the address, once, when all
        workers answer.
        """
        config = uvicorn_config(make_app, factory=True, workers=count, timeout_worker_healthcheck=START_S)
        super().__init__(config, list(sockets))
        self._announce = announce
        self._signalled = False

    def run(self) -> None:
        """Raises `CtxError` if a worker cannot start."""
        super().run()
        if not self._signalled:
            raise CtxError("a worker process could not start; see its messages above")

    def init_processes(self) -> None:
        super().init_processes()
        threading.Thread(target=self._announce_when_ready, daemon=True).start()

    def _announce_when_ready(self) -> None:
        if all(process.wait_until_ready(START_S, self.should_exit) for process in list(self.processes)):
            self._announce(address(self.sockets[0]))

    def keep_subprocess_alive(self) -> None:
        before = list(self.processes)
        super().keep_subprocess_alive()
        for old, new in zip(before, self.processes, strict=True):
            if new is not old:
                logger.warning("worker ended pid=%s code=%s replaced_by=%s", old.pid, old.exitcode, new.pid)

    def handle_int(self) -> None:
        self._signalled = True
        super().handle_int()

    def handle_term(self) -> None:
        self._signalled = True
        super().handle_term()

    def handle_hup(self) -> None:
        self.handle_term()  # as without workers: the terminal has gone

    def terminate_all(self) -> None:
        super().terminate_all()
        leave_in_time(self._kill_all)

    def _kill_all(self) -> None:
        for process in self.processes:
            process.process.kill()
        os._exit(0)
