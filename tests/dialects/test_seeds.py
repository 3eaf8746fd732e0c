"""The examples and tables of the memory servers' own documentation, replayed as they stand there.

What other files of this folder replay is not repeated: the doors, the keys, the sessions, the codes.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from dialect_kit import HELLO, KEY, RECALL, PackServer, Refused, pack_project, piped, served

SESSION_HEAD = {"accept": "application/json, text/event-stream"}


def schema(server: PackServer, tool: str, path: str = "/mcp") -> dict[str, Any]:
    """The input schema that an endpoint lists."""
    return dict(server.tools(path, key=KEY)[tool]["inputSchema"])


def declared(rule: dict[str, Any]) -> tuple[str, Any]:
    """What a table says of a parameter: its type and its default."""
    return rule["type"], rule.get("default")


# -- Hindsight, the newer generation (seed 000) --------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "required", "parameters"),
    [
        ("retain", ["content"], {"content": ("string", None), "context": ("string", "general")}),
        ("recall", ["query"], {"query": ("string", None), "max_results": ("integer", 10)}),
        (
            "reflect",
            ["query"],
            {"query": ("string", None), "context": ("string", None), "budget": ("string", "low")},
        ),
    ],
)
def test_seed_000_the_tables_of_parameters(
    server: PackServer, tool: str, required: list[str], parameters: dict[str, tuple[str, Any]]
) -> None:
    listed = schema(server, tool, "/mcp/alice/")
    assert listed["required"] == required
    assert {name: declared(listed["properties"][name]) for name in parameters} == parameters
    assert "bank_id" not in listed["properties"]


def test_seed_000_the_examples_of_its_tools(server: PackServer) -> None:
    path = "/mcp/seed-000/"
    fact = "User prefers Python over JavaScript for backend development"
    server.mcp("retain", {"content": fact, "context": "programming_preferences"}, path)
    matches = server.mcp("recall", {"query": "What are the user's programming language preferences?"}, path)
    [result] = matches["results"]
    assert {"id", "text", "type", "context", "event_date"} <= set(result)
    assert (result["text"], result["type"], result["context"], result["event_date"]) == (
        fact,
        "world",
        "programming_preferences",
        None,
    )
    assert result["id"].startswith("fact_")
    for topic in ("billing", "search", "reports"):
        choice = f"We decided on a modular monolith as the architectural style of {topic}"
        server.mcp("retain", {"content": choice, "context": "decisions"}, path)
    ask = {
        "query": "Based on my past decisions, what architectural style do I prefer?",
        "budget": "mid",
    }
    assert "modular monolith" in server.mcp("reflect", ask, path)["text"]
    advice = server.mcp("reflect", {"query": "What should I do about the architectural style?"}, path)
    assert "modular monolith" in advice["text"]


@pytest.mark.slow
def test_seed_000_a_client_sends_the_two_headers_of_its_configuration(tmp_path: Path) -> None:
    headers = {"Authorization": "Bearer your-secret-key", "X-Bank-Id": "my-bank", **SESSION_HEAD}
    with served(pack_project(tmp_path), HINDSIGHT_API_TENANT_API_KEY="your-secret-key") as server:

        def say(method: str, params: Any) -> Any:
            body = {"jsonrpc": "2.0", "method": method, "params": params}
            numbered = body if method.startswith("notifications/") else {**body, "id": 1}
            return server.client.post(url, json=numbered, headers=headers)

        for url in ("/mcp", "/mcp/my-bank/"):
            assert say("initialize", HELLO).status_code == 200
            assert say("notifications/initialized", {}).status_code == 202
            call = {"name": "retain", "arguments": {"content": "User likes otters"}}
            assert '"bank_id":"my-bank"' in say("tools/call", call).text.replace('\\"', '"')
            refused = server.client.post(url, json={}, headers={**headers, "Authorization": ""})
            assert refused.status_code == 401


# -- Hindsight, the older generation (seed 001) --------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "required", "parameters"),
    [
        (
            "hindsight_put",
            ["bank_id", "content", "context"],
            dict.fromkeys(("bank_id", "content", "context", "explanation"), ("string", None)),
        ),
        (
            "hindsight_search",
            ["bank_id", "query"],
            {
                **dict.fromkeys(("bank_id", "query", "explanation"), ("string", None)),
                "max_tokens": ("integer", 4096),
            },
        ),
    ],
)
def test_seed_001_the_tables_of_parameters(
    server: PackServer, tool: str, required: list[str], parameters: dict[str, tuple[str, Any]]
) -> None:
    listed = schema(server, tool)
    assert listed["required"] == required
    assert {name: declared(listed["properties"][name]) for name in parameters} == parameters


def test_seed_001_the_examples_of_its_tools(server: PackServer) -> None:
    storing = {"bank_id": "user_12345", "context": "programming_preferences"}
    preference = {**storing, "content": "User prefers Python for data analysis"}
    assert server.mcp("hindsight_put", preference) == "Fact stored successfully"
    work = {
        "bank_id": "user_12345",
        "content": "User works at Google as a software engineer",
        "context": "work_history",
    }
    server.mcp("hindsight_put", work)
    ask = {"bank_id": "user_12345", "query": "What does the user do for work?"}
    result = server.mcp("hindsight_search", ask)["results"][0]
    assert {"id", "text", "type", "context", "event_date", "document_id"} <= set(result)
    assert (result["text"], result["event_date"], result["document_id"]) == (work["content"], None, None)
    elsewhere = {**ask, "bank_id": "user_54321"}
    with pytest.raises(Refused, match=r"^0: Error: Memory bank 'user_54321' not found$"):
        server.mcp("hindsight_search", elsewhere)


# -- Claude Recall (seed 002) --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "required", "parameters"),
    [
        ("store_memory", ["content"], {"content": ("string", None), "metadata": ("object", None)}),
        (
            "search",
            ["query"],
            {"query": ("string", None), "limit": ("number", 10), "threshold": ("number", 0.7)},
        ),
        ("retrieve_memory", None, {"id": ("string", None), "limit": ("number", 10)}),
        ("get_stats", None, {}),
        ("clear_context", None, {"confirm": ("boolean", None)}),
    ],
)
def test_seed_002_the_input_schemas(
    server: PackServer, tool: str, required: list[str] | None, parameters: dict[str, tuple[str, Any]]
) -> None:
    listed = schema(server, RECALL + tool)
    assert (listed["type"], listed.get("required")) == ("object", required)
    assert {name: declared(listed["properties"][name]) for name in parameters} == parameters


@pytest.mark.slow
def test_seed_002_the_outputs_have_the_documented_fields(config: Path) -> None:
    with piped(config, "claude-recall", "--bank", "seed-002") as pipe:
        stored = pipe.call("store_memory", {"content": "The build uses Bazel", "metadata": {"type": "code"}})
        assert set(stored) == {"id", "success", "message"}
        matches = pipe.call("search", {"query": "What does the build use? Bazel"})
        assert set(matches) == {"results", "total", "query"}
        assert {"id", "content", "metadata", "timestamp", "score"} <= set(matches["results"][0])
        recent = pipe.call("retrieve_memory", {"limit": 1})
        assert set(recent) == {"memories", "total"}
        assert set(recent["memories"][0]) == {"id", "content", "metadata", "timestamp", "sessionId"}
        assert set(pipe.call("get_stats", {})) == {
            *("totalMemories", "sessionMemories", "memoryTypes"),
            *("lastMemoryTimestamp", "sessionStartTime", "databaseSize"),
        }
        cleared = pipe.call("clear_context", {"confirm": True})
        assert {"success", "message", "memoriesCleared"} <= set(cleared)
        assert (cleared["message"], cleared["memoriesCleared"]) == ("Context cleared successfully", 1)
        error = pipe.ask("no/such")
        assert set(error) == {"jsonrpc", "id", "error"}
        assert set(error["error"]) == {"code", "message", "data"}
        assert isinstance(error["error"]["data"]["details"], str)
        assert pipe.end()[:2] == (0, b"")  # standard output is the protocol's alone


def test_seed_002_the_hundred_and_first_call_of_a_minute_is_refused(server: PackServer) -> None:
    def call(number: int) -> int:
        body = {"query": f"call {number}"}
        headers = {"X-Session-Id": "seed-002-rate"}
        return server.client.post(f"/tools/{RECALL}search", json=body, headers=headers).status_code

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(call, range(100))) == {200}
    assert call(100) == 429


# -- Sekha (seed 004) ----------------------------------------------------------------------------------------

TALK = [
    {"role": "user", "content": "Let's design the authentication API"},
    {"role": "assistant", "content": "Great! I recommend OAuth 2.0..."},
]


def sekha(server: PackServer, tool: str, **arguments: Any) -> Any:
    """The data of a call of Sekha's own route, which succeeded."""
    body = server.sekha(tool, arguments).json()
    assert (set(body), body["success"], body["error"]) == ({"success", "data", "error"}, True, None)
    return body["data"]


@pytest.mark.parametrize(
    ("tool", "parameters"),
    [
        (
            "memory_store",
            {"label": ("string", None), "folder": ("string", "/"), "messages": ("array", None)},
        ),
        (
            "memory_search",
            {
                "query": ("string", None),
                "filters": ("object", None),
                "limit": ("integer", 10),
                "offset": ("integer", 0),
            },
        ),
        (
            "memory_update",
            dict.fromkeys(("conversation_id", "label", "folder", "status"), ("string", None)),
        ),
        ("memory_prune", {"threshold_days": ("integer", 30), "importance_threshold": ("number", 5.0)}),
        ("memory_get_context", {"conversation_id": ("string", None)}),
        (
            "memory_export",
            {
                "conversation_id": ("string", None),
                "format": ("string", "json"),
                "include_metadata": ("boolean", True),
            },
        ),
        ("memory_stats", {"folder": ("string", None), "label": ("string", None)}),
    ],
)
def test_seed_004_the_tables_of_parameters(
    server: PackServer, tool: str, parameters: dict[str, tuple[str, Any]]
) -> None:
    properties = schema(server, tool)["properties"]
    assert {name: declared(properties[name]) for name in parameters} == parameters


def test_seed_004_the_requests_of_its_seven_tools(server: PackServer) -> None:
    folder = "/seed-004/backend"
    stored = sekha(
        server,
        "memory_store",
        label="API Design Discussion",
        folder=folder,
        messages=TALK,
        importance_score=7,
    )
    id = stored["conversation_id"]
    assert (stored["id"], stored["label"], stored["folder"]) == (id, "API Design Discussion", folder)
    matches = sekha(
        server,
        "memory_search",
        query="What decisions did we make about authentication?",
        filters={"folder": "/seed-004"},
        limit=10,
        offset=0,
    )
    assert {"query", "total_results", "limit", "results"} == set(matches)
    assert {row["conversation_id"] for row in matches["results"]} == {id}
    updated = sekha(
        server,
        "memory_update",
        conversation_id=id,
        label="Completed: API Design",
        folder="/seed-004/archive/2026-q1",
        status="archived",
        importance_score=8,
    )
    assert updated["message"] == "Conversation updated successfully"
    prune = sekha(server, "memory_prune", threshold_days=90, importance_threshold=5.0)
    assert (prune["threshold_days"], prune["importance_threshold"]) == (90, 5.0)
    assert set(prune) == {
        *("threshold_days", "importance_threshold", "total_suggestions"),
        *("estimated_token_savings", "suggestions"),
    }
    context = sekha(server, "memory_get_context", conversation_id=id)
    assert {
        *("conversation_id", "label", "status", "folder", "importance_score"),
        *("word_count", "session_count", "created_at", "updated_at"),
    } <= set(context)
    export = sekha(server, "memory_export", conversation_id=id, format="markdown", include_metadata=True)
    assert set(export["conversation"]) == {
        *("id", "label", "folder", "status", "importance_score"),
        *("word_count", "session_count", "created_at", "updated_at"),
    }
    assert [set(message) for message in export["messages"]] == [{"role", "content", "timestamp"}] * 2
    assert {"total_conversations", "average_importance", "folders"} == set(sekha(server, "memory_stats"))
    for chosen in ({"folder": "/seed-004"}, {"label": "Completed: API Design"}):
        assert sekha(server, "memory_stats", **chosen)["total_conversations"] == 1


def test_seed_004_workflow_1_what_was_stored_is_retrieved(server: PackServer) -> None:
    messages = [{"role": "user", "content": "For the OAuth implementation we decided on PKCE"}]
    sekha(
        server,
        "memory_store",
        label="OAuth Implementation Discussion",
        folder="/flow1/backend/auth",
        messages=messages,
        importance_score=8,
    )
    matches = sekha(
        server,
        "memory_search",
        query="OAuth implementation decisions",
        filters={"folder": "/flow1"},
        limit=5,
    )
    assert [row["content"] for row in matches["results"]] == [messages[0]["content"]]


def test_seed_004_workflow_2_the_folder_is_counted_and_the_stale_archived(server: PackServer) -> None:
    for number in range(3):
        sekha(
            server,
            "memory_store",
            label=f"flow2 {number}",
            folder="/flow2",
            messages=TALK,
            importance_score=3,
        )
    assert sekha(server, "memory_stats", folder="/flow2")["total_conversations"] == 3
    suggested = sekha(server, "memory_prune", threshold_days=0, importance_threshold=4.0)["suggestions"]
    rows = [row for row in suggested if row["conversation_label"].startswith("flow2")]
    for row in rows:
        sekha(
            server,
            "memory_update",
            conversation_id=row["conversation_id"],
            folder="/flow2-archive/2025",
            status="archived",
        )
    assert len(rows) == 3
    assert sekha(server, "memory_stats", folder="/flow2")["total_conversations"] == 0
    remaining = sekha(server, "memory_prune", threshold_days=0, importance_threshold=4.0)["suggestions"]
    assert not [row for row in remaining if row["conversation_label"].startswith("flow2")]


def test_seed_004_workflow_3_the_conversations_of_january_are_exported(server: PackServer) -> None:
    for day, text in (("2026-01-20", "The January review of the crane"), ("2026-03-02", "The March review")):
        message = {"role": "user", "content": text, "timestamp": f"{day}T15:30:00"}
        sekha(server, "memory_store", label=text, folder="/flow3", messages=[message])
    january = {"folder": "/flow3", "after": "2026-01-01", "before": "2026-01-31"}
    matches = sekha(server, "memory_search", query="review", filters=january)["results"]
    exports = [
        sekha(server, "memory_export", conversation_id=row["conversation_id"], format="markdown")["content"]
        for row in matches
    ]
    assert len(exports) == 1
    assert "The January review of the crane" in exports[0]
    assert "2026-01-20T15:30:00" in exports[0]


def test_seed_004_its_troubleshooting(server: PackServer) -> None:
    assert server.client.get("/health").status_code == 200
    assert server.sekha("memory_search", {"query": "test"}, key="wrong").status_code == 401
    assert server.sekha("memory_search", {"query": "test"}).status_code == 200
    unknown = {"conversation_id": "123e4567-e89b-12d3-a456-426614174000"}
    reply = server.sekha("memory_get_context", unknown)
    assert (reply.status_code, reply.json()["success"]) == (404, False)


@pytest.mark.slow
def test_seed_004_two_instances_stand_side_by_side(server: PackServer, tmp_path: Path) -> None:
    config = pack_project(tmp_path)
    personal = "personal-key-of-thirty-two-letters"
    with (
        served(config, SEKHA_API_KEY=personal) as second,
        piped(config, "sekha", SEKHA_API_URL=server.base, SEKHA_API_KEY=KEY) as work,
        piped(config, "sekha", SEKHA_API_URL=second.base, SEKHA_API_KEY=personal) as home,
    ):
        for pipe, folder in ((work, "/instances/work"), (home, "/instances/home")):
            pipe.call("memory_store", {"label": "one", "folder": folder, "messages": TALK})
        assert home.call("memory_stats", {})["data"]["folders"] == ["/instances/home"]
        assert "/instances/work" in work.call("memory_stats", {})["data"]["folders"]
        assert "/instances/home" not in json.dumps(work.call("memory_stats", {}))
