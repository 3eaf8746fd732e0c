"""Claude Recall's five tools, its protocol and its sessions, through every door (seed 002)."""

import os
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from dialect_kit import HELLO, RECALL, PackPipe, PackServer, Refused, pack_project, piped, served, texts

from ctx.config import load_config
from ctx.memory.location import locate

OWN = "/packs/claude-recall/mcp"
BARE = ("store_memory", "search", "retrieve_memory", "get_stats", "clear_context")


def on_pipes(config: Path) -> PackPipe:
    return PackPipe(config, "claude-recall")


# -- the wire ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_cr1_the_protocol_of_2024_is_spoken_and_newer_ones_negotiated(
    config: Path, server: PackServer
) -> None:
    for request, values in (("2024-11-05", "2024-11-05"), ("2025-06-18", "2025-06-18"), ("1.0", None)):
        pipe = on_pipes(config)
        reply = pipe.ask("initialize", {**HELLO, "protocolVersion": request})
        version = reply["result"]["protocolVersion"]
        assert version == values if values else re.fullmatch(r"\d{4}-\d\d-\d\d", version)
        assert pipe.end()[0] == 0
    head = {"accept": "application/json, text/event-stream"}
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {**HELLO, "protocolVersion": "2024-11-05"},
    }
    opened = server.client.post(OWN, json=hello, headers=head)
    assert '"protocolVersion":"2024-11-05"' in opened.text.replace(" ", "")


@pytest.mark.slow
def test_cr7_health_is_told_before_the_handshake(config: Path, server: PackServer) -> None:
    pipe = on_pipes(config)
    health = pipe.ask("health/check")["result"]
    over_http = server.rpc("health/check", None, OWN)["result"]
    by_rest = server.client.get("/packs/claude-recall/health").json()
    for matches in (health, over_http, by_rest):
        assert sorted(matches) == [
            "database",
            "memory",
            "rateLimiter",
            "sessions",
            "status",
            "toolsRegistered",
            "uptime",
            "version",
        ]
        assert (matches["status"], matches["toolsRegistered"], matches["database"]) == (
            "healthy",
            6,  # the seed's five, and supersede_memory
            "connected",
        )
        assert sorted(matches["memory"]) == ["external", "heapTotal", "heapUsed", "rss"]
        assert matches["memory"]["rss"] > 10_000_000
        assert matches["rateLimiter"] == {"requestsPerMinute": 100, "currentRequests": 0}
        assert matches["sessions"]["total"] >= matches["sessions"]["active"] >= 1
    pipe.shake_hands().call("get_stats", {})
    assert pipe.ask("health/check")["result"]["rateLimiter"]["currentRequests"] == 1
    assert pipe.end()[0] == 0


@pytest.mark.slow
def test_cr8_to_cr10_every_fault_has_its_code_and_its_details_on_pipes(config: Path) -> None:
    pipe = on_pipes(config)
    for line, code, id in (
        (b'{"jsonrpc": "2.0", "id": 1, "method"\n', -32700, None),
        (b"[]\n", -32600, None),
        (b'{"jsonrpc": "2.0", "id": 9}\n', -32600, 9),
        (b'{"jsonrpc": "1.0", "id": 8, "method": "ping"}\n', -32600, 8),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}\n', -32600, None),
        (b'{"jsonrpc": "2.0", "id": [1], "method": "ping"}\n', -32600, None),
    ):
        pipe.say(line)
        reply = pipe.hear()
        assert (reply["error"]["code"], reply["id"]) == (code, id), line
        assert reply["error"]["data"]["details"], line
    pipe.shake_hands()
    for method, params, code in (
        ("no/such", None, -32601),
        ("tools/call", {"name": "no_such", "arguments": {}}, -32000),
        ("tools/call", {"name": "store_memory", "arguments": {}}, -32602),
        ("tools/call", {"name": RECALL + "search", "arguments": {"query": "x", "threshold": 2}}, -32602),
        ("tools/call", {"name": "search", "arguments": {"query": 3}}, -32602),
    ):
        error = pipe.ask(method, params)["error"]
        assert (error["code"], bool(error["data"]["details"])) == (code, True), (method, params)
    assert pipe.end()[:2] == (0, b"")


def test_cr8_to_cr10_the_same_over_http_and_only_on_its_own_endpoint(server: PackServer) -> None:
    for method, params, code in (
        ("no/such", None, -32601),
        ("tools/call", {"name": "no_such", "arguments": {}}, -32000),
        ("tools/call", {"name": "store_memory", "arguments": {}}, -32602),
        ("tools/call", {"arguments": {}}, -32602),
        ("prompts/get", {"name": 5}, -32602),
    ):
        error = server.rpc(method, params, OWN)["error"]
        assert error["code"] == code, method
        assert error["data"]["details"]
    # Elsewhere the norm: a model mends what it sees as a tool error.
    assert (
        server.rpc("tools/call", {"name": RECALL + "store_memory", "arguments": {}})["result"]["isError"]
        is True
    )
    assert server.rpc("tools/call", {"name": "no_such", "arguments": {}})["error"]["code"] == -32602


@pytest.mark.slow
def test_cr10_a_store_that_cannot_answer_is_a_database_error(tmp_path: Path) -> None:
    config = pack_project(tmp_path)
    with piped(config, "claude-recall") as pipe:
        pipe.call("store_memory", {"content": "before"})
        database = Path(locate(load_config(str(config), {}), os.environ).memory)
        for name in (database, Path(f"{database}-wal"), Path(f"{database}-shm")):
            if name.exists():
                name.unlink()
        database.write_bytes(b"this is no database" * 500)
    pipe = on_pipes(config).shake_hands()
    error = pipe.ask("tools/call", {"name": "store_memory", "arguments": {"content": "after"}})["error"]
    assert (error["code"], bool(error["data"]["details"])) == (-32002, True)
    pipe.end()


# -- the tools -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("door", ["rest", "mcp", "own", "pipe"])
def test_cr2_to_cr5_what_is_stored_is_found_by_every_door(
    config: Path, server: PackServer, door: str
) -> None:
    bank = f"cr2-{door}"

    def through(tool: str, arguments: dict[str, Any], by: str) -> Any:
        if by == "pipe":
            return pipe.call(tool, arguments)
        if by == "own":
            return server.mcp(tool, arguments, OWN, bank=bank)
        name = RECALL + tool
        return (
            server.mcp(name, arguments, bank=bank) if by == "mcp" else server.rest(name, arguments, bank=bank)
        )

    with piped(config, "claude-recall", "--bank", bank, CLAUDE_RECALL_RATE_LIMIT="0") as pipe:
        empty = through("get_stats", {}, door)
        assert (empty["totalMemories"], empty["memoryTypes"], empty["lastMemoryTimestamp"]) == (0, {}, None)
        remaining = through(
            "store_memory",
            {"content": "User prefers TypeScript over JavaScript", "metadata": {"type": "code"}},
            door,
        )
        assert re.fullmatch(r"memory_\d+_[a-z0-9]+", remaining["id"])
        assert remaining == {"id": remaining["id"], "success": True, "message": "Memory stored successfully"}
        through("store_memory", {"content": "The cat sleeps on the sofa"}, door)
        for by in ("rest", "mcp", "own", "pipe"):
            matches = through("search", {"query": "TypeScript preference"}, by)
            [hit] = matches["results"]
            assert (hit["id"], hit["content"], hit["metadata"]) == (
                remaining["id"],
                "User prefers TypeScript over JavaScript",
                {"type": "code"},
            )
            assert 0.7 <= hit["score"] <= 1
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", hit["timestamp"])
            assert (matches["total"], matches["query"]) == (1, "TypeScript preference")
            assert through("search", {"query": "chocolate cake recipe"}, by)["results"] == []
            first_store = through("retrieve_memory", {"id": remaining["id"]}, by)
            assert (first_store["total"], texts(first_store)) == (
                1,
                ["User prefers TypeScript over JavaScript"],
            )
            assert first_store["memories"][0]["sessionId"]
            assert through("retrieve_memory", {"id": "memory_1_nosuch"}, by) == {"memories": [], "total": 0}
            latest = through("retrieve_memory", {"limit": 1}, by)
            assert texts(latest) == ["The cat sleeps on the sofa"]
            stats = through("get_stats", {}, by)
            assert (stats["totalMemories"], stats["memoryTypes"]) == (2, {"code": 1, "general": 1})
            assert re.fullmatch(r"\d+\.\d [KM]B", stats["databaseSize"])
            assert stats["lastMemoryTimestamp"].endswith("Z")
            assert stats["sessionStartTime"].endswith("Z")


def test_cr3_total_is_before_the_limit_and_scores_descend(server: PackServer) -> None:
    for number in range(6):
        server.rest(
            RECALL + "store_memory", {"content": f"Deploys happen on Friday number {number}"}, bank="cr3"
        )
    matches = server.rest(
        RECALL + "search", {"query": "Friday deploys", "limit": 2, "threshold": 0.1}, bank="cr3"
    )
    assert (len(matches["results"]), matches["total"]) == (2, 6)
    every = server.rest(
        RECALL + "search", {"query": "Friday deploys 3", "limit": 10, "threshold": 0}, bank="cr3"
    )["results"]
    scores = [hit["score"] for hit in every]
    assert scores == sorted(scores, reverse=True)


def test_what_answers_below_the_threshold_is_shown_apart(server: PackServer) -> None:
    server.rest(
        RECALL + "store_memory",
        {"content": "The customer Brightwater wants single sign-on by May"},
        bank="cr3b",
    )
    ask = {"query": "Brightwater customer contract", "threshold": 0.98}
    reply = server.rest(RECALL + "search", ask, bank="cr3b")
    assert (reply["results"], reply["total"]) == ([], 0)
    assert [entry["score"] < 0.98 for entry in reply["belowThreshold"]] == [True]
    assert "belowThreshold" not in server.rest(RECALL + "search", {"query": "zebra crossing"}, bank="cr3b")


def test_cr2_metadata_comes_back_as_it_was_and_a_list_is_no_kind_of_memory(server: PackServer) -> None:
    metadata = {"type": ["list"], "empty": {}, "nothing": None, "deep": {"values": [None, 1.5, "x"]}}
    stored = server.rest(
        RECALL + "store_memory", {"content": "odd metadata", "metadata": metadata}, bank="cr2-odd"
    )
    [memory] = server.rest(RECALL + "retrieve_memory", {"id": stored["id"]}, bank="cr2-odd")["memories"]
    assert memory["metadata"] == metadata
    assert server.rest(RECALL + "get_stats", {}, bank="cr2-odd")["memoryTypes"] == {"general": 1}


def test_cr6_clearing_asks_first_and_takes_only_its_own_session(server: PackServer) -> None:
    store, clear, stats = RECALL + "store_memory", RECALL + "clear_context", RECALL + "get_stats"
    server.rest(store, {"content": "mine"}, bank="cr6", session="a")
    server.rest(store, {"content": "yours"}, bank="cr6", session="b")
    for refused in ({}, {"confirm": False}):
        assert server.rest(clear, refused, bank="cr6", session="a") == {
            "success": False,
            "message": "Confirmation required to clear context",
            "memoriesCleared": 0,
        }
    assert server.rest(stats, {}, bank="cr6")["totalMemories"] == 2
    cleared = server.rest(clear, {"confirm": True}, bank="cr6", session="a")
    operation = cleared.pop("op_id")
    assert cleared == {"success": True, "message": "Context cleared successfully", "memoriesCleared": 1}
    assert server.mcp(clear, {"undo": operation}, bank="cr6")["memoriesRestored"] == 1
    assert server.rest(clear, {"confirm": True}, bank="cr6", session="a")["memoriesCleared"] == 1
    for named, headers in (({}, {}), ({"sessionId": "b"}, {}), ({"sessionId": "b"}, {"session": "a"})):
        with pytest.raises(Refused, match="only a client's own session can be cleared"):
            server.rest(clear, {"confirm": True, **named}, bank="cr6", **headers)
    assert texts(server.rest(RECALL + "retrieve_memory", {}, bank="cr6")) == ["yours"]
    assert server.rest(stats, {}, bank="cr6", session="b")["sessionMemories"] == 1


def test_cr13_memories_carry_the_session_of_their_connection(server: PackServer, config: Path) -> None:
    server.rest(RECALL + "store_memory", {"content": "over rest"}, bank="cr13", session="rest-session")
    server.rest(
        RECALL + "store_memory",
        {"content": "by argument", "sessionId": "argued"},
        bank="cr13",
        session="rest-session",
    )
    with piped(config, "claude-recall", "--bank", "cr13") as pipe:
        pipe.call("store_memory", {"content": "on pipes"})
    rows = server.rest(RECALL + "retrieve_memory", {}, bank="cr13")["memories"]
    by = {row["content"]: row["sessionId"] for row in rows}
    assert (by["over rest"], by["by argument"]) == ("rest-session", "argued")
    assert by["on pipes"].startswith("session_")


@pytest.mark.slow
def test_cr15_bare_names_are_taken_on_its_own_endpoint_and_nowhere_else(
    server: PackServer, config: Path
) -> None:
    assert sorted(server.tools(OWN)) == sorted(RECALL + name for name in (*BARE, "supersede_memory"))
    assert {RECALL + name for name in BARE} <= set(server.tools("/mcp"))
    for name in BARE:
        if name == "search":
            continue  # elsewhere that is the search in documents
        with pytest.raises(Refused) as refused:
            server.mcp(name, {"content": "x", "confirm": False})
        assert refused.value.code == -32602
        with pytest.raises(Refused) as refused:
            server.rest(name, {})
        assert refused.value.code == 404
    with piped(config, "claude-recall") as pipe:
        listed = [tool["name"] for tool in pipe.ask("tools/list")["result"]["tools"]]
        assert sorted(listed) == sorted(RECALL + name for name in (*BARE, "supersede_memory"))
        assert (
            pipe.call("get_stats", {})["totalMemories"]
            == pipe.call(RECALL + "get_stats", {})["totalMemories"]
        )


# -- sessions and rates --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_cr12_a_project_goes_on_with_its_session(tmp_path: Path) -> None:
    config = pack_project(tmp_path)
    second = tmp_path / "other"
    second.mkdir()
    visible: list[tuple[str, int]] = []
    for cwd in (tmp_path, tmp_path, second):
        with piped(config, "claude-recall", cwd=cwd) as pipe:
            remaining = pipe.call("store_memory", {"content": f"run {len(visible)}"})
            [row] = pipe.call("retrieve_memory", {"id": remaining["id"]})["memories"]
            visible.append((row["sessionId"], pipe.call("get_stats", {})["sessionMemories"]))
    assert visible[0][0] == visible[1][0] != visible[2][0]
    assert [count for _, count in visible] == [1, 2, 1]


@pytest.mark.slow
def test_cr14_the_fourth_call_of_three_is_refused_on_every_door(tmp_path: Path) -> None:
    config = pack_project(tmp_path)
    with piped(config, "claude-recall", CLAUDE_RECALL_RATE_LIMIT="3") as pipe:
        for _ in range(3):
            pipe.call("get_stats", {})
        for evading in ({}, {"sessionId": "another"}):
            error = pipe.ask("tools/call", {"name": "get_stats", "arguments": evading})["error"]
            assert error["code"] == -32001
            assert error["data"]["details"]
            assert 50_000 < error["data"]["retryAfterMs"] <= 60_001
        assert pipe.ask("tools/list")["result"]["tools"]
    with served(config, CLAUDE_RECALL_RATE_LIMIT="3") as server:

        def rest(session: str) -> httpx.Response:
            return server.client.post(f"/tools/{RECALL}get_stats", json={}, headers={"X-Session-Id": session})

        assert [rest("s1").status_code for _ in range(4)] == [200, 200, 200, 429]
        assert 50 <= int(rest("s1").headers["retry-after"]) <= 61
        assert rest("s2").status_code == 200  # each session has its own
        for _ in range(3):
            server.mcp("get_stats", {}, OWN)
        error = server.rpc("tools/call", {"name": "get_stats", "arguments": {}}, OWN)["error"]
        assert error["code"] == -32001
        # Callers without a session share one, or the limit would never be met.
        assert [server.client.post(f"/tools/{RECALL}get_stats", json={}).status_code for _ in range(4)] == [
            200
        ] * 3 + [429]


def test_cr14_a_limit_that_is_no_number_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="CLAUDE_RECALL_RATE_LIMIT"):
        PackServer(pack_project(tmp_path), CLAUDE_RECALL_RATE_LIMIT="many")
