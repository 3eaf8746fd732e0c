"""The instructions that models get, and the amount of text that a reply sends them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import project, workspace
from mcp_doors import ACCEPT, HELLO, answered, message
from serving import Serve, Served

from ctx.server.app import services
from ctx.workspace import Workspace

BODY = "# Authentication\n\nJWT tokens are signed.\n"


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Workspace]:
    """A project whose embeddings are off."""
    with workspace(project(tmp_path, {"auth.md": BODY})) as opened:
        opened.refresh([])
        yield opened


@pytest.fixture
def served(serve: Serve, space: Workspace) -> Served:
    return serve(services(space)._replace(start=lambda: None, stop=lambda: None))


def _call(served: Served, name: str, arguments: dict[str, Any]) -> Any:
    request = message("tools/call", {"name": name, "arguments": arguments})
    return answered(served.client.post("/mcp", json=request, headers=ACCEPT))["result"]


def _instructions(served: Served) -> str:
    reply = answered(served.client.post("/mcp", json=message("initialize", HELLO), headers=ACCEPT))
    text: str = reply["result"]["instructions"]
    return text


def _modes(tools: list[Any], schema: str) -> list[str]:
    (search,) = [tool for tool in tools if tool["name"] == "search"]
    modes: list[str] = search[schema]["properties"]["mode"]["enum"]
    return modes


def test_hybrid_is_not_advised_without_embeddings(served: Served) -> None:
    client = served.client
    assert "hybrid" not in _instructions(served)
    assert "hybrid" not in client.get("/llms.txt").text
    assert "hybrid" not in client.get("/openapi.json").text
    listed = answered(client.post("/mcp", json=message("tools/list"), headers=ACCEPT))["result"]["tools"]
    (search,) = [tool for tool in listed if tool["name"] == "search"]
    assert "mode" not in search["inputSchema"]["properties"]
    assert _modes(client.get("/tools/list").json()["tools"], "parameters") == ["keyword"]


def test_get_sends_a_document_once(served: Served) -> None:
    (hit,) = _call(served, "search", {"query": "jwt", "format": "json"})["structuredContent"]["results"]
    result = _call(served, "get", {"id": hit["id"], "format": "json"})
    assert [block["text"] for block in result["content"]] == [BODY]
    assert result["structuredContent"]["title"] == "Authentication"
    assert not {"body", "chunks"} & set(result["structuredContent"])
    assert json.dumps(result).count("JWT tokens are signed.") == 1
    assert served.client.post("/tools/get", json={"id": hit["id"]}).json()["body"] == BODY
    tools = answered(served.client.post("/mcp", json=message("tools/list"), headers=ACCEPT))["result"][
        "tools"
    ]
    (get,) = [tool for tool in tools if tool["name"] == "get"]
    assert "outputSchema" not in get
