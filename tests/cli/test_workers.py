"""`ctx serve --workers N`: several processes answer on one port, as one server."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from faults import eventually
from kit import ctx, project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it reads which processes a server has in /proc"),
]
CONFIG = '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'


class Server:
    """A server with two workers."""

    def __init__(self, folder: Path) -> None:
        self.errors = folder / "errors.txt"
        command = [sys.executable, "-m", "ctx", "serve", "--workers", "2", "--bind", "127.0.0.1:0"]
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        announced = re.fullmatch(r"Listening on (127\.0\.0\.1:\d+)\n", line)
        assert announced, self.errors.read_text()
        self.base = f"http://{announced[1]}"

    def workers(self) -> list[int]:
        """The processes that answer."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in children if b"spawn_main" in _command(int(child))]

    @contextmanager
    def alone(self, worker: int) -> Iterator[httpx.Client]:
        """A client that only this worker can answer: the others are stopped meanwhile."""
        others = [pid for pid in self.workers() if pid != worker]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        try:
            with httpx.Client(base_url=self.base, timeout=60) as client:
                yield client
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)

    def get(self, path: str) -> str:
        return httpx.get(f"{self.base}{path}", timeout=60).text

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return project(tmp_path, {"first.md": "# First\n\nthe zebra grazes\n"}, CONFIG).parent


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with running(folder) as server:
        yield server


def _finds(client: httpx.Client, word: str) -> bool:
    return bool(client.post("/tools/search", json={"query": word}).json()["results"])


def _status(client: httpx.Client, key: str) -> int:
    """The status of a call that counts against the rate."""
    return client.get("/tools/list", headers={"authorization": f"Bearer {key}"}).status_code


def test_both_workers_find_a_document_that_is_added_later_and_say_what_the_indexer_did(
    folder: Path, server: Server
) -> None:
    assert len(server.workers()) == 2
    (folder / "docs" / "second.md").write_text("# Second\n\nthe yak rests\n")
    for worker in server.workers():
        with server.alone(worker) as client:
            eventually(lambda client=client: _finds(client, "yak"))
            eventually(lambda client=client: client.get("/health").json()["activity"] == "idle")
            assert client.get("/activity").json()["runs"]["filesystem:docs"]["ok"]


def test_keys_and_rates_are_those_of_one_server(folder: Path) -> None:
    project(folder, config=CONFIG + "[server]\nrate_limit_per_minute = 4\nmetrics = true\n")
    with running(folder) as server:
        workers = server.workers()
        key = json.loads(ctx("key", "create", "desk", "--json", cwd=folder).stdout)["key"]
        statuses = []
        for worker in (*workers, *workers, *workers):
            with server.alone(worker) as client:
                assert _status(client, "ctx_wrong") == 401
                statuses.append(_status(client, key))
        assert statuses == [200, 200, 200, 200, 429, 429]
        ctx("key", "revoke", "desk", cwd=folder)
        for worker in workers:
            with server.alone(worker) as client:
                assert _status(client, key) == 401


def test_the_figures_of_all_workers_are_added_up(folder: Path) -> None:
    project(folder, config=CONFIG + "[server]\nmetrics = true\n")
    with running(folder) as server:
        for worker in server.workers():
            with server.alone(worker) as client:
                assert _finds(client, "zebra")
        assert 'ctx_calls_total{interface="rest",outcome="ok",tool="search"} 2.0' in server.get("/metrics")


def test_a_worker_that_dies_is_replaced_and_said(server: Server) -> None:
    first, second = server.workers()
    os.kill(first, signal.SIGKILL)
    line = f"worker ended pid={first} code=-9 replaced_by="
    eventually(lambda: line in server.errors.read_text())
    new = int(server.errors.read_text().split(line)[1].split()[0])
    eventually(lambda: sorted(server.workers()) == sorted((second, new)))
    with server.alone(new) as client:
        assert client.get("/health").json()["status"] == "ok"


def test_sigterm_ends_all(server: Server) -> None:
    workers = server.workers()
    assert server.stop() == 0
    assert [pid for pid in workers if _command(pid)] == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.base}/health")


def test_workers_do_not_outlive_a_server_that_is_killed(server: Server) -> None:
    workers = server.workers()
    server.process.kill()
    server.process.wait()
    eventually(lambda: not any(map(_command, workers)))


def test_a_number_of_workers_that_is_none_is_refused(folder: Path) -> None:
    refused = ctx("serve", "--workers", "0", cwd=folder)
    assert refused.returncode == 2
    assert "--workers: expected a whole number of 1 or more" in refused.stderr
