"""The clients that Hindsight's and Sekha's users have installed, as their registry gives them, against a
whole server.
"""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from dialect_kit import KEY, PackServer, pack_environment, pack_project, served
from mcp import Client, StdioServerParameters, stdio_client
from real_clients import CLIENTS, SCRIPTS, missing

pytestmark = [pytest.mark.clients]

PYTHON = CLIENTS / "python" / "bin" / "python"


def client_python() -> str:
    """The interpreter of the environment in which the clients are."""
    if not PYTHON.exists():
        missing("the memory servers' own clients")
    return str(PYTHON)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PackServer]:
    """A server whose Hindsight has a key, as Hindsight's documentation sets it."""
    config = pack_project(tmp_path_factory.mktemp("closed"))
    with served(config, HINDSIGHT_API_TENANT_API_KEY="your-secret-key", SEKHA_API_KEY=KEY) as running:
        yield running


@pytest.fixture(scope="module")
def calls(closed: PackServer) -> dict[str, Any]:
    """What Hindsight's client made of each of its calls, by name."""
    process = subprocess.run(
        [client_python(), str(SCRIPTS / "hindsight_calls.py"), closed.base, "alice", "your-secret-key"],
        env=pack_environment(closed.folder),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return {line["call"]: line for line in map(json.loads, process.stdout.splitlines())}


def reply(calls: dict[str, Any], name: str) -> Any:
    """What the client made of a call that succeeded."""
    assert "reply" in calls[name], calls[name]
    return calls[name]["reply"]


def results(calls: dict[str, Any], name: str) -> list[str]:
    """The texts that a recall found."""
    return [result["text"] for result in reply(calls, name)["results"]]


def test_hindsights_client_retains_and_recalls(calls: dict[str, Any]) -> None:
    assert reply(calls, "version")["features"]["mcp"] is True
    assert (reply(calls, "retain")["success"], reply(calls, "batch")["items_count"]) == (True, 2)
    assert results(calls, "recall") == ["Nora paints in watercolour"]
    [result] = reply(calls, "recall")["results"]
    assert (result["entities"], result["tags"], result["metadata"]) == (["Nora"], ["art"], {"page": "3"})
    assert (result["mentioned_at"], result["document_id"]) == ("2026-01-02T12:00:00Z", "diary")
    assert sorted(results(calls, "recall narrowly")) == ["Tom bakes rye bread", "Tom lives in Ghent"]
    assert reply(calls, "recall narrowly")["trace"]["total"] == 2
    assert results(calls, "recall in a window") == ["Nora paints in watercolour"]


def test_hindsights_client_reflects_with_the_evidence_it_asked_for(calls: dict[str, Any]) -> None:
    answer = reply(calls, "reflect")
    assert "watercolour" in answer["text"]
    assert [memory["text"] for memory in answer["based_on"]["memories"]] == ["Nora paints in watercolour"]


def test_hindsights_client_lists_gets_corrects_and_takes_back(calls: dict[str, Any]) -> None:
    assert [item["text"] for item in reply(calls, "list")["items"]] == ["Tom lives in Ghent"]
    page = reply(calls, "list all")
    assert (len(page["items"]), page["total"], page["limit"], page["offset"]) == (2, 3, 2, 1)
    assert reply(calls, "get")["text"] == "Nora paints in watercolour"
    assert reply(calls, "update")["text"] == "Nora paints in oil"
    assert reply(calls, "invalidate")["state"] == "invalidated"
    assert calls["get the invalidated"]["status"] == 404
    assert [item["state"] for item in reply(calls, "list the invalidated")["items"]] == ["invalidated"]
    assert reply(calls, "validate")["state"] == "valid"


def test_hindsights_client_sees_documents_tags_and_statistics(calls: dict[str, Any]) -> None:
    [document] = reply(calls, "documents")["items"]
    assert (document["id"], document["memory_unit_count"], document["tags"]) == ("diary", 1, ["art"])
    assert [row["id"] for row in reply(calls, "documents by words")["items"]] == ["diary"]
    assert reply(calls, "document")["original_text"] == "Nora paints in oil"
    assert calls["no document"]["status"] == 404
    assert [row["chunk_text"] for row in reply(calls, "chunks")["items"]] == ["Nora paints in oil"]
    tags = {row["tag"]: row["count"] for row in reply(calls, "tags")["items"]}
    assert tags == {"tom": 2, "art": 1, "home": 1, "oil": 1}
    assert [row["tag"] for row in reply(calls, "tags like")["items"]] == ["oil"]
    stats = reply(calls, "stats")
    assert (stats["total_nodes"], stats["total_documents"]) == (3, 1)
    assert stats["nodes_by_fact_type"] == {"world": 3}
    assert reply(calls, "forget the document")["memory_units_deleted"] == 1
    assert reply(calls, "stats without it")["total_nodes"] == 2


def test_hindsights_client_keeps_a_bank_and_forgets_it(calls: dict[str, Any]) -> None:
    assert reply(calls, "bank")["disposition"] == {"skepticism": 3, "literalism": 3, "empathy": 4}
    assert reply(calls, "configure")["overrides"]["disposition_skepticism"] == 5
    profile = reply(calls, "profile")
    assert (profile["name"], profile["mission"], profile["disposition"]["skepticism"]) == ("Alice", "Art", 5)
    assert reply(calls, "reset")["overrides"] == {}
    assert reply(calls, "clear")["deleted_count"] == 2
    assert reply(calls, "delete")["success"] is True


def test_hindsights_client_is_told_what_is_not_here(calls: dict[str, Any]) -> None:
    assert calls["strategy"]["status"] == 400
    assert "strategy" in calls["strategy"]["body"]


def test_hindsights_routes_are_closed_without_the_key(closed: PackServer) -> None:
    refused = closed.client.post("/v1/default/banks/alice/memories/recall", json={"query": "Nora"})
    assert refused.status_code == 401


# -- sekha-mcp -----------------------------------------------------------------------------------------------


def sekha_bridge(server: PackServer) -> StdioServerParameters:
    """The registry's bridge with this server as its controller.
    Its console script never awaits its coroutine; the module does.
    """
    environ = {"CONTROLLER_URL": server.base, "CONTROLLER_API_KEY": KEY, "LOG_LEVEL": "WARNING"}
    return StdioServerParameters(
        command=client_python(),
        args=["-m", "sekha_mcp.main"],
        cwd=str(server.folder),
        env={**pack_environment(server.folder, **environ), "PYTHONIOENCODING": "utf-8"},
    )


async def _sekha_visit(parameters: StdioServerParameters) -> dict[str, str]:
    message = {"role": "user", "content": "The tide tables are pinned in the boathouse"}
    second = {**message, "timestamp": "2026-01-20T08:00:00Z", "metadata": {"by": "Ann"}}
    answers: dict[str, str] = {}

    async with Client(stdio_client(parameters), mode="legacy") as client:

        async def call(step: str, tool: str, /, **arguments: Any) -> str:
            content: Any = (await client.call_tool(tool, arguments)).content[0]
            answers[step] = content.text
            return answers[step]

        stored = await call(
            "store",
            "memory_store",
            label="harbour",
            folder="/bridge",
            messages=[message, second],
            importance_score=7.5,
        )
        await call("store another", "memory_store", label="else", folder="/bridge", messages=[message])
        id = stored.split("ID: ")[1].split()[0]
        await call("search", "memory_search", query="where are the tide tables", filter_labels=["harbour"])
        await call("update", "memory_update", conversation_id=id, label="moved", importance_score=2.5)
        await call("context", "memory_get_context", conversation_id=id)
        await call("export", "memory_export", conversation_id=id, format="markdown")
        await call("export json", "memory_export", conversation_id=id)
        await call("stats", "memory_stats", folder="/bridge")
        await call("prune", "memory_prune", threshold_days=1, importance_threshold=9.5)
        await call("nothing", "memory_get_context", conversation_id="123e4567-e89b-12d3-a456-426614174000")
    return answers


@pytest.fixture(scope="module")
def answers(closed: PackServer) -> dict[str, str]:
    return asyncio.run(_sekha_visit(sekha_bridge(closed)))


def test_sekhas_bridge_stores_and_searches(answers: dict[str, str]) -> None:
    assert "Messages: 2" in answers["store"]
    assert "**harbour**" in answers["search"]
    assert "else" not in answers["search"]
    assert "Score: 0.00" not in answers["search"]


def test_sekhas_bridge_updates_and_reads_back(answers: dict[str, str]) -> None:
    assert "label/folder, importance_score" in answers["update"]
    assert "**moved**" in answers["context"]
    assert "Importance: 2.5" in answers["context"]
    assert "Messages: 2" in answers["context"]
    assert "### 2. User\n*2026-01-20T08:00:00*" in answers["export"]
    assert json.loads(answers["export json"])["metadata"]["word_count"] == 16


def test_sekhas_bridge_counts_prunes_and_says_what_is_not_there(answers: dict[str, str]) -> None:
    assert "Total Conversations: 2" in answers["stats"]
    assert "No conversations need pruning" in answers["prune"]
    assert "404" in answers["nothing"]
