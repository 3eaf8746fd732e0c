"""The REST of Sekha's controller, as its SDKs call it: conversations, queries, context, pruning, export
(SK-14).
"""

import json
from typing import Any

import pytest
from dialect_kit import KEY, UUID, PackServer

HEADERS = {"Authorization": f"Bearer {KEY}"}


def ask(server: PackServer, method: str, path: str, body: Any = None, **query: Any) -> Any:
    """The reply of a route that succeeded."""
    reply = server.client.request(method, f"/api/v1{path}", json=body, params=query, headers=HEADERS)
    assert reply.status_code == 200, reply.text
    return reply.json()


def status(server: PackServer, method: str, path: str, body: Any = None, **query: Any) -> int:
    """The status of a route that may refuse."""
    reply = server.client.request(method, f"/api/v1{path}", json=body, params=query, headers=HEADERS)
    assert reply.status_code == 200 or isinstance(reply.json()["error"], str)
    return reply.status_code


def stored(server: PackServer, label: str, folder: str, *texts: str) -> str:
    """The id of a conversation of these messages; its fields are sent as the SDK sends them, those without a
    value too.
    """
    messages = [{"role": "user", "content": text, "timestamp": None, "metadata": None} for text in texts]
    body = {
        "label": label,
        "folder": folder,
        "messages": messages,
        "importance_score": None,
        "metadata": None,
    }
    return str(ask(server, "POST", "/conversations", body)["id"])


def test_sk14_a_conversation_is_made_read_changed_and_forgotten(server: PackServer) -> None:
    id = stored(server, "made", "/sk14", "The lighthouse keeper is called Elin", "She keeps bees")
    conversation = ask(server, "GET", f"/conversations/{id}")
    assert (
        conversation["label"],
        conversation["folder"],
        conversation["status"],
        conversation["message_count"],
    ) == (
        "made",
        "/sk14",
        "active",
        2,
    )
    assert [message["content"] for message in conversation["messages"]][1] == "She keeps bees"
    changed = ask(server, "PUT", f"/conversations/{id}/label", {"label": "renamed", "folder": "/sk14/deep"})
    assert (changed["label"], changed["folder"]) == ("renamed", "/sk14/deep")
    assert ask(server, "PUT", f"/conversations/{id}/folder", {"folder": "/sk14"})["folder"] == "/sk14"
    assert ask(server, "PUT", f"/conversations/{id}/pin")["importance_score"] == 10
    assert ask(server, "PUT", f"/conversations/{id}/archive")["archived"] is True
    assert ask(server, "PUT", f"/conversations/{id}/status", {"status": "active"})["status"] == "active"
    assert ask(server, "DELETE", f"/conversations/{id}")["op_id"]
    assert status(server, "GET", f"/conversations/{id}") == 404


def test_sk14_conversations_are_listed_in_pages_and_counted(server: PackServer) -> None:
    ids = [stored(server, f"page {number}", "/sk14-pages", "hello") for number in range(3)]
    ask(server, "PUT", f"/conversations/{ids[0]}/archive")
    first = ask(server, "GET", "/conversations", folder="/sk14-pages", page_size=2)
    second = ask(server, "GET", "/conversations", folder="/sk14-pages", page_size=2, page=2)
    assert (first["total"], len(first["results"]), len(second["results"])) == (3, 2, 1)
    assert {row["conversation_id"] for row in (*first["results"], *second["results"])} == set(ids)
    archived = ask(server, "GET", "/conversations", folder="/sk14-pages", archived="true")
    assert [row["id"] for row in archived["results"]] == [ids[0]]
    assert ask(server, "GET", "/conversations/count", folder="/sk14-pages")["count"] == 3
    assert ask(server, "GET", "/conversations/count", label="page 1")["count"] == 1


def test_sk14_a_query_finds_messages_by_meaning_and_by_words(server: PackServer) -> None:
    id = stored(server, "harbour", "/sk14-query", "The dredger blocks the northern channel")
    for path in ("/query", "/search/fts"):
        body = {"query": "dredger channel", "filters": {"folder": "/sk14-query"}, "offset": None}
        matches = ask(server, "POST", path, body)
        assert (matches["total"], matches["page"], matches["page_size"]) == (1, 1, 10)
        [hit] = matches["results"]
        assert (hit["conversation_id"], hit["label"], hit["score"] > 0.5) == (id, "harbour", True)
    assert status(server, "POST", "/query", {"query": "x", "filter": {}}) == 400


def test_sk14_context_is_assembled_within_its_tokens_in_the_order_of_time(server: PackServer) -> None:
    stored(server, "far", "/sk14-secret", "The regatta begins at the pier")
    regatta = stored(
        server, "regatta", "/sk14-context", "The regatta has forty boats", "The regatta ends at dusk"
    )
    stored(server, "other", "/sk14-context", "The regatta needs six stewards " + "and more of them " * 40)
    body = {
        "query": "How does the regatta go?",
        "context_budget": 20,
        "preferred_labels": ["regatta"],
        "excluded_folders": ["/sk14-secret"],
    }
    context = ask(server, "POST", "/context/assemble", body)
    assert context["conversation_ids"] == [regatta]
    assert [message["content"] for message in context["messages"]] == [
        "The regatta has forty boats",
        "The regatta ends at dusk",
    ]
    assert context["token_count"] <= 20
    assert context["labels"] == ["regatta"]


def test_sk14_pruning_suggests_first_and_archives_what_it_is_told(server: PackServer) -> None:
    id = stored(server, "stale", "/sk14-prune", "p" * 40)
    suggested = ask(server, "POST", "/prune/dry-run", {"threshold_days": 0})
    assert id in [row["conversation_id"] for row in suggested["suggestions"]]
    assert ask(server, "GET", f"/conversations/{id}")["status"] == "active"
    assert status(server, "POST", "/prune/execute", {"conversation_ids": [id, UUID]}) == 404
    assert ask(server, "GET", f"/conversations/{id}")["status"] == "active"  # all or none
    assert ask(server, "POST", "/prune/execute", {"conversation_ids": [id]})["archived"] == 1
    assert ask(server, "GET", f"/conversations/{id}")["status"] == "archived"


def test_sk14_an_export_is_markdown_or_json(server: PackServer) -> None:
    stored(server, "kept", "/sk14-export", "The anchor weighs a ton")
    text = ask(server, "GET", "/export", label="kept")
    assert (text["format"], text["conversation_count"]) == ("markdown", 1)
    assert "## kept" in text["content"]
    assert "The anchor weighs a ton" in text["content"]
    [conversation] = json.loads(ask(server, "GET", "/export", label="kept", format="json")["content"])
    assert conversation["messages"][0]["content"] == "The anchor weighs a ton"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/conversations"),
        ("GET", "/conversations"),
        ("GET", f"/conversations/{UUID}"),
        ("DELETE", f"/conversations/{UUID}"),
        ("PUT", f"/conversations/{UUID}/pin"),
        ("POST", "/query"),
        ("POST", "/context/assemble"),
        ("POST", "/prune/execute"),
        ("GET", "/export"),
    ],
)
def test_sk14_every_route_is_closed_without_the_key(server: PackServer, method: str, path: str) -> None:
    reply = server.client.request(method, f"/api/v1{path}", json=None if method == "GET" else {})
    assert (reply.status_code, reply.json()["success"]) == (401, False)


def test_sk14_what_does_not_fit_is_refused_by_name(server: PackServer) -> None:
    id = stored(server, "unfit", "/sk14-unfit", "hello")
    assert status(server, "PUT", f"/conversations/{id}/colour", {}) == 400
    assert status(server, "PUT", f"/conversations/{id}/label", {}) == 400
    assert status(server, "GET", "/conversations", page="many") == 400
    assert status(server, "GET", "/conversations/no-uuid") == 400
    assert status(server, "GET", "/export", format="pdf") == 400
