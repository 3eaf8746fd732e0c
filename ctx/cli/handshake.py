"""An MCP client's first requests, to see what a client will see."""

import json
import subprocess
from functools import cache
from typing import TYPE_CHECKING

from ctx.cli.output import plain
from ctx.errors import ConfigError
from ctx.models import JSON

if TYPE_CHECKING:
    import httpx

_ANSWER_S = 60


def _messages() -> list[JSON]:
    information = {"name": "ctx connect", "version": "1"}
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": information}
    return [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]


def tools_over_http(client: "httpx.Client", url: str) -> list[str]:
    """The tools that a server lists after a handshake. Raises `ConfigError`."""
    client.headers["Accept"] = "application/json, text/event-stream"
    reply: JSON = {}
    for message in _messages():
        answer = client.post(url, json=message)
        if answer.status_code not in (200, 202):
            text = f"{message['method']} was answered {answer.status_code}: {answer.text[:200]}"
            raise ConfigError(text)
        if message.get("id") == 2:
            try:
                reply = json.loads(answer.text.rpartition("data: ")[2])
            except ValueError:
                reply = {}
    return _tool_names(reply)


def _tool_names(reply: JSON) -> list[str]:
    try:
        return [tool["name"] for tool in reply["result"]["tools"]]
    except (KeyError, TypeError) as error:
        raise ConfigError("tools/list was not answered with tools") from error


@cache
def tools_over_stdio(command: tuple[str, ...], folder: str) -> list[str]:
    text = "".join(json.dumps(message) + "\n" for message in _messages())
    try:
        reply = subprocess.run(
            command, input=text, cwd=folder, capture_output=True, text=True, timeout=_ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(str(error)) from error
    for line in reply.stdout.splitlines():
        message = json.loads(line)
        if message.get("id") == 2:
            return _tool_names(message)
    raise ConfigError(plain(reply.stderr.strip())[-300:] or "no answer")
