"""REST over a real socket: shapes, errors, and requests that never run a tool."""

import logging
import re
import threading
from collections.abc import Mapping

import httpx
import pytest
from serving import ANYTHING, Serve, failure

from ctx.errors import EmbeddingsDisabled
from ctx.models import JSON, Caller
from ctx.server.app import Services
from ctx.server.policy import ServerSettings
from ctx.server.rest import PackRoute
from ctx.server.work import Work
from ctx.tools.toolbox import Agents, Tool, Toolbox


def test_the_tool_list_leaves_out_what_could_not_be_loaded(serve: Serve, services: Services) -> None:
    tools = serve(services).client.get("/tools/list").json()["tools"]
    names = [tool["name"] for tool in tools]
    assert names[:3] == ["search", "get", "sources"]
    assert names[3:] == sorted(names[3:])
    assert "unloadable" not in names
    assert set(tools[0]) == {"name", "description", "builtin", "parameters"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nowhere", (404, "not_found")),
        ("late", (408, "timeout")),
        ("broken", (500, "tool_error")),
        ("unloadable", (500, "tool_error")),
        ("surprise", (500, "internal")),
    ],
)
def test_a_failing_tool_gets_the_status_of_its_error(
    serve: Serve, services: Services, name: str, expected: tuple[int, str]
) -> None:
    assert failure(serve(services).client.post(f"/tools/{name}", json={})) == expected


def test_an_internal_error_shows_only_the_request_id(
    serve: Serve, services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    served = serve(services)
    response = served.client.post("/tools/surprise", json={})
    served.stop()  # the log line follows the reply
    message = response.json()["error"]["message"]
    assert response.headers["x-request-id"] in message
    assert "secret" not in response.text
    assert "Traceback" not in response.text
    logged = next(record for record in caplog.records if record.message.startswith("request failed"))
    assert response.headers["x-request-id"] in logged.message
    assert logged.exc_info is not None
    assert "/etc/secret" in str(logged.exc_info[1])


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"",
        b"\xff\xfe",
        b'{"query": NaN}',
        b'"text"',
        b"[]",
        b"null",
        b"17",
        b'{"a":' * 5000,
        b'{"query":"\\ud800"}',
    ],
)
def test_an_invalid_body_is_400(serve: Serve, services: Services, body: bytes) -> None:
    response = serve(services).client.post(
        "/tools/search", content=body, headers={"content-type": "application/json"}
    )
    assert failure(response) == (400, "bad_request")


def test_a_deeply_nested_body_is_400(serve: Serve, services: Services) -> None:
    client = serve(services).client
    nested = b'{"a":' * 100 + b"1" + b"}" * 100
    assert failure(
        client.post("/tools/whoami", content=nested, headers={"content-type": "application/json"})
    ) == (
        400,
        "bad_request",
    )


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_a_body_that_any_page_may_post_never_runs_a_tool(serve: Serve, services: Services, kind: str) -> None:
    calls: list[str] = []
    services.toolbox.observe(lambda call: calls.append(call.tool))
    headers = {"content-type": kind} if kind else {}
    response = serve(services).client.post(
        "/tools/search", content=b'{"query":"authentication"}', headers=headers
    )
    assert failure(response) == (400, "bad_request")
    assert calls == []


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "/tools/", "/tools/search/", "/tools/a/b", "/.well-known/oauth-protected-resource", "/mcp"],
)
def test_an_unknown_route_is_404_and_never_a_redirect(serve: Serve, services: Services, path: str) -> None:
    client = serve(services).client
    assert failure(client.get(path)) == (404, "not_found")


def test_agents_are_listed_and_resolved(serve: Serve, services: Services) -> None:
    client = serve(services).client
    listed = {agent["name"]: agent for agent in client.get("/agents/list").json()["agents"]}
    assert listed["reviewer"] == {
        "name": "reviewer",
        "description": "Reviews code",
        "tools": ["search"],
        "source": "toml",
        "arguments": [{"name": "language", "description": "Which language", "required": True}],
    }
    assert client.post("/agents/reviewer/prompt", json={"language": "Lua"}).json() == {
        "system": "You review Lua.",
        "tools": ["search"],
        "messages": [{"role": "assistant", "content": "Ready."}],
    }
    assert failure(client.post("/agents/reviewer/prompt", json={})) == (400, "bad_request")
    assert failure(client.post("/agents/nobody/prompt", json={})) == (404, "not_found")


def test_a_result_that_utf8_cannot_hold_is_still_answered(serve: Serve, services: Services) -> None:
    odd = {"name": b"caf\xe9.md".decode("utf-8", "surrogateescape"), "nan": float("nan"), "big": 2**70}
    services.toolbox.add(Tool("odd", "Odd", ANYTHING, lambda a, c: odd))
    result = serve(services).client.post("/tools/odd", json={}).json()["result"]
    assert result == {"name": "caf\ufffd.md", "nan": None, "big": float(2**70)}


def test_the_caller_is_told_by_headers(serve: Serve, services: Services) -> None:
    headers = {"x-bank-id": "alice", "x-session-id": "s1", "x-request-id": "trace-0001"}
    response = serve(services).client.post("/tools/whoami", json={}, headers=headers)
    caller = response.json()["result"]
    assert (caller["interface"], caller["bank"], caller["bank_fixed"], caller["session_id"]) == (
        "rest",
        "alice",
        True,
        "s1",
    )
    assert caller["request_id"] == response.headers["x-request-id"] == "trace-0001"


def test_a_request_id_that_could_forge_a_log_line_is_replaced(serve: Serve, services: Services) -> None:
    response = serve(services).client.get("/health", headers={"x-request-id": "a b=c " * 20 + "x"})
    assert re.fullmatch(r"[0-9a-f]{16}", response.headers["x-request-id"])


def test_a_tool_call_is_one_line_of_the_log_without_its_query(
    serve: Serve, services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    served = serve(services)
    response = served.client.post("/tools/search", json={"query": "my private question"})
    served.stop()  # the log line follows the reply
    assert "private" not in caplog.text
    lines = [line for record in caplog.records if (line := record.getMessage()).startswith("call ")]
    assert len(lines) == 1
    assert re.fullmatch(
        r"call tool=search interface=rest ms=\d+\.\d outcome=ok id=" + response.headers["x-request-id"],
        lines[0],
    )


def test_calls_beyond_the_queue_are_503_and_health_still_answers(
    serve: Serve, toolbox: Toolbox, agents: Agents
) -> None:
    entered, release = threading.Semaphore(0), threading.Event()

    def wait(arguments: dict[str, JSON], caller: Caller) -> JSON:
        entered.release()
        release.wait(200)
        return "done"

    toolbox.add(Tool("wait", "Waits", ANYTHING, wait))
    work = Work(script_threads=2, waiting=1)
    served = serve(Services(toolbox, agents, work=work))
    statuses: list[int] = []

    def post() -> None:
        statuses.append(httpx.post(f"{served.base}/tools/wait", json={}, timeout=60).status_code)

    callers = [threading.Thread(target=post) for _ in range(3)]
    for caller in callers:
        caller.start()
    assert entered.acquire(timeout=60)
    assert entered.acquire(timeout=60)
    while work.scripts.unfinished != 3:  # the third is not queued yet
        served.client.get("/health")
    refused = served.client.post("/tools/wait", json={})
    assert failure(refused) == (503, "busy")
    assert int(refused.headers["retry-after"]) >= 1
    assert served.client.get("/health").status_code == 200
    assert served.client.post("/tools/search", json={"query": "x"}).status_code == 200
    release.set()
    for caller in callers:
        caller.join(60)
    assert statuses == [200, 200, 200]


def test_a_packs_route_answers_unwrapped_with_the_path_and_the_body(serve: Serve, services: Services) -> None:
    def answer(texts: Mapping[str, list[str]], arguments: dict[str, JSON], caller: Caller) -> JSON:
        if texts["tool"] == ["none"]:
            raise EmbeddingsDisabled("no")
        return {
            "success": True,
            "data": {**texts, "got": arguments, "pack": caller.pack},
            "error": None,
        }

    def envelope(error: Exception) -> JSON:
        return {"success": False, "data": None, "error": str(error)}

    route = PackRoute("POST", "/mcp/tools/{tool}", "diary", answer, error_body=envelope)
    client = serve(services._replace(pack_routes=[route])).client
    reply = client.post("/mcp/tools/memory_store?tag=a&tag=b&tool=other", json={"label": "x"})
    assert reply.json() == {
        "success": True,
        "data": {"tool": ["memory_store"], "tag": ["a", "b"], "got": {"label": "x"}, "pack": "diary"},
        "error": None,
    }
    failed = client.post("/mcp/tools/none", json={})
    assert (failed.status_code, failed.json()["success"]) == (400, False)
    other_method = client.get("/mcp/tools/x")
    assert (other_method.status_code, other_method.headers["allow"]) == (405, "POST")
    assert other_method.json()["success"] is False


def test_metrics_count_calls_without_names_that_callers_made_up(serve: Serve, services: Services) -> None:
    client = serve(services, ServerSettings(metrics=True)).client
    client.post("/tools/search", json={"query": "x"})
    client.post("/tools/broken", json={})
    text = client.get("/metrics").text
    assert 'ctx_calls_total{interface="rest",outcome="ok",tool="search"} 1.0' in text
    assert 'ctx_calls_total{interface="rest",outcome="tool_error",tool="broken"} 1.0' in text
    assert failure(serve(services).client.get("/metrics")) == (404, "not_found")


def test_llms_txt_names_every_tool(serve: Serve, services: Services) -> None:
    response = serve(services).client.get("/llms.txt")
    assert response.headers["content-type"].startswith("text/plain")
    for tool in services.toolbox.list():
        assert f"`{tool.name}`" in response.text
