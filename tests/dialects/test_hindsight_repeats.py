"""What comes again to Hindsight's tools: a request with its operation's id, and a statement."""

from dialect_kit import PackServer


def test_an_operation_id_that_is_used_for_something_else_is_the_callers_mistake(server: PackServer) -> None:
    path = "/v1/default/banks/hs-op/memories"
    for content, status in (("Tulips are red", 200), ("Tulips are red", 200), ("Tulips are blue", 400)):
        body = {"items": [{"content": content}], "operation_id": "once"}
        reply = server.client.post(path, json=body)
        assert reply.status_code == status, reply.text
    assert "idempotency key" in reply.text
    assert ".lua" not in reply.text


def test_a_repeated_replacement_of_a_document_forgets_nothing_it_stored(server: PackServer) -> None:
    path = "/v1/default/banks/hs-replaced/memories"
    for attempt in range(2):
        item = {"content": "The launch is on Friday", "document_id": "plan", "update_mode": "replace"}
        reply = server.client.post(path, json={"items": [item], "operation_id": "plan-1"})
        assert reply.status_code == 200, attempt
        listed = server.client.get(f"{path}/list").json()
        assert [entry["text"] for entry in listed["items"]] == [item["content"]]


def test_what_a_failed_retain_took_back_is_stored_by_the_one_that_is_right(server: PackServer) -> None:
    path = "/v1/default/banks/hs-again/memories"
    for moment, status in (("no moment", 400), ("2026-01-01", 200)):
        items = [{"content": "The kiln is blue"}, {"content": "The loom is green", "timestamp": moment}]
        reply = server.client.post(path, json={"items": items, "operation_id": "again-1"})
        assert reply.status_code == status
    listed = server.client.get(f"{path}/list").json()
    assert {entry["text"] for entry in listed["items"]} == {"The kiln is blue", "The loom is green"}


def test_an_operation_id_that_is_too_long_is_named_as_that(server: PackServer) -> None:
    body = {"items": [{"content": "x"}], "operation_id": "o" * 200}
    reply = server.client.post("/v1/default/banks/hs-long/memories", json=body)
    assert (reply.status_code, "operation_id" in reply.json()["error"]["message"]) == (400, True)


def test_a_bank_that_was_deleted_takes_the_same_requests_anew(server: PackServer) -> None:
    bank = "/v1/default/banks/hs-anew"
    body = {"items": [{"content": "The loft is dry"}], "operation_id": "job-1"}
    assert server.client.post(f"{bank}/memories", json=body).status_code == 200
    deleted = server.client.delete(bank).json()
    assert deleted["deleted_count"] == 1
    for _ in range(2):
        assert server.client.post(f"{bank}/memories", json=body).status_code == 200
        assert server.client.get(f"{bank}/memories/list").json()["total"] == 1


def test_a_statement_with_another_explanation_is_the_memory_that_is_there(server: PackServer) -> None:
    put = {"bank_id": "hs-why", "content": "User prefers tea", "context": "drinks"}
    for reason in ("they said so", "they said it again", None):
        server.rest("hindsight_put", {**put, **({} if reason is None else {"explanation": reason})})
    listed = server.client.get("/v1/default/banks/hs-why/memories/list").json()
    assert [entry["metadata"] for entry in listed["items"]] == [{"explanation": "they said it again"}]
    history = server.mcp("get_memory", {"memory_id": listed["items"][0]["id"]}, "/mcp/hs-why/")["history"]
    assert "they said so" in str(history)
