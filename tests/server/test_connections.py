"""HTTP connections: pipelining, requests in pieces, offers of another protocol."""

import json
import socket
import threading
from typing import BinaryIO

import pytest
from serving import ANYTHING, Serve, waiting

from ctx.models import JSON
from ctx.server.app import Services
from ctx.tools.toolbox import Agents, Tool, Toolbox


def test_pipelined_requests_are_answered_in_order(serve: Serve, toolbox: Toolbox, agents: Agents) -> None:
    toolbox.add(Tool("echo", "Says it again", ANYTHING, lambda arguments, caller: arguments["word"]))
    served = serve(Services(toolbox, agents))
    words = [f"{index}".zfill(index % 40 * 50) for index in range(120)]
    with socket.create_connection((served.host, served.port), 60) as client:
        sender = threading.Thread(target=client.sendall, args=(b"".join(map(_echoing, words)),))
        sender.start()
        with client.makefile("rb") as replies:
            assert [_result(replies) for _ in words] == words
        sender.join(60)


def _echoing(word: str, headers: str = "", version: str = "1.1") -> bytes:
    """A request to the tool `echo`."""
    body = json.dumps({"word": word}).encode()
    head = (
        f"POST /tools/echo HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}"
    )
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _result(replies: BinaryIO) -> JSON:
    """What the next of the replies on a connection holds."""
    assert b" 200 " in replies.readline()
    size = 0
    while (line := replies.readline().strip().lower()) != b"":
        if line.startswith(b"content-length:"):
            size = int(line.partition(b":")[2])
    return json.loads(replies.read(size))["result"]


OFFERS = [
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n",  # Java's client
    "Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n",
]


@pytest.mark.parametrize("offer", OFFERS, ids=["h2c", "websocket"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("cut", [1, 30, -40, -1, None])
def test_the_body_of_a_request_that_offers_another_protocol_is_its_body(
    serve: Serve, toolbox: Toolbox, agents: Agents, offer: str, version: str, cut: int | None
) -> None:
    toolbox.add(Tool("echo", "Says it again", ANYTHING, lambda arguments, caller: arguments["word"]))
    served = serve(Services(toolbox, agents))
    word = "\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    request = _echoing(word, offer, version)
    with socket.create_connection((served.host, served.port), 60) as client, client.makefile("rb") as replies:
        client.sendall(request[:cut])
        if cut is not None:
            threading.Event().wait(0.05)  # or both would come as one piece
            client.sendall(request[cut:])
        assert _result(replies) == word
        if version == "1.1":
            client.sendall(_echoing("next"))
            assert _result(replies) == "next"
        else:
            assert replies.read() == b""


GARBAGE = [
    b"\0\1 no request\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX" + b": y\r\nX" * 20 + b"\r\n\r\n",
    b"POST /tools/echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    b"POST /tools/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=["bytes", "head", "body", "lengths"])
def test_what_is_no_http_is_told_after_the_replies_that_are_due(
    serve: Serve, toolbox: Toolbox, agents: Agents, garbage: bytes
) -> None:
    entered, release = waiting(toolbox)
    toolbox.add(Tool("echo", "Says it again", ANYTHING, lambda arguments, caller: arguments["word"]))
    served = serve(Services(toolbox, agents))
    first = b"POST /tools/wait HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    with socket.create_connection((served.host, served.port), 60) as client:
        client.sendall(first + _echoing("second") + garbage)
        assert entered.wait(60)
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(60)
        release.set()
        with client.makefile("rb") as replies:
            assert [_result(replies), _result(replies)] == [True, "second"]
            assert replies.readline() == b"HTTP/1.1 400 Bad Request\r\n"
            assert b"Invalid HTTP request" in replies.read()  # to the end: the connection is closed


def test_a_body_that_breaks_off_puts_nothing_into_the_reply_that_has_begun(
    serve: Serve, services: Services
) -> None:
    served = serve(services)
    head = b"POST /nowhere HTTP/1.1\r\nHost: evil.example\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection((served.host, served.port), 60) as client:
        client.sendall(head)
        assert client.recv(12) == b"HTTP/1.1 421"
        client.sendall(b"xyz\r\n")
        with client.makefile("rb") as replies:
            assert replies.read().count(b"HTTP/1.1") == 0
