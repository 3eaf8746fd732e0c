"""The runner: sockets, readiness, and how it stops."""

import asyncio
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest
from faults import eventually
from serving import ANYTHING, Serve, Served, failure, waiting
from starlette.types import Receive, Scope, Send

from ctx.errors import ConfigError, StoreError
from ctx.server import run
from ctx.server.app import Services, begin_behind_answers, create_app
from ctx.server.policy import ServerSettings
from ctx.server.run import address, open_sockets
from ctx.server.work import Work
from ctx.tools.agents import Agents
from ctx.tools.base import Tool, Toolbox


class StreamEndpoint:
    """An MCP endpoint whose replies never end."""

    def __init__(self, work: Work) -> None:
        self._over = anyio.Event()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream")],
            }
        )
        await send({"type": "http.response.body", "body": b": open\n\n", "more_body": True})
        await self._over.wait()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        yield


def test_a_stop_ends_an_open_stream(serve: Serve, services: Services) -> None:
    served = serve(services._replace(mcp=StreamEndpoint))
    with served.client.stream("POST", "/mcp") as stream:
        chunks = stream.iter_text()
        assert next(chunks) == ": open\n\n"
        served.server.stop()
        assert "".join(chunks) == ""
        served.thread.join(60)
        assert not served.thread.is_alive()


def test_requests_beyond_the_bound_of_unanswered_ones_are_503_and_open_streams_do_not_count(
    serve: Serve, toolbox: Toolbox, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.server.guard.MAX_IN_FLIGHT", 1)
    entered, release = waiting(toolbox)
    served = serve(Services(toolbox, agents, mcp=StreamEndpoint))
    with served.client.stream("POST", "/mcp") as stream:
        assert next(stream.iter_text()) == ": open\n\n"
        assert httpx.get(f"{served.base}/health", timeout=60).status_code == 200
        caller = threading.Thread(target=lambda: httpx.post(f"{served.base}/tools/wait", json={}, timeout=60))
        caller.start()
        assert entered.wait(60)
        assert failure(httpx.get(f"{served.base}/health")) == (503, "busy")
        release.set()
        caller.join(60)


def test_a_stop_with_a_running_call_answers_it_503(serve: Serve, toolbox: Toolbox, agents: Agents) -> None:
    entered, release = waiting(toolbox)
    served = serve(Services(toolbox, agents))
    answers: list[httpx.Response] = []
    caller = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{served.base}/tools/wait", json={}, timeout=60))
    )
    caller.start()
    assert entered.wait(60)
    served.stop()
    caller.join(60)
    assert not release.is_set(), "the call was still at it"
    assert failure(answers[0]) == (503, "busy")
    release.set()


def test_a_client_that_leaves_behind_a_queue_of_requests_is_answered_to_none_of_them(
    serve: Serve, toolbox: Toolbox, agents: Agents, caplog: pytest.LogCaptureFixture
) -> None:
    entered, release = waiting(toolbox)
    served = serve(Services(toolbox, agents))
    first = b"POST /tools/wait HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    with socket.create_connection((served.host, served.port)) as client:
        client.sendall(first + b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
        assert entered.wait(60)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # leaves with a reset
    state = served.server.server_state
    eventually(lambda: not state.connections)
    release.set()
    eventually(lambda: not state.tasks)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_start_comes_before_the_first_request_and_stop_after_the_last(
    serve: Serve, services: Services
) -> None:
    order: list[str] = []
    services.toolbox.observe(lambda call: order.append("call"))
    served = serve(services._replace(start=lambda: order.append("start"), stop=lambda: order.append("stop")))
    served.client.post("/tools/whoami", json={})
    served.stop()
    assert order == ["start", "call", "stop"]


def test_what_grows_with_the_sources_begins_when_no_search_is_under_way(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.server.app.FIRST_ANSWERS_S", 0.01)
    release = threading.Event()
    order: list[str] = []

    def search() -> None:
        release.wait(60)
        order.append("answer")

    async def serving() -> None:
        work = Work()
        answer = asyncio.create_task(work.searches.run(search))
        await asyncio.sleep(0)  # the search has been accepted
        beginning = asyncio.create_task(
            begin_behind_answers(services._replace(begin=lambda: order.append("begin")), work)
        )
        await asyncio.sleep(0.1)
        release.set()
        await asyncio.gather(answer, beginning)
        work.close()

    asyncio.run(serving())
    assert order == ["answer", "begin"]


def test_a_busy_port_is_refused_with_the_mend() -> None:
    (first,) = open_sockets("127.0.0.1:0")
    with first, pytest.raises(ConfigError, match=r"in use by another program.*\[server\] bind"):
        open_sockets(address(first))


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be bound"):
        open_sockets("192.0.2.1:0")


def test_localhost_is_not_shared_with_another_program() -> None:
    """Who says `localhost` would ask that one, with their key."""
    try:
        [stranger] = open_sockets("[::1]:0")
    except ConfigError:
        pytest.skip("there is no IPv6 here")
    with stranger, pytest.raises(ConfigError, match=r"localhost:\d+ is in use by another program"):
        open_sockets(f"localhost:{stranger.getsockname()[1]}")


def test_localhost_is_one_port_on_every_loopback_address() -> None:
    opened = open_sockets("localhost:0")
    try:
        assert opened[0].getsockname()[0] == "127.0.0.1"
        assert len({each.getsockname()[1] for each in opened}) == 1
        assert {each.family for each in opened[1:]} <= {socket.AF_INET6}
    finally:
        for each in opened:
            each.close()


def _exchange(host: str, port: int, request: bytes) -> bytes:
    with socket.create_connection((host, port), 10) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as replies:
            return replies.read()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"what is this\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_what_is_no_request_is_400_in_our_shape(
    serve: Serve, services: Services, request_bytes: bytes
) -> None:
    served = serve(services)
    head, _, body = _exchange(served.host, served.port, request_bytes).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "bad_request"
    assert served.client.get("/health").status_code == 200


def test_connections_beyond_the_bound_are_503_with_retry_after_where_all_are_at_work(
    serve: Serve, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.server.run.MAX_CONNECTIONS", 2)
    served = serve(services._replace(mcp=StreamEndpoint))
    with (
        served.client.stream("POST", "/mcp") as first,
        served.client.stream("POST", "/mcp") as second,
    ):
        chunks = [first.iter_text(), second.iter_text()]  # kept: a stream ends with its iterator
        assert [next(each) for each in chunks] == [": open\n\n"] * 2
        reply = _exchange(served.host, served.port, b"")
    assert reply.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nretry-after: 1\r\n" in reply


@pytest.mark.parametrize("bound", ["MAX_CONNECTIONS", "PEER_CONNECTIONS"])
def test_who_never_ends_a_request_gives_way_to_who_comes_with_one(
    serve: Serve, services: Services, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(f"ctx.server.run.{bound}", 4)
    served = serve(services)
    slow = [socket.create_connection((served.host, served.port), 60) for _ in range(12)]
    try:
        for connection in slow[:8:2]:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: local")
        for _ in range(4):
            assert httpx.get(f"{served.base}/health", timeout=60).status_code == 200
        assert slow[0].recv(1) == b"" if _is_open(slow[0]) else True
    finally:
        for connection in slow:
            connection.close()


def _is_open(connection: socket.socket) -> bool:
    try:
        connection.send(b"")
    except OSError:
        return False
    return True


def test_who_sends_a_body_slowly_gives_way_when_the_server_is_full(
    serve: Serve, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.server.guard.MAX_IN_FLIGHT", 3)
    monkeypatch.setattr("ctx.server.exchange.SLOW_BODY_S", 0.0)
    served = serve(services)
    head = (
        b"POST /tools/whoami HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 9\r\n\r\n{"
    )
    slow = [socket.create_connection((served.host, served.port), 60) for _ in range(3)]
    try:
        for connection in slow:
            connection.sendall(head)
        eventually(lambda: len(served.guard._open) == 3)  # all three are being read
        assert httpx.get(f"{served.base}/health", timeout=60).status_code == 200
        with slow[0].makefile("rb") as reply:  # the oldest
            assert b" 503 " in reply.readline()
    finally:
        for connection in slow:
            connection.close()


def _unread(served: Served) -> socket.socket:
    """A connection whose reply is larger than all buffers on its way, and is not read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect((served.host, served.port))
    connection.sendall(
        b"POST /tools/long HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\n\r\n{}"
    )
    return connection


def _is_cut_off(connection: socket.socket) -> bool:
    """Whether the server has given it up: what was on its way is still to be read, and then no more."""
    size = 0
    try:
        while data := connection.recv(1 << 20):
            size += len(data)
    except OSError:
        return True
    return size < LONG_REPLY_BYTES


LONG_REPLY_BYTES = 16 << 20  # more than a system keeps of what a client does not read


@pytest.fixture
def long_reply(serve: Serve, toolbox: Toolbox, agents: Agents) -> Served:
    """A server whose tool `long` answers with more than a client's system takes unread."""
    text = "x" * LONG_REPLY_BYTES
    toolbox.add(Tool("long", "Much", ANYTHING, lambda arguments, caller: text))
    return serve(Services(toolbox, agents))


def _unread_ones(served: Served) -> list[run.HttpProtocol]:
    connections = list(served.server.server_state.connections)
    return [each for each in connections if each._unread_timer is not None]


def test_who_reads_no_reply_is_hung_up_on(long_reply: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctx.server.run.UNREAD_S", 0.1)
    with _unread(long_reply) as connection:
        eventually(lambda: len(long_reply.server.server_state.connections) == 1)
        eventually(lambda: not long_reply.server.server_state.connections)
        assert _is_cut_off(connection)


def test_who_reads_a_long_reply_slowly_gets_all_of_it(long_reply: Served) -> None:
    with _unread(long_reply) as connection:
        eventually(lambda: len(_unread_ones(long_reply)) == 1)
        (protocol,) = _unread_ones(long_reply)
        looked = threading.Event()

        def look() -> None:
            protocol._check_reading(protocol._unread_bytes + 1)  # a byte more waited at the last look
            looked.set()

        protocol.loop.call_soon_threadsafe(look)
        assert looked.wait(60)
        size = 0
        while size < LONG_REPLY_BYTES:
            data = connection.recv(1 << 20)
            assert data, f"cut off after {size} bytes"
            size += len(data)


def test_who_reads_no_reply_gives_way_when_the_server_is_full(
    long_reply: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.server.run.MAX_CONNECTIONS", 3)
    monkeypatch.setattr("ctx.server.run.PATIENCE_S", 0.0)
    slow: list[socket.socket] = []
    try:
        for count in (1, 2, 3):  # one after another: whose reply waits longest is then told by the order
            slow.append(_unread(long_reply))
            eventually(lambda count=count: len(_unread_ones(long_reply)) == count)
        for _ in range(3):
            assert httpx.get(f"{long_reply.base}/health", timeout=60).status_code == 200
        assert _is_cut_off(slow[0])
    finally:
        for connection in slow:
            connection.close()


def test_replies_that_nobody_reads_are_bounded_together(
    long_reply: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.server.run.UNREAD_BYTES", LONG_REPLY_BYTES)
    first = _unread(long_reply)
    eventually(lambda: len(_unread_ones(long_reply)) == 1)
    second = _unread(long_reply)
    try:
        assert _is_cut_off(first)
        assert len(_unread_ones(long_reply)) == 1
    finally:
        first.close()
        second.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only there are all of 127.0.0.0/8 this machine's")
def test_who_holds_all_connections_from_several_addresses_keeps_nobody_else_out(
    serve: Serve, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.server.run.MAX_CONNECTIONS", 4)
    served = serve(services._replace(mcp=StreamEndpoint))
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    streams = []
    try:
        for peer in ("127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"):
            streams.append(socket.create_connection((served.host, served.port), 60, (peer, 0)))
            streams[-1].sendall(head)
            assert streams[-1].recv(15) == b"HTTP/1.1 200 OK"
        assert httpx.get(f"{served.base}/health", timeout=60).status_code == 200
    finally:
        for connection in streams:
            connection.close()


def test_a_client_that_never_ends_its_request_is_hung_up_on(
    serve: Serve, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.server.run.HEAD_S", 0.1)
    monkeypatch.setattr("ctx.server.exchange.BODY_PAUSE_S", 0.1)
    served = serve(services)
    assert _exchange(served.host, served.port, b"") == b""
    assert _exchange(served.host, served.port, b"GET /health HTTP/1.1\r\nHost: local") == b""
    monkeypatch.setattr("ctx.server.run.HEAD_S", 60.0)  # a busy machine may be late with the whole head
    post = (
        b"POST /tools/whoami HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 9\r\n\r\n{"
    )
    assert _exchange(served.host, served.port, post).startswith(b"HTTP/1.1 400 ")


def test_what_keeps_the_services_from_starting_is_raised_and_nothing_announced(services: Services) -> None:
    def start() -> None:
        raise StoreError("the catalog is newer than this program")

    announced: list[str] = []
    app = create_app(services._replace(start=start), ServerSettings())
    with pytest.raises(StoreError, match="newer than this program"):
        run.serve(app, "127.0.0.1:0", announce=announced.append)
    assert announced == []


SCRIPT = """
import sys
import time

from ctx.tools.agents import Agents
from ctx.server import run
from ctx.server.app import Services, begin_behind_answers, create_app
from ctx.server.policy import ServerSettings
from ctx.tools.base import Toolbox

if sys.argv[1:]:
    run.LEAVE_S = float(sys.argv[1])
services = Services(Toolbox(), Agents(), stop=lambda: print("stopped", flush=True))
app = create_app(services, ServerSettings())
run.serve(app, "127.0.0.1:0", announce=lambda address: print(f"Listening on {address}", flush=True))
print("returned", flush=True)
"""


CLOSING = """
def closing():
    print("closing", flush=True)
    sys.stdin.readline()


if sys.argv"""


@pytest.mark.slow
@pytest.mark.parametrize("hook", ["start", "ending", "stop"])
def test_a_stop_is_obeyed_whatever_hangs_also_where_sigint_is_ignored(tmp_path: Path, hook: str) -> None:
    stuck = SCRIPT.replace('stop=lambda: print("stopped", flush=True)', f"{hook}=hang").replace(
        "if sys.argv", 'def hang():\n    print("hanging", flush=True)\n    time.sleep(600)\n\n\nif sys.argv'
    )
    # As a shell script starts what it leaves in the background.
    command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", sys.executable, "-c", stuck]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("hanging" if hook == "start" else "Listening on "), line
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.mark.slow
def test_a_process_that_was_asked_to_stop_does_not_wait_for_what_will_not_end(tmp_path: Path) -> None:
    stuck = SCRIPT.replace('print("stopped", flush=True)', "time.sleep(600)")
    with subprocess.Popen(
        [sys.executable, "-c", stuck], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Listening on ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stdout.read() == "", "neither of the two came to its end"


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_the_process_announces_itself_once_and_ends_with_0_on_a_signal(
    tmp_path: Path, how: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "20"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        announcement = re.fullmatch(r"Listening on (127\.0\.0\.1:\d+)\n", line)
        assert announcement, line
        assert httpx.get(f"http://{announcement[1]}/health").json()["status"] == "ok"
        process.send_signal(how)
        options, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert options == "stopped\nreturned\n"
    assert errors == ""
    assert process.returncode == 0


@pytest.mark.slow
def test_a_second_signal_tears_nothing_down_that_is_being_closed(tmp_path: Path) -> None:
    script = SCRIPT.replace(
        'stop=lambda: print("stopped", flush=True)',
        "ending=closing, stop=lambda: print('stopped', flush=True)",
    ).replace("if sys.argv", CLOSING)
    with subprocess.Popen(
        [sys.executable, "-c", script, "60"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("Listening on ")
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "closing\n"
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate("go on\n", timeout=60)
        finally:
            process.kill()
    assert (output, errors, process.returncode) == ("stopped\nreturned\n", "", 0)


def test_a_stop_right_behind_the_announcement_is_a_whole_one() -> None:
    steps: list[str] = []
    services = Services(
        Toolbox(), Agents(), ending=lambda: steps.append("closing"), stop=lambda: steps.append("stopped")
    )
    [opened] = run.open_sockets("127.0.0.1:0")
    server = run.HttpServer(
        create_app(services, ServerSettings()), [opened], announce=lambda address: server.stop()
    )
    server.run()
    assert steps == ["closing", "stopped"]


def test_space_around_the_value_of_a_header_is_no_part_of_it(serve: Serve, services: Services) -> None:
    served = serve(services)
    with socket.create_connection((served.host, served.port), timeout=60) as connection:
        connection.sendall(
            b"GET /health HTTP/1.1\r\nhost:  \t localhost \t \r\nx-request-id:   asked-for-this \r\n"
            b"connection: close\r\n\r\n"
        )
        reply = b"".join(iter(lambda: connection.recv(65536), b""))
    assert reply.startswith(b"HTTP/1.1 200")
    assert b"x-request-id: asked-for-this\r\n" in reply
