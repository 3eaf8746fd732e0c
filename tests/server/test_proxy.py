"""`ctx mcp --url` carries standard input and output to a server elsewhere."""

import asyncio
import gzip
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest
from kit import PieceByPiece, http_server
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from real_clients import DOCUMENTS, Pipe, Running, environment, tried_project
from serving import Serve

from ctx.errors import ConfigError
from ctx.http import Upstream, remote
from ctx.server.app import Services
from ctx.server.policy import ServerSettings
from ctx.server.stdio import Proxy, client_streams

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    server = Running(tried_project(tmp_path_factory.mktemp("remote")))
    server.wait_for_documents(len(DOCUMENTS))
    yield server
    server.stop()


@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
def test_both_protocol_eras_pass_through(running: Running, tmp_path: Path, mode: str, version: str) -> None:
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
                client.call_tool("shout", {"text": "über"}),
                client.call_tool("search", {"format": "json", "query": "rollback"}),
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


def test_a_bank_of_the_url_and_the_session_of_the_process_reach_the_server(
    serve: Serve, mcp: Services, tmp_path: Path
) -> None:
    served = serve(mcp)
    sessions = set()
    for _ in range(2):
        pipe = Pipe(tmp_path, "--url", served.base + "/mcp/alice")
        pipe.shake_hands()
        for _ in range(2):
            called = pipe.ask("tools/call", {"name": "whoami", "arguments": {}})["result"][
                "structuredContent"
            ]
            assert called["bank"] == "alice"
            sessions.add(called["session_id"])
        assert pipe.end() == (0, "", "")
    assert len(sessions) == 2


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


def test_with_a_running_server_mcp_is_its_proxy_and_survives_its_restart(tmp_path: Path) -> None:
    config = tried_project(tmp_path)
    first = Running(config)
    first.wait_for_documents(len(DOCUMENTS))
    pipe = Pipe(tmp_path)
    pipe.shake_hands()
    call = {"name": "shout", "arguments": {"text": "a"}}
    assert pipe.ask("tools/call", call)["result"]["structuredContent"] == {"said": "A"}
    first.stop()
    second = Running(config, "--bind", "127.0.0.1:0")
    assert second.base != first.base
    assert pipe.ask("tools/call", call)["result"]["structuredContent"] == {"said": "A"}
    second.stop()
    refused = pipe.ask("tools/call", call)
    assert "this project's server has stopped" in refused["error"]["message"]
    assert pipe.end()[0] == 0


def test_a_missing_or_wrong_key_error_says_what_to_do(serve: Serve, mcp: Services, tmp_path: Path) -> None:
    served = serve(mcp, ServerSettings(api_keys=("right",)))
    for arguments, environ, words in (
        ((), {}, "export it and name its variable with --key-env"),
        (("--key-env", "THE_KEY"), {"THE_KEY": "wrong"}, "refused the key"),
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


def test_a_bank_is_a_path_of_the_server() -> None:
    assert remote("http://localhost:7331", "alice") == "http://localhost:7331/mcp/alice"
    assert remote("http://localhost:7331/mcp/", "a b") == "http://localhost:7331/mcp/a%20b"
    assert remote("http://localhost:7331/mcp/bob", "alice") == "http://localhost:7331/mcp/bob"


@pytest.mark.parametrize(
    "url", ["localhost:7331", "ftp://x/", "http://", "http://:secret@host/", "http://host:port/"]
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--url") as refused:
        remote(url)
    assert "secret" not in str(refused.value)
    assert os.sep not in str(refused.value)[:3]


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
        self.send_pieces(pieces, {"Content-Type": kind, "Content-Encoding": encoding})


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("deep", "did not answer with MCP"),
        ("deep event", "did not answer with MCP"),
        ("endless", "larger than 1 MiB"),
        ("endless line", "1048576"),
        ("endless event", "1048576"),
        ("packed", "has the encoding 'gzip'"),
    ],
)
def test_a_hostile_reply_is_an_error_of_its_request_and_no_more(
    monkeypatch: pytest.MonkeyPatch, method: str, reason: str
) -> None:
    monkeypatch.setattr("ctx.server.stdio.MAX_REPLY_BYTES", 1 << 20)
    with http_server(_Hostile) as port:
        error = _carried(port, method)["error"]
    assert reason in error["message"]


async def _carry(source: TextIO, sink: TextIO, port: int) -> None:
    async with client_streams(source, sink) as (reading, writing):
        await Proxy(Upstream(f"http://127.0.0.1:{port}/")).run(reading, writing)


def _carried(port: int, method: str) -> Any:
    """What a client is answered to a request of this method, by way of a proxy to that port."""
    reading, asking = os.pipe()
    replies, writing = os.pipe()
    with open(reading, encoding="utf-8") as source, open(writing, "w", encoding="utf-8") as sink:
        os.write(asking, json.dumps({"jsonrpc": "2.0", "id": 7, "method": method}).encode() + b"\n")
        os.close(asking)
        asyncio.run(asyncio.wait_for(_carry(source, sink, port), 60))
    with open(replies, encoding="utf-8") as lines:
        return json.loads(lines.readline())
