"""A real `ctx serve mcp` process, watched from outside: what it connects to, what it imports, which processes
it keeps.

Also a program: `python running.py --as-server WATCH ARGUMENTS...` is that process. It is `ctx` with an audit
hook that notes every connection the process begins, whatever code begins it.
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ctx.types import JSON, Caller

if TYPE_CHECKING:  # the process that is watched imports what it needs by itself
    from ctx.workspace import Workspace

ROOT = Path(__file__).parents[2]
NOBODY = 65534
SPARES = 4  # [lua] workers: the idle processes that the server keeps


class Answer(NamedTuple):
    status: int
    body: JSON
    seconds: float
    headers: dict[str, str]

    @property
    def code(self) -> str:
        """The word of an error."""
        return str(self.body["error"]["code"])


class Running:
    """A server over a project folder, on a free port. `stop` it, or use it as a context manager."""

    def __init__(
        self, folder: Path, *, uid: int | None = None, env: dict[str, str] | None = None, named: bool = True
    ) -> None:
        """`named`: the configuration is the user's word, and not merely found."""
        self.folder = folder
        self.watch = folder / "watched.txt"
        self.log = folder / "server.log"
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("CTX_", "XDG_"))}
        from kit import python_for_anybody  # not above: the program that this file also is must not load it

        python = sys.executable if uid is None else python_for_anybody()
        packages = [entry for entry in sys.path if entry.endswith("site-packages")]
        environ |= {
            "HOME": str(folder),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *packages]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [python, __file__, "--as-server", str(self.watch), "serve", "mcp", "--bind", "127.0.0.1:0"]
                + (["--config", str(folder / "ctx.toml")] if named else []),
                cwd=folder,
                env=environ | (env or {}),
                stdout=subprocess.PIPE,
                stderr=log,
                user=uid,
                group=uid,
                extra_groups=None if uid is None else [],
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        if not line.startswith("Listening on "):
            self.stop()
            pytest.fail(f"the server did not start: {line}{self.said()}")
        self.host, _, port = line.split()[-1].rpartition(":")
        self.port = int(port)

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            if self.process.stdout is not None:
                self.process.stdout.close()

    def said(self) -> str:
        """The server's log."""
        return self.log.read_text(errors="replace")

    def connections(self) -> list[str]:
        """The addresses the server began to connect to."""
        lines = self.watch.read_text().splitlines() if self.watch.exists() else []
        return [line.removeprefix("connect ") for line in lines if line.startswith("connect ")]

    def imported(self) -> set[str]:
        """The modules the server had imported when it ended."""
        lines = self.watch.read_text().splitlines()
        return next(set(line.split()[1:]) for line in lines if line.startswith("modules "))

    def ask(self, method: str, path: str, body: JSON = None, timeout_s: float = 60) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        try:
            return send(connection, method, path, body)
        finally:
            connection.close()

    def call(self, tool: str, arguments: JSON = None) -> Answer:
        return self.ask("POST", f"/tools/{tool}", arguments or {})

    @property
    def zygote(self) -> int:
        """The process that forks the workers."""
        return next(
            pid
            for pid in children(self.process.pid)
            if b"zygote" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )

    def workers_beyond_spares(self, within_s: float) -> int:
        """How many workers more than the idle ones there are, once it is none or `within_s` have passed."""
        until_s = time.monotonic() + within_s
        zygote = self.zygote
        while (excess := len(children(zygote)) - SPARES) > 0 and time.monotonic() < until_s:
            os.sched_yield()
            threading.Event().wait(0.01)
        return max(0, excess)  # fewer: one more is being forked

    def resident_mb(self) -> float:
        return (
            int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
            * os.sysconf("SC_PAGE_SIZE")
            / (1 << 20)
        )


def send(connection: http.client.HTTPConnection, method: str, path: str, body: JSON = None) -> Answer:
    """One request on an open connection."""
    data = None if body is None else json.dumps(body).encode()
    began_s = time.perf_counter()
    connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
    response = connection.getresponse()
    text = response.read()
    seconds = time.perf_counter() - began_s
    return Answer(
        response.status,
        json.loads(text),
        seconds,
        {name.lower(): value for name, value in response.getheaders()},
    )


def children(pid: int) -> list[int]:
    """The processes that a process's threads have started and that are still there."""
    pids: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            pids += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    except OSError:
        pass  # it ended while it was looked at
    return pids


def configured(folder: Path, scripts: str, *, more: str = "") -> Path:
    """A project with one document and these `[...]` tables about scripts; its ctx.toml."""
    (folder / "docs").mkdir(parents=True, exist_ok=True)
    (folder / "docs" / "guide.md").write_text(
        "# Release guide\n\nThe release token is rotated by the platform team.\n"
    )
    path = folder / "ctx.toml"
    path.write_text(
        '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = '
        f'"disabled"\n{more}\n[lua]\nworkers = {SPARES}\n{scripts}'
    )
    return path


def opened(folder: Path, *, scripts: str = '\ntools_dir = "./tools"') -> "Workspace":
    """The workspace of such a project, its scripts loaded; close it."""
    from kit import workspace  # not for the process that is watched

    space = workspace(configured(folder, scripts))
    _ = space.scripts
    return space


def answering(value: str) -> str:
    """A tool that says this."""
    return f"tool = {{}} function tool.execute() return {{ said = [[{value}]] }} end"


def said(space: "Workspace", name: str) -> JSON:
    """The `said` of what a script's tool answers."""
    return space.toolbox.call(name, {}, Caller("cli"))["said"]


def _serve(watch: str, arguments: Sequence[str]) -> int:
    # A descriptor of its own, opened before the hook: a write of a line is whole, from whichever thread.
    out = os.open(watch, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def hear(event: str, details: tuple[JSON, ...]) -> None:
        if event == "socket.connect":
            os.write(out, f"connect {details[1]}\n".encode())

    sys.addaudithook(hear)
    from ctx.cli import main

    try:
        return main(arguments)
    finally:
        os.write(out, f"modules {' '.join(sorted(sys.modules))}\n".encode())


if __name__ == "__main__":
    sys.exit(_serve(sys.argv[2], sys.argv[3:]))
