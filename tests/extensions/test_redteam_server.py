"""The hostile corpus against a running server, over HTTP, as root and as nobody."""

import http.client
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kit import shared
from running import NOBODY, Running, children, configured, send

from ctx.types import JSON

ROWS = 101
GRACE_S = 10.0  # beyond a deadline, on a machine with other work; benchmarks/sandbox.py measures the promise
PROBE = "zz_probe"
SECRET = {"CTX_REDTEAM_SECRET": "1", "CTX_TEST": "1"}


def project(folder: Path, rows: list[JSON], corpus: Path) -> None:
    """Every script as a tool of the server, with the fixtures that the manifest wants beside them."""
    scripts = folder / "scripts"
    shutil.copytree(corpus, scripts)
    (scripts / "ok.txt").write_text("ok")
    (scripts / "link_to_etc").symlink_to("/etc")
    os.mkfifo(scripts / "fifo")
    probe = {"name": PROBE, "file": f"{PROBE}.lua", "timeout_s": 1.0}
    tables = [
        f'[tools.script.{row["name"]}]\npath = "./scripts/{row["file"]}"\ntimeout = {row["timeout_s"]}'
        for row in [*rows, probe]
    ]
    configured(folder, "\n".join(tables))


def manifest(corpus: Path) -> list[JSON]:
    rows: list[JSON] = json.loads((corpus / "manifest.json").read_text())["scripts"]
    return rows


@contextmanager
def listener() -> Iterator[list[int]]:
    """Who connects to 127.0.0.1:7331, the address the corpus aims at, where that port is free here: process
    ids.
    """
    pids: list[int] = []
    with socket.socket() as server:
        try:
            server.bind(("127.0.0.1", 7331))
        except OSError:
            yield pids  # taken: the server's own audit hook still sees every connection it begins
            return
        server.listen()

        def accept() -> None:
            while True:
                try:
                    connection, (_, port) = server.accept()
                except OSError:
                    return
                with connection:
                    pids.append(owner(port))

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield pids
        server.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def owner(port: int) -> int:
    """The process whose end of a connection has this port; 0 where it cannot be told any more."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1].rpartition(":")[2], 16) != port:
            continue
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                ends = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
            except OSError:
                continue  # it has ended
            if f"socket:[{fields[9]}]" in ends:
                return int(pid)
    return 0


def is_subset(wanted: JSON, value: JSON) -> bool:
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(
            name in value and is_subset(item, value[name]) for name, item in wanted.items()
        )
    return wanted is None or bool(wanted == value)


def complaints(server: Running, row: JSON) -> Iterator[str]:
    """What is wrong with one row: its outcome, its time, what it left behind."""
    name = row["name"]
    answer = server.call(name, row["params"])
    if answer.status not in row["expect"]["status"]:
        yield f"{name}: answered {answer.status} {answer.body!r:.300}"
    elif answer.status == 200 and not is_subset(row["expect"].get("result_subset"), answer.body["result"]):
        yield f"{name}: returned {answer.body!r:.300}"
    if answer.seconds > row["timeout_s"] + GRACE_S:
        yield f"{name}: took {answer.seconds:.3f} s of {row['timeout_s']}"
    if excess := server.workers_beyond_spares(GRACE_S):
        yield f"{name}: {excess} workers more than before, {GRACE_S:g} seconds later"
    for _ in range(4 if "then" in row else 1):
        probe = server.call(PROBE)
        if probe.status == 408:  # it has one second, and a busy machine may need it for itself
            probe = server.call(PROBE)
        if probe.status != 200 or probe.body["result"]["clean"] is not True:
            yield f"{name}: the probe after it answered {probe.status} {probe.body!r:.300}"


def run(folder: Path, uid: int | None) -> None:
    corpus = shared("redteam")
    rows = manifest(corpus)
    assert len(rows) == ROWS
    project(folder, rows, corpus)
    if uid is not None:
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, uid, uid, follow_symlinks=False)
    with listener() as hits, Running(folder, uid=uid, env=SECRET) as server:
        assert server.call(PROBE).status == 200
        pid, zygote, before_mb = server.process.pid, server.zygote, server.resident_mb()
        lines = [line for row in rows for line in complaints(server, row)]
        assert lines == []
        assert server.process.poll() is None
        assert (server.process.pid, server.zygote) == (pid, zygote)
        assert server.ask("GET", "/health").body["status"] == "ok"
        assert server.resident_mb() - before_mb < 64
        # Whoever else on this machine looks whether a server is at its usual place is not ours.
        assert not set(hits) & {pid, zygote, *children(zygote)}
        # No connection, to this machine or any other, was so much as begun.
        assert server.connections() == []
        server.stop()
        assert not {name for name in server.imported() if name.partition(".")[0] == "lupa"}
        assert "Traceback" not in server.said()
        assert "\x1b[31m" not in server.said()


@pytest.mark.slow
def test_every_hostile_script_ends_as_its_manifest_says_over_http(tmp_path: Path) -> None:
    run(tmp_path, None)


@pytest.mark.slow
def test_every_hostile_script_ends_as_its_manifest_says_on_a_server_without_privileges(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("this whole run is unprivileged already")
    folder = Path("/tmp") / f"ctx-unprivileged-{os.getpid()}"  # pytest's own folder is closed to others
    folder.mkdir()
    try:
        run(folder, NOBODY)
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
def test_health_answers_at_once_while_scripts_run_into_their_deadlines(tmp_path: Path) -> None:
    corpus = shared("redteam")
    rows = [row for row in manifest(corpus) if row["category"] == "timeout"]
    project(tmp_path, rows, corpus)
    with Running(tmp_path, env=SECRET) as server:
        server.call(PROBE)
        finish = threading.Event()
        times_s: list[float] = []

        def look() -> None:
            connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
            while not finish.is_set():
                answer = send(connection, "GET", "/health")
                assert answer.status == 200
                times_s.append(answer.seconds)
                finish.wait(0.01)
            connection.close()

        lookers = [threading.Thread(target=look) for _ in range(8)]
        for looker in lookers:
            looker.start()
        try:
            replies = [(row["name"], answer) for row in rows for answer in [server.call(row["name"])]]
        finally:
            finish.set()
            for looker in lookers:
                looker.join()
        by_name = {row["name"]: row for row in rows}
        for name, answer in replies:
            assert answer.status in by_name[name]["expect"]["status"], (name, answer)
            assert answer.seconds < by_name[name]["timeout_s"] + GRACE_S, (name, answer.seconds)
        # Each of the lookers was answered often while each of the scripts ran.
        assert len(times_s) > 20 * len(lookers)
        assert max(times_s) < GRACE_S, max(times_s)


def main() -> int:
    """Prints what each row of the corpus did on a running server: `python test_redteam_server.py FOLDER`."""
    import sys

    folder = Path(sys.argv[1])
    corpus = shared("redteam")
    rows = manifest(corpus)
    project(folder, rows, corpus)
    with Running(folder, env=SECRET) as server:
        for row in rows:
            began_s = time.perf_counter()
            for line in complaints(server, row, 0.0):
                print(line, flush=True)
            print(f"{row['name']:<32}{time.perf_counter() - began_s:.2f}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
