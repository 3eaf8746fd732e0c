"""Runs the server: sockets, readiness, and a stop that ends open streams."""

import asyncio
import errno
import faulthandler
import gc
import logging
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from types import FrameType

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ctx.errors import BadRequest, Busy, ConfigError, CtxError
from ctx.hosts import url_host
from ctx.server import errors
from ctx.server.guard import Guard
from ctx.server.heaps import bound_heaps
from ctx.server.policy import split_bind

logger = logging.getLogger(__name__)

BACKLOG = 512
MAX_CONNECTIONS = 768  # with the store's own files below the 1024 descriptors that a process usually gets
PEER_CONNECTIONS = 640  # of one address: more than the guard lets in requests, so that it can end slow bodies
MAX_HEAD_BYTES = 65_536  # request line and headers together
MAX_HEADERS = 1000  # ten times what clients and proxies send; each costs the loop more than its bytes
PIECE_BYTES = 1024  # parsed at once; most requests are smaller, and 57 of the smallest fit in
HEAD_S = 30  # how long a client may take over them
KEEP_ALIVE_S = 15
UNREAD_S = 30.0  # how long a client may take none of a reply that waits for it
UNREAD_BYTES = 256 << 20  # of all the replies that wait so: one of 30 MB costs nothing to ask for
PATIENCE_S = 1.0  # after which, in a crowd, who does not read a reply gives way
BACKSTOP_S = 1  # the guard ends everything within half a second; this is for what it could not end
LEAVE_S = 0.9  # after a signal; with the end of the process itself below a second
PORTS_TRIED = 20  # after one that is taken, for one to propose
STUCK_S = 10  # until a process that cannot even do that says where it stands, and ends


def open_sockets(bind: str) -> list[socket.socket]:
    """Bound sockets for `HOST:PORT`: `localhost` is both 127.0.0.1 and, where there is one, ::1. Port 0: a
    free one.

    Raises `ConfigError` where the port is taken or the address is not this machine's.
    """
    host, port = split_bind(bind)
    try:
        return _opened(["127.0.0.1", "::1"] if host.lower() == "localhost" else [host], port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            reason = "is in use by another program (another ctx? `ctx projects` lists them): stop it"
            raise ConfigError(f"{bind} {reason}, or choose another [server] bind{proposal(bind)}") from error
        reason = f"cannot be bound ({os.strerror(error.errno or 0)})"
        raise ConfigError(f"{bind} {reason}, or choose another [server] bind") from error


def _opened(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Sockets of one port. Raises `OSError` where the first cannot be had, or a port that was named is
    taken: it may be another user's, who would be asked by whoever says `localhost`.
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
    """What else could be bound now, as the end of a message; empty where nothing near is free."""
    vacant = next_vacant(bind)
    return f": {vacant} is free (--bind {vacant} for this once)" if vacant else ""


def next_vacant(bind: str) -> str | None:
    """The next address of that host that could be bound now; None where none is near."""
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
        # Listening now, not when the store has been opened: of two servers started at once the second must
        # fail here.
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


def address(opened: socket.socket) -> str:
    """`HOST:PORT` as a person would write it."""
    host, port = opened.getsockname()[:2]
    return f"{url_host(host)}:{port}"


class HttpProtocol(HttpToolsProtocol):
    """Uvicorn's, with bounds on what comes before a request is whole, and our errors for what is no HTTP."""

    _unparsed = b""  # requests that wait for the reply to the one before them, as they came
    _malformed = False  # what came last is no HTTP; said once all before it is answered
    _head_bytes = 0
    _header_count = 0
    _waiting_since_s = 0.0
    _in_head = False  # of a request: some of it came
    _head_timer: asyncio.TimerHandle | None = None
    _answering: RequestResponseCycle | None = None  # with pipelining not the one that was read last
    _unread_timer: asyncio.TimerHandle | None = None  # while a reply waits for its client to read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waiting_since_s = self.loop.time()
        if self._has_room():
            self._expect_head()
        else:
            self._refuse(Busy("the server has too many connections open; try again shortly"))

    def _has_room(self) -> bool:
        """Whether this connection may stay. In a crowd the one that has been without a whole request longest
        gives way to it.
        """
        if len(self.connections) <= min(PEER_CONNECTIONS, MAX_CONNECTIONS):
            return True
        peer = self.client and self.client[0]
        crowd = _of_peer(self._others(), peer)
        if len(crowd) < PEER_CONNECTIONS:
            crowd = self._others()
            if len(crowd) < MAX_CONNECTIONS:
                return True
        giving_way = [each for each in crowd if each.waits] or _excess(crowd, peer)
        if not giving_way:
            return False
        min(giving_way, key=lambda each: each._waiting_since_s).transport.abort()
        return True

    def _others(self) -> "list[HttpProtocol]":
        return [each for each in self.connections if isinstance(each, HttpProtocol) and each is not self]

    @property
    def waits(self) -> bool:
        """Whether no whole head has come since the last reply, if there was one, or that is not being
        read.
        """
        if self._unread_timer is not None:
            return self.loop.time() - self._waiting_since_s > PATIENCE_S
        if self.transport.is_closing():
            return False
        return self._head_timer is not None or self.cycle is None or self.cycle.response_complete

    def on_response_complete(self) -> None:
        self._waiting_since_s = self.loop.time()
        if self._malformed and not self._whole_waiting():
            self.pipeline.clear()
            self.send_400_response("as read before")
            return
        self._answering = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if self._unparsed and not self.pipeline:
            self._expect_head()
            self._parse()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._waiting_since_s = self.loop.time()
        self._expect_reading()
        unread = sorted(self._unread(), key=lambda each: each._waiting_since_s)
        excess_bytes = sum(each._unread_bytes for each in unread) - UNREAD_BYTES
        for each in unread[:-1]:  # what waits longest first; this one has just begun
            if excess_bytes > 0:
                excess_bytes -= each._unread_bytes
                each.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reading_ended()

    def _reading_ended(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _unread(self) -> "list[HttpProtocol]":
        return [each for each in (*self._others(), self) if each._unread_timer is not None]

    @property
    def _unread_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    def _expect_reading(self) -> None:
        self._unread_timer = self.loop.call_later(UNREAD_S, self._check_reading, self._unread_bytes)

    def _check_reading(self, before_bytes: int) -> None:
        if self._unread_bytes < before_bytes:
            self._expect_reading()
        else:  # closing it would wait for the client to read
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._reading_ended()
        # Uvicorn tells only the request that was read last; those before it would be answered into a closed
        # socket.
        self.pipeline.clear()
        self._unparsed = b""
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        self._parse()

    def _parse(self) -> None:
        """Reads requests as far as one has come whole, and the others once that is answered.

        A connection may send ten thousand in one piece, and each takes a hundred times its bytes as soon as
        it is read.
        """
        data, self._unparsed = memoryview(self._unparsed), b""
        while data and self.parser is not None and not self.transport.is_closing():
            if self.pipeline or self._is_answering:
                self._unparsed = bytes(data)
                self._head_came()  # what is not whole of the next one may be here already
                self.flow.pause_reading()
                return
            self._unset_keepalive_if_required()
            self._feed(bytes(data[:PIECE_BYTES]))
            data = data[PIECE_BYTES:]
        if self._in_head and self._head_timer is None:  # most come whole, and need none
            self._expect_head()

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._malformed = True
            if self._whole_waiting() or (self._answering is not None and not self._answering.more_body):
                self.flow.pause_reading()  # a reply is due before ours: the client would take it for that one
            else:
                self.send_400_response(str(error))

    def _whole_waiting(self) -> bool:
        """Whether a request that came whole waits for those before it to be answered."""
        return any(not cycle.more_body for cycle, _ in self.pipeline)

    def _decline(self, following: bytes) -> None:
        """Reads a request that offers another protocol, which nobody needs take (RFC 9110, 7.8), without the
        offer.

        The parser leaves what comes behind an offer to that protocol: the body of such a request was taken
        for a further request.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        if len(lines) == len(self.headers):  # CONNECT, whose whole connection is another protocol's
            self.send_400_response("a tunnel is asked for")
            return
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as Uvicorn's
        head = b"".join((method, b" ", self.url, b" HTTP/", version, b"\r\n", *lines, b"\r\n"))
        self._feed(head + following)

    @property
    def _is_answering(self) -> bool:
        """Whether a request is whole, and its reply is not."""
        return self.cycle is not None and not (self.cycle.more_body or self.cycle.response_complete)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = self._header_count = 0
        self._in_head = True
        self._head_came()  # of the one before, of which nothing came

    def on_url(self, url: bytes) -> None:
        self._count_head(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(name, value)
        self._header_count += 1
        if self._header_count > MAX_HEADERS:
            raise ValueError("the request has too many headers")
        super().on_header(name, value.strip(b" \t"))  # space around a value is no part of it (RFC 9110, 5.5)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_came()
        if self.parser.should_upgrade():
            return  # it is read again, without the offer
        super().on_headers_complete()
        self.headers = []  # what comes behind a body is no header of the request (RFC 9110, 6.5.1)
        if not self.pipeline:
            self._answering = self.cycle

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is not None and self.cycle.more_body and self.cycle.response_started:
            self.transport.close()  # of a body that breaks off when its reply has begun: ours would be in it
            return
        self._refuse(BadRequest("this is no HTTP request that the server can read"))

    def _count_head(self, *parts: bytes) -> None:
        self._head_bytes += sum(map(len, parts))
        if self._head_bytes > MAX_HEAD_BYTES:
            # The parser stops, and `send_400_response` answers.
            raise ValueError("the head of the request is too large")

    def _expect_head(self) -> None:
        self._head_came()
        self._head_timer = self.loop.call_later(HEAD_S, self.transport.close)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, error: CtxError) -> None:
        body = errors.encode(errors.body(error))
        status = errors.row(error).status
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\n"
        extra = "".join(f"{name}: {value}\r\n" for name, value in errors.headers(error).items())
        self.transport.write(f"{head}{extra}connection: close\r\n\r\n".encode("latin-1") + body)
        self.transport.close()


def _excess(crowd: list[HttpProtocol], peer: str | None) -> list[HttpProtocol]:
    """Of a crowd that is all at work the connections of the one peer that has most, where another one comes:
    whoever holds streams open from several addresses keeps nobody else out.
    """
    shares = Counter(each.client and each.client[0] for each in crowd)
    largest, count = shares.most_common(1)[0]
    if largest == peer or count <= shares[peer] + 1:
        return []
    return _of_peer(crowd, largest)


def _of_peer(connections: Iterable[HttpProtocol], peer: str | None) -> list[HttpProtocol]:
    return [each for each in connections if each.client and each.client[0] == peer]


class HttpServer(uvicorn.Server):
    """One server on open sockets. `run` blocks until SIGINT, SIGTERM or `stop`, and returns then."""

    def __init__(
        self, app: Guard, sockets: Sequence[socket.socket], *, announce: Callable[[str], None]
    ) -> None:
        """`announce` is given the address, once, when requests are answered."""
        config = uvicorn.Config(
            app,
            loop="asyncio",  # uvloop answers no more requests a second here, and is 14 MB
            http=HttpProtocol,
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
        self._leaving = False

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves. Raises what kept the services from starting."""
        try:
            super().run(self._sockets)
        except SystemExit:
            if self._guard.start_failure is not None:
                raise self._guard.start_failure from None
            raise

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        bound_heaps()
        await super().startup(sockets)
        if self.started:
            # What is loaded stays: going through it for garbage now and then would hold up a search for 30 ms
            # and more.
            gc.freeze()
            gc.enable()
            self._announce(address(self._sockets[0]))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Here and not at the end of `main_loop`, which a signal right behind the announcement leaves out.
        self._guard.close()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Uvicorn would raise the signal again once stopped; a server that was asked to stop and did ends with
        # 0. And at a second signal it would tear down what is being closed: the first one sees to it that the
        # end comes.
        self.should_exit = True
        if not self._leaving:
            # Here, not where the loop sees it: while the services start, or something holds the loop, it sees
            # nothing.
            self._leaving = True
            _leave_in_time()

    def stop(self) -> None:
        """Begins the stop. From any thread."""
        self.should_exit = True


def serve(app: Guard, bind: str, *, announce: Callable[[str], None]) -> None:
    """Serves until a signal; raises `ConfigError` where `bind` cannot be had. `announce` is given HOST:PORT
    when ready.

    After a signal the process ends within a second, whether or not this function, or what its caller does
    then, returns.
    """
    sockets = open_sockets(bind)
    try:
        HttpServer(app, sockets, announce=announce).run()
    finally:
        for opened in sockets:
            opened.close()


def _leave_in_time() -> None:
    """Lets the process end `LEAVE_S` from now, whatever is still at work in it.

    A library that is being imported, a model that loads, a commit of ten thousand files: none can be
    interrupted, and none need be waited for, since the store is made for a process that dies at any moment.
    """

    def leave() -> None:
        logger.info("the stop took too long; what was running is left to the next start")
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            pass  # closed, or nobody reads them any more
        os._exit(0)

    faulthandler.dump_traceback_later(STUCK_S, exit=True)  # works without the interpreter's lock
    backstop = threading.Timer(LEAVE_S, leave)
    backstop.daemon = True
    backstop.start()
