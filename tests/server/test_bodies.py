"""What a request is made of: how much of it there may be, and what comes behind its body."""

import socket

import pytest
from faults import eventually
from serving import Serve

from ctx.server.app import Services
from ctx.server.policy import ServerSettings


def test_bodies_that_come_slowly_are_bounded_together(
    serve: Serve, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.server.guard.MAX_BODY_BYTES", 350_000)
    served = serve(services, ServerSettings(max_body_bytes=150_000))
    head = (
        b"POST /tools/whoami HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100001\r\n\r\n"
    )
    slow = [socket.create_connection((served.host, served.port), 60) for _ in range(4)]
    try:
        for count, connection in enumerate(slow, 1):
            connection.sendall(head + b" " * 100_000)
            if count < 4:
                eventually(lambda: sum(e.body_bytes for e in served.guard._open.values()) >= count * 100_000)  # noqa: B023
        with slow[0].makefile("rb") as reply:  # the oldest
            assert b" 503 " in reply.readline()
        slow[3].sendall(b" ")
        with slow[3].makefile("rb") as reply:
            assert b" 400 " in reply.readline(), "it came whole, and blanks are no JSON"
    finally:
        for connection in slow:
            connection.close()


@pytest.mark.parametrize("apart", [False, True], ids=["at once", "behind the body"])
@pytest.mark.parametrize(
    ("head", "trailer", "status"),
    [
        (b"", b"Content-Type: application/json\r\n", b" 400 "),
        (
            b"Content-Type: application/json\r\n",
            b"Host: evil.example\r\nOrigin: https://evil.example\r\n",
            b" 200 ",
        ),
        (b"Content-Type: application/json\r\n", b"X-Bank-Id: \r\nExpect: 100-continue\r\n", b" 200 "),
    ],
)
def test_what_comes_behind_a_body_is_no_header(
    serve: Serve, services: Services, head: bytes, trailer: bytes, status: bytes, apart: bool
) -> None:
    served = serve(services)
    with socket.create_connection((served.host, served.port), timeout=60) as connection:
        begin = (
            b"POST /tools/whoami HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            b"transfer-encoding: chunked\r\n" + head + b"\r\n2\r\n{}\r\n"
        )
        if apart:
            connection.sendall(begin)
            eventually(lambda: len(served.guard._open) == 1)
            begin = b""
        connection.sendall(begin + b"0\r\n" + trailer + b"\r\n")
        reply = b"".join(iter(lambda: connection.recv(65536), b""))
    assert status in reply.split(b"\r\n")[0]


@pytest.mark.parametrize(("count", "status"), [(900, b" 200 "), (1100, b" 400 "), (60_000, b" 400 ")])
def test_a_request_has_no_more_headers_than_anybody_needs(
    serve: Serve, services: Services, count: int, status: bytes
) -> None:
    served = serve(services)
    with socket.create_connection((served.host, served.port), timeout=60) as connection:
        try:
            connection.sendall(
                b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
                + b"a:\r\n" * count
                + b"\r\n"
            )
            reply = connection.recv(65536)
        except OSError:  # it is hung up on while it sends
            reply = b"HTTP/1.1 400 "
    assert status in reply.split(b"\r\n")[0]
