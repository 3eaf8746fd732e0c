"""MCP over HTTP: versions, media types, broken requests, progress."""

import base64
import json
from pathlib import Path

import pytest
from mcp_doors import ACCEPT, HELLO, answered, mcp_over, message, stateless
from serving import ANYTHING, Serve

from ctx.models import JSON, Caller
from ctx.server.app import Services
from ctx.server.mcp import MODERN
from ctx.server.policy import ServerSettings
from ctx.store.sqlite import SqliteCatalog
from ctx.tools.toolbox import Tool


@pytest.mark.parametrize(
    ("asked", "given"),
    [(version, version) for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")]
    + [("2026-07-28", "2025-11-25"), ("1999-01-01", "2025-11-25")],
)
def test_the_handshake_negotiates_a_version(serve: Serve, mcp: Services, asked: str, given: str) -> None:
    served = serve(mcp)
    reply = served.client.post(
        "/", json=message("initialize", {**HELLO, "protocolVersion": asked}), headers=ACCEPT
    )
    result = answered(reply)["result"]
    assert result["protocolVersion"] == given
    assert result["serverInfo"]["name"] == "ctx"
    assert result["capabilities"]["tools"] == {"listChanged": False}
    assert "mcp-session-id" not in reply.headers
    assert "search" in result["instructions"]


@pytest.mark.parametrize("text", ["[" * 100_000, '["a", "\\ud800"]', "5", "[1, 2]", '{"a": 1}', ""])
def test_an_invalid_cursor_is_refused(
    serve: Serve, services: Services, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    catalog = SqliteCatalog(str(tmp_path / "ctx.db"))
    door = mcp_over(services.toolbox, services.agents, lambda: catalog)
    cursor = base64.urlsafe_b64encode(text.encode()).decode() or "-"
    body = message("resources/list", {"cursor": cursor})
    reply = serve(services._replace(mcp=door)).client.post("/mcp", json=body, headers=ACCEPT).json()
    assert reply["error"]["code"] == -32602
    assert not [record for record in caplog.records if record.exc_info]
    catalog.close()


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_of_another_type_is_refused_with_the_fix(serve: Serve, mcp: Services, media_type: str) -> None:
    body = json.dumps(message("tools/list"))
    reply = serve(mcp).client.post("/mcp", content=body, headers={**ACCEPT, "content-type": media_type})
    assert reply.status_code == 400
    assert "Content-Type: application/json" in reply.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/mcp", "//mcp"])
def test_a_handshake_may_leave_out_its_parameters_and_a_proxy_may_double_slashes(
    serve: Serve, mcp: Services, path: str
) -> None:
    served = serve(mcp)
    headers = {**ACCEPT, "mcp-protocol-version": ""}
    hello = message("initialize", {})
    assert answered(served.client.post(path, json=hello, headers=headers))["result"]["serverInfo"]
    arguments = json.dumps({"query": "clang"})
    call = message("tools/call", {"name": "search", "arguments": arguments})
    assert not answered(served.client.post(path, json=call, headers=headers))["result"]["isError"]


def test_the_bare_curl_of_the_published_documentation_is_answered(serve: Serve, mcp: Services) -> None:
    # Seed 000: no handshake, no session, curl's own Accept, the key and the bank in headers.
    served = serve(mcp, ServerSettings(api_keys=("your-secret-key",)))
    headers = {
        "authorization": "Bearer your-secret-key",
        "x-bank-id": "my-bank",
        "content-type": "application/json",
        "accept": "*/*",
    }
    body = '{"jsonrpc": "2.0", "method": "tools/list", "id": 1}'
    reply = served.client.post("/mcp", content=body, headers=headers)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
    assert {tool["name"] for tool in reply.json()["result"]["tools"]} >= {"search", "whoami"}
    called = served.client.post(
        "/mcp", json=message("tools/call", {"name": "whoami", "arguments": {}}), headers=headers
    )
    assert called.json()["result"]["structuredContent"]["bank"] == "my-bank"
    del headers["authorization"]
    refused = served.client.post("/mcp", content=body, headers=headers)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"jsonrpc":', -32700),
        (b"", -32700),
        (b"\xff\xfe", -32700),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600),
        (b'{"id": 1}', -32600),
        (b"3", -32600),
        (b"null", -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": 5}', -32600),
    ],
)
def test_a_broken_message_gets_a_json_rpc_error(serve: Serve, mcp: Services, body: bytes, code: int) -> None:
    client = serve(mcp).client
    for headers in (ACCEPT, {**ACCEPT, "mcp-protocol-version": MODERN}):
        reply = client.post("/mcp", content=body, headers=headers)
        assert reply.status_code == 400
        assert reply.json()["error"]["code"] == code


def test_a_failure_the_model_can_mend_is_a_tool_error_and_an_unknown_tool_is_not(
    serve: Serve, mcp: Services
) -> None:
    client = serve(mcp).client
    calls = {
        "search": ({"query": "x", "limit": 0}, "limit"),
        "get": ({"id": "none"}, "no document"),
        "late": ({}, "ran longer"),
        "broken": ({}, "no such field"),
        "unloadable": ({}, "unexpected symbol"),
        "surprise": ({}, "request id"),
    }
    for name, (arguments, words) in calls.items():
        params = {"name": name, "arguments": arguments}
        for reply in (
            client.post("/mcp", json=message("tools/call", params), headers=ACCEPT),
            client.post("/mcp", json=message("tools/call", params)),
            stateless(client, "/mcp", "tools/call", params),
        ):
            result = answered(reply)["result"]
            assert result["isError"] is True, name
            assert words in result["content"][0]["text"]
            assert "/etc/secret" not in reply.text
    unknown = stateless(client, "/mcp", "tools/call", {"name": "nope", "arguments": {}})
    assert answered(unknown)["error"]["code"] == -32602
    assert answered(client.post("/mcp", json=message("no/such")))["error"]["code"] == -32601
    assert stateless(client, "/mcp", "no/such").status_code == 404


def test_a_rate_limit_is_a_protocol_error_with_a_retry_time(serve: Serve, mcp: Services) -> None:
    client = serve(mcp, ServerSettings(rate_limit_per_minute=2)).client
    params = {"name": "whoami", "arguments": {}}
    replies = [client.post("/mcp", json=message("tools/call", params)) for _ in range(3)]
    assert [answered(reply).get("error", {}).get("code") for reply in replies] == [None, None, -32005]
    assert 0 < answered(replies[2])["error"]["data"]["retryAfterMs"] <= 60_001
    assert client.post("/mcp", json=message("tools/list")).status_code == 200  # only calls count


def test_a_tool_may_return_mcp_content(serve: Serve, mcp: Services) -> None:
    picture = {
        "content": [
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "text", "text": "hi"},
        ]
    }
    mcp.toolbox.add(Tool("draw", "Draws", ANYTHING, lambda arguments, caller: picture))
    mcp.toolbox.add(Tool("words", "Says", ANYTHING, lambda arguments, caller: "just text \ud800"))
    plain = {"content": [{"text": "first page"}], "total": 1}
    mcp.toolbox.add(Tool("page", "A page", ANYTHING, lambda arguments, caller: plain))
    client = serve(mcp).client
    page_result = answered(client.post("/mcp", json=message("tools/call", {"name": "page"})))["result"]
    assert page_result["structuredContent"] == plain, "not MCP content, so no field is lost"
    picture_result = answered(client.post("/mcp", json=message("tools/call", {"name": "draw"})))["result"]
    assert [block["type"] for block in picture_result["content"]] == ["image", "text"]
    words_result = answered(client.post("/mcp", json=message("tools/call", {"name": "words"})))["result"]
    assert (words_result["content"][0]["text"], words_result["structuredContent"]) == (
        "just text \ufffd",
        {"result": "just text \ufffd"},
    )


def test_progress_reaches_the_caller_that_asked_and_only_it(serve: Serve, mcp: Services) -> None:
    def climb(arguments: dict[str, JSON], caller: Caller) -> JSON:
        if caller.progress is None:
            return "unasked"
        for step in range(1, 4):
            caller.progress(step, 3, f"step {step}")
        return "climbed"

    mcp.toolbox.add(Tool("climb", "Climbs", ANYTHING, climb))
    client = serve(mcp).client
    call = {"name": "climb", "arguments": {}}
    reply = client.post(
        "/mcp", json=message("tools/call", {**call, "_meta": {"progressToken": "t1"}}), headers=ACCEPT
    )
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    steps = [event["params"] for event in events if event.get("method") == "notifications/progress"]
    assert [(step["progressToken"], step["progress"], step["total"], step["message"]) for step in steps] == [
        ("t1", number, 3, f"step {number}") for number in (1, 2, 3)
    ]
    assert events[-1]["result"]["structuredContent"] == {"result": "climbed"}
    quiet = client.post("/mcp", json=message("tools/call", call), headers=ACCEPT)
    assert quiet.headers["content-type"] == "application/json"
    assert answered(quiet)["result"]["structuredContent"] == {"result": "unasked"}


def test_an_unknown_version_gets_the_list_of_supported_ones(serve: Serve, mcp: Services) -> None:
    headers = {**ACCEPT, "mcp-protocol-version": "2024-10-07"}
    reply = serve(mcp).client.post("/mcp", json=message("tools/list"), headers=headers)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (400, -32022)
    assert error["message"].startswith("MCP 2024-10-07 is not supported; use one of 2024-11-05, ")
    assert "2026-07-28" in error["data"]["supported"]
