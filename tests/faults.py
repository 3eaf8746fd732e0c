"""What the tests of faults share: a server as a process of its own, rights that bind, waiting for what must
come true.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 120.0  # a hang, on a machine with other work; a quiet one takes a tenth of a second


def eventually(claim: Callable[[], bool], what: str = "it did not happen") -> None:
    """Waits for something to become true."""
    ends_s = time.monotonic() + PATIENCE_S
    while not claim():
        assert time.monotonic() < ends_s, what
        time.sleep(0.02)


def waiting(listener: socket.socket) -> int:
    """How many connections wait to be accepted; they are ended."""
    listener.setblocking(False)
    count = 0
    with suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count


def unprivileged() -> list[str]:
    """What a command line begins with so that modes of files bind it; skips the test where root cannot give
    that up.
    """
    if os.geteuid() != 0:
        return []
    command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if not shutil.which("setpriv") or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip(
            "root reads everything here: install setpriv (util-linux), or run the tests as another user"
        )
    return command


class Server:
    """A `ctx serve mcp` that listens."""

    def __init__(self, process: subprocess.Popen[str], address: str, log: Path) -> None:
        self.process = process
        self.address = address
        self._log = log

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=60) as reply:
            return json.loads(reply.read())

    def post(self, path: str, body: object) -> tuple[int, Any]:
        """(status, body)."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://{self.address}{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def search(self, query: str, mode: str = "keyword") -> list[str]:
        """The ids found, in order of id."""
        status, answer = self.post("/tools/search", {"query": query, "mode": mode, "limit": 100})
        assert status == 200, answer
        return sorted(hit["source_id"] for hit in answer["results"])

    def log(self) -> str:
        return self._log.read_text()

    def stop(self) -> float:
        """Asks it to stop; seconds until the process had ended."""
        began_s = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        return time.monotonic() - began_s


@contextmanager
def serving(
    config: Path, *options: str, before: Sequence[str] = (), env: dict[str, str] | None = None
) -> Iterator[Server]:
    """A server on a free port, ended at the end. `before` is what its command line begins with."""
    folder = config.parent
    log = folder / "server.log"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CTX_")}
    environ |= {
        "XDG_CONFIG_HOME": str(folder / "no-such-folder"),
        "PYTHONWARNINGS": "ignore",
        "HOME": str(folder),
        # Memories are where the test's own process looks for them.
        "XDG_DATA_HOME": os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share"),
    } | (env or {})
    served = ["serve", "mcp", "--config", str(config), "--bind", "127.0.0.1:0"]
    command = [*before, sys.executable, "-m", "ctx", *served, *options]
    with log.open("a") as errors:
        process = subprocess.Popen(
            command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Listening on "), log.read_text()
        yield Server(process, line.split()[-1], log)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()
