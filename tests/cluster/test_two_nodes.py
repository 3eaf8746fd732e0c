"""Machines with one PostgreSQL: each has a folder of its own, and finds what the others indexed."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import faults
import postgres
import pytest
from kit import named

from ctx.config import load_config
from ctx.indexing.watch import Watcher
from ctx.indexing.worker import Worker
from ctx.workspace import open_workspace

pytestmark = pytest.mark.cluster

LATE_S = 60.0  # a hang, on a machine with other work


def node(folder: Path, source: str, url: str, *, provider: str = "disabled") -> Path:
    """A machine's project with one source, and the store that all share; its ctx.toml."""
    (folder / "docs").mkdir(parents=True)
    path = folder / "ctx.toml"
    path.write_text(
        f'[store]\nurl = "{url}"\n[connectors.filesystem.{source}]\nroot = "./docs"\n'
        f'[embedding]\nprovider = "{provider}"\n[server]\nbind = "127.0.0.1:0"\n'
    )
    return path


def ran(config: Path, *values: str) -> "subprocess.CompletedProcess[str]":
    """A command on a machine, come to its end."""
    return subprocess.run(
        [sys.executable, "-m", "ctx", *values],
        cwd=config.parent,
        env=os.environ | named(config),
        capture_output=True,
        text=True,
        timeout=LATE_S,
        check=False,
    )


def ctx(config: Path, *values: str, code: int = 0) -> str:
    """What a command says to standard output."""
    completed = ran(config, *values)
    assert completed.returncode == code, (completed.stdout, completed.stderr)
    return completed.stdout


def results(config: Path, query: str, mode: str = "keyword") -> list[dict[str, Any]]:
    reply = json.loads(ctx(config, "search", query, "--mode", mode, "--json"))
    entries: list[dict[str, Any]] = reply["results"]
    return entries


@contextmanager
def serving(config: Path) -> Iterator[str]:
    """`ctx serve mcp`, and where it listens."""
    with subprocess.Popen(
        [sys.executable, "-m", "ctx", "serve", "mcp", "--log-level", "warning"],
        cwd=config.parent,
        env=os.environ | named(config),
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().rsplit(" ", 1)[1].strip()
        finally:
            server.terminate()


def asked(address: str, query: str) -> list[str]:
    request = urllib.request.Request(
        f"http://{address}/tools/search",
        json.dumps({"query": query}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=LATE_S) as reply:
        return [result["source_id"] for result in json.load(reply)["results"]]


def health(address: str, timeout_s: float = LATE_S) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{address}/health", timeout=timeout_s) as reply:
        state: dict[str, Any] = json.load(reply)
    return state


def eventually(address: str, query: str, expected: list[str]) -> None:
    deadline_s = time.monotonic() + LATE_S
    while asked(address, query) != expected:
        assert time.monotonic() < deadline_s, (query, asked(address, query))
        time.sleep(0.1)


def test_each_of_two_nodes_finds_what_the_other_one_indexed(tmp_path: Path, database_url: str) -> None:
    first, second = (node(tmp_path / name, name, database_url, provider="local") for name in ("one", "two"))
    (first.parent / "docs" / "otter.md").write_text("# Otters\n\nThe otter sleeps on its back.\n")
    (second.parent / "docs" / "heron.md").write_text("# Herons\n\nThe heron waits in the reeds.\n")
    ctx(first, "index")
    ctx(second, "index")
    for query, source in (("otter", "filesystem:one"), ("heron", "filesystem:two")):
        replies = [results(config, query) for config in (first, second)]
        assert [result["source"] for result in replies[0]] == [source]
        assert replies[0] == replies[1], "the same ids and the same scores"
    assert results(first, "a bird that stands in water", "hybrid") == results(
        second, "a bird that stands in water", "hybrid"
    )
    assert results(first, "a bird that stands in water", "semantic")[0]["source_id"] == "heron.md"


def test_a_server_follows_what_another_machine_writes_and_forgets(tmp_path: Path, database_url: str) -> None:
    first, second = (node(tmp_path / name, name, database_url) for name in ("one", "two"))
    with serving(second) as address:
        otter = first.parent / "docs" / "otter.md"
        otter.write_text("The otter sleeps on its back.\n")
        ctx(first, "index")
        eventually(address, "otter", ["otter.md"])
        otter.unlink()
        (first.parent / "docs" / "beaver.md").write_text("The beaver builds a dam.\n")
        ctx(first, "index")
        eventually(address, "beaver", ["beaver.md"])
        assert asked(address, "otter") == []


def test_what_another_machine_indexed_is_dropped_only_by_its_name(tmp_path: Path, database_url: str) -> None:
    first, second = (node(tmp_path / name, name, database_url) for name in ("one", "two"))
    (first.parent / "docs" / "otter.md").write_text("The otter sleeps on its back.\n")
    ctx(first, "index")
    assert "prune" not in ctx(second, "index"), "it is in use, and nobody is led to drop it"
    findings = json.loads(ctx(second, "doctor", "--json"))["findings"]
    assert [row["state"] for row in findings if "filesystem:one" in row["detail"]] == ["ok"]
    refused = ran(second, "index", "--prune")
    assert refused.returncode == 2
    assert "`ctx index --prune NAME` (filesystem:one)" in refused.stderr
    assert "filesystem:two" in ran(second, "index", "--prune", "filesystem:two").stderr
    assert results(second, "otter")
    assert "1 document would be dropped" in ctx(second, "index", "--prune", "--dry-run", "filesystem:one")
    assert results(second, "otter")
    assert "1 document dropped" in ctx(second, "index", "--prune", "filesystem:one")
    assert results(first, "otter") == []


def test_a_lost_index_is_built_anew_from_the_database_without_embedding(
    tmp_path: Path, database_url: str
) -> None:
    config = node(tmp_path / "one", "one", database_url, provider="local")
    (config.parent / "docs" / "heron.md").write_text("The heron waits in the reeds.\n")
    ctx(config, "index")
    before = results(config, "bird", "hybrid")
    subprocess.run(["rm", "-r", str(config.parent / ".ctx")], check=True)
    assert results(config, "bird", "hybrid") == before
    assert "embedded" not in ctx(config, "index").lower()


def test_a_database_that_is_not_there_is_named_and_nothing_of_its_address(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    config = node(tmp_path / "one", "one", "postgresql://ctx:secret@127.0.0.1:1/nothing")
    completed = subprocess.run(
        [sys.executable, "-m", "ctx", "index"],
        cwd=config.parent,
        env=os.environ | named(config) | {"PGCONNECT_TIMEOUT": "1"},
        capture_output=True,
        text=True,
        timeout=LATE_S,
        check=False,
    )
    assert completed.returncode == 4
    assert "the database cannot be reached" in completed.stderr
    assert "secret" not in completed.stderr


def test_doctor_does_not_ask_a_database_again_that_is_away(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    with socket.create_server(("127.0.0.1", 0)) as listener:  # it takes connections, and says nothing
        port = listener.getsockname()[1]
        url = f"postgresql://ctx@127.0.0.1:{port},127.0.0.1:{port}/ctx?connect_timeout=2"
        findings = json.loads(ctx(node(tmp_path / "one", "one", url), "doctor", "--json", code=1))["findings"]
        attempts = faults.waiting(listener)
    assert attempts == 2, "each host once"
    failed = [(row["what"], row["detail"]) for row in findings if row["state"] == "failed"]
    assert failed == [("catalog", "the database cannot be reached: check that it runs, and [store] url")]
    assert "lua sandbox" in {row["what"] for row in findings}, "the rest is looked at"


def test_doctor_finds_the_database_behind_a_host_that_does_not_answer(
    tmp_path: Path, database_url: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = database_url.replace("@", f"@127.0.0.1:{port},") + "?connect_timeout=2"
        findings = json.loads(ctx(node(tmp_path / "one", "one", url), "doctor", "--json"))["findings"]
    assert {"catalog", "database", "source"} <= {row["what"] for row in findings}


def test_a_server_whose_database_is_away_tells_it_from_the_index(
    tmp_path: Path, postgres_programs: postgres.Programs
) -> None:
    server = postgres.Server(postgres_programs).create()
    try:
        config = node(tmp_path / "one", "one", server.url(), provider="local")
        ctx(config, "index")
        with serving(config) as address:
            assert health(address)["degraded"] == []
            server.kill()
            state = health(address, timeout_s=10.0)  # a search waits for 20
            assert (state["status"], state["pending"], state["index_behind"]) == ("ok", None, None)
            reason = "the database cannot be reached: check that it runs, and [store] url"
            assert f"catalog: {reason}" in state["degraded"]
            assert not any(line.startswith("index: ") for line in state["degraded"])
            server.start()
            deadline_s = time.monotonic() + LATE_S
            while (state := health(address))["degraded"]:
                assert time.monotonic() < deadline_s, state
            assert (state["pending"], state["index_behind"]) == (0, 0)
    finally:
        server.discard()


def test_workers_share_what_is_to_be_done_and_a_server_answers_from_it(
    tmp_path: Path, database_url: str
) -> None:
    workers = [node(tmp_path / name, "docs", database_url, provider="local") for name in ("one", "two")]
    for config in workers:
        for no in range(6):
            (config.parent / "docs" / f"{no}.md").write_text(f"# Note {no}\n\nThe heron number {no} waits.\n")
    assert ", 0 chunks pending" not in ctx(workers[0], "worker", "--once", "--roles", "scan")
    replies = [json.loads(ctx(config, "worker", "--once", "--json")) for config in reversed(workers)]
    assert [reply["ok"] for reply in replies] == [True, True]
    assert replies[-1]["pending"] == 0
    assert not (workers[0].parent / ".ctx" / "index").exists(), "a worker keeps no index"
    answers = node(tmp_path / "three", "nothing", database_url, provider="local")
    assert {result["source_id"] for result in results(answers, "a bird", "hybrid")} == {
        f"{no}.md" for no in range(6)
    }


def test_a_worker_tells_once_that_the_database_is_away(
    tmp_path: Path, postgres_programs: postgres.Programs, caplog: pytest.LogCaptureFixture
) -> None:
    server = postgres.Server(postgres_programs).create()
    caplog.set_level("INFO", "ctx.indexing.worker")
    try:
        config = node(tmp_path / "one", "one", server.url(), provider="local")
        with open_workspace(load_config(str(config), {}), projecting=False) as space:
            worker = Worker(space.indexer, ["scan", "embed"], {"filesystem:one": 0.0})
            assert worker.work(threading.Event())
            server.kill()
            assert [worker.work(threading.Event()) for _ in range(3)] == [False] * 3
            reason = "the database cannot be reached: check that it runs, and [store] url"
            lines = [record.message for record in caplog.records if "reached" in record.message]
            assert lines == [
                f"index run failed source=filesystem:one reason={reason}",
                f"embedding failed reason={reason}",
            ]
            server.start()
            assert worker.work(threading.Event())
            assert [record.message for record in caplog.records][-2:] == [
                "index run works again source=filesystem:one",
                "embedding works again",
            ]
    finally:
        server.discard()


def test_a_worker_without_a_shared_database_is_told_what_does_its_work(tmp_path: Path) -> None:
    config = tmp_path / "ctx.toml"
    config.write_text('[embedding]\nprovider = "disabled"\n')
    completed = subprocess.run(
        [sys.executable, "-m", "ctx", "worker"],
        cwd=tmp_path,
        env=os.environ | named(config),
        capture_output=True,
        text=True,
        timeout=LATE_S,
        check=False,
    )
    assert completed.returncode == 2
    assert "`ctx serve`" in completed.stderr


def test_a_project_moves_to_a_database_with_two_lines_and_gives_the_same_replies(
    tmp_path: Path, database_url: str
) -> None:
    shared = node(tmp_path / "one", "docs", database_url, provider="local")
    text = shared.read_text()
    shared.write_text(text.replace(f'[store]\nurl = "{database_url}"\n', ""))
    (shared.parent / "docs" / "heron.md").write_text("# Herons\n\nThe heron waits in the reeds.\n")
    ctx(shared, "index")
    before = results(shared, "bird", "hybrid")
    assert before
    assert "Copied and compared" in ctx(shared, "migrate", "--to", database_url)
    shared.write_text(text)
    assert results(shared, "bird", "hybrid") == before
    assert " 1 unchanged" in ctx(shared, "index").replace("unchanged 1", " 1 unchanged")
    findings = json.loads(ctx(shared, "doctor", "--json"))
    assert "PostgreSQL 18" in json.dumps(findings)


def test_a_server_tells_once_that_another_machine_is_at_its_source(
    tmp_path: Path, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (node(tmp_path / name, "docs", database_url) for name in ("one", "two"))
    (second.parent / "docs" / "otter.md").write_text("The otter sleeps on its back.\n")
    caplog.set_level("INFO", "ctx.indexing.watch")

    def lines() -> list[str]:
        return [record.message for record in caplog.records if "put off" in record.message]

    indexed = threading.Event()
    with (
        open_workspace(load_config(str(first), {}), projecting=False) as busy,
        open_workspace(load_config(str(second), {}), projecting=False) as waiting,
    ):
        watcher = Watcher(waiting.indexer, {}, on_report=lambda report: indexed.set())
        with busy.catalog.turn("filesystem:docs", None):
            watcher.start()
            assert not indexed.wait(1.5), "time for five attempts"
        assert indexed.wait(LATE_S)
        watcher.close()
    assert len(lines()) == 1
    assert "is being indexed by" in lines()[0]
