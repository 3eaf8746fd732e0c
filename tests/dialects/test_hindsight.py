"""Hindsight's tools, both generations, through every door (seeds 000 and 001)."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from dialect_kit import PackServer, Refused, pack_project, piped, served, texts
from kit import workspace

FACT = "User prefers Python over JavaScript for backend development"


@pytest.mark.slow
def test_hs1_the_environment_switches_mcp_off_and_leaves_rest(tmp_path: Path) -> None:
    config = pack_project(tmp_path)
    with served(config, HINDSIGHT_API_MCP_ENABLED="false") as server:
        for path in ("/mcp", "/mcp/", "/mcp/alice", "/mcp/alice/", "/packs/hindsight/mcp"):
            with pytest.raises(Refused) as refused:
                server.rpc("tools/list", None, path)
            assert refused.value.code == 404, path
        assert server.rest("retain", {"content": FACT})["success"] is True
    with served(config, HINDSIGHT_API_MCP_ENABLED="true") as server:
        assert "retain" in server.tools()


@pytest.mark.slow
def test_hs4_and_hs5_a_tenant_key_closes_every_door_but_the_documents(tmp_path: Path) -> None:
    extension = "hindsight_api.extensions.builtin.tenant:ApiKeyTenantExtension"
    with served(
        pack_project(tmp_path),
        HINDSIGHT_API_TENANT_EXTENSION=extension,
        HINDSIGHT_API_TENANT_API_KEY="your-secret-key",
    ) as server:
        doors: list[Callable[..., Any]] = [
            lambda **key: server.rpc("tools/list", None, "/mcp", **key),
            lambda **key: server.rpc("tools/list", None, "/mcp", bank="my-bank", **key),
            lambda **key: server.rpc("tools/list", None, "/mcp/my-bank/", **key),
            lambda **key: server.rpc("tools/list", None, "/packs/hindsight/mcp", **key),
            lambda **key: server.rest("retain", {"content": FACT}, **key),
            lambda **key: server.rest("hindsight_search", {"bank_id": "default", "query": "python"}, **key),
        ]
        for number, door in enumerate(doors):
            for key in ({}, {"key": "wrong"}, {"authorization": "Basic eW91"}):
                with pytest.raises(Refused) as refused:
                    door(**key)
                assert refused.value.code == 401, (number, key)
            door(key="your-secret-key")
            door(authorization="your-secret-key")  # the bare token, as the original takes it
        assert server.client.post("/mcp", json={}).headers["www-authenticate"].startswith("Bearer")
        assert server.client.post("/tools/search", json={"query": "note"}).status_code == 200


def test_hs5_an_extension_without_its_key_does_not_start_open(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="HINDSIGHT_API_TENANT_API_KEY is not"):
        PackServer(pack_project(tmp_path), HINDSIGHT_API_TENANT_EXTENSION="some:Extension")


@pytest.mark.slow
def test_hs6_path_goes_before_header_and_header_before_environment(tmp_path: Path) -> None:
    with served(pack_project(tmp_path), HINDSIGHT_MCP_BANK_ID="from-env") as server:
        assert (
            server.mcp("retain", {"content": "one"}, "/mcp/from-path/", bank="from-header")["bank_id"]
            == "from-path"
        )
        assert (
            server.mcp("retain", {"content": "two"}, "/mcp", bank="from-header")["bank_id"] == "from-header"
        )
        assert server.mcp("retain", {"content": "three"}, "/mcp")["bank_id"] == "from-env"
        assert server.rest("retain", {"content": "four"}, bank="from-header")["bank_id"] == "from-header"
        assert server.rest("retain", {"content": "five"})["bank_id"] == "from-env"


@pytest.mark.slow
def test_hs6_on_pipes_an_argument_goes_before_the_environment(config: Path) -> None:
    with piped(config, "hindsight", HINDSIGHT_MCP_BANK_ID="from-env") as pipe:
        assert pipe.call("retain", {"content": "one"})["bank_id"] == "from-env"
    with piped(config, "hindsight", "--bank", "given", HINDSIGHT_MCP_BANK_ID="from-env") as pipe:
        assert pipe.call("retain", {"content": "one"})["bank_id"] == "given"
        with pytest.raises(Refused, match="bank_id 'other' is not available on this endpoint"):
            pipe.call("hindsight_put", {"bank_id": "other", "content": "x", "context": "y"})


def test_hs7_a_banks_endpoint_lists_its_tools_without_a_bank_and_no_argument_changes_it(
    server: PackServer,
) -> None:
    listed = server.tools("/mcp/hs7/")
    assert sorted(listed) == [
        *("delete_memory", "get_memory", "list_memories", "recall", "reflect", "retain", "supersede_memory"),
        "undo_memory",
        "update_memory",
    ]
    assert all("bank_id" not in tool["inputSchema"]["properties"] for tool in listed.values())
    remaining = server.mcp("retain", {"content": "the seventh secret", "bank_id": "hs7-other"}, "/mcp/hs7/")
    assert remaining["bank_id"] == "hs7"
    assert server.rest("recall", {"query": "seventh secret"}, bank="hs7-other") == {"results": []}
    assert texts(server.rest("recall", {"query": "seventh secret"}, bank="hs7")) == ["the seventh secret"]


def test_hs8_another_bank_is_reached_neither_by_query_nor_by_argument(server: PackServer) -> None:
    server.mcp("retain", {"content": "Alice hides the ring in the oven"}, "/mcp/hs8-alice")
    assert server.mcp("recall", {"query": "Alice hides the ring in the oven"}, "/mcp/hs8-bob") == {
        "results": []
    }
    for tool, arguments in (
        ("hindsight_put", {"bank_id": "hs8-alice", "content": "x", "context": "y"}),
        ("hindsight_search", {"bank_id": "hs8-alice", "query": "ring"}),
    ):
        with pytest.raises(Refused) as refused:
            server.mcp(tool, arguments, "/mcp/hs8-bob")
        assert refused.value.message == "Error: bank_id 'hs8-alice' is not available on this endpoint"


def test_hs8_the_banks_of_other_packs_cannot_be_named(server: PackServer) -> None:
    server.rest("mcp__claude-recall__store_memory", {"content": "only claude recall knows"})
    ask = {"query": "only claude recall knows"}

    def seen(bank: str, door: str) -> Any:
        if door == "path":
            return server.mcp("recall", ask, f"/mcp/{bank}/")
        if door == "header":
            return server.rest("recall", ask, bank=bank)
        return server.rest("hindsight_search", {"bank_id": bank, **ask})

    for door in ("path", "header", "argument"):
        for bank in ("pack:claude-recall", "pack:claude-recall:default"):
            with pytest.raises(Refused, match="reserved"):
                seen(bank, door)
    assert seen("claude-recall", "path") == seen("claude-recall", "header") == {"results": []}
    with pytest.raises(Refused, match="not found"):
        seen("claude-recall", "argument")


@pytest.mark.slow
@pytest.mark.parametrize("door", ["rest", "mcp", "pipe"])
def test_hs9_to_hs12_retain_is_found_at_once_and_again_through_another_door(
    server: PackServer, config: Path, door: str
) -> None:
    bank = f"hs9-{door}"

    def through(tool: str, arguments: dict[str, Any], by: str) -> Any:
        if by == "pipe":
            return pipe.call(tool, arguments)
        return (
            server.mcp(tool, arguments, f"/mcp/{bank}/")
            if by == "mcp"
            else server.rest(tool, arguments, bank=bank)
        )

    with piped(config, "hindsight", "--bank", bank) as pipe:
        remaining = through("retain", {"content": FACT, "context": "programming_preferences"}, door)
        assert (remaining["success"], remaining["message"], remaining["bank_id"]) == (
            True,
            "Memory stored successfully",
            bank,
        )
        through("retain", {"content": "The user lives in Lisbon"}, door)
        for by in ("rest", "mcp", "pipe"):
            matches = through(
                "recall", {"query": "What are the user's programming language preferences? Python"}, by
            )
            assert (
                matches["results"][0].items()
                >= {
                    "id": remaining["id"],
                    "text": FACT,
                    "type": "world",
                    "context": "programming_preferences",
                    "event_date": None,
                }.items()
            )
            assert 0.7 <= matches["results"][0]["score"] <= 1
            assert matches["results"][0]["said"].endswith("Z")
            assert len(through("recall", {"query": "user", "max_results": 1}, by)["results"]) == 1
            general = through("recall", {"query": "Lisbon"}, by)["results"][0]
            assert general["context"] == "general"
            answer = through(
                "reflect", {"query": "Which language does the user prefer?", "budget": "mid"}, by
            )
            assert FACT in answer["text"]
            with pytest.raises(Refused):
                through("reflect", {"query": "x", "budget": "highest"}, by)
            with pytest.raises(Refused):
                through("retain", {"context": "no content"}, by)


def test_hs10_later_versions_extra_arguments_are_understood(server: PackServer) -> None:
    for number in range(5):
        server.rest("retain", {"content": f"Fact number {number} about whales " + "x" * 360}, bank="hs10")
    assert len(server.rest("recall", {"query": "whales", "max_tokens": 200}, bank="hs10")["results"]) == 2
    extra = {"query": "whales", "budget": "high", "types": '["world"]', "tags": [], "explanation": "because"}
    assert len(server.rest("recall", extra, bank="hs10")["results"]) == 5


def test_hs11_a_recall_that_fails_has_its_error_and_no_results(server: PackServer) -> None:
    for path in ("/mcp", "/mcp/hs11/"):
        call = {"name": "recall", "arguments": {"query": "x", "budget": "highest"}}
        result = server.rpc("tools/call", call, path)["result"]
        assert result["isError"] is True
        assert result["content"][0]["text"] == f"Error: {result['structuredContent']['error']}"
        assert result["structuredContent"]["results"] == []
        assert "budget" in result["structuredContent"]["error"]


def test_hs13_the_seeds_own_curl_is_answered(server: PackServer) -> None:
    process = subprocess.run(
        ["curl", "-s", "-w", "\n%{http_code}", "-X", "POST", f"{server.base}/mcp"]  # noqa: RUF005
        + [
            "-H",
            "Authorization: Bearer your-secret-key",
            "-H",
            "X-Bank-Id: my-bank",
            "-H",
            "Content-Type: application/json",
        ]
        + ["-d", '{"jsonrpc": "2.0", "method": "tools/list", "id": 1}'],
        capture_output=True,
        text=True,
        check=True,
    )
    body, status = process.stdout.rsplit("\n", 1)
    # This server has a key for sekha, and the seed's is not it: a wrong key is refused although none was
    # needed.
    assert status == "401"
    assert "jsonrpc" in json.loads(body)
    assert {"retain", "recall", "reflect"} <= set(server.tools("/mcp", bank="my-bank"))


@pytest.mark.slow
def test_hs15_what_models_add_has_no_effect_and_is_said_and_lists_sent_as_text_are_read(
    server: PackServer, config: Path
) -> None:
    noisy = {"content": FACT, "explanation": "noise", "importance": "high", "reason": None}
    for reply in (server.rest("retain", noisy, bank="hs15"), server.mcp("retain", noisy, "/mcp/hs15/")):
        assert reply["success"]
        assert reply["ignored_arguments"] == ["explanation", "importance"]
    assert len(server.rest("recall", {"query": "backend", "max_results": "1"}, bank="hs15")["results"]) == 1
    with pytest.raises(Refused, match="must be of type 'integer'"):
        server.rest("recall", {"query": "backend", "max_results": "few"}, bank="hs15")
    with piped(config, "hindsight", "--bank", "hs15") as pipe:
        assert pipe.call("recall", {"query": "backend", "top_k": 3})["ignored_arguments"] == ["top_k"]
        assert "ignored_arguments" not in pipe.call("recall", {"query": "backend", "sessionId": "s"})
    storing = {"bank_id": "hs15", "content": FACT, "context": "c"}
    reply = server.rest("hindsight_put", {**storing, "importance": 9})
    assert reply == "Fact stored successfully\n(no effect: importance)"
    request = {"label": "t", "messages": json.dumps([{"role": "user", "content": "sent as text"}])}
    stored = server.rest("memory_store", request, key="sekha-key-of-thirty-two-characters")
    assert stored["success"] is True


@pytest.mark.parametrize(
    ("tool", "arguments", "meant"),
    [
        ("recall", {"query": "x", "max_result": 3}, "max_results"),
        ("recall", {"query": "x", "type": "world"}, "types"),
        ("retain", {"content": "x", "time_stamp": "2026-01-01"}, "timestamp"),
        ("delete_memory", {"memory_id": "x", "dryRun": True}, "dry_run"),
    ],
)
def test_hs15_what_was_nearly_named_is_refused_with_the_name(
    server: PackServer, tool: str, arguments: dict[str, Any], meant: str
) -> None:
    for through in (server.rest, server.mcp):
        with pytest.raises(Refused, match=f"did you mean '{meant}'"):
            through(tool, arguments)


def test_hs16_an_unknown_bank_is_empty(server: PackServer) -> None:
    assert server.rest("recall", {"query": "anything"}, bank="hs16-never") == {"results": []}
    assert server.mcp("recall", {"query": "anything"}, "/mcp/hs16-never") == {"results": []}
    assert (
        server.mcp("reflect", {"query": "anything"}, "/mcp/hs16-never")["text"]
        == "No memory answers this question."
    )


# -- the older generation ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_h1_4_a_bank_that_never_was_has_the_exact_sentence(server: PackServer, config: Path) -> None:
    ask = {"bank_id": "unknown-bank", "query": "x"}
    with pytest.raises(Refused) as refused:
        server.mcp("hindsight_search", ask)
    assert (refused.value.code, refused.value.message) == (0, "Error: Memory bank 'unknown-bank' not found")
    with pytest.raises(Refused) as refused:
        server.rest("hindsight_search", ask)
    assert (refused.value.code, refused.value.message) == (404, "Memory bank 'unknown-bank' not found")
    with (
        piped(config, "hindsight") as pipe,
        pytest.raises(Refused, match=r"^0: Error: Memory bank 'unknown-bank' not found$"),
    ):
        pipe.call("hindsight_search", ask)


def test_h1_5_max_tokens_ends_the_list_but_never_before_the_first(server: PackServer) -> None:
    for number in range(4):
        long = f"Fact {number} about herons " + "y" * 380
        server.rest("hindsight_put", {"bank_id": "h1-tokens", "content": long, "context": "birds"})
    for limit, count in ((1, 1), (205, 2), (4096, 4)):
        matches = server.rest(
            "hindsight_search", {"bank_id": "h1-tokens", "query": "herons", "max_tokens": limit}
        )
        assert len(matches["results"]) == count


# -- bank ids ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bank", ["ann+test@example.com", "team:docs.v2", "a" * 128])
def test_an_e_mail_address_is_a_bank_percent_encoded_or_not(server: PackServer, bank: str) -> None:
    for path in (f"/mcp/{quote(bank, safe='')}/", f"/mcp/{bank}/"):
        assert server.mcp("retain", {"content": f"kept in {bank[:20]}"}, path)["bank_id"] == bank
    assert texts(server.rest("recall", {"query": "kept"}, bank=bank)) == [f"kept in {bank[:20]}"]


@pytest.mark.parametrize(
    "bank", ["sse", "messages", "%2e%2e", "a%2fb", "a%252fb", "a b", "x" * 129, "%00", "-;drop"]
)
def test_what_is_no_bank_is_refused(server: PackServer, bank: str) -> None:
    with pytest.raises(Refused) as refused:
        server.rpc("tools/list", None, f"/mcp/{bank}/")
    assert refused.value.code in (400, 404)


# -- correcting, forgetting, the times of things -------------------------------------------------------------


def test_what_is_retained_with_a_time_says_when_it_was_said_and_happened(server: PackServer) -> None:
    server.rest(
        "retain",
        {
            "content": "We signed the lease last Friday",
            "timestamp": "2026-03-04T10:00:00Z",
            "tags": ["home"],
            "metadata": {"page": "3"},
            "document_id": "lease.pdf",
        },
        bank="times",
    )
    server.rest("retain", {"content": "The plumber comes on Mondays"}, bank="times")
    [result] = server.rest(
        "recall", {"query": "What did we sign on 2026-02-27?", "tags": ["home"]}, bank="times"
    )["results"]
    assert (result["said"], result["happened"]) == ("2026-03-04T10:00:00Z", "2026-02-27")
    assert result["event_date"] == "2026-02-27T00:00:00Z"
    assert server.rest("recall", {"query": "lease", "as_of": "2026-03-01"}, bank="times") == {"results": []}


def test_a_memory_is_corrected_forgotten_and_brought_back(server: PackServer) -> None:
    remaining = server.mcp("retain", {"content": "The gate code is 4711"}, "/mcp/gate/")
    changed = server.mcp(
        "update_memory", {"memory_id": remaining["id"], "content": "The gate code is 8822"}, "/mcp/gate/"
    )
    assert (changed["changed"], changed["version"]) == (["text"], 2)
    with pytest.raises(Refused, match="nothing to correct: send content"):  # `text` is not what it is called
        server.mcp("update_memory", {"memory_id": remaining["id"], "text": "It is 9933"}, "/mcp/gate/")
    listing = server.mcp("get_memory", {"memory_id": remaining["id"]}, "/mcp/gate/")
    assert [change["op"] for change in listing["history"]] == ["put", "update"]
    deletion = server.mcp("delete_memory", {"memory_id": remaining["id"]}, "/mcp/gate/")
    assert server.mcp("list_memories", {}, "/mcp/gate/")["memories"] == []
    assert server.mcp("recall", {"query": "gate code"}, "/mcp/gate/") == {"results": []}
    assert server.mcp("undo_memory", {"op_id": deletion["op_id"]}, "/mcp/gate/")["restored"] == 1
    assert texts(server.mcp("recall", {"query": "gate code"}, "/mcp/gate/")) == ["The gate code is 8822"]
    would = server.rest("clear_memories", {}, bank="gate")
    assert (would["deleted"], would["dry_run"], server.rest("list_memories", {}, bank="gate")["total"]) == (
        1,
        True,
        1,
    )


def test_a_connection_with_a_bank_header_is_bound_to_it(server: PackServer) -> None:
    server.mcp("retain", {"content": "dev's own"}, "/mcp/bound-dev/")
    with pytest.raises(Refused, match="not available on this endpoint"):
        server.mcp("hindsight_search", {"bank_id": "bound-dev", "query": "own"}, "/mcp", bank="bound-bob")
    assert len(server.tools("/mcp", bank="bound-bob")) == 9


def test_a_document_keeps_what_another_one_says_too(server: PackServer) -> None:
    path = "/v1/default/banks/hs-shared"
    for document in ("one", "two"):
        item = {"content": "The shared sentence is about tulips.", "document_id": document}
        assert server.client.post(f"{path}/memories", json={"items": [item]}).status_code == 200
    assert server.client.get(f"{path}/documents/two").status_code == 200
    assert server.client.delete(f"{path}/documents/one").status_code == 200
    assert "tulips" in server.client.get(f"{path}/documents/two").text


def test_what_has_no_type_or_context_is_found_as_what_it_is_shown_as(
    server: PackServer, config: Path
) -> None:
    with workspace(config) as space:
        space.memory.bank("hs-plain").put("The plain sentence is about otters")
    path = "/v1/default/banks/hs-plain"
    [entry] = server.mcp("list_memories", {}, "/mcp/hs-plain/")["memories"]
    assert (entry["type"], entry["context"]) == ("world", "general")
    kinds = {"type": "world", "context": "general", "tags": []}
    assert server.mcp("list_memories", kinds, "/mcp/hs-plain/")["total"] == 1
    for types, count in ((["world"], 1), ([], 1), (["opinion"], 0)):
        question = {"query": "otters", "types": types}
        assert len(server.mcp("recall", question, "/mcp/hs-plain/")["results"]) == count
        recalled = server.client.post(f"{path}/memories/recall", json=question)
        assert len(recalled.json()["results"]) == count
    listed = server.client.get(f"{path}/memories/list", params={"type": "world"}).json()
    counted = server.client.get(f"{path}/stats").json()["nodes_by_fact_type"]["world"]
    assert (listed["total"], counted) == (1, 1)
    assert server.client.delete(f"{path}/memories", params={"type": "world"}).json()["deleted_count"] == 1


def test_a_bank_is_exported_and_taken_in_over_rest(server: PackServer) -> None:
    path = "/v1/default/banks/{}/memories"
    items = [{"content": "The mill is by the river", "timestamp": "2026-01-02T03:04:05Z", "tags": ["x"]}]
    assert server.client.post(path.format("hs-out"), json={"items": items}).status_code == 200
    export = server.client.get(f"{path.format('hs-out')}/export").json()
    assert (export["count"], "by the river" in export["content"]) == (1, True)
    taken = server.client.post(f"{path.format('hs-in')}/import", json={"content": export["content"]})
    assert taken.json() == {"imported": 1, "skipped": 0, "conflicts": []}
    assert server.client.get(f"{path.format('hs-in')}/export").json() == export
    refused = server.client.post(f"{path.format('hs-in')}/import", json={"content": '{"text": "x"}'})
    assert (refused.status_code, "line 1" in refused.json()["error"]["message"]) == (400, True)
