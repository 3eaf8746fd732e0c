"""Lists the servers that run on this machine, and the tools of a server.

Each server has a small file, which it locks as long as its process lives. A killed process leaves its file
behind without a lock; the next listing deletes it.
"""

import fcntl
import json
import logging
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache

from ctx import files
from ctx.cli.output import plain
from ctx.errors import ConfigError
from ctx.http import Upstream, is_everywhere, is_loopback, split_bind
from ctx.models import JSON

logger = logging.getLogger(__name__)

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


@dataclass(frozen=True)
class Running:
    """A running server, as its file describes it."""

    root: str  # the project's folder
    address: str  # HOST:PORT
    pid: int
    since_ms: int
    config: str = ""  # the file of its configuration
    owner_key: str = ""  # a key with which other commands of the same user use the server


def _folder() -> str:
    return os.path.join(files.state_folder(os.environ), "running")


@contextmanager
def registered() -> Iterator[Callable[[Running], None]]:
    """Yields a function that lists a server as running until the block ends. If the file cannot be written,
    this is only logged.
    """
    path = os.path.join(_folder(), f"{os.getpid()}.json")
    descriptors = []

    def register(running: Running) -> None:
        try:
            files.make_folder(os.path.dirname(path))
            descriptors.append(files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC))
            fcntl.flock(descriptors[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptors[0], json.dumps(asdict(running)).encode())
        except OSError as error:
            logger.info("`ctx status` does not list this server reason=%s", error.strerror)

    try:
        yield register
    finally:
        for descriptor in descriptors:
            with suppress(OSError):  # the folder was deleted
                os.unlink(path)
            os.close(descriptor)


def servers() -> list[Running]:
    """The running servers, the oldest first."""
    folder = _folder()
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".json")]
    except OSError:
        return []
    rows = [row for name in names if (row := _live(os.path.join(folder, name)))]
    return sorted(rows, key=lambda row: row.since_ms)


def of_project(rows: Sequence[Running], root: str) -> Running | None:
    """The server of the project in the folder `root`, the youngest if there are several; else None."""
    folder = os.path.realpath(root)
    return next((row for row in reversed(rows) if os.path.realpath(row.root) == folder), None)


def at_address(rows: Sequence[Running], bind: str) -> Running | None:
    """The server that uses the address `bind` (HOST:PORT), or None. Raises `ConfigError` for an invalid
    address.
    """
    host, port = split_bind(bind)
    for row in rows:
        other, other_port = split_bind(row.address)
        near = host == other or (is_loopback(host) and is_loopback(other))
        if port == other_port and (near or is_everywhere(host) or is_everywhere(other)):
            return row
    return None


def _live(path: str) -> Running | None:
    """The server that a file describes. If its process has ended, deletes the file and returns None."""
    try:
        descriptor = files.open_file(path, os.O_RDWR)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # locked: the server runs
            try:
                row = Running(**json.loads(file.read()))
            except (ValueError, TypeError):
                return None  # the file is being written
            return row if isinstance(row.root, str) and isinstance(row.since_ms, int) else None
        os.unlink(path)
    return None


# -- tools of a server ---------------------------------------------------------------------------------------


def tools_over_http(server: Upstream) -> list[str]:
    """The names of the tools that an MCP server at an address lists. Raises `ConfigError`, or
    `ConnectionError` if no server answers.
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
    """The names of the tools that an MCP server, started with `command` in `folder`, lists. Raises
    `ConfigError`.
    """
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
    """The tool names in the reply to `tools/list`. `replies` has one JSON reply per line, in any order.
    Raises `ConfigError`.
    """
    try:
        answers = [json.loads(line) for line in replies.splitlines() if line.strip()]
        listed = next(answer for answer in answers if answer.get("id") == _MESSAGES[-1]["id"])
        return [tool["name"] for tool in listed["result"]["tools"]]
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise ConfigError("tools/list was not answered with tools") from error
