"""`ctx mcp --url`: a remote ctx on this machine's pipes."""

import asyncio
import gzip
import http.server
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import PieceByPiece, http_server
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from real_clients import DOCUMENTS, Pipe, Running, environment, tried_project
from serving import ANYTHING, Serve

from ctx.errors import ConfigError
from ctx.server.address import remote
from ctx.server.app import Services
from ctx.server.frames import Frames
from ctx.server.policy import ServerSettings
from ctx.server.proxy import Proxy
from ctx.server.stdio import Wire
from ctx.tools.base import Tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    server = Running(tried_project(tmp_path_factory.mktemp("remote")))
    server.wait_for_documents(len(DOCUMENTS))
    yield server
    server.stop()


@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
def test_both_eras_pass_through(running: Running, tmp_path: Path, mode: str, version: str) -> None:
    async def seen() -> tuple[Any, ...]:
        arguments = ["-m", "ctx", "mcp", "--url", running.base]
        pipe = stdio_client(
            StdioServerParameters(
                command=sys.executable, args=arguments, cwd=str(tmp_path), env=environment()
            )
        )
        async with Client(pipe, mode=mode) as client:
            steps: list[float] = []

            async def step(progress: float, total: float | None, message: str | None) -> None:
                steps.append(progress)

            await client.call_tool("refresh", {}, progress_callback=step)
            shout, match = await asyncio.gather(
                client.call_tool("shout", {"text": "über"}), client.call_tool("search", {"query": "rollback"})
            )
            resources = (await client.list_resources()).resources
            document: Any = (await client.read_resource(resources[0].uri)).contents[0]
            tools = [tool.name for tool in (await client.list_tools()).tools]
            return (
                client.protocol_version,
                shout.structured_content,
                match.structured_content,
                document.text,
                tools,
                steps,
            )

    version_spoken, shout, match, text, tools, steps = asyncio.run(seen())
    assert version_spoken == version
    assert shout == {"said": "über".upper()} or shout == {"said": "üBER"}  # Lua knows ASCII letters only
    assert [hit["title"] for hit in match["results"]] == ["Deployment guide"]
    assert text in DOCUMENTS.values()
    assert set(tools) >= {"search", "shout"}
    assert steps


def test_changed_lists_of_the_remote_are_told_to_the_client(
    serve: Serve, mcp: Services, tmp_path: Path
) -> None:
    served = serve(mcp)
    pipe = Pipe(tmp_path, "--url", served.base + "/mcp/alice")
    pipe.shake_hands()
    called = pipe.ask("tools/call", {"name": "whoami", "arguments": {}})
    assert called["result"]["structuredContent"]["bank"] == "alice"
    arrival = threading.Event()

    def add_tools() -> None:
        """One more until the news arrives: the proxy opens its stream after the handshake."""
        for number in itertools.count():
            mcp.toolbox.add(Tool(f"fresh{number}", "New", ANYTHING, lambda arguments, caller: None))
            if arrival.wait(0.3):
                return

    adding = threading.Thread(target=add_tools, daemon=True)
    adding.start()
    assert pipe.hear()["method"] == "notifications/tools/list_changed"
    arrival.set()
    adding.join()
    assert "fresh0" in {tool["name"] for tool in pipe.ask("tools/list")["result"]["tools"]}
    code, output, _ = pipe.end()
    assert code == 0
    assert all("notifications/tools/list_changed" in line for line in output.splitlines()), output


def test_a_restarted_server_is_found_again_without_the_client_noticing(tmp_path: Path) -> None:
    config = tried_project(tmp_path)
    first = Running(config)
    pipe = Pipe(tmp_path, "--url", first.base)
    pipe.shake_hands()
    assert pipe.ask("tools/call", {"name": "shout", "arguments": {"text": "a"}})["result"][
        "structuredContent"
    ] == {"said": "A"}
    first.stop()
    refused = pipe.ask("tools/call", {"name": "shout", "arguments": {"text": "b"}})
    assert "is `ctx serve mcp` running there?" in refused["error"]["message"]
    second = Running(config, "--bind", first.base.removeprefix("http://"))
    second_reply = pipe.ask("tools/call", {"name": "shout", "arguments": {"text": "c"}})
    assert second_reply["result"]["structuredContent"] == {"said": "C"}
    assert pipe.end()[0] == 0
    second.stop()


class _Forgetful(http.server.BaseHTTPRequestHandler):
    """A server that is started anew once `forgets` is set: its first session is unknown, the second one takes
    until `opens`.
    """

    forgets, opening, opens = threading.Event(), threading.Event(), threading.Event()

    def do_GET(self) -> None:
        type(self).forgets.wait(30)
        self._reply(404)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = self.headers.get("Mcp-Session-Id")
        if message["method"] == "initialize":
            if self.forgets.is_set():
                self.opening.set()
                self.opens.wait(30)
            result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}
            self._reply(
                200, id=message["id"], result=result, session="second" if self.forgets.is_set() else "first"
            )
        elif session is None:
            self._reply(400, id=None, error={"code": -32600, "message": "Missing session ID"})
        elif session == "first" and self.forgets.is_set():
            self._reply(404, id=None, error={"code": -32600, "message": "Session not found"})
        elif "id" not in message:
            self._reply(202)
        elif message["method"] == "cut":
            self._reply(200, "text/event-stream")
        elif message["method"] == "lost":
            self._reply(400, id=None, error={"code": -32600, "message": "this went wrong"})
        else:
            self._reply(200, id=message["id"], result={"session": session})

    do_DELETE = do_GET

    def _reply(self, status: int, kind: str = "application/json", session: str = "", **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode() if message else b""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def test_a_request_waits_for_the_session_that_is_being_opened(tmp_path: Path) -> None:
    with http_server(_Forgetful) as port:
        pipe = Pipe(tmp_path, "--url", f"http://127.0.0.1:{port}")
        pipe.shake_hands()
        assert pipe.ask("ping")["result"] == {"session": "first"}
        _Forgetful.forgets.set()
        assert _Forgetful.opening.wait(30)  # the stream of news was told, and asks for a new session
        pipe.say('{"jsonrpc": "2.0", "id": 7, "method": "ping"}')
        _Forgetful.opens.set()
        while (reply := pipe.hear()).get("id") != 7:
            pass
        assert reply["result"] == {"session": "second"}
        # A reply that never comes, and one to nobody, are told to the request they belong to.
        assert "ended before it had answered" in pipe.ask("cut", id=8)["error"]["message"]
        assert "answered 400: this went wrong" in pipe.ask("lost", id=9)["error"]["message"]
        assert pipe.end()[0] == 0


def test_a_missing_and_a_wrong_key_are_told_with_the_mend(
    serve: Serve, mcp: Services, tmp_path: Path
) -> None:
    served = serve(mcp, ServerSettings(api_keys=("right",)))
    for arguments, environ, words in (
        ((), {}, "export it and name its variable with --key-env"),
        (("--key-env", "THE_KEY"), {"THE_KEY": "wrong"}, "the key was refused"),
    ):
        pipe = Pipe(tmp_path, "--url", served.base, *arguments, **environ)
        reply = pipe.ask(
            "initialize",
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            },
        )
        assert "401" in reply["error"]["message"]
        assert words in reply["error"]["message"]
        code, _, err = pipe.end()
        assert code == 0
        assert "wrong" not in err
    pipe = Pipe(tmp_path, "--url", served.base, "--key-env", "THE_KEY", THE_KEY="right")
    assert pipe.shake_hands()["serverInfo"]["name"] == "ctx"
    pipe.end()


def test_calls_under_way_are_answered_when_the_client_closes_its_end(
    running: Running, tmp_path: Path
) -> None:
    lines = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "search", "arguments": {"query": "rollback"}},
        },
        {"jsonrpc": "2.0", "id": 2, "method": "ping"},
    ]
    process = subprocess.run(
        [sys.executable, "-m", "ctx", "mcp", "--url", running.base],
        cwd=tmp_path,
        env=environment(),
        input="".join(json.dumps(line) + "\n" for line in lines) + "broken\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    replies = {reply["id"]: reply for reply in map(json.loads, process.stdout.splitlines())}
    assert set(replies) == {None, 1, 2}
    assert replies[None]["error"]["code"] == -32700
    assert len(replies[1]["result"]["structuredContent"]["results"]) == 1


def test_a_call_at_a_server_that_hangs_does_not_outlive_its_client(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        address = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "ctx", "mcp", "--url", address],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        process.stdin.flush()
        peer, _ = hanging.accept()
        with peer:
            peer.recv(1)
            process.stdin.close()
            process.stdout.close()
            assert process.wait(20) == 0  # the wait for replies that somebody reads is 30


def test_an_address_that_is_no_ctx_is_told(running: Running, tmp_path: Path) -> None:
    pipe = Pipe(tmp_path, "--url", running.base + "/nowhere")
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    assert "404: nothing there speaks MCP" in pipe.ask("initialize", hello)["error"]["message"]
    pipe.end()


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://localhost:7331", "http://localhost:7331/mcp"),
        ("http://localhost:7331/", "http://localhost:7331/mcp"),
        ("https://ctx.example/mcp/alice/", "https://ctx.example/mcp/alice/"),
    ],
)
def test_the_bare_server_stands_for_its_mcp(url: str, address: str) -> None:
    assert remote(url) == address


def test_a_bank_is_a_path_of_the_server() -> None:
    assert remote("http://localhost:7331", "alice") == "http://localhost:7331/mcp/alice"
    assert remote("http://localhost:7331/mcp/", "a b") == "http://localhost:7331/mcp/a%20b"
    assert remote("http://localhost:7331/mcp/bob", "alice") == "http://localhost:7331/mcp/bob"


@pytest.mark.parametrize(
    "url", ["localhost:7331", "ftp://x/", "http://", "http://:secret@host/", "http://host:port/"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--url") as refused:
        remote(url)
    assert "secret" not in str(refused.value)
    assert os.sep not in str(refused.value)[:3]


class _Silent(http.server.BaseHTTPRequestHandler):
    """A server that takes a request and says nothing until `ends`; what is no request for tools it answers
    oddly.
    """

    came, ends = threading.Event(), threading.Event()

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if message["method"] == "initialize":
            self.came.set()
            self.ends.wait(60)
        body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": {"tools": 5}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def test_a_client_that_leaves_during_the_handshake_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.server.stdio.LAST_WORDS_S", 0.05)
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
    with http_server(_Silent) as port:
        reading, writing = os.pipe()
        with open(reading, "rb", buffering=0) as read, open(os.devnull, "wb", buffering=0) as sink:
            os.write(writing, hello.encode() + b"\n")
            os.close(writing)
            proxy = Proxy(Wire(Frames(read, sink)), f"http://127.0.0.1:{port}/", None)
            try:
                asyncio.run(asyncio.wait_for(proxy.run(), 10))
            finally:
                _Silent.ends.set()
        assert _Silent.came.is_set()


def test_what_an_odd_server_answers_and_what_an_odd_client_calls_off_ends_nothing(tmp_path: Path) -> None:
    with http_server(_Silent) as port:
        pipe = Pipe(tmp_path, "--url", f"http://127.0.0.1:{port}")
        pipe.say('{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [1]}}')
        assert "is no MCP" in pipe.ask("tools/list", id=2)["error"]["message"]
        code, _, err = pipe.end()
        assert (code, "Traceback" in err) == (0, False)


class _Hostile(PieceByPiece):
    """A server that answers each method in a way of its own, to do its client harm."""

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        encoding, kind = "identity", "text/event-stream"
        pieces: Iterator[bytes] = iter(())
        match message["method"]:
            case "deep":
                kind, pieces = "application/json", iter([b"[" * 200_000])
            case "deep event":
                pieces = iter([b"data: " + b"[" * 200_000 + b"\n\n"])
            case "endless":
                kind, pieces = "application/json", itertools.repeat(b" " * 65536)
            case "endless line":
                pieces = itertools.repeat(b"data: " + b"x" * 65536)
            case "endless event":
                pieces = itertools.repeat(b"data:\n" * 10_000)
            case "packed":
                encoding, kind = "gzip", "application/json"
                pieces = iter([gzip.compress(gzip.compress(b" " * 50_000_000))])
            case "line ends":
                result = json.dumps("a\u2028b\u2029c\x85d", ensure_ascii=False)
                reply = f'{{"jsonrpc": "2.0", "id": {message["id"]}, "result": {{"text": {result}}}}}'
                pieces = iter([b"event: message\r\ndata: ", reply.encode(), b"\r", b"\n\r\n"])
        self.send_pieces(pieces, {"Content-Type": kind, "Content-Encoding": encoding})


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("deep", "answered 200"),
        ("deep event", "is no MCP"),
        ("endless", "more than 1 MiB"),
        ("endless line", "more than 1 MiB"),
        ("endless event", "more than 1 MiB"),
        ("packed", "encoded as 'gzip'"),
    ],
)
def test_a_hostile_reply_is_an_error_of_its_request_and_no_more(
    monkeypatch: pytest.MonkeyPatch, method: str, reason: str
) -> None:
    monkeypatch.setattr("ctx.server.proxy.MAX_REPLY_BYTES", 1 << 20)
    with http_server(_Hostile) as port:
        error = _carried(port, method)["error"]
    assert reason in error["message"]


def test_a_text_with_line_ends_of_unicode_comes_through_whole() -> None:
    with http_server(_Hostile) as port:
        assert _carried(port, "line ends")["result"] == {"text": "a\u2028b\u2029c\x85d"}


def _carried(port: int, method: str) -> Any:
    """What a client is answered to a request of this method, by way of a proxy to that port."""
    reading, asking = os.pipe()
    replies, writing = os.pipe()
    with open(reading, "rb", buffering=0) as read, open(writing, "wb", buffering=0) as write:
        proxy = Proxy(Wire(Frames(read, write)), f"http://127.0.0.1:{port}/", None)
        os.write(asking, json.dumps({"jsonrpc": "2.0", "id": 7, "method": method}).encode() + b"\n")
        os.close(asking)
        asyncio.run(asyncio.wait_for(proxy.run(), 60))
    with open(replies, encoding="utf-8") as lines:
        return json.loads(lines.readline())
