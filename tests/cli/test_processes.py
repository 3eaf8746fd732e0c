"""Several processes at one store: they wait for each other or say who is busy, and searching never waits."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import ctx, hear_ctrl_c, project

DEADLINE_S = 60.0


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CTX_")}
    return subprocess.Popen(
        [sys.executable, "-m", "ctx", *arguments],
        cwd=cwd,
        env={**environ, "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
    )


def until(true: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline_s, f"{what} did not come about"
        time.sleep(0.01)


def many(folder: Path, count: int, word: str = "zebra") -> Path:
    """A project with many small documents, so that a run takes a while."""
    return project(
        folder,
        {
            f"{n % 20}/{n}.md": f"# Note {n}\n\n{word} number {n}\n\n{'filler words ' * 300}\n"
            for n in range(count)
        },
    )


def documents(folder: Path) -> int:
    reply = ctx("stats", "--json", cwd=folder)
    return int(json.loads(reply.stdout)["documents"]) if reply.returncode == 0 else 0


class Server:
    """A `ctx serve mcp` on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.process = start("serve", "mcp", "--bind", "127.0.0.1:0", "--log-level", "error", cwd=folder)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("Listening on 127.0.0.1:"), line + (
            self.process.communicate()[1] if not line else ""
        )
        self.address = line.split()[-1]

    def search(self, query: str, **more: Any) -> list[str]:
        request = urllib.request.Request(
            f"http://{self.address}/tools/search",
            json.dumps({"query": query, **more}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
            return [result["source_id"] for result in json.load(response)["results"]]

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, errors


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Server]]:
    servers: list[Server] = []

    def make(folder: Path) -> Server:
        servers.append(Server(folder))
        return servers[-1]

    yield make
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()


@pytest.mark.slow
def test_ctrl_c_during_a_run_is_quiet_and_the_next_run_completes_it(tmp_path: Path) -> None:
    many(tmp_path, 4000)
    child = start("index", cwd=tmp_path)
    until(lambda: child.poll() is not None or documents(tmp_path) > 0, "the first documents")
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=DEADLINE_S)
    assert child.returncode == 130, errors
    assert "Traceback" not in errors
    assert "the next run does the rest" in errors
    assert 0 < documents(tmp_path) < 4000
    assert ctx("search", "zebra", cwd=tmp_path).returncode == 0
    assert ctx("index", cwd=tmp_path).returncode == 0
    assert documents(tmp_path) == 4000


# `ctx ARGUMENTS`, which is sent a Ctrl-C when it looks for MODULE.
INTERRUPTED = """
import os, sys
class Finder:
    def find_spec(self, name, *_):
        if name == MODULE:
            os.kill(os.getpid(), 2)
sys.meta_path.insert(0, Finder())
sys.argv = ["ctx", *ARGUMENTS]
from ctx.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("ctx.cli.status", ["status"]),
        ("ctx.cli.search", ["search", "x"]),
        ("ctx.store.tantivy", ["search", "x"]),
    ],
)
def test_ctrl_c_while_modules_are_imported_ends_the_process_without_a_word(
    tmp_path: Path, module: str, arguments: list[str]
) -> None:
    project(tmp_path, {"a.md": "# A\n\nx\n"})
    assert ctx("index", "--no-embed", cwd=tmp_path).returncode == 0
    code = INTERRUPTED.replace("MODULE", repr(module)).replace("ARGUMENTS", repr(arguments))
    child = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        preexec_fn=hear_ctrl_c,
        check=False,
    )
    assert (child.returncode, child.stdout, child.stderr) == (130, "", "")


@pytest.mark.slow
def test_two_runs_at_once_wait_for_each_other_and_both_succeed(tmp_path: Path) -> None:
    many(tmp_path, 1500)
    runs = [start("index", "--json", cwd=tmp_path) for _ in range(2)]
    reply = [run.communicate(timeout=DEADLINE_S) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], reply
    added = sorted(json.loads(out)["sources"][0]["added"] for out, _ in reply)
    assert added == [0, 1500]
    assert documents(tmp_path) == 1500


@pytest.mark.slow
def test_a_search_beside_a_run_neither_waits_nor_fails(tmp_path: Path) -> None:
    project(tmp_path, {"first.md": "# First\n\nzebra\n"})
    assert ctx("index", cwd=tmp_path).returncode == 0
    many(tmp_path, 3000, "okapi")
    child = start("index", cwd=tmp_path)
    meanwhile = 0
    while child.poll() is None:
        reply = ctx("search", "zebra", cwd=tmp_path)
        assert reply.returncode == 0, reply.stderr
        assert "first.md" in reply.stdout
        meanwhile += child.poll() is None
    assert child.communicate()[1] == ""
    assert meanwhile, "the searches waited for the run"


@pytest.mark.slow
def test_a_second_server_of_a_project_says_that_it_is_served_already(
    tmp_path: Path, serve: Callable[[Path], Server]
) -> None:
    project(tmp_path, {"first.md": "# First\n\nzebra\n"})
    assert ctx("index", cwd=tmp_path).returncode == 0
    server = serve(tmp_path)
    second = ctx("serve", "mcp", "--bind", server.address, "--log-level", "error", cwd=tmp_path)
    assert second.returncode == 2
    assert second.stderr.startswith(f"Error: this project is already served at http://{server.address} ")
    assert server.search("zebra") == ["first.md"]


def test_ctrl_c_ends_a_server_quietly(tmp_path: Path, serve: Callable[[Path], Server]) -> None:
    project(tmp_path, {"first.md": "# First\n\nzebra\n"})
    code, errors = serve(tmp_path).stop()
    assert code in (0, 130)
    assert re.fullmatch(r"The page: http://127\.0\.0\.1:\d+/\n", errors)


@pytest.mark.slow
def test_a_run_beside_a_server_is_seen_by_it_and_no_search_fails_or_waits(
    tmp_path: Path, serve: Callable[[Path], Server]
) -> None:
    config = project(tmp_path, {"first.md": "# First\n\nzebra\n"})
    config.write_text(config.read_text() + "[watch]\nenabled = false\n")
    server = serve(tmp_path)
    until(lambda: server.search("zebra") == ["first.md"], "the server's own run")
    many(tmp_path, 2000, "okapi")
    run = start("index", cwd=tmp_path)
    meanwhile = 0
    while run.poll() is None:
        assert server.search("zebra") == ["first.md"]
        meanwhile += run.poll() is None
    _, errors = run.communicate()
    assert run.returncode == 0, errors
    until(lambda: len(server.search("okapi", limit=100)) == 100, "the new snapshot")
    assert meanwhile > 20, "the searches waited for the run"
