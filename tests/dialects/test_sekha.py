"""Sekha's seven tools and its own route, through every door (seed 004)."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dialect_kit import KEY, UUID, PackServer, Refused, pack_project, piped, served

TOOLS = (
    "memory_store",
    "memory_search",
    "memory_update",
    "memory_prune",
    "memory_get_context",
    "memory_export",
    "memory_stats",
)
STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
TALK = [
    {"role": "user", "content": "Let's design the authentication API"},
    {"role": "assistant", "content": "Great! I recommend OAuth 2.0 with JWT tokens."},
]


def data(server: PackServer, tool: str, arguments: dict[str, Any]) -> Any:
    """The data of a reply of Sekha's own route, which succeeded."""
    reply = server.sekha(tool, arguments)
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert list(body) == ["success", "data", "error"] or set(body) == {"success", "data", "error"}
    assert (body["success"], body["error"]) == (True, None)
    return body["data"]


def stored(
    server: PackServer, label: str, folder: str = "/", importance: int = 5, text: str = "hello"
) -> str:
    """The id of a conversation of one message."""
    messages = [{"role": "user", "content": text}]
    arguments = {"label": label, "folder": folder, "messages": messages, "importance_score": importance}
    return str(data(server, "memory_store", arguments)["conversation_id"])


# -- the key -------------------------------------------------------------------------------------------------


def test_sk1_the_route_is_closed_without_the_key_however_it_is_missing(server: PackServer) -> None:
    for tool in (*TOOLS, "no_such"):
        for headers in (
            {},
            {"authorization": KEY + "x"},
            {"authorization": "Basic abc"},
            {"authorization": f"Bearer {KEY}x"},
        ):
            reply = server.client.post(f"/mcp/tools/{tool}", json={}, headers=headers)
            assert reply.status_code == 401, (tool, headers)
            body = reply.json()
            assert (body["success"], body["data"], type(body["error"])) == (False, None, str)
            assert reply.headers["www-authenticate"].startswith("Bearer")


def test_sk1_no_other_door_goes_around_the_key(server: PackServer) -> None:
    for tool in TOOLS:
        with pytest.raises(Refused) as refused:
            server.rest(tool, {})
        assert refused.value.code == 401
        with pytest.raises(Refused) as refused:
            server.mcp(tool, {})
        assert refused.value.code == -32600
        with pytest.raises(Refused) as refused:
            server.mcp(tool, {}, "/packs/sekha/mcp")
        assert refused.value.code == 401


@pytest.mark.slow
def test_sk1_without_any_key_it_is_closed_and_says_how_to_open_it(tmp_path: Path) -> None:
    with served(pack_project(tmp_path)) as server:
        reply = server.sekha("memory_stats", {}, key="anything")
        assert reply.status_code == 401
        assert "key create" in reply.json()["error"]
        with pytest.raises(Refused) as refused:
            server.rest("memory_stats", {}, key="anything")
        assert refused.value.code == 401


# -- the tools -----------------------------------------------------------------------------------------------


def check_conversation(
    through: Callable[[str, dict[str, Any]], Any], id: str, label: str, folder: str
) -> None:
    """Reads the talk back, whole and by a search."""
    context = through("memory_get_context", {"conversation_id": id})["data"]
    assert (context["label"], context["status"], context["folder"]) == (
        label,
        "active",
        folder,
    )
    assert (context["importance_score"], context["word_count"]) == (7, 13)
    assert all(re.fullmatch(STAMP, context[name]) for name in ("created_at", "updated_at"))
    assert [(message["role"], message["content"]) for message in context["messages"]] == [
        (message["role"], message["content"]) for message in TALK
    ]
    matches = through("memory_search", {"query": "OAuth JWT tokens", "filters": {"folder": folder}})["data"]
    assert (matches["query"], matches["limit"], matches["total_results"]) == (
        "OAuth JWT tokens",
        10,
        1,
    )
    [hit] = matches["results"]
    seed = {"conversation_id", "message_id", "score", "content", "label", "folder", "timestamp", "metadata"}
    assert set(hit) == seed | {"similarity", "said"}
    assert (hit["conversation_id"], hit["content"], hit["metadata"]) == (id, TALK[1]["content"], {})
    assert 0 < hit["score"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("door", ["route", "rest", "mcp", "own", "pipe"])
def test_sk2_sk3_sk6_a_conversation_is_read_back_by_every_door(
    server: PackServer, config: Path, door: str
) -> None:
    def through(tool: str, arguments: dict[str, Any], by: str) -> Any:
        if by == "pipe":
            return pipe.call(tool, arguments)
        if by == "route":
            return server.sekha(tool, arguments).json()
        if by == "rest":
            return server.rest(tool, arguments, key=KEY)
        return server.mcp(tool, arguments, "/packs/sekha/mcp" if by == "own" else "/mcp", key=KEY)

    with piped(config, "sekha") as pipe:
        label = f"API Design Discussion by {door}"
        entry = through(
            "memory_store",
            {"label": label, "folder": f"/doors/{door}", "messages": TALK, "importance_score": 7},
            door,
        )
        assert (entry["success"], entry["error"]) == (True, None)
        id = entry["data"]["id"]
        stored = {"conversation_id": id, "label": label, "folder": f"/doors/{door}", "message_count": 2}
        assert stored.items() <= entry["data"].items()
        for by in ("route", "rest", "mcp", "own", "pipe"):
            check_conversation(partial(through, by=by), id, label, f"/doors/{door}")
            if by == "route":
                assert through("memory_get_context", {"conversation_id": UUID}, by)["success"] is False
            else:
                with pytest.raises(Refused, match="not found"):
                    through("memory_get_context", {"conversation_id": UUID}, by)


def test_sk2_what_does_not_fit_is_400_and_nothing_is_stored(server: PackServer) -> None:
    valid = {"label": "bad", "folder": "/bad", "messages": TALK}
    for bad_arguments in (
        {"messages": TALK},
        {**valid, "label": ""},
        {**valid, "label": "x" * 501},
        {**valid, "folder": "relative"},
        {**valid, "folder": "/bad/../up"},
        {**valid, "messages": []},
        {**valid, "messages": "text"},
        {**valid, "messages": [{"role": "robot", "content": "x"}]},
        {**valid, "messages": [TALK[0], {"role": "user", "content": ""}]},
        {**valid, "importance_score": 0},
        {**valid, "importance_score": 11},
    ):
        reply = server.sekha("memory_store", bad_arguments)
        assert (reply.status_code, reply.json()["success"]) == (400, False), bad_arguments
    assert data(server, "memory_stats", {"folder": "/bad"})["total_conversations"] == 0
    assert (
        server.client.post(
            "/mcp/tools/memory_stats", content=b"{", headers={"Authorization": f"Bearer {KEY}"}
        ).status_code
        == 400
    )


def test_sk2_times_and_metadata_of_messages_are_kept(server: PackServer) -> None:
    message = {
        "role": "tool",
        "content": "42 zebras counted",
        "timestamp": "2024-05-06T07:08:09Z",
        "metadata": {"n": 42},
    }
    id = data(server, "memory_store", {"label": "kept", "folder": "/Größe mit Raum", "messages": [message]})[
        "id"
    ]
    [hit] = data(server, "memory_search", {"query": "zebras", "filters": {"role": "tool"}})["results"]
    assert (hit["timestamp"], hit["metadata"], hit["folder"]) == (
        "2024-05-06T07:08:09",
        {"n": 42},
        "/Größe mit Raum",
    )
    assert (
        data(server, "memory_get_context", {"conversation_id": id})["messages"][0]["timestamp"]
        == "2024-05-06T07:08:09"
    )


def test_sk3_filters_offset_and_order(server: PackServer) -> None:
    for number, folder in enumerate(("/sk3", "/sk3/backend", "/sk3/backend/auth", "/sk3other")):
        stored(server, f"talk {number}", folder, number + 1, f"penguins are discussed here {number}")
    under = {"query": "penguins discussed", "filters": {"folder": "/sk3"}}
    every = data(server, "memory_search", under)
    assert (every["total_results"], {hit["folder"] for hit in every["results"]}) == (
        3,
        {"/sk3", "/sk3/backend", "/sk3/backend/auth"},
    )
    scores = [hit["score"] for hit in every["results"]]
    assert scores == sorted(scores, reverse=True)
    page = data(server, "memory_search", {**under, "limit": 2, "offset": 2})
    assert (page["total_results"], page["limit"]) == (3, 2)
    assert [hit["message_id"] for hit in page["results"]] == [
        hit["message_id"] for hit in every["results"][2:]
    ]
    for filters, count in (
        ({"label": "talk 1"}, 1),
        ({"importance_min": 3, "folder": "/sk3"}, 1),
        ({"status": "archived"}, 0),
    ):
        assert (
            data(server, "memory_search", {"query": "penguins", "filters": filters})["total_results"] == count
        ), filters
    for filters in ({"after": "2000-01-01T00:00:00Z"}, {"before": "2999-01-01T00:00:00Z"}):
        assert data(server, "memory_search", {"query": "penguins", "filters": filters})["total_results"] == 4
    assert (
        data(server, "memory_search", {"query": "penguins", "filters": {"before": "2000-01-01T00:00:00Z"}})[
            "results"
        ]
        == []
    )
    assert data(server, "memory_search", {"query": "penguins", "filters": None})["total_results"] == 4
    assert (
        server.sekha("memory_search", {"query": "penguins", "filters": {"colour": "red"}}).status_code == 400
    )


def test_sk4_what_is_reported_updated_was_written(server: PackServer) -> None:
    id = stored(server, "before", "/sk4", 5)
    change = {"label": "Completed", "folder": "/sk4/archive", "status": "archived", "importance_score": 8}
    process = data(server, "memory_update", {"conversation_id": id, **change})
    assert process == {
        "conversation_id": id,
        "updated_fields": ["label/folder", "status", "importance_score"],
        "message": "Conversation updated successfully",
    }
    context = data(server, "memory_get_context", {"conversation_id": id.upper()})
    assert {name: context[name] for name in change} == change
    assert data(server, "memory_update", {"conversation_id": id}) == {
        "conversation_id": id,
        "updated_fields": [],
        "message": "No fields changed",
    }
    for bad_arguments in ({"status": "deleted"}, {"importance_score": 0}, {"label": ""}):
        assert server.sekha("memory_update", {"conversation_id": id, **bad_arguments}).status_code == 400


def test_sk5_prune_suggests_at_its_boundaries_and_deletes_nothing(server: PackServer) -> None:
    ids = {
        importance: stored(server, f"prune {importance}", "/sk5", importance, "p" * 401)
        for importance in (5, 6, 10)
    }
    archived = stored(server, "prune archived", "/sk5", 1)
    data(server, "memory_update", {"conversation_id": archived, "status": "archived"})

    def suggested(**arguments: Any) -> dict[str, Any]:
        matches = data(server, "memory_prune", arguments)
        assert matches["total_suggestions"] == len(matches["suggestions"])
        assert matches["estimated_token_savings"] == sum(
            first_store["token_estimate"] for first_store in matches["suggestions"]
        )
        return {first_store["conversation_id"]: first_store for first_store in matches["suggestions"]}

    moment = suggested(threshold_days=0)
    assert ids[5] in moment
    assert not {ids[6], ids[10], archived} & set(moment)
    assert set(suggested(threshold_days=0, importance_threshold=6.0)) >= {ids[5], ids[6]}
    assert ids[10] not in suggested(threshold_days=0, importance_threshold=10)
    assert ids[5] not in suggested(threshold_days=0, importance_threshold=4.9)
    assert suggested(threshold_days=30) == {}
    first_store = moment[ids[5]]
    assert re.fullmatch(STAMP, first_store.pop("last_accessed"))
    assert first_store == {
        "conversation_id": ids[5],
        "conversation_label": "prune 5",
        "message_count": 1,
        "token_estimate": 101,
        "importance_score": 5.0,
        "preview": "p" * 100,
        "recommendation": "archive",
    }
    assert re.search(r'"importance_score":5\.0', server.sekha("memory_prune", {"threshold_days": 0}).text)
    for id in (*ids.values(), archived):
        data(server, "memory_get_context", {"conversation_id": id})


def test_sk8_exports_are_json_or_markdown_with_and_without_metadata(server: PackServer) -> None:
    id = data(
        server,
        "memory_store",
        {"label": "Export me", "folder": "/sk8", "messages": TALK, "importance_score": 7},
    )["id"]
    as_json = data(server, "memory_export", {"conversation_id": id})
    assert (as_json["format"], as_json["include_metadata"]) == ("json", True)
    assert sorted(as_json["conversation"]) == sorted(
        [
            "id",
            "label",
            "folder",
            "status",
            "importance_score",
            "word_count",
            "session_count",
            "created_at",
            "updated_at",
        ]
    )
    assert [(message["role"], message["content"]) for message in as_json["messages"]] == [
        (message["role"], message["content"]) for message in TALK
    ]
    assert json.loads(as_json["content"])["messages"] == as_json["messages"]
    plain_export = data(
        server, "memory_export", {"conversation_id": id, "format": "markdown", "include_metadata": False}
    )
    assert plain_export["conversation"] == {"id": id, "label": "Export me"}
    assert plain_export["content"].startswith("# Export me\n\n**user**\n\nLet's design")
    full = data(server, "memory_export", {"conversation_id": id, "format": "markdown"})
    assert "- folder: /sk8" in full["content"]
    assert server.sekha("memory_export", {"conversation_id": id, "format": "pdf"}).status_code == 400


def test_sk9_stats_of_all_of_a_folder_and_of_a_label(server: PackServer) -> None:
    for label, folder, importance in (("one", "/sk9", 4), ("two", "/sk9/deep", 7), ("two", "/sk9else", 7)):
        stored(server, f"sk9 {label}", folder, importance)
    assert data(server, "memory_stats", {"folder": "/sk9"}) == {
        "total_conversations": 2,
        "average_importance": 5.5,
        "folders": ["/sk9"],
    }
    assert data(server, "memory_stats", {"label": "sk9 two"}) == {
        "total_conversations": 2,
        "average_importance": 7.0,
        "labels": ["sk9 two"],
    }
    assert data(server, "memory_stats", {"folder": "/sk9/"})["folders"] == ["/sk9"]
    every = data(server, "memory_stats", {})
    assert {"/sk9", "/sk9/deep", "/sk9else"} <= set(every["folders"])
    both = server.sekha("memory_stats", {"folder": "/sk9", "label": "sk9 two"})
    assert (both.status_code, both.json()) == (
        200,
        {"success": False, "data": None, "error": "Cannot specify both folder and label"},
    )


def test_sk10_unknown_ids_are_404_and_malformed_ones_400_in_the_envelope(server: PackServer) -> None:
    for tool in ("memory_get_context", "memory_update", "memory_export"):
        for id, status in ((UUID, 404), ("not-a-uuid", 400)):
            reply = server.sekha(tool, {"conversation_id": id})
            assert (reply.status_code, reply.json()["success"], reply.json()["data"]) == (status, False, None)
            assert reply.json()["error"]
            with pytest.raises(Refused, match=r"^0: Error: "):
                server.mcp(tool, {"conversation_id": id}, key=KEY)
    assert server.sekha("no_such_tool", {}).status_code == 404


def test_sk11_sessions_that_wrote_or_read_are_counted(server: PackServer) -> None:
    id = server.rest("memory_store", {"label": "s", "messages": TALK}, key=KEY, session="one")["data"]["id"]
    counts = []
    for session in ("two", "two", "three", "one"):
        context = server.rest("memory_get_context", {"conversation_id": id}, key=KEY, session=session)
        counts.append(context["data"]["session_count"])
    assert counts == [2, 2, 3, 3]


# -- a server elsewhere --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [("SEKHA_API_URL", "SEKHA_API_KEY"), ("CONTROLLER_URL", "CONTROLLER_API_KEY")]
)
def test_sk12_with_an_address_the_pipe_is_a_bridge_to_that_server(
    server: PackServer, tmp_path: Path, names: tuple[str, str]
) -> None:
    config_path = pack_project(tmp_path)
    url, key = names
    with piped(config_path, "sekha", cwd=None, **{url: server.base, key: KEY}) as pipe:
        entry = pipe.call("memory_store", {"label": f"bridged {url}", "folder": "/sk12", "messages": TALK})
        with pytest.raises(Refused, match="not found"):
            pipe.call("memory_get_context", {"conversation_id": UUID})
        assert len(pipe.ask("tools/list")["result"]["tools"]) == 8
    id = entry["data"]["id"]
    assert data(server, "memory_get_context", {"conversation_id": id})["label"] == f"bridged {url}"
    with piped(config_path, "sekha") as pipe:
        assert pipe.call("memory_stats", {})["data"]["total_conversations"] == 0  # nothing was kept here


@pytest.mark.slow
def test_sk12_what_goes_wrong_there_is_said_in_words(server: PackServer, tmp_path: Path) -> None:
    config_path = pack_project(tmp_path)
    with (
        piped(config_path, "sekha", SEKHA_API_URL=server.base, SEKHA_API_KEY="wrong") as pipe,
        pytest.raises(Refused) as refused,
    ):
        pipe.call("memory_stats", {})
    assert "refused the key: check SEKHA_API_KEY" in refused.value.message
    with (
        piped(config_path, "sekha", SEKHA_API_URL="http://127.0.0.1:9", SEKHA_API_KEY=KEY) as pipe,
        pytest.raises(Refused) as refused,
    ):
        pipe.call("memory_stats", {})
    assert "cannot be reached" in refused.value.message


def test_after_and_before_mean_the_messages_own_time(server: PackServer) -> None:
    message = {"role": "user", "content": "The heron nests by the weir", "timestamp": "2026-01-20T08:00:00"}
    server.sekha("memory_store", {"label": "weir", "folder": "/times", "messages": [message]})
    for after, before, count in (("2026-01-01", "2026-02-01", 1), ("2026-02-02", "2026-03-01", 0)):
        filters = {"folder": "/times", "after": after, "before": before}
        matches = server.sekha("memory_search", {"query": "heron", "filters": filters}).json()["data"][
            "results"
        ]
        assert len(matches) == count
    assert [
        row["timestamp"]
        for row in server.sekha("memory_search", {"query": "heron nests"}).json()["data"]["results"]
    ] == ["2026-01-20T08:00:00"]
