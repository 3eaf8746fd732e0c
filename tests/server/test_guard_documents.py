"""Which keys open documents, over REST and MCP."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import project, workspace
from mcp_doors import mcp_over
from serving import ANYTHING, Serve, Served

from ctx.models import JSON
from ctx.server.app import Services
from ctx.server.keys import KeyRing
from ctx.server.policy import PackPolicy, ServerSettings
from ctx.server.rest import router
from ctx.tools.toolbox import Agent, Prompt, Tool
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
    door = mcp_over(space.toolbox, space.agents, lambda: space.catalog)
    return serve(Services(space.toolbox, space.agents, mcp=door), CLOSED)


def _rpc(served: Served, key: str, method: str, **params: JSON) -> JSON:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    response = served.client.post("/mcp", json=body, headers={"authorization": f"Bearer {key}"})
    assert response.status_code == 200
    return response.json()


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


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    return KeyRing(str(tmp_path / "memory.db"))


def test_a_banks_key_opens_memories_and_not_them(serve: Serve, space: Workspace, ring: KeyRing) -> None:
    key, _ = ring.create("ana", ["ana"])
    settings = ServerSettings(api_keys=("server-key",), packs=(PackPolicy("vault"),))

    door = mcp_over(space.toolbox, space.agents, lambda: space.catalog)
    served = serve(Services(space.toolbox, space.agents, mcp=door, keys=ring), settings)
    served.client.headers["authorization"] = f"Bearer {key}"
    refused = served.client.post("/tools/search", json={"query": "jwt"})
    assert refused.status_code == 401
    assert "only for memories of the bank" in refused.json()["error"]["message"]
    for method, path in (
        ("POST", "/tools/get"),
        ("GET", "/tools/sources"),
        ("POST", "/tools/refresh"),
        ("GET", "/log"),
    ):
        assert served.client.request(method, path, json={}).status_code == 401, path
    assert _rpc(served, key, "resources/list")["result"]["resources"] == []
    called = _rpc(served, key, "tools/call", name="search", arguments={"query": "jwt"})
    assert "error" in called or called["result"]["isError"]
    assert served.client.post("/tools/vault", json={}).json() == {"result": "kept"}


@pytest.mark.parametrize("key", ["vault-key", "ana"])
def test_a_key_for_memories_alone_is_told_of_nothing_else(
    serve: Serve, space: Workspace, ring: KeyRing, key: str
) -> None:
    door = mcp_over(space.toolbox, space.agents, lambda: space.catalog)
    bearer, _ = ring.create("ana", ["ana"])
    bearer = bearer if key == "ana" else key
    for name, pack in (("reviewer", None), ("recalling", "vault"), ("other", "attic")):
        space.agents.add(Agent(name, "Secret", lambda arguments, caller: Prompt(""), pack=pack))
    space.toolbox.add(Tool("attic", "Another", ANYTHING, lambda arguments, caller: "kept", pack="attic"))
    health: dict[str, JSON] = {"status": "ok", "degraded": ["filesystem:payroll: cannot be read"]}
    packs = Services(space.toolbox, space.agents, mcp=door, keys=ring, health=lambda: health)
    served = serve(packs, CLOSED)
    tools, agents = ["vault"], ["recalling"]
    if key == "ana":  # every pack, in that bank
        tools, agents = ["attic", "vault"], ["other", "recalling"]

    served.client.headers["authorization"] = f"Bearer {bearer}"
    assert served.client.get("/health").json() == {"status": "ok"}
    rows = served.client.get("/tools/list").json()["tools"]
    assert sorted(row["name"] for row in rows) == tools
    rows = served.client.get("/agents/list").json()["agents"]
    assert sorted(row["name"] for row in rows) == agents
    paths = served.client.get("/openapi.json").json()["paths"]
    assert set(paths) == {
        *(route.path for route in router.routes),
        *(f"/tools/{name}" for name in tools),
        *(f"/agents/{name}/prompt" for name in agents),
    }
    assert "`search`" not in served.client.get("/llms.txt").text
    assert sorted(row["name"] for row in _rpc(served, bearer, "tools/list")["result"]["tools"]) == tools
    rows = _rpc(served, bearer, "prompts/list")["result"]["prompts"]
    assert sorted(row["name"] for row in rows) == agents

    served.client.headers["authorization"] = "Bearer server-key"
    assert served.client.get("/health").json() == health
    assert "/tools/search" in served.client.get("/openapi.json").json()["paths"]
    assert "/agents/reviewer/prompt" in served.client.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "ctx.example.org"},
        {"x-forwarded-for": "10.0.0.9"},
        {"forwarded": "for=10.0.0.9"},
        {"x-real-ip": "10.0.0.9"},
        {"X-Forwarded-Proto": "https"},
        {"CF-Connecting-IP": "10.0.0.9"},
        {"via": "1.1 proxy.lan"},
        {"true-client-ip": "10.0.0.9"},
    ],
    ids=str,
)
def test_through_a_proxy_nothing_is_open_once_there_are_keys(
    serve: Serve, space: Workspace, ring: KeyRing, headers: dict[str, str]
) -> None:
    settings = ServerSettings(allowed_hosts=("ctx.example.org",))
    served = serve(Services(space.toolbox, space.agents, keys=ring), settings)
    query = {"query": "jwt"}
    assert served.client.post("/tools/search", json=query, headers=headers).json()["results"]
    key, _ = ring.create("laptop")
    assert served.client.post("/tools/search", json=query, headers=headers).status_code == 401
    assert served.client.get("/openapi.json", headers=headers).status_code == 401
    assert served.client.get("/health", headers=headers).json().keys() == {"status"}
    assert served.client.get("/", headers=headers).status_code == 200
    held = {**headers, "authorization": f"Bearer {key}"}
    assert served.client.post("/tools/search", json=query, headers=held).json()["results"]
    assert served.client.post("/tools/search", json=query).json()["results"], "of this machine none is asked"


@pytest.mark.parametrize("key", ["vault-key", "ana"])
def test_a_page_with_a_key_for_memories_alone_gets_nothing_else_by_it(
    serve: Serve, space: Workspace, ring: KeyRing, key: str
) -> None:
    door = mcp_over(space.toolbox, space.agents, lambda: space.catalog)
    bearer, _ = ring.create("ana", ["ana"])
    settings = ServerSettings(cors_origins=(), packs=(PackPolicy("vault", keys=("vault-key",)),))
    space.toolbox.add(Tool("found", "Lies in a folder", ANYTHING, lambda arguments, caller: "ran"))
    served = serve(Services(space.toolbox, space.agents, mcp=door, keys=ring), settings)
    (resource,) = space.catalog.list_documents(after=None, limit=1)
    page = {"origin": "https://notes.example"}

    served.client.headers.update(page)
    bearer = bearer if key == "ana" else key
    assert _rpc(served, bearer, "resources/list")["result"]["resources"] == []
    read = _rpc(served, bearer, "resources/read", uri=f"ctx://doc/{resource.id}")
    assert read["error"]["message"] == "Resource not found"
    names = [row["name"] for row in _rpc(served, bearer, "tools/list")["result"]["tools"]]
    assert names == ["vault"]
    for name, arguments in (("search", {"query": "jwt"}), ("refresh", {}), ("found", {})):
        called = _rpc(served, bearer, "tools/call", name=name, arguments=arguments)
        assert "error" in called or called["result"]["isError"], name
    headers = {"authorization": f"Bearer {bearer}"}
    assert served.client.get("/activity", headers=headers).status_code == 401
    memory = _rpc(served, bearer, "tools/call", name="vault", arguments={})["result"]
    assert not memory.get("isError")


def test_a_key_for_memories_alone_lets_no_page_call_what_changes_something(
    serve: Serve, space: Workspace, ring: KeyRing
) -> None:
    bearer, _ = ring.create("ana", ["ana"])
    space.toolbox.add(Tool("found", "Lies in a folder", ANYTHING, lambda arguments, caller: "ran"))
    served = serve(Services(space.toolbox, space.agents, keys=ring), ServerSettings())
    headers = {"origin": "https://notes.example", "authorization": f"Bearer {bearer}"}
    for name in ("refresh", "found"):
        assert served.client.post(f"/tools/{name}", json={}, headers=headers).status_code == 403, name
    assert served.client.post("/tools/search", json={"query": "jwt"}, headers=headers).status_code == 200
    whole, _ = ring.create("laptop")
    headers["authorization"] = f"Bearer {whole}"
    assert served.client.post("/tools/refresh", json={}, headers=headers).status_code == 200
