"""http as a script has it, against real servers on this machine, which `allow_hosts` opens, and names that
resolve as a test says.
"""

import gzip
import os
import socket
import threading
import time
import tracemalloc
import zlib

import pytest
from http_kit import Reply, Seen, Server, ask, connecting, ok, to

from ctx.errors import ToolError
from ctx.lua import host
from ctx.lua.fetch import same_host, target_of
from ctx.types import JSON

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


@pytest.mark.parametrize("status", [201, 204, 304, 400, 404, 500, 503])
def test_a_status_is_told_and_not_raised(server: Server, status: int) -> None:
    server.routes["/"] = f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode()
    answer = ask(f"http://{server.at}/", allow=[server.at])
    assert (answer.status, answer.ok) == (status, 200 <= status < 300)


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


def test_allow_hosts_names_an_ipv6_host_in_brackets() -> None:
    try:
        server = Server("::1")
    except OSError:
        pytest.skip("no IPv6 loopback here")
    server.routes["/"] = ok(b"six")
    try:
        assert ask(f"http://[::1]:{server.port}/", allow=[f"[::1]:{server.port}"]).body == b"six"
        with pytest.raises(ToolError):
            ask(f"http://[::1]:{server.port}/")
    finally:
        server.close()


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


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "DELETE", "GET"),
        (301, "PUT", "PUT"),
        (307, "POST", "POST"),
        (308, "PATCH", "PATCH"),
    ],
)
def test_a_redirect_changes_the_method_as_browsers_do(
    server: Server, status: int, method: str, then: str
) -> None:
    server.routes["/from"] = to("/to", status)
    server.routes["/to"] = ok(b"")
    headers = {"Content-Type": "text/csv"}
    ask(f"http://{server.at}/from", allow=[server.at], method=method, body=b"a,b", headers=headers)
    last = server.seen[-1]
    assert (last.method, last.body) == (then, b"" if then == "GET" else b"a,b")
    assert last.get("content-type") == ([] if then == "GET" else ["text/csv"])


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


@pytest.mark.parametrize(
    ("before", "following", "allowed"),
    [
        ("http://a.example/", "https://a.example/x", True),
        ("https://a.example/", "https://a.example:443/x", True),
        ("https://a.example/", "http://a.example/x", False),
        ("http://a.example/", "https://b.example/", False),
        ("http://a.example:8080/", "https://a.example/", False),
    ],
)
def test_a_body_follows_to_https_of_thesame_host(before: str, following: str, allowed: bool) -> None:
    places = [target_of(url, frozenset({"a.example"})) for url in (before, following)]
    assert same_host(*places) is allowed


def test_redirects_end_somewhere(server: Server) -> None:
    server.routes["/"] = to("/")
    with pytest.raises(ToolError, match="more than 10 redirects"):
        ask(f"http://{server.at}/", allow=[server.at])
    assert len(server.seen) == 11


def test_a_redirect_with_letters_beyond_ascii_is_followed(server: Server) -> None:
    server.routes["/"] = "HTTP/1.1 302 X\r\nLocation: /caf\u00e9 x\r\nContent-Length: 0\r\n\r\n".encode()
    server.routes["/caf%C3%A9%20x"] = ok(b"found")
    assert ask(f"http://{server.at}/", allow=[server.at]).body == b"found"


# -- headers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Host", "evil.example"),
        ("hOsT", "evil.example"),
        ("Content-Length", "5"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "upgrade"),
        ("Proxy-Authorization", "x"),
        ("TE", "trailers"),
        ("Upgrade", "h2c"),
        ("X-A", "b\r\nHost: evil"),
        ("X-A", "b\nHost: evil"),
        ("X-A", "b\0c"),
        ("X-A\r\nHost", "evil"),
        ("X A", "b"),
        ("", "b"),
        (":authority", "evil"),
        ("X:", "b"),
    ],
)
def test_a_header_that_would_speak_for_the_client_is_refused(server: Server, name: str, value: str) -> None:
    with connecting() as attempts, pytest.raises(ToolError, match="header"):
        ask(f"http://{server.at}/", allow=[server.at], headers={name: value})
    assert attempts == []


def test_only_known_methods_are_sent(server: Server) -> None:
    for method in ("TRACE", "CONNECT", "GET / HTTP/1.1\r\nX: y\r\n\r\nGET", ""):
        with pytest.raises(ToolError, match="method"):
            ask(f"http://{server.at}/", allow=[server.at], method=method)
    assert server.seen == []


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


def test_a_body_without_an_end_is_cut_off(server: Server) -> None:
    def endless(seen: Seen, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(bytes(1 << 16))

    server.routes["/"] = endless
    with pytest.raises(ToolError, match="larger than"):
        ask(f"http://{server.at}/", allow=[server.at])


def test_headers_without_an_end_are_cut_off(server: Server) -> None:
    def endless(seen: Seen, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X-Header: " + b"a" * 4000 + b"\r\n")

    server.routes["/"] = endless
    with pytest.raises(ToolError, match="protocol"):
        ask(f"http://{server.at}/", allow=[server.at])


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


def test_a_server_that_says_nothing_is_left_at_the_deadline(server: Server) -> None:
    def silent(seen: Seen, connection: socket.socket) -> None:
        connection.recv(1)  # until the client hangs up

    server.routes["/"] = silent
    began_s = time.monotonic()
    with pytest.raises(ToolError, match="timed out"):
        ask(f"http://{server.at}/", allow=[server.at], deadline_s=0.3)
    assert time.monotonic() - began_s < HUNG_S


def test_a_server_that_does_not_read_is_left_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        began_s = time.monotonic()
        with pytest.raises(ToolError, match="timed out"):
            ask(f"http://{address}/", allow=[address], method="POST", body=bytes(12_000_000), deadline_s=0.4)
        assert time.monotonic() - began_s < HUNG_S


@pytest.mark.slow
def test_several_addresses_share_one_deadline() -> None:
    """Each address is tried in its turn; all of them together have the time that one has."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = []
        for _ in range(4):  # until the queue is full, and a further connection hangs
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
            fillers.append(filler)
        began_s = time.monotonic()
        with pytest.raises(ToolError):
            ask(
                f"http://many.example:{port}/",
                allow=[f"many.example:{port}"],
                resolve=lambda n, p: ["127.0.0.1"] * 8,
                deadline_s=2.0,
            )
        assert time.monotonic() - began_s < 12  # of 16, had each of the eight its own
        for filler in fillers:
            filler.close()


def test_a_server_that_hangs_up_is_an_error_with_a_sentence(server: Server) -> None:
    server.routes["/"] = b""
    with pytest.raises(ToolError, match=r"HTTP GET http://127\.0\.0\.1:\d+/ failed: the server"):
        ask(f"http://{server.at}/?token=secret", allow=[server.at])
    free = Server()
    free.close()
    with pytest.raises(ToolError, match="the connection failed") as failed:
        ask(f"http://{free.at}/?token=secret", allow=[free.at])
    assert "secret" not in failed.value.message


def test_no_descriptor_is_left_open(server: Server) -> None:
    server.routes["/"] = ok(b"x")
    server.routes["/endless"] = _drip(b"HTTP/1.1 200 OK\r\n\r\n")

    def once() -> None:
        ask(f"http://{server.at}/", allow=[server.at])
        with pytest.raises(ToolError):
            ask(f"http://{server.at}/endless", allow=[server.at], deadline_s=0.05)

    once()
    mine = _client_sockets(server.port)
    for _ in range(5):
        once()
    assert _client_sockets(server.port) <= mine


def _client_sockets(port: int) -> int:
    """Sockets of this process that are connected to that port."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as end:
                count += end.family == socket.AF_INET and end.getpeername()[1] == port
        except OSError:
            continue  # no socket, or not connected
    return count


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


@pytest.mark.parametrize("status", [301, 302, 303, 307])
def test_head_stays_head_through_a_redirect(server: Server, status: int) -> None:
    server.routes["/a"] = to("/b", status)
    server.routes["/b"] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    assert ask(f"http://{server.at}/a", allow=[server.at], method="HEAD").status == 200
    assert [request.method for request in server.seen] == ["HEAD", "HEAD"]


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "GET /x HTTP/1.1\r\nHost: a", "", "é"])
def test_a_method_that_is_not_listed_is_refused_before_anything_is_sent(server: Server, method: str) -> None:
    with connecting() as attempts, pytest.raises(ToolError, match="is not one of DELETE, GET, HEAD"):
        ask(f"http://{server.at}/", allow=[server.at], method=method)
    assert attempts == []
