"""Runs the server: sockets, uvicorn with one process or several, and a stop that comes to an end."""

import errno
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from ctx.errors import ConfigError, CtxError
from ctx.http import split_bind, url_host
from ctx.server.middleware import RequestMiddleware

logger = logging.getLogger(__name__)

BACKLOG = 512
MAX_CONNECTIONS = 768  # with the store's files below the 1024 descriptors that a process usually gets
KEEP_ALIVE_S = 15
GRACE_S = 1  # for requests that run when the server is asked to stop
LEAVE_S = 2.0  # after a signal the process ends, whatever still runs in it
START_S = 60  # a worker process has this long to start, on a busy machine too
CANNOT_START = STARTUP_FAILURE  # the exit code of a worker that would fail the same way again
PORTS_TRIED = 20  # after one that is taken, to propose another


def open_sockets(bind: str) -> list[socket.socket]:
    """Bound sockets for `HOST:PORT`: `localhost` is both 127.0.0.1 and, where there is one, ::1. Port 0: a
    free one.

    Raises `ConfigError` if the port is taken or the address is not this machine's.
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
    """Sockets of one port. Raises `OSError` if the first cannot be bound, or if a named port is taken on
    another address: clients that say `localhost` could reach another user's server there.
    """
    opened = [_open(hosts[0], port)]
    for name in hosts[1:]:
        try:
            opened.append(_open(name, opened[0].getsockname()[1]))
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port:
                opened[0].close()
                raise
            # else there is no IPv6 here
    return opened


def proposal(bind: str) -> str:
    """What else could be bound now, as the end of a message; empty if nothing near is free."""
    vacant = next_vacant(bind)
    return f": {vacant} is free (or use --bind {vacant} once)" if vacant else ""


def next_vacant(bind: str) -> str | None:
    """The next address of that host that could be bound now; None if none near is free."""
    host, port = split_bind(bind)
    for candidate in range(port + 1, min(port + 1 + PORTS_TRIED, 65536)):
        try:
            _open(host, candidate).close()
        except OSError:
            continue
        return f"{url_host(host)}:{candidate}"
    return None


def _open(host: str, port: int) -> socket.socket:
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = addresses[0]
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        # It listens now, not when the store is open: of two servers started at once the second fails here.
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


def address(opened: socket.socket) -> str:
    """`HOST:PORT` as a person would write it."""
    host, port = opened.getsockname()[:2]
    return f"{url_host(host)}:{port}"


def uvicorn_config(app: Any, **options: Any) -> uvicorn.Config:
    """How uvicorn runs an application of ours."""
    return uvicorn.Config(
        app,
        loop="asyncio",  # uvloop answers no more requests a second here, and is 14 MB
        http="h11",  # bounds the head of a request, reads one request at a time, and drops trailers
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="critical",  # what its lines say, ours say
        access_log=False,
        proxy_headers=False,  # a header must not say who the caller is
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        backlog=BACKLOG,
        **options,
    )


class HttpServer(uvicorn.Server):
    """One server on open sockets. `run` blocks until SIGINT, SIGTERM or `stop`, and returns then."""

    def __init__(
        self, app: RequestMiddleware, sockets: Sequence[socket.socket], *, announce: Callable[[str], None]
    ) -> None:
        """`announce` is given the address, once, when requests are answered."""
        super().__init__(uvicorn_config(app))
        self._app = app
        self._sockets = list(sockets)
        self._announce = announce

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves. Raises what kept the services from starting."""
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
        # Uvicorn would raise the signal again once it has stopped; we end with 0.
        if not self.should_exit:
            leave_in_time(lambda: os._exit(0))
        self.should_exit = True

    def stop(self) -> None:
        """Begins the stop. From any thread."""
        self.should_exit = True


def serve(app: RequestMiddleware, bind: str, *, announce: Callable[[str], None]) -> None:
    """Serves until a signal; raises `ConfigError` if `bind` cannot be had. `announce` is given HOST:PORT when
    ready. After a signal the process ends within `LEAVE_S`.
    """
    sockets = open_sockets(bind)
    try:
        HttpServer(app, sockets, announce=announce).run()
    finally:
        for opened in sockets:
            opened.close()


def leave_in_time(end: Callable[[], None]) -> None:
    """Calls `end`, which ends the process, `LEAVE_S` from now.

    An import, a model that loads, a commit of ten thousand files: none can be interrupted, and none need be
    waited for, since the store is made for a process that dies at any moment.
    """

    def leave() -> None:
        logger.info("the stop took too long; unfinished work continues at the next start")
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            pass  # closed, or no longer read
        end()

    backstop = threading.Timer(LEAVE_S, leave)
    backstop.daemon = True
    backstop.start()


class Workers(Multiprocess):
    """`count` worker processes on open sockets. Uvicorn replaces one that dies. `run` blocks the main thread
    until SIGINT or SIGTERM, and returns once all have ended.
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
