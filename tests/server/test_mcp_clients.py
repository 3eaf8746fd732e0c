"""Real MCP clients against a whole server: every path and both protocol eras."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from real_clients import (
    DOCUMENTS,
    PATHS,
    SCRIPTS,
    Running,
    environment,
    node_run,
    package_program,
    tried_project,
)

from ctx.models import JSON

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SESSIONS, STATELESS = "2025-11-25", "2026-07-28"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    server = Running(tried_project(tmp_path_factory.mktemp("served")))
    server.wait_for_documents(len(DOCUMENTS))
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def folder(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second project, indexed, for clients that start `ctx mcp` themselves."""
    folder = tmp_path_factory.mktemp("piped")
    tried_project(folder)
    subprocess.run(
        [sys.executable, "-m", "ctx", "index"], cwd=folder, env=environment(), check=True, capture_output=True
    )
    return folder


def _pipe(folder: Path) -> dict[str, JSON]:
    return {"command": sys.executable, "args": ["-m", "ctx", "mcp"], "cwd": str(folder), "env": environment()}


async def _everything(target: Any, mode: str) -> dict[str, Any]:
    """What the official Python client sees of a server."""
    steps: list[tuple[float, float | None]] = []

    async def step(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total))

    async with Client(target, mode=mode) as client:
        tools = (await client.list_tools()).tools
        match = await client.call_tool("search", {"query": "authentication"})
        shout = await client.call_tool("shout", {"text": "hey"})
        failure_reply = await client.call_tool("search", {"query": "x", "limit": 0})
        refreshed = await client.call_tool("refresh", {}, progress_callback=step)
        resources = (await client.list_resources()).resources
        document: Any = (await client.read_resource(resources[0].uri)).contents[0]
        templates = (await client.list_resource_templates()).resource_templates
        prompts = (await client.list_prompts()).prompts
        prompt: Any = (await client.get_prompt("reviewer", {})).messages[0].content
        unknown = None
        try:
            await client.call_tool("no_such_tool", {})
        except MCPError as error:
            unknown = error.code
        return {
            "version": client.protocol_version,
            "tools": tools,
            "found": match,
            "shout": shout.structured_content,
            "bad": failure_reply,
            "refreshed": refreshed.is_error,
            "steps": steps,
            "text": document.text,
            "templates": [template.uri_template for template in templates],
            "prompts": [each.name for each in prompts],
            "prompt": prompt.text,
            "unknown": unknown,
        }


def _right(seen: dict[str, Any], version: str) -> None:
    assert seen["version"] == version
    assert [tool.name for tool in seen["tools"]][:3] == ["search", "get", "outline"]
    tools = {tool.name: tool for tool in seen["tools"]}
    assert tools["search"].annotations.read_only_hint is True
    assert tools["search"].output_schema is None
    assert tools["shout"].annotations.read_only_hint is False
    assert {"auth.md", "deploy.md"} <= set(seen["found"].content[0].text.split("\n"))
    assert seen["found"].structured_content is None
    assert seen["shout"] == {"said": "HEY"}
    assert seen["bad"].is_error is True
    assert "limit" in seen["bad"].content[0].text
    assert seen["refreshed"] is False
    assert seen["steps"], "no progress was reported"
    assert [process for process, _ in seen["steps"]] == sorted(process for process, _ in seen["steps"])
    assert seen["steps"][-1][0] == len(DOCUMENTS)
    assert seen["text"] in DOCUMENTS.values()
    assert seen["templates"] == ["ctx://doc/{id}", "ctx://source/{source}/{+path}"]
    assert seen["prompts"] == ["reviewer"]
    assert "You review code." in seen["prompt"]
    assert seen["unknown"] == -32602


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("mode", "version"), [("legacy", SESSIONS), ("auto", STATELESS)])
def test_the_python_client_lists_and_calls_on_every_path(
    running: Running, path: str, mode: str, version: str
) -> None:
    _right(asyncio.run(_everything(running.base + path, mode)), version)


@pytest.mark.clients
@pytest.mark.parametrize(("script", "versions"), [("ts1.mjs", [None]), ("ts2.mjs", [SESSIONS, STATELESS])])
def test_the_typescript_client_lists_and_calls_everywhere(
    running: Running, folder: Path, script: str, versions: list[str | None]
) -> None:
    targets = [*({"url": running.base + path} for path in PATHS), _pipe(folder)]
    process = node_run(str(SCRIPTS / script), json.dumps(targets))
    assert process.returncode == 0, process.stderr[-3000:]
    requests = json.loads(process.stdout)
    assert [(each["target"], each.get("version")) for each in requests] == [
        (target.get("url", "stdio"), version) for target in targets for version in versions
    ]
    for each in requests:
        assert set(each["tools"]) == {"search", "get", "outline", "symbol", "sources", "refresh", "shout"}
        assert each["hits"] == 2
        assert each["shout"] == {"said": "HEY"}
        assert each["bad"] is True
        assert each["text"] in DOCUMENTS.values()
        assert each["prompts"] == ["reviewer"]
        assert each["unknown"] == -32602


def _inspect(*arguments: str, cwd: Path) -> Any:
    process = node_run(
        package_program("@modelcontextprotocol/inspector", "mcp-inspector"), "--cli", *arguments, cwd=cwd
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    assert "warn" not in process.stderr.lower(), process.stderr
    return json.loads(process.stdout)


@pytest.mark.clients
@pytest.mark.parametrize("path", ["/", "/mcp/alice/"])
def test_the_inspector_accepts_every_schema(running: Running, tmp_path: Path, path: str) -> None:
    target = (running.base + path, "--transport", "http")
    listed = _inspect(*target, "--method", "tools/list", "--strict", cwd=tmp_path)
    assert {tool["name"] for tool in listed["tools"]} >= {"search", "get", "sources", "shout"}
    called = _inspect(
        *target, "--method", "tools/call", "--tool-name", "shout", "--tool-arg", "text=hey", cwd=tmp_path
    )
    assert called["structuredContent"] == {"said": "HEY"}
