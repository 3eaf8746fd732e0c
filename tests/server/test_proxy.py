"""`ctx mcp --url`: a remote ctx on this machine's pipes."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_doors import mcp_over
from real_clients import DOCUMENTS, Pipe, Running, environment, tried_project
from serving import ANYTHING, Serve

from ctx.errors import ConfigError
from ctx.server.address import remote
from ctx.server.app import Services
from ctx.server.policy import ServerSettings
from ctx.tools.base import Tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    server = Running(tried_project(tmp_path_factory.mktemp("remote")))
    server.wait_for_documents(len(DOCUMENTS))
    yield server
    server.stop()


@pytest.fixture
def mcp(services: Services) -> Services:
    return services._replace(mcp=mcp_over(services.toolbox, services.agents))


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
    while not served.guard._open:  # until the proxy listens: it holds a request open
        pass
    mcp.toolbox.add(Tool("fresh", "New", ANYTHING, lambda arguments, caller: None))
    assert pipe.hear()["method"] == "notifications/tools/list_changed"
    assert "fresh" in {tool["name"] for tool in pipe.ask("tools/list")["result"]["tools"]}
    assert pipe.end()[:2] == (0, "")


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
