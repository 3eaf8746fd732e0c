"""Runs the server: sockets, uvicorn with one or several processes, and a stop with a time limit."""

import errno
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from ctx.errors import ConfigError, CtxError
from ctx.http import split_bind, url_host
from ctx.server.middleware import RequestMiddleware

logger = logging.getLogger(__name__)

BACKLOG = 512
MAX_CONNECTIONS = 768  # leaves file descriptors for the store: the usual limit for a process is 1024
KEEP_ALIVE_S = 15
GRACE_S = 1  # time for running requests to finish when the server is asked to stop
LEAVE_S = 2.0  # this long after a stop signal the process ends, whatever still runs
START_S = 60  # time for a worker process to start, even on a busy machine
PORTS_TRIED = 20  # ports to try when looking for a free port to suggest


def open_sockets(bind: str) -> list[socket.socket]:
    """Listening sockets for `HOST:PORT`. `localhost` gives 127.0.0.1, and ::1 if IPv6 is available. Port 0
    selects a free port.

    Raises `ConfigError` if the port is in use or the address does not belong to this machine.
    """
    host, port = split_bind(bind)
    try:
        return _opened(["127.0.0.1", "::1"] if host.lower() == "localhost" else [host], port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            reason = "is in use by another program (`ctx status` lists ctx servers): stop it"
            raise ConfigError(f"{bind} {reason}, or choose another [server] bind{proposal(bind)}") from error
        reason = f"cannot be bound ({os.strerror(error.errno or 0)})"
        raise ConfigError(f"{bind} {reason}, or choose another [server] bind") from error


def _opened(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Listening sockets for one port on all `hosts`.

    Raises `OSError` if the first host cannot be bound, or if a given port is in use on another of the hosts:
    clients that connect to `localhost` could reach the server of another user there.
    """
    opened = [_open(hosts[0], port)]
    for name in hosts[1:]:
        try:
            opened.append(_open(name, opened[0].getsockname()[1]))
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port:
                opened[0].close()
                raise
            # any other error means that this machine has no IPv6
    return opened


def proposal(bind: str) -> str:
    """The end of an error message that suggests a free address; empty if no near port is free."""
    host, port = split_bind(bind)
    for candidate in range(port + 1, min(port + 1 + PORTS_TRIED, 65536)):
        with suppress(OSError):
            _open(host, candidate).close()
            vacant = f"{url_host(host)}:{candidate}"
            return f": {vacant} is free (or use --bind {vacant} once)"
    return ""


def _open(host: str, port: int) -> socket.socket:
    # Listen now, before the store is opened, so that the second of two servers that start at once fails.
    family, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listening = socket.create_server(where, family=family, backlog=BACKLOG)
    # Accepted sockets inherit this option. Without it, a reply on a connection that was used before waits
    # 40 ms for the client's ACK.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address(opened: socket.socket) -> str:
    """The address of a socket as `HOST:PORT`."""
    host, port = opened.getsockname()[:2]
    return f"{url_host(host)}:{port}"


def uvicorn_config(app: Any, **options: Any) -> uvicorn.Config:
    """The uvicorn configuration for a server process."""
    return uvicorn.Config(
        app,
        loop="asyncio",  # uvloop is not faster for ctx, and needs 14 MB
        http="h11",  # h11 limits the size of request heads, reads one request at a time, and drops trailers
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="critical",  # uvicorn's own log is off, because ctx logs the same events
        access_log=False,
        proxy_headers=False,  # a header must not decide who the caller is
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        backlog=BACKLOG,
        **options,
    )


class HttpServer(uvicorn.Server):
    """A server process on open sockets. `run` blocks until SIGINT or SIGTERM, or until
    `should_exit` is set (in any thread), then returns."""

    def __init__(
        self, app: RequestMiddleware, sockets: Sequence[socket.socket], *, announce: Callable[[str], None]
    ) -> None:
        """`announce` is called once with the address, when the server answers requests."""
        super().__init__(uvicorn_config(app))
        self._app = app
        self._sockets = list(sockets)
        self._announce = announce

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Runs the server until it is stopped. Raises the error that kept the services from starting."""
        try:
            super().run(self._sockets)
        except SystemExit:
            if self._app.start_failure is not None:
                raise self._app.start_failure from None
            raise

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce(address(self._sockets[0]))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Uvicorn would raise the signal again after it has stopped; ctx ends with exit code 0 instead.
        if not self.should_exit:
            leave_in_time(lambda: os._exit(0))
        self.should_exit = True


def serve(app: RequestMiddleware, bind: str, *, announce: Callable[[str], None]) -> None:
    """Runs the server until a signal. Raises `ConfigError` if `bind` cannot be used.

    `announce` is called with HOST:PORT when the server is ready. After a signal, the process ends within
    `LEAVE_S`.
    """
    sockets = open_sockets(bind)
    try:
        HttpServer(app, sockets, announce=announce).run()
    finally:
        for listening in sockets:
            listening.close()


def leave_in_time(end: Callable[[], None]) -> None:
    """Calls `end`, which must end the process, after `LEAVE_S`.

    Some work cannot be interrupted: an import, loading a model, a commit of ten thousand files. Ending the
    process is safe, because the store survives a process that dies at any moment.
    """

    def leave() -> None:
        logger.info("the stop took too long; unfinished work continues at the next start")
        with suppress(OSError, ValueError):  # the stream is closed, or nobody reads it
            sys.stdout.flush()
            sys.stderr.flush()
        end()

    backstop = threading.Timer(LEAVE_S, leave)
    backstop.daemon = True
    backstop.start()


class Workers(Multiprocess):
    """`count` worker processes on open sockets. Uvicorn replaces workers that die.

    `run` blocks the main thread until SIGINT or SIGTERM, and returns when all workers have ended.
    """

    def __init__(
        self,
        make_app: Callable[[], Any],
        sockets: Sequence[socket.socket],
        count: int,
        *,
        announce: Callable[[str], None],
    ) -> None:
        """`make_app` is pickled and called in each worker. `announce` is called once with the address, when
        all workers are ready.
        """
        config = uvicorn_config(make_app, factory=True, workers=count, timeout_worker_healthcheck=START_S)
        super().__init__(config, list(sockets))
        self._announce = announce
        self._announced = False
        self._signalled = False

    def run(self) -> None:
        """Runs the workers until a signal. Raises `CtxError` if a worker cannot start."""
        super().run()
        if not self._signalled:
            raise CtxError("a worker process could not start; see its messages above")

    def keep_subprocess_alive(self) -> None:
        before = list(self.processes)
        super().keep_subprocess_alive()
        for old, new in zip(before, self.processes, strict=True):
            if new is not old:
                logger.warning("worker ended pid=%s code=%s replaced_by=%s", old.pid, old.exitcode, new.pid)
        # Not in a thread: the check for readiness and uvicorn's check for life use the same pipe.
        if not self._announced and all(process.is_ready() for process in self.processes):
            self._announced = True
            self._announce(address(self.sockets[0]))

    def handle_int(self) -> None:
        self._signalled = True
        super().handle_int()

    def handle_term(self) -> None:
        self._signalled = True
        super().handle_term()

    def handle_hup(self) -> None:
        # SIGHUP means that the terminal was closed: stop, as a server without workers does.
        self.handle_term()

    def terminate_all(self) -> None:
        super().terminate_all()
        leave_in_time(self._kill_all)

    def _kill_all(self) -> None:
        for process in self.processes:
            process.process.kill()
        os._exit(0)
