"""Runs the server: sockets, readiness, and a stop that ends open streams."""

import errno
import logging
import os
import socket
from collections.abc import Callable, Sequence
from types import FrameType

import uvicorn

from ctx.errors import ConfigError
from ctx.server.guard import Guard, split_bind

logger = logging.getLogger(__name__)

BACKLOG = 512
KEEP_ALIVE_S = 15
BACKSTOP_S = 1  # the guard ends everything within half a second; this is for what it could not end


def open_sockets(bind: str) -> list[socket.socket]:
    """Bound sockets for `HOST:PORT`: `localhost` is both 127.0.0.1 and, where there is one, ::1. Port 0: a free one.

    Raises `ConfigError` where the port is taken or the address is not this machine's.
    """
    host, port = split_bind(bind)
    hosts = ["127.0.0.1", "::1"] if host.lower() == "localhost" else [host]
    opened: list[socket.socket] = []
    try:
        for name in hosts:
            try:
                opened.append(_open(name, port))
            except OSError:
                if not opened:
                    raise
                continue  # no IPv6 here
            port = opened[0].getsockname()[1]
    except OSError as error:
        for each in opened:
            each.close()
        taken = error.errno == errno.EADDRINUSE
        reason = (
            "is in use by another program (another ctx?): stop it"
            if taken
            else f"cannot be bound ({os.strerror(error.errno or 0)})"
        )
        raise ConfigError(f"{bind} {reason}, or choose another [server] bind") from error
    return opened


def _open(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        # Listening now, not when the store has been opened: of two servers started at once the second must fail here.
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


def address(opened: socket.socket) -> str:
    """`HOST:PORT` as a person would write it."""
    host, port = opened.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class HttpServer(uvicorn.Server):
    """One server on open sockets. `run` blocks until SIGINT, SIGTERM or `stop`, and returns then."""

    def __init__(self, app: Guard, sockets: Sequence[socket.socket], *, announce: Callable[[str], None]) -> None:
        """`announce` is given the address, once, when requests are answered."""
        config = uvicorn.Config(
            app,
            lifespan="on",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # a header must not say who the caller is
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=BACKSTOP_S,
            backlog=BACKLOG,
        )
        super().__init__(config)
        self._guard = app
        self._sockets = list(sockets)
        self._announce = announce

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run(sockets or self._sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce(address((sockets or self._sockets)[0]))

    async def main_loop(self) -> None:
        await super().main_loop()
        self._guard.close()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Uvicorn would raise the signal again once stopped; a server that was asked to stop and did ends with 0.
        self.force_exit = self.should_exit
        self.should_exit = True

    def stop(self) -> None:
        """Begins the stop. From any thread."""
        self.should_exit = True


def serve(app: Guard, bind: str, *, announce: Callable[[str], None] | None = None) -> None:
    """Serves until a signal; raises `ConfigError` where `bind` cannot be had. Prints `Listening on HOST:PORT` when ready."""
    sockets = open_sockets(bind)
    try:
        HttpServer(app, sockets, announce=announce or _print_address).run()
    finally:
        for opened in sockets:
            opened.close()


def _print_address(text: str) -> None:
    print(f"Listening on {text}", flush=True)
