"""An MCP endpoint over a Toolbox in this process, and JSON-RPC messages written by hand."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from ctx.models import JSON
from ctx.server.app import McpEndpoint, http_access
from ctx.server.mcp import MODERN, McpServer
from ctx.server.work import Work
from ctx.store.base import Catalog
from ctx.tools.toolbox import Agents, Toolbox

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
}


def no_catalog() -> Catalog:
    """For toolboxes without documents."""
    raise AssertionError("nothing should read a document here")


def mcp_over(
    toolbox: Toolbox, agents: Agents, catalog: Callable[[], Catalog] = no_catalog
) -> Callable[[Work], McpEndpoint]:
    """MCP for `Services.mcp`."""
    return lambda work: McpEndpoint(McpServer(toolbox, agents, catalog, work, access=http_access))


def message(method: str, params: JSON = None, id: int | None = 1) -> dict[str, JSON]:
    """One JSON-RPC message; a notification without `id`."""
    entry: dict[str, JSON] = {"jsonrpc": "2.0", "method": method}
    if id is not None:
        entry["id"] = id
    if params is not None:
        entry["params"] = params
    return entry


def answered(response: httpx.Response) -> Any:
    """The reply to a request, from JSON or from the end of a stream."""
    if "event-stream" not in response.headers.get("content-type", ""):
        return response.json()
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")][-1]


def stateless(
    client: httpx.Client, path: str, method: str, params: JSON = None, **headers: str
) -> httpx.Response:
    """One request of the era without sessions."""
    named = params.get("name") if isinstance(params, dict) else None
    return client.post(
        path,
        json=message(method, {**(params or {}), "_meta": META}),
        headers={
            **ACCEPT,
            "mcp-protocol-version": MODERN,
            "mcp-method": method,
            **({"mcp-name": named} if named else {}),
            **headers,
        },
    )
