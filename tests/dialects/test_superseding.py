"""In each dialect: write, `similar`, `supersedes`, recall shows the new one only, both on request, undo."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from dialect_kit import KEY, RECALL, PackServer, Refused, pack_project, served, texts

BERLIN, PARIS = "User lives in Berlin near the river", "User lives in Paris near the river"
WHERE = "Where does the user live?"
UNKNOWN = "fact_000000000000"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PackServer]:
    with served(pack_project(tmp_path_factory.mktemp("superseding")), SEKHA_API_KEY=KEY) as running:
        yield running


def test_hindsight(server: PackServer) -> None:
    path = "/mcp/hs-conversation/"
    older = server.mcp("retain", {"content": BERLIN}, path)
    assert not {"similar", "superseded", "hint", "flags"} & older.keys(), "empty keys are left out"
    newer = server.mcp("retain", {"content": PARIS}, path)
    assert [entry["id"] for entry in newer["similar"]] == [older["id"]]
    assert "supersede_memory" in newer["hint"]
    linked = server.mcp("retain", {"content": PARIS, "supersedes": [older["id"]]}, path)
    assert (linked["id"], linked["superseded"][0]["text"]) == (newer["id"], BERLIN)
    [shown] = server.mcp("recall", {"query": WHERE}, path)["results"]
    assert {"id", "text", "type", "context", "event_date", "said", "score"} <= shown.keys()
    assert (shown["text"], shown["event_date"], shown["replaced"][0]["text"]) == (PARIS, None, BERLIN)
    both = server.mcp("recall", {"query": WHERE, "include_superseded": True}, path)
    assert set(texts(both)) == {PARIS, BERLIN}
    assert [result["newer"] for result in both["results"] if result["text"] == BERLIN] == [[newer["id"]]]
    server.mcp("undo_memory", {"op_id": linked["op_id"]}, path)
    assert set(texts(server.mcp("recall", {"query": WHERE}, path))) == {PARIS, BERLIN}
    with pytest.raises(Refused, match=UNKNOWN):
        server.mcp("retain", {"content": "User lives in Oslo", "supersedes": [older["id"], UNKNOWN]}, path)
    with pytest.raises(Refused, match=newer["id"]):
        server.mcp("retain", {"content": PARIS, "supersedes": [newer["id"]]}, path)
    assert server.mcp("list_memories", {}, path)["total"] == 2
    done = server.mcp("supersede_memory", {"old_ids": [older["id"]], "new_id": newer["id"]}, path)
    assert done["superseded"][0]["text"] == BERLIN
    assert texts(server.mcp("recall", {"query": WHERE}, path)) == [PARIS]
    with pytest.raises(Refused, match=newer["id"]):
        server.mcp("supersede_memory", {"old_ids": [newer["id"]], "new_id": older["id"]}, path)


def test_hindsights_older_tools(server: PackServer) -> None:
    def put(content: str, **more: Any) -> list[str]:
        arguments = {"bank_id": "old@example.com", "content": content, "context": "home", **more}
        reply = server.rpc("tools/call", {"name": "hindsight_put", "arguments": arguments})["result"]
        return [block["text"] for block in reply["content"]]

    assert put(BERLIN) == ["Fact stored successfully"]
    done, second = put(PARIS)
    [close] = json.loads(second)["similar"]
    assert (done, close["text"]) == ("Fact stored successfully", BERLIN)
    done, second = put(PARIS, supersedes=[close["id"]])
    assert json.loads(second)["superseded"][0]["text"] == BERLIN
    search = {"bank_id": "old@example.com", "query": WHERE}
    found = server.mcp("hindsight_search", search)["results"]
    assert [(result["text"], result["document_id"]) for result in found] == [(PARIS, None)]
    server.mcp("undo_memory", {"op_id": json.loads(second)["op_id"]}, "/mcp/old@example.com")
    assert set(texts(server.mcp("hindsight_search", search))) == {PARIS, BERLIN}
    rest = {"bank_id": "old@example.com", "content": "User lives in Oslo near the river", "context": "home"}
    assert server.rest("hindsight_put", rest) == "Fact stored successfully"


def test_hindsights_rest(server: PackServer) -> None:
    base = "/v1/default/banks/rest-superseding/memories"

    def retain(*items: dict[str, Any]) -> Any:
        return server.client.post(base, json={"items": list(items)})

    first = retain({"content": BERLIN}, {"content": "User lives in Rome near the river"}).json()
    assert "similar" not in first, "of another item of the request nothing is said"
    newer = retain({"content": PARIS}).json()
    older = next(entry["id"] for entry in newer["similar"] if entry["text"] == BERLIN)
    linked = retain({"content": PARIS, "supersedes": [older]}).json()
    assert [entry["text"] for entry in linked["superseded"]] == [BERLIN]
    recalled = server.client.post(f"{base}/recall", json={"query": WHERE}).json()
    assert BERLIN not in texts(recalled)
    refused = retain({"content": "User lives in Oslo"}, {"content": "x", "supersedes": [UNKNOWN]})
    assert (refused.status_code, UNKNOWN in refused.text) == (400, True)
    assert server.client.get(f"{base}/list").json()["total"] == 2


def test_claude_recall(server: PackServer) -> None:
    def store(content: str, **more: Any) -> Any:
        return server.mcp(f"{RECALL}store_memory", {"content": content, **more})

    def found(**more: Any) -> set[str]:
        reply = server.mcp(f"{RECALL}search", {"query": "user lives river", **more})
        return {result["content"] for result in reply["results"]}

    older = store(BERLIN)
    assert older.keys() == {"id", "success", "message"}
    newer = store(PARIS)
    assert [entry["id"] for entry in newer["similar"]] == [older["id"]]
    linked = store(PARIS, metadata={"supersedes": [older["id"]]})
    assert (linked["id"], linked["superseded"][0]["content"]) == (newer["id"], BERLIN)
    assert found() == {PARIS}
    assert found(include_superseded=True) == {PARIS, BERLIN}
    [memory] = server.mcp(f"{RECALL}retrieve_memory", {"id": newer["id"]})["memories"]
    assert "supersedes" not in memory["metadata"]
    done = server.mcp(f"{RECALL}supersede_memory", {"old_ids": [older["id"]], "new_id": newer["id"]})
    assert done["superseded"] == []
    with pytest.raises(Refused, match="memory_1_x"):
        store("User lives in Oslo near the river", supersedes=["memory_1_x"])
    assert found() == {PARIS}


def test_sekha(server: PackServer) -> None:
    def store(answer: str, **more: Any) -> Any:
        messages = [{"role": "assistant", "content": f"The team offsite is held in {answer} this year"}]
        return server.sekha("memory_store", {"label": "offsite", "messages": messages, **more})

    def found(**more: Any) -> set[str]:
        reply = server.sekha("memory_search", {"query": "team offsite", **more}).json()
        return {result["content"].split()[-3] for result in reply["data"]["results"]}

    older = store("Porto").json()["data"]
    assert "similar" not in older
    newer = store("Ghent").json()["data"]
    assert [entry["conversation_id"] for entry in newer["similar"]] == [older["id"]]
    linked = store("Ghent", supersedes=[older["id"]]).json()["data"]
    assert (linked["id"], linked["superseded"][0]["label"]) == (newer["id"], "offsite")
    assert found() == {"Ghent"}
    assert found(include_superseded=True) == {"Ghent", "Porto"}
    missing = "00000000-0000-4000-8000-000000000000"
    refused = store("Oslo", supersedes=[missing])
    assert (refused.status_code, missing in refused.text) == (400, True)
    assert found() == {"Ghent"}
