"""Numbers that nobody means: every argument of every memory tool and route is given some, through both
doors.
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from dialect_kit import KEY, RECALL, UUID, PackServer

from ctx.memory.dialects import DIALECTS
from ctx.models import JSON

HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
NUMBERS = ("9223372036854775808", "-" + "9" * 40, "1e999", "-1", "0.5")
FIXED = {
    "bank_id": "numbers",
    "conversation_id": UUID,
    "memory_id": UUID,
    "memory_ids": [UUID],
    "folder": "/x",
}
ROUTE_ARGUMENTS = (
    "limit",
    "offset",
    "page",
    "page_size",
    "max_tokens",
    "importance_score",
    "threshold_days",
    "items",
)


def usual(name: str, schema: dict[str, Any]) -> JSON:
    """A value that an argument may have."""
    if name in FIXED:
        return FIXED[name]
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "array":
        return [usual("", schema.get("items", {}))] if schema.get("minItems") else []
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        return {key: usual(key, properties[key]) for key in schema.get("required", ())}
    return {"integer": 1, "number": 1, "boolean": False}.get(schema.get("type", ""), "apples")


def bodies(schema: dict[str, Any]) -> Iterator[str]:
    """Arguments of which one is, or holds, such a number; as text, since most readers of JSON would mend
    them.
    """
    properties = schema.get("properties", {})
    for name, number in itertools.product(properties, NUMBERS):
        usual_arguments = {
            key: usual(key, properties[key]) for key in schema.get("required", ()) if key != name
        }
        forms = {"object": [number, f'{{"n": {number}}}'], "array": [number, f"[{number}]"]}
        for value in forms.get(properties[name].get("type"), [number]):
            yield json.dumps({**usual_arguments, name: 0}).replace(f'"{name}": 0', f'"{name}": {value}')


@pytest.mark.slow
def test_no_number_in_any_argument_of_any_tool_breaks_a_door(server: PackServer) -> None:
    tools = server.client.get("/tools/list").json()["tools"]
    broken = []
    for tool in tools:
        for body in bodies(tool["parameters"]) if tool["name"] != "refresh" else ():
            reply = server.client.post(f"/tools/{tool['name']}", content=body, headers=HEADERS)
            request = (
                f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call",'
                f' "params": {{"name": "{tool["name"]}", "arguments": {body}}}}}'
            )
            answer = server.client.post("/mcp", content=request, headers=HEADERS)
            if max(reply.status_code, answer.status_code) >= 500 or "-32603" in answer.text:
                broken.append((tool["name"], body, reply.status_code, answer.text))
    assert len(tools) > 25
    assert broken == []


def routes() -> list[tuple[str, str]]:
    """The packs' own routes, filled in: (method, path)."""
    entries = [(route.method, route.path) for dialect in DIALECTS.values() for route in dialect.routes]
    names = {"bank_id": "numbers", "kind": "fts", "change": "label", "tool": "memory_search"}
    return [
        (
            method,
            "/".join(
                names.get(part.strip("{}"), UUID) if part[:1] == "{" else part for part in path.split("/")
            ),
        )
        for method, path in entries
    ]


@pytest.mark.slow
def test_no_number_in_a_request_to_a_packs_own_route_breaks_it(server: PackServer) -> None:
    broken = []
    for (method, path), name, number in itertools.product(routes(), ROUTE_ARGUMENTS, NUMBERS):
        if method in ("GET", "DELETE"):
            reply = server.client.request(method, path, params={name: number}, headers=HEADERS)
        else:
            value = f'[{{"content": "x", "metadata": {{"n": {number}}}}}]' if name == "items" else number
            body = f'{{"query": "apples", "{name}": {value}}}'
            reply = server.client.request(method, path, content=body, headers=HEADERS)
        if reply.status_code >= 500:
            broken.append((method, path, name, number, reply.text))
    assert broken == []


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**70])
@pytest.mark.parametrize("tool", ["retain", f"{RECALL}store_memory"])
def test_a_number_that_would_come_back_as_another_is_refused_by_name(
    server: PackServer, tool: str, number: int
) -> None:
    reply = server.client.post(
        f"/tools/{tool}", json={"content": "numbers of old", "metadata": {"n": number}}, headers=HEADERS
    )
    assert reply.status_code == 400
    assert "metadata: a number beyond 9223372036854775807" in reply.json()["error"]["message"]


@pytest.mark.parametrize("number", [2**63 - 1, 1 - 2**63, 2**53 + 1, 0.1])
def test_a_number_of_64_bits_comes_back_to_the_last_digit(server: PackServer, number: float) -> None:
    session = {"X-Session-Id": f"numbers {number}"}
    reply = server.client.post(
        f"/tools/{RECALL}store_memory",
        json={"content": f"kept {number}", "metadata": {"n": number}},
        headers=session,
    )
    id = reply.json()["result"]["id"]
    answer = server.client.post(f"/tools/{RECALL}retrieve_memory", json={"id": id}, headers=session)
    assert answer.json()["result"]["memories"][0]["metadata"] == {"n": number}
