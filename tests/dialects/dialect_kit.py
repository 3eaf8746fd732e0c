"""A server with the memory packs in a process of its own, its doors, and what each of them says of a call."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from kit import project

from ctx.models import JSON

PACKS = ("hindsight", "claude-recall", "sekha")
CONFIG = """\
[connectors.filesystem.docs]
root = "./docs"
[embedding]
provider = "disabled"
[watch]
enabled = false
[packs]
enabled = ["hindsight", "claude-recall", "sekha"]
"""
RECALL = "mcp__claude-recall__"
KEY = "sekha-key-of-thirty-two-characters"
UUID = "123e4567-e89b-12d3-a456-426614174000"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def pack_project(folder: Path, config: str = CONFIG) -> Path:
    """A project with every pack enabled; its ctx.toml. Its home is a folder in it."""
    (folder / "home").mkdir(parents=True, exist_ok=True)
    path: Path = project(folder, {"note.md": "# Note\n\nNothing of memories.\n"}, config)
    return path


def pack_environment(folder: Path, **more: str) -> dict[str, str]:
    """An environment in which no variable of the packs is set but those given."""
    ours = ("CTX_", "HINDSIGHT_", "SEKHA_", "CONTROLLER_", "CLAUDE_RECALL_")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {
        **variables,
        "HOME": str(folder / "home"),
        "XDG_DATA_HOME": os.environ.get("XDG_DATA_HOME")
        or str(Path.home() / ".local" / "share"),  # as in the tests
        "XDG_CONFIG_HOME": "/nonexistent",
        "PYTHONWARNINGS": "ignore",
        **more,
    }


class Refused(Exception):
    """What a door answered instead of a result: HTTP status or JSON-RPC code, and the message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class PackServer:
    """`ctx serve mcp` over a project, on a free port."""

    def __init__(self, config: Path, **environ: str) -> None:
        self.folder = config.parent
        self._log = open(self.folder / "server.log", "ab")  # noqa: SIM115 - closed in _gone
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ctx", "serve", "mcp", "--config", str(config), "--bind", "127.0.0.1:0"],
            cwd=self.folder,
            env=pack_environment(self.folder, **environ),
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("Listening on "):
            self.process.wait(20)
            self.process.stdout.close()
            self._log.close()
            raise AssertionError((self.folder / "server.log").read_text())
        self.base = f"http://{line.removeprefix('Listening on ').strip()}"
        self.client = httpx.Client(base_url=self.base, timeout=30)

    def rest(self, tool: str, arguments: JSON, **headers: str) -> Any:
        """The result through REST. Raises `Refused` with the status."""
        reply = self.client.post(f"/tools/{tool}", json=arguments, headers=_named(headers))
        if reply.status_code != 200:
            raise Refused(reply.status_code, reply.json()["error"]["message"])
        return reply.json()["result"]

    def rpc(self, method: str, params: JSON = None, path: str = "/mcp", **headers: str) -> Any:
        """The reply to a bare JSON-RPC request.
        Raises `Refused` with the HTTP status where that is not 200.
        """
        body = {"jsonrpc": "2.0", "id": 1, "method": method, **({} if params is None else {"params": params})}
        reply = self.client.post(path, json=body, headers=_named(headers))
        if reply.status_code != 200:
            raise Refused(reply.status_code, reply.text)
        return reply.json()

    def mcp(self, tool: str, arguments: JSON, path: str = "/mcp", **headers: str) -> Any:
        """The result through MCP over HTTP.
        Raises `Refused` with the code of a JSON-RPC error, 0 for a tool error.
        """
        return tool_result(self.rpc("tools/call", {"name": tool, "arguments": arguments}, path, **headers))

    def sekha(self, tool: str, arguments: JSON, key: str | None = KEY) -> httpx.Response:
        """The reply of Sekha's own route."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return self.client.post(f"/mcp/tools/{tool}", json=arguments, headers=headers)

    def tools(self, path: str = "/mcp", **headers: str) -> dict[str, Any]:
        """The tools that an MCP endpoint lists, by name."""
        return {
            tool["name"]: tool for tool in self.rpc("tools/list", None, path, **headers)["result"]["tools"]
        }

    def kill(self) -> None:
        """Ends it as a power cut would."""
        self.process.kill()
        self._gone()

    def stop(self) -> None:
        """Asks it to end, and waits."""
        self.process.send_signal(signal.SIGTERM)
        self._gone()

    def _gone(self) -> None:
        self.client.close()
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()


@contextmanager
def served(config: Path, **environ: str) -> Iterator[PackServer]:
    """A server that ends with the block."""
    server = PackServer(config, **environ)
    try:
        yield server
    finally:
        if server.process.returncode is None:
            server.stop()


class PackPipe:
    """`ctx mcp --pack NAME` in a process, spoken to line by line."""

    def __init__(
        self, config: Path, pack: str, *arguments: str, cwd: Path | None = None, **environ: str
    ) -> None:
        folder = config.parent
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ctx", "mcp", "--config", str(config), "--pack", pack, *arguments],
            cwd=cwd or folder,
            env=pack_environment(folder, **environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._id = 0

    def say(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, params: JSON = None) -> Any:
        """The reply to a request."""
        self._id += 1
        message = {
            "jsonrpc": "2.0",
            "id": self._id,
            "method": method,
            **({} if params is None else {"params": params}),
        }
        self.say(json.dumps(message).encode() + b"\n")
        reply = self.hear()
        assert reply["id"] == self._id, reply
        return reply

    def shake_hands(self) -> "PackPipe":
        self.ask("initialize", HELLO)
        self.say(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        return self

    def call(self, tool: str, arguments: JSON) -> Any:
        """A tool's result. Raises `Refused` as `PackServer.mcp` does."""
        return tool_result(self.ask("tools/call", {"name": tool, "arguments": arguments}))

    def end(self) -> tuple[int, bytes, bytes]:
        """Closes its standard input; exit code, and what else it printed."""
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=20)


@contextmanager
def piped(
    config: Path, pack: str, *arguments: str, cwd: Path | None = None, **environ: str
) -> Iterator[PackPipe]:
    """A process on pipes that has shaken hands and ends with the block."""
    pipe = PackPipe(config, pack, *arguments, cwd=cwd, **environ).shake_hands()
    try:
        yield pipe
    finally:
        if pipe.process.returncode is None:
            pipe.end()


def tool_result(reply: Any) -> Any:
    """The value of a `tools/call`, the same as text and as structure. Raises `Refused`."""
    if "error" in reply:
        raise Refused(reply["error"]["code"], reply["error"]["message"])
    result = reply["result"]
    text = result["content"][0]["text"]
    if result.get("isError"):
        raise Refused(0, text)
    structured = result["structuredContent"]
    if set(structured) == {"result"} and structured["result"] == text:
        return text
    assert json.loads(text) == structured
    return structured


def _named(headers: dict[str, str]) -> dict[str, str]:
    # bank="alice" is X-Bank-Id, session="s" X-Session-Id, key="k" a bearer key; others are names with - for
    # _.
    ids = {"bank": "X-Bank-Id", "session": "X-Session-Id"}
    return {
        **{ids.get(name, name.replace("_", "-")): value for name, value in headers.items() if name != "key"},
        **({"Authorization": f"Bearer {headers['key']}"} if "key" in headers else {}),
    }


def texts(found: Any) -> list[str]:
    """The texts of what a recall or a search of any dialect found."""
    rows = found.get("results") or found.get("memories") or (found.get("data") or {}).get("results") or []
    return [row.get("text") or row.get("content") for row in rows]
