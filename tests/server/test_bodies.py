"""Trailers after a request body are not headers."""

import socket

import pytest
from faults import eventually
from serving import Serve

from ctx.server.app import Services


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
            eventually(lambda: served.requests == 1)
            begin = b""
        connection.sendall(begin + b"0\r\n" + trailer + b"\r\n")
        reply = b"".join(iter(lambda: connection.recv(65536), b""))
    assert status in reply.split(b"\r\n")[0]
