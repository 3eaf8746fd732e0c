"""Eight banks, sixty-four clients at once, every tool: what one bank holds is seen in no other, whatever is
asked.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from dialect_kit import HELLO, RECALL, PackServer, Refused, pack_environment, pack_project, served
from kit import ctx, workspace

from ctx.errors import NotFound

pytestmark = pytest.mark.slow

BANKS = 8
CLIENTS = 64
TOOLS = (
    "retain",
    "recall",
    "reflect",
    "hindsight_put",
    "hindsight_search",
    *(RECALL + name for name in ("store_memory", "search", "retrieve_memory", "get_stats", "clear_context")),
    *(f"memory_{name}" for name in ("store", "search", "update", "prune", "get_context", "export", "stats")),
)


def marker(bank: int) -> str:
    """A word that is in every text of the bank and in no other's."""
    return f"xq{bank}zebra"


class Ours:
    """What a bank's own clients may name: its key, and the ids that its setting-up stored."""

    def __init__(self, server: PackServer, bank: int, key: str) -> None:
        self.bank = f"bank{bank}"
        self.key = key
        text = f"{marker(bank)} hides the treasure under the old oak"
        self.fact = str(server.rest("retain", {"content": text}, key=key)["id"])
        self.memory = str(server.rest(RECALL + "store_memory", {"content": text}, key=key)["id"])
        stored = {
            "label": f"{marker(bank)} talk",
            "folder": f"/{marker(bank)}",
            "messages": [{"role": "user", "content": text}],
        }
        self.conversation = str(server.rest("memory_store", stored, key=key)["data"]["id"])


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server and the eight banks, each with a key of its own."""
    folder = tmp_path_factory.mktemp("eight")
    config = pack_project(folder)
    keys = []
    for bank in range(BANKS):
        entry = ctx(
            "key", "create", f"for{bank}", "--bank", f"bank{bank}", cwd=folder, env=pack_environment(folder)
        )
        assert entry.returncode == 0, entry.stderr
        keys.append(entry.stdout.strip())
    with served(config) as server:
        yield server, config, [Ours(server, bank, key) for bank, key in enumerate(keys)]


def asked(tool: str, mine: Ours, theirs: Ours, text: str) -> dict[str, Any]:
    """Arguments with which a curious client would ask for another bank's memories."""
    messages = [{"role": "user", "content": text}]
    arguments: dict[str, dict[str, Any]] = {
        "retain": {"content": text, "bank_id": theirs.bank},
        "recall": {
            "query": "who hides the treasure under the old oak",
            "max_results": 100,
            "bank_id": theirs.bank,
        },
        "reflect": {"query": "who hides the treasure under the old oak", "budget": "high"},
        "hindsight_put": {"bank_id": mine.bank, "content": text, "context": "c"},
        "hindsight_search": {"bank_id": mine.bank, "query": "treasure under the old oak"},
        "store_memory": {"content": text, "metadata": {"by": text}},
        "search": {"query": "who hides the treasure under the old oak", "limit": 1000, "threshold": 0},
        "retrieve_memory": {"id": theirs.memory} if len(text) % 2 else {"limit": 1000},
        "get_stats": {},
        "clear_context": {"confirm": True},
        "memory_store": {"label": text, "folder": f"/{text}", "messages": messages},
        "memory_search": {"query": "treasure under the old oak", "limit": 1000},
        "memory_update": {"conversation_id": theirs.conversation, "label": "taken over"},
        "memory_prune": {"threshold_days": 0, "importance_threshold": 10},
        "memory_get_context": {"conversation_id": theirs.conversation},
        "memory_export": {"conversation_id": theirs.conversation, "format": "markdown"},
        "memory_stats": {},
    }
    return arguments[tool.removeprefix(RECALL)]


def test_no_record_crosses_whatever_sixty_four_clients_ask_at_once(eight: Any) -> None:
    server, _, ours = eight

    def client(number: int) -> list[str]:
        bank = number % BANKS
        mine, theirs = ours[bank], ours[(bank + 1 + number // BANKS % (BANKS - 1)) % BANKS]
        foreign = [marker(second) for second in range(BANKS) if second != bank]
        leaks = []
        with httpx.Client(base_url=server.base, timeout=60) as http:
            headers = {"Authorization": f"Bearer {mine.key}", "X-Session-Id": f"client{number}"}
            if number % 3 == 0:
                headers["X-Bank-Id"] = mine.bank
            for index, tool in enumerate(TOOLS):
                arguments = asked(tool, mine, theirs, f"{marker(bank)} number {number}")
                if (number + index) % 2:
                    reply = http.post(f"/tools/{tool}", json=arguments, headers=headers)
                else:
                    params = {"name": tool, "arguments": arguments}
                    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                    reply = http.post("/mcp", json=body, headers=headers)
                assert reply.status_code in (200, 404), (tool, reply.status_code, reply.text[:300])
                leaks += [f"{tool}: {word}" for word in foreign if word in reply.text]
                if tool in ("memory_update", "memory_get_context", "memory_export"):
                    assert "not found" in reply.text, (tool, reply.text[:300])
        return leaks

    with ThreadPoolExecutor(CLIENTS) as pool:
        assert [leak for leaks in pool.map(client, range(CLIENTS)) for leak in leaks] == []
    for bank, mine in enumerate(ours):  # each has its own still: nobody's update or clearing went across
        context = server.rest("memory_get_context", {"conversation_id": mine.conversation}, key=mine.key)[
            "data"
        ]
        assert context["label"] == f"{marker(bank)} talk"
        matches = server.rest("recall", {"query": "treasure under the old oak"}, key=mine.key)["results"]
        assert mine.fact in [row["id"] for row in matches]
        remaining = server.rest(RECALL + "retrieve_memory", {"id": mine.memory}, key=mine.key)
        assert remaining["total"] == 1


@pytest.mark.parametrize(
    "way",
    [
        *("path", "header", "argument", "header of another pack", "own endpoint"),
        *("route", "route with a header", "route of the bank"),
    ],
)
def test_a_key_for_one_bank_is_401_at_every_other(eight: Any, way: str) -> None:
    server, _, ours = eight
    key, second = ours[0].key, ours[1].bank
    storing = {"bank_id": second, "content": "smuggled", "context": "c"}
    doors = {
        "path": lambda: server.rpc("tools/list", None, f"/mcp/{second}/", key=key),
        "header": lambda: server.rest("recall", {"query": "treasure"}, key=key, bank=second),
        "argument": lambda: server.rest("hindsight_put", storing, key=key),
        "header of another pack": lambda: server.rest("memory_stats", {}, key=key, bank=second),
        "own endpoint": lambda: server.rpc(
            "tools/list", None, "/packs/claude-recall/mcp", key=key, bank=second
        ),
        "route": lambda: route("POST", f"/{second}/memories/recall", {"query": "treasure"}),
        "route with a header": lambda: route("GET", f"/{second}/memories/list", bank=ours[0].bank),
        "route of the bank": lambda: route("DELETE", f"/{second}"),
    }

    def route(method: str, path: str, body: Any = None, bank: str = "") -> None:
        headers = {"Authorization": f"Bearer {key}"} | ({"X-Bank-Id": bank} if bank else {})
        reply = server.client.request(method, f"/v1/default/banks{path}", json=body, headers=headers)
        raise Refused(reply.status_code, reply.text)

    with pytest.raises(Refused) as refused:
        doors[way]()
    assert refused.value.code == 401
    assert "smuggled" not in json.dumps(server.rest("recall", {"query": "smuggled"}, key=ours[1].key))
    with pytest.raises(Refused) as refused:
        server.mcp("hindsight_put", storing, key=key)
    assert (
        refused.value.code == -32600
    )  # over MCP the bank is known only from the arguments: the reply is the protocol's error


def test_without_a_key_every_tool_is_closed_once_there_are_keys(eight: Any) -> None:
    server, _, ours = eight
    for tool in TOOLS:
        with pytest.raises(Refused) as refused:
            server.rest(tool, asked(tool, ours[0], ours[1], "x"))
        assert refused.value.code == 401, tool


def test_exports_and_undos_stay_in_their_bank(eight: Any) -> None:
    _, config, _ = eight
    with workspace(Path(config)) as space:
        store = space.memory
        names = [
            name
            for bank in range(BANKS)
            for name in (f"bank{bank}", f"pack:claude-recall:bank{bank}", f"pack:sekha:bank{bank}")
        ]
        assert sorted(store.banks()) == sorted(names)
        for name in names:
            lines = "".join(store.bank(name).export())
            assert marker(int(name[-1])) in lines
            assert not [
                second for second in range(BANKS) if second != int(name[-1]) and marker(second) in lines
            ]
            neighbour = store.bank(f"{name[:-1]}{(int(name[-1]) + 1) % BANKS}")
            operation = store.bank(name).journal(limit=1)[0]["op_id"]
            with pytest.raises(NotFound):
                neighbour.undo(operation)
        assert store.check(deep=True) == []


# -- what a connection with a bank sees ----------------------------------------------------------------------


@pytest.mark.parametrize(("path", "header"), [("/mcp/seen/", {}), ("/mcp", {"bank": "seen"})])
def test_a_connection_with_a_bank_sees_that_banks_tools_prompts_and_instructions_only(
    server: PackServer, path: str, header: dict[str, str]
) -> None:
    tools = server.tools(path, **header)
    assert {"retain", "recall", "reflect"} <= set(tools)
    assert not [name for name in tools if name.startswith((RECALL, "memory_", "search", "refresh"))]
    prompts = server.rpc("prompts/list", None, path, **header)["result"]["prompts"]
    assert [prompt["name"] for prompt in prompts] == ["recall-context"]
    foreign = {"name": "recall-context-claude-recall", "arguments": {}}
    assert server.rpc("prompts/get", foreign, path, **header)["error"]["code"] == -32602
    assert server.rpc("resources/list", None, path, **header)["result"]["resources"] == []


@pytest.mark.parametrize(
    ("path", "named", "unnamed"),
    [
        ("/mcp/seen/", "`retain`", ("`search`", "earlier sessions")),
        ("/packs/claude-recall/mcp", "earlier sessions", ("`search`", "`retain`")),
    ],
)
def test_a_memory_server_introduces_itself_as_one(
    server: PackServer, path: str, named: str, unnamed: tuple[str, ...]
) -> None:
    head = {"accept": "application/json, text/event-stream"}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    result = server.client.post(path, json=hello, headers=head).json()["result"]
    assert named in result["instructions"]
    assert not [word for word in unnamed if word in result["instructions"]]
    assert "documents" not in result["serverInfo"]["description"]


def test_a_packs_own_endpoint_refuses_in_its_protocol(server: PackServer) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    reply = server.client.post("/packs/sekha/mcp", json=body)
    assert (reply.status_code, reply.json()["jsonrpc"], reply.json()["error"]["code"]) == (
        401,
        "2.0",
        -32600,
    )


def test_a_bank_that_no_url_can_name_is_named_by_no_argument(server: PackServer) -> None:
    for name in ("é", "a b", "x/y"):
        with pytest.raises(Refused, match="a bank id has") as refused:
            server.rest("hindsight_put", {"bank_id": name, "content": "x", "context": "y"})
        assert refused.value.code == 400
    with pytest.raises(Refused):
        server.rpc("tools/list", None, "/mcp/%C3%A9/")


def test_a_route_of_a_bank_is_that_banks_whatever_the_header_says(server: PackServer) -> None:
    items = {"items": [{"content": "The key hangs behind the stove"}]}
    base = "/v1/default/banks"
    header = {"X-Bank-Id": "route-bob"}
    stored = server.client.post(f"{base}/route-alice/memories", json=items, headers=header)
    assert stored.json()["bank_id"] == "route-alice"
    ask = {"query": "Where does the key hang?", "bank_id": "route-alice"}
    elsewhere = server.client.post(f"{base}/route-bob/memories/recall", json={"query": ask["query"]})
    assert elsewhere.json()["results"] == []
    refused = server.client.post(f"{base}/route-bob/memories/recall", json=ask)
    assert refused.status_code == 400


def test_a_key_that_no_door_knows_is_told_what_to_do(server: PackServer) -> None:
    with pytest.raises(Refused) as refused:  # this server has a key, for sekha alone
        server.rest("retain", {"content": "x"}, key="your-secret-key")
    assert refused.value.code == 401
    for mend in ("remove the Authorization header", "ctx key create", "HINDSIGHT_API_TENANT_API_KEY"):
        assert mend in refused.value.message


def test_a_server_without_any_key_takes_no_offence_at_one(tmp_path: Path) -> None:
    with served(pack_project(tmp_path)) as server:
        assert server.rest("retain", {"content": "x"}, key="your-secret-key")["success"] is True
