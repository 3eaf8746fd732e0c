"""The conversation of an update in each dialect: write, `similar`, `supersedes`, recall shows the new memory
only, both on request, undo; and what is refused stores nothing.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from dialect_kit import CONFIG, KEY, RECALL, PackServer, Refused, pack_project, served, texts

BERLIN, PARIS, OSLO = (f"User lives in {city} near the river" for city in ("Berlin", "Paris", "Oslo"))
WHERE = "Where does the user live?"
UNKNOWN = {"claude": "memory_1_x", "sekha": "00000000-0000-4000-8000-000000000000"}


class Stored(NamedTuple):
    """What every dialect answers to a write."""

    id: str
    similar: list[str]
    superseded: list[str]
    op_id: str | None


class Hindsight:
    """`retain` and `recall` over MCP."""

    unknown = "fact_000000000000"

    def __init__(self, server: PackServer, bank: str) -> None:
        self.server = server
        self.bank = f"{bank}-{type(self).__name__}"

    def mcp(self, tool: str, arguments: Any) -> Any:
        return self.server.mcp(tool, arguments, f"/mcp/{self.bank}/")

    def write(self, text: str, *supersedes: str) -> Stored:
        more = {"supersedes": list(supersedes)} if supersedes else {}
        return stored(self.mcp("retain", {"content": text, **more}))

    def found(self, **more: Any) -> list[str]:
        return sorted(texts(self.mcp("recall", {"query": WHERE, **more})))

    def supersede(self, old_id: str, new_id: str) -> str:
        reply = self.mcp("supersede_memory", {"old_ids": [old_id], "new_id": new_id})
        op_id: str = reply["op_id"]
        return op_id

    def undo(self, op_id: str) -> None:
        self.mcp("undo_memory", {"op_id": op_id})


class HindsightPut(Hindsight):
    """The older tools, whose text is exactly that of the seed."""

    unknown = "00000000-0000-4000-8000-000000000000"

    def write(self, text: str, *supersedes: str) -> Stored:
        more = {"supersedes": list(supersedes)} if supersedes else {}
        arguments = {"bank_id": self.bank, "content": text, "context": "home", **more}
        result = self.server.rpc("tools/call", {"name": "hindsight_put", "arguments": arguments})["result"]
        if result.get("isError"):
            raise Refused(0, result["content"][0]["text"])
        assert result["content"][0]["text"] == "Fact stored successfully"
        details = [json.loads(block["text"]) for block in result["content"][1:]]
        return stored(details[0] if details else {"id": ""})

    def found(self, **more: Any) -> list[str]:
        if more:
            return super().found(**more)
        return sorted(texts(self.server.mcp("hindsight_search", {"bank_id": self.bank, "query": WHERE})))


class HindsightRest(Hindsight):
    """Its REST. The reply to a write names no new memory: the list does."""

    unknown = UNKNOWN["sekha"]

    def post(self, path: str, body: Any, method: str = "POST") -> Any:
        base = f"/v1/default/banks/{self.bank}/memories"
        reply = self.server.client.request(method, base + path, json=body)
        if reply.status_code != 200:
            raise Refused(reply.status_code, reply.text)
        return reply.json()

    def write(self, text: str, *supersedes: str) -> Stored:
        item = {"content": text, **({"supersedes": list(supersedes)} if supersedes else {})}
        reply = self.post("", {"items": [item]})
        [id] = [row["id"] for row in self.post("/list", None, "GET")["items"] if row["text"] == text]
        self.replaced = list(supersedes)
        return stored({"id": id, **reply})

    def found(self, **more: Any) -> list[str]:
        return sorted(texts(self.post("/recall", {"query": WHERE, **more})))

    def undo(self, op_id: str | None) -> None:
        for id in self.replaced:
            self.post(f"/{id}", {"state": "valid"}, "PATCH")


class ClaudeRecall(Hindsight):
    unknown = UNKNOWN["claude"]

    def mcp(self, tool: str, arguments: Any) -> Any:
        return self.server.mcp(RECALL + tool, arguments, bank=self.bank)

    def write(self, text: str, *supersedes: str) -> Stored:
        metadata = {"metadata": {"supersedes": list(supersedes)}} if supersedes else {}
        return stored(self.mcp("store_memory", {"content": text, **metadata}))

    def found(self, **more: Any) -> list[str]:
        return sorted(texts(self.mcp("search", {"query": "user lives river", **more})))

    def undo(self, op_id: str) -> None:
        self.mcp("supersede_memory", {"undo": op_id})


class ClaudeRecallPresent(ClaudeRecall):
    """Its present generation."""

    def write(self, text: str, *supersedes: str) -> Stored:
        more = {"supersedes": list(supersedes)} if supersedes else {}
        return stored(self.mcp("store_memory", {"content": text, **more}))

    def found(self, **more: Any) -> list[str]:
        reply = self.mcp("search_memory", {"query": "user lives river", **more})
        return sorted(memory["content"] for memory in reply["memories"])


class Sekha(Hindsight):
    """Conversations of one message."""

    unknown = UNKNOWN["sekha"]

    def mcp(self, tool: str, arguments: Any) -> Any:
        reply = self.server.mcp(tool, arguments, bank=self.bank, key=KEY)
        return reply["data"]

    def write(self, text: str, *supersedes: str) -> Stored:
        more = {"supersedes": list(supersedes)} if supersedes else {}
        messages = [{"role": "user", "content": text}]
        return stored(self.mcp("memory_store", {"label": "home", "messages": messages, **more}))

    def found(self, **more: Any) -> list[str]:
        return sorted(texts(self.mcp("memory_search", {"query": WHERE, **more})))

    def supersede(self, old_id: str, new_id: str) -> str:
        reply = self.mcp("memory_supersede", {"old_ids": [old_id], "new_id": new_id})
        op_id: str = reply["op_id"]
        return op_id

    def undo(self, op_id: str) -> None:
        self.mcp("memory_supersede", {"undo": op_id})


class SekhaRest(Sekha):
    def post(self, path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {KEY}", "X-Bank-Id": self.bank}
        reply = self.server.client.post(f"/api/v1{path}", json=body, headers=headers)
        if reply.status_code != 200:
            raise Refused(reply.status_code, reply.text)
        return reply.json()

    def write(self, text: str, *supersedes: str) -> Stored:
        more = {"supersedes": list(supersedes)} if supersedes else {}
        messages = [{"role": "user", "content": text}]
        return stored(self.post("/conversations", {"label": "home", "messages": messages, **more}))

    def found(self, **more: Any) -> list[str]:
        return sorted(texts(self.post("/query", {"query": WHERE, **more})))


def stored(reply: Any) -> Stored:
    named = {
        key: [memory.get("id") or memory["conversation_id"] for memory in reply.get(key, ())]
        for key in ("similar", "superseded")
    }
    id = reply.get("conversation_id") or reply["id"]
    return Stored(id, named["similar"], named["superseded"], reply.get("op_id"))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, PackServer]]:
    present = CONFIG + '[packs.claude-recall]\nprofile = "present"\n'
    with (
        served(pack_project(tmp_path_factory.mktemp("usual")), SEKHA_API_KEY=KEY) as usual,
        served(pack_project(tmp_path_factory.mktemp("present"), present), SEKHA_API_KEY=KEY) as newer,
    ):
        yield {"usual": usual, "present": newer}


DIALECTS = (Hindsight, HindsightPut, HindsightRest, ClaudeRecall, ClaudeRecallPresent, Sekha, SekhaRest)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_update_and_what_is_refused(servers: dict[str, PackServer], dialect: type[Hindsight]) -> None:
    server = servers["present" if dialect is ClaudeRecallPresent else "usual"]
    talk, neighbour = dialect(server, "own"), dialect(server, "neighbour")
    first = talk.write(BERLIN)
    newer = talk.write(PARIS)
    [older_id] = newer.similar
    assert first.id in ("", older_id)
    linked = talk.write(PARIS, older_id)
    assert (linked.id, linked.superseded) == (newer.id, [older_id])
    assert talk.found() == [PARIS]
    assert talk.found(include_superseded=True) == [BERLIN, PARIS]
    talk.undo(linked.op_id or "")
    assert talk.found() == [BERLIN, PARIS]

    neighbour.write(BERLIN)
    foreign_id = neighbour.write(OSLO).similar[0]
    for bad_id in (talk.unknown, foreign_id):
        with pytest.raises(Refused, match=bad_id):
            talk.write(OSLO, older_id, bad_id)
    with pytest.raises(Refused, match=newer.id):
        talk.write(PARIS, newer.id)  # the memory itself
    if not isinstance(talk, HindsightRest | SekhaRest):
        op_id = talk.supersede(older_id, newer.id)
        assert talk.found() == [PARIS]
        with pytest.raises(Refused, match=newer.id):
            talk.supersede(newer.id, older_id)  # a circle
        talk.undo(op_id)
    assert talk.found(include_superseded=True) == [BERLIN, PARIS]
    assert neighbour.found() == [BERLIN, OSLO]


def test_hindsight_shows_the_keys_of_the_seed_and_what_is_not_empty(servers: dict[str, PackServer]) -> None:
    server, path = servers["usual"], "/mcp/hs-keys/"
    older = server.mcp("retain", {"content": BERLIN}, path)
    assert not {"similar", "superseded", "hint", "flags"} & older.keys()
    newer = server.mcp("retain", {"content": PARIS}, path)
    assert "supersede_memory" in newer["hint"]
    server.mcp("supersede_memory", {"old_ids": [older["id"]], "new_id": newer["id"]}, path)
    both = server.mcp("recall", {"query": WHERE, "include_superseded": True}, path)
    [replaced] = [result for result in both["results"] if result["text"] == BERLIN]
    assert (replaced["newer"], replaced["superseded_by"]) == ([newer["id"]], newer["id"])
    [shown] = server.mcp("recall", {"query": WHERE}, path)["results"]
    assert {"id", "text", "type", "context", "event_date", "said", "score"} <= shown.keys()
    assert (shown["event_date"], shown["replaced"][0]["text"]) == (None, BERLIN)


def test_hindsights_rest_says_nothing_of_the_other_items_of_a_request(servers: dict[str, PackServer]) -> None:
    items = [{"content": BERLIN}, {"content": PARIS}]
    reply = servers["usual"].client.post("/v1/default/banks/items/memories", json={"items": items}).json()
    assert "similar" not in reply


def test_claude_recall_keeps_the_ids_out_of_the_metadata(servers: dict[str, PackServer]) -> None:
    talk = ClaudeRecall(servers["usual"], "metadata")
    assert talk.mcp("store_memory", {"content": BERLIN}).keys() == {"id", "success", "message"}
    newer = talk.write(PARIS)
    talk.write(PARIS, *newer.similar)
    [memory] = talk.mcp("retrieve_memory", {"id": newer.id})["memories"]
    assert "supersedes" not in memory["metadata"]


@pytest.mark.parametrize("arguments", [{}, {"old_ids": ["memory_1_x"]}, {"new_id": "memory_1_x"}])
def test_a_supersession_without_its_ids_is_refused(servers: dict[str, PackServer], arguments: Any) -> None:
    with pytest.raises(Refused, match="old_ids and new_id, or undo"):
        ClaudeRecall(servers["usual"], "without").mcp("supersede_memory", arguments)
