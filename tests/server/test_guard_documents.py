"""Whom a closed server shows its documents, by REST and by MCP alike."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import project, workspace
from serving import ANYTHING, Serve, Served

from ctx.server.app import Services
from ctx.server.late import Door
from ctx.server.mcp import McpServer
from ctx.server.mcp_http import HttpDoor, enter_http
from ctx.server.policy import PackPolicy, ServerSettings
from ctx.server.work import Work
from ctx.tools.base import Tool
from ctx.types import JSON
from ctx.workspace import Workspace

CLOSED = ServerSettings(api_keys=("server-key",), packs=(PackPolicy("vault", keys=("vault-key",)),))


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Workspace]:
    with workspace(project(tmp_path, {"auth.md": "# Authentication\n\nJWT tokens are signed.\n"})) as opened:
        opened.refresh([])
        opened.toolbox.add(
            Tool("vault", "Keep a secret", ANYTHING, lambda arguments, caller: "kept", pack="vault")
        )
        yield opened


@pytest.fixture
def served(serve: Serve, space: Workspace) -> Served:
    def door(work: Work) -> Door:
        return HttpDoor(McpServer(space.toolbox, space.agents, lambda: space.catalog, work, enter=enter_http))

    return serve(Services(space.toolbox, space.agents, mcp=door), CLOSED)


def _rpc(served: Served, key: str, method: str, **params: JSON) -> JSON:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    response = served.client.post("/mcp", json=body, headers={"authorization": f"Bearer {key}"})
    assert response.status_code == 200
    return response.json()


def test_the_servers_key_opens_them(served: Served) -> None:
    (resource,) = _rpc(served, "server-key", "resources/list")["result"]["resources"]
    assert (
        "JWT"
        in _rpc(served, "server-key", "resources/read", uri=resource["uri"])["result"]["contents"][0]["text"]
    )
    match = _rpc(served, "server-key", "tools/call", name="search", arguments={"query": "jwt"})["result"]
    assert match["structuredContent"]["results"]


def test_a_packs_key_opens_the_pack_and_not_them(served: Served) -> None:
    (resource,) = _rpc(served, "server-key", "resources/list")["result"]["resources"]
    assert _rpc(served, "vault-key", "resources/list")["result"]["resources"] == []
    assert (
        _rpc(served, "vault-key", "resources/read", uri=resource["uri"])["error"]["message"]
        == "Resource not found"
    )
    refused = _rpc(served, "vault-key", "tools/call", name="search", arguments={"query": "jwt"})
    assert "error" in refused or refused["result"]["isError"]
    memory = _rpc(served, "vault-key", "tools/call", name="vault", arguments={})["result"]
    assert not memory.get("isError")
