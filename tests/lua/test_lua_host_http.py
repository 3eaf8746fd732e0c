"""`http` for scripts: requests, redirects, headers, limits and deadlines."""

import gzip
import socket
import threading
import time
import tracemalloc
import zlib

import pytest
from http_kit import Reply, Seen, Server, ask, connecting, ok, to

from ctx.errors import ToolError
from ctx.lua import host
from ctx.models import JSON

HUNG_S = 15.0  # sooner than anything else would end it, on a machine with other work

# -- what works ----------------------------------------------------------------------------------------------


def test_a_request_arrives_as_the_script_made_it_and_the_answer_comes_back(server: Server) -> None:
    server.routes["/issues"] = ok(b'{"n": 1}', "Content-Type: application/json", "X-Twice: a", "x-twice: b")
    answer = ask(
        f"http://{server.at}/issues?state=open#top",
        allow=[server.at],
        method="POST",
        body=b"\x00\xffbytes",
        headers={"Authorization": "Bearer k", "user-agent": "mine"},
        params={"page": "2", "q": "a b&c"},
    )
    (request,) = server.seen
    assert (request.method, request.path, request.body) == (
        "POST",
        "/issues?state=open&page=2&q=a+b%26c",
        b"\x00\xffbytes",
    )
    assert request.get("authorization") == ["Bearer k"]
    assert request.get("user-agent") == ["mine"]
    assert request.get("host") == [server.at]
    assert (answer.status, answer.ok, answer.body) == (200, True, b'{"n": 1}')
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-twice"] == "b"


def test_a_packed_reply_is_unpacked(server: Server) -> None:
    server.routes["/gz"] = ok(gzip.compress(b"text " * 1000), "Content-Encoding: gzip")
    server.routes["/z"] = ok(zlib.compress(b"text"), "Content-Encoding: deflate")
    server.routes["/short"] = ok(gzip.compress(b"text " * 1000)[:-20], "Content-Encoding: gzip")
    server.routes["/bad"] = ok(b"not gzip at all", "Content-Encoding: gzip")
    server.routes["/br"] = ok(b"x", "Content-Encoding: br")
    assert ask(f"http://{server.at}/gz", allow=[server.at]).body == b"text " * 1000
    assert ask(f"http://{server.at}/z", allow=[server.at]).body == b"text"
    for path in ("/short", "/bad", "/br"):
        with pytest.raises(ToolError, match="the reply is"):
            ask(f"http://{server.at}{path}", allow=[server.at])


@pytest.mark.parametrize(
    ("named", "reached"),
    [
        ("127.0.0.1:PORT", True),
        ("127.0.0.1", True),
        ("127.0.0.1:1", False),
        ("localhost:PORT", False),
        ("127.0.0", False),
        ("*", False),
    ],
)
def test_allow_hosts_opens_a_host_or_one_port_of_it_and_nothing_like_it(
    server: Server, named: str, reached: bool
) -> None:
    server.routes["/"] = ok(b"in")
    allow = [named.replace("PORT", str(server.port))]
    if reached:
        assert ask(f"http://{server.at}/", allow=allow).body == b"in"
    else:
        with pytest.raises(ToolError):
            ask(f"http://{server.at}/", allow=allow)
        assert server.seen == []


# -- redirects -----------------------------------------------------------------------------------------------


def test_credentials_do_not_follow_to_another_origin(server: Server, other: Server) -> None:
    server.routes["/here"] = to("/there")
    server.routes["/there"] = to(f"http://{other.at}/elsewhere")
    other.routes["/elsewhere"] = to(f"http://{server.at}/back")
    server.routes["/back"] = ok(b"done")
    secrets = {
        "Authorization": "Bearer k",
        "Cookie": "c=1",
        "PRIVATE-TOKEN": "k",
        "X-Api-Key": "k",
        "X-Amz-Security-Token": "k",
    }
    headers = {**secrets, "Accept": "text/html", "If-None-Match": "1"}
    assert ask(f"http://{server.at}/here", allow=[server.at, other.at], headers=headers).body == b"done"
    first, second, last = server.seen
    for request in (first, second):
        assert [request.get(name.lower()) for name in secrets] == [[text] for text in secrets.values()]
    for request in (other.seen[0], last):  # once taken off they stay off
        assert [request.get(name.lower()) for name in secrets] == [[]] * len(secrets)
        assert (request.get("accept"), request.get("if-none-match")) == (["text/html"], ["1"])


@pytest.mark.parametrize(("status", "method"), [(307, "POST"), (308, "PATCH"), (301, "PUT"), (302, "DELETE")])
def test_what_is_sent_to_one_host_follows_no_redirect_to_another(
    server: Server, other: Server, status: int, method: str
) -> None:
    server.routes["/"] = to(f"http://{other.at}/elsewhere", status)
    with pytest.raises(ToolError, match=f"redirects to another host .http://{other.at}/elsewhere."):
        ask(f"http://{server.at}/", allow=[server.at, other.at], method=method, body=b"a private note")
    assert other.seen == []
    other.routes["/elsewhere"] = ok(b"")
    ask(f"http://{server.at}/", allow=[server.at, other.at], method=method)  # there is nothing to tell
    assert [request.body for request in other.seen] == [b""]


def test_redirects_end_somewhere(server: Server) -> None:
    server.routes["/"] = to("/")
    with pytest.raises(ToolError, match="more than 10 redirects"):
        ask(f"http://{server.at}/", allow=[server.at])
    assert len(server.seen) == 11


# -- headers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Host", "evil.example"),
        ("Transfer-Encoding", "chunked"),
        ("Proxy-Authorization", "x"),
        ("X-A", "b\r\nHost: evil"),
        ("X-A", "b\0c"),
        ("X-A\r\nHost", "evil"),
        (":authority", "evil"),
    ],
)
def test_a_header_that_would_speak_for_the_client_is_refused(server: Server, name: str, value: str) -> None:
    with connecting() as attempts, pytest.raises(ToolError, match="header"):
        ask(f"http://{server.at}/", allow=[server.at], headers={name: value})
    assert attempts == []


# -- how much, and for how long ------------------------------------------------------------------------------


def test_a_gzip_bomb_is_cut_off_before_it_is_in_memory(server: Server) -> None:
    bomb = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    zeros = bytes(1 << 20)
    packed = b"".join([*(bomb.compress(zeros) for _ in range(64)), bomb.flush()])
    assert len(packed) < 1 << 20
    server.routes["/"] = ok(packed, "Content-Encoding: gzip")
    tracemalloc.start()
    with pytest.raises(ToolError, match="larger than"):
        ask(f"http://{server.at}/", allow=[server.at])
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 3 * host.MAX_RESPONSE_BYTES  # of 64 MiB, and it needs pieces of it twice


def _drip(what: bytes) -> Reply:
    def drip(seen: Seen, connection: socket.socket) -> None:
        connection.sendall(what)
        while True:  # every single read is in time
            connection.sendall(b"x")
            threading.Event().wait(0.02)

    return drip


@pytest.mark.parametrize(
    "what", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"]
)
@pytest.mark.parametrize("by", ["deadline", "timeout"])
def test_a_server_that_drips_is_left_at_the_deadline(server: Server, what: bytes, by: str) -> None:
    server.routes["/"] = _drip(what)
    began_s = time.monotonic()
    fields: dict[str, JSON] = {"timeout_s": 0.4} if by == "timeout" else {"timeout_s": 1e9}
    with pytest.raises(ToolError, match=r"timed out|protocol"):
        ask(f"http://{server.at}/", allow=[server.at], deadline_s=0.4 if by == "deadline" else 30, **fields)
    assert time.monotonic() - began_s < HUNG_S


def test_a_server_that_hangs_up_is_an_error_with_a_sentence(server: Server) -> None:
    server.routes["/"] = b""
    with pytest.raises(ToolError, match=r"HTTP GET http://127\.0\.0\.1:\d+/ failed: the server"):
        ask(f"http://{server.at}/?token=secret", allow=[server.at])
    free = Server()
    free.close()
    with pytest.raises(ToolError, match="the connection failed") as failed:
        ask(f"http://{free.at}/?token=secret", allow=[free.at])
    assert "secret" not in failed.value.message


@pytest.mark.slow
def test_tls_is_checked(server: Server) -> None:
    """A server that does not speak TLS, and by the same way one whose certificate is wrong, is no server."""
    server.routes["/"] = ok(b"x")
    with pytest.raises(ToolError, match="failed"):
        ask(f"https://{server.at}/", allow=[server.at], deadline_s=3)


# -- head, and any method by name ----------------------------------------------------------------------------


def test_head_has_the_headers_of_a_body_that_does_not_come(server: Server) -> None:
    server.routes["/big"] = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nContent-Encoding: gzip\r\n\r\n"
    answer = ask(f"http://{server.at}/big", allow=[server.at], method="HEAD")
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "99")
    assert [request.method for request in server.seen] == ["HEAD"]
