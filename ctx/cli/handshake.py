"""An MCP client's first requests, to see what a client will see."""

import json
import subprocess
from functools import cache

from ctx.cli.output import plain
from ctx.errors import ConfigError
from ctx.http import Upstream
from ctx.models import JSON

_ANSWER_S = 60
_INITIALIZE: JSON = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "ctx connect", "version": "1"},
}
_MESSAGES: list[JSON] = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _INITIALIZE},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
]


def tools_over_http(server: Upstream) -> list[str]:
    """The tools that a server lists after a handshake. Raises `ConfigError`, and `ConnectionError` if none
    answers.
    """
    import httpx  # 90 ms

    headers = {"Accept": "application/json, text/event-stream"}
    if server.key:
        headers["Authorization"] = f"Bearer {server.key}"
    try:
        with httpx.Client(headers=headers, timeout=10, trust_env=False) as client:
            for message in _MESSAGES:
                answer = client.post(server.url, json=message)
                if answer.status_code not in (200, 202):
                    status, text = answer.status_code, answer.text[:200]
                    raise ConfigError(f"{message['method']} was answered {status}: {text}")
    except httpx.HTTPError as error:
        raise ConnectionError(str(error)) from error
    return _tool_names(answer.text.rpartition("data: ")[2])


@cache
def tools_over_stdio(command: tuple[str, ...], folder: str) -> list[str]:
    """The tools that a command lists after a handshake. Raises `ConfigError`."""
    text = "".join(json.dumps(message) + "\n" for message in _MESSAGES)
    try:
        reply = subprocess.run(
            command, input=text, cwd=folder, capture_output=True, text=True, timeout=_ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(str(error)) from error
    if not reply.stdout.strip():
        raise ConfigError(plain(reply.stderr.strip())[-300:] or "no answer")
    return _tool_names(reply.stdout)


def _tool_names(replies: str) -> list[str]:
    """The tools in the reply to `tools/list`, among replies that may come in any order, one a line."""
    try:
        answers = [json.loads(line) for line in replies.splitlines() if line.strip()]
        listed = next(answer for answer in answers if answer.get("id") == _MESSAGES[-1]["id"])
        return [tool["name"] for tool in listed["result"]["tools"]]
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise ConfigError("tools/list was not answered with tools") from error
