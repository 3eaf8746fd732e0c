"""A server among others: several processes on one folder, a stop at any moment, a log that stays short,
freshness that is told.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from faults import eventually, serving
from kit import ROOT, ctx, project, workspace

pytestmark = pytest.mark.slow

MANY = {
    f"part{n % 20}/p{n}.md": f"# Page {n}\n\n" + "some words and more words. " * 120 + f"xylophone {n}"
    for n in range(1500)
}
SEMANTIC = '[connectors.filesystem.docs]\nroot = "./docs"\n'


# -- one writer, many readers --------------------------------------------------------------------------------
def test_two_index_runs_and_two_servers_on_one_folder_corrupt_nothing_and_agree(tmp_path: Path) -> None:
    config = project(tmp_path, {f"p{n}.md": f"# Page {n}\n\nxylophone {n}" for n in range(80)})
    command = [sys.executable, "-m", "ctx", "index", "--full", "--no-progress"]
    with serving(config) as first, serving(config) as second:
        runs = [subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for number in range(10):
            (tmp_path / f"docs/p{number}.md").write_text(f"# Page {number}\n\nmarimba {number}")
        for run in runs:
            _, errors = run.communicate(timeout=60)
            assert run.returncode == 0, errors  # each waits for its turn
        expected = sorted(f"p{n}.md" for n in range(10))
        for server in (first, second):
            eventually(lambda server=server: server.search("marimba") == expected)  # type: ignore[misc]
            assert len(server.search("xylophone")) == 70
    with workspace(config) as space:
        assert space.catalog.check() == []
        assert space.index.check() == []
        assert space.catalog.stats()["documents"] == 80


def test_who_cannot_write_in_time_is_told_who_does(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# A"})
    with workspace(config) as space, space.indexer.writing():
        code = (
            "import sys; from ctx.indexing import indexer; "
            "indexer.LOCK_TIMEOUT_S = 0.3; "
            "from ctx.cli import main; sys.exit(main(['index']))"
        )
        completed = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert completed.returncode != 0
    assert f"process {os.getpid()}" in completed.stderr
    assert "is writing the index" in completed.stderr


# -- stopping ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("moment", ["idle", "indexing", "embedding"])
def test_a_server_stops_whatever_it_does(tmp_path: Path, moment: str) -> None:
    files = MANY if moment != "idle" else {"a.md": "# A"}
    config = project(tmp_path, files, SEMANTIC if moment == "embedding" else None)
    with serving(config, "--log-level", "error") as server:
        eventually(lambda: server.get("/health")["activity"] == moment)
        server.stop()
        assert server.process.returncode == 0, (
            "1 where it was stuck; benchmarks/hostile_calls.py says how long a stop takes"
        )
    with workspace(config) as space:
        assert space.catalog.check() == []


def test_a_source_full_of_broken_files_does_not_flood_the_log(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# A\n\nxylophone"})
    config.write_text(config.read_text().replace('root = "./docs"', 'root = "./docs"\nmax_file_bytes = 100'))
    for number in range(300):
        (tmp_path / f"docs/large{number}.md").write_text("x" * 200)
    with serving(config) as server:
        eventually(lambda: server.search("xylophone") == ["a.md"])
        for _ in range(5):
            assert server.post("/tools/refresh", {})[0] == 200
        lines = [line for line in server.log().splitlines() if "not indexed" in line]
        assert len(lines) == 21, "twenty, and one that says how many more"
        assert "more=280" in lines[-1]


def test_each_request_has_an_id_in_the_log_and_no_query_stands_there(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# A\n\nxylophone"})
    with serving(config, "--log-format", "json") as server:
        body = json.dumps({"query": "secretword"}).encode()
        request = urllib.request.Request(
            f"http://{server.address}/tools/search",
            body,
            {"Content-Type": "application/json", "X-Request-Id": "mine-1"},
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            id = reply.headers["X-Request-Id"]
        eventually(lambda: f"id={id}" in server.log())
        lines = [json.loads(line) for line in server.log().splitlines()]
        call = next(line["message"] for line in lines if "tool=search" in line["message"])
        assert re.search(r"door=\w+ ms=[\d.]+ outcome=ok id=", call)
        assert "secretword" not in server.log()


# -- freshness -----------------------------------------------------------------------------------------------
def test_a_search_during_the_first_run_says_that_there_may_be_more(tmp_path: Path) -> None:
    config = project(tmp_path, MANY)
    with serving(config, "--log-level", "error") as server:
        _, answer = server.post("/tools/search", {"query": "xylophone"})
        assert "filesystem:docs has not been indexed to the end yet" in answer["partial"]
        eventually(lambda: "partial" not in server.post("/tools/search", {"query": "xylophone"})[1])
        assert server.get("/health")["index_behind"] == 0


def test_pending_embeddings_are_told_by_every_door(tmp_path: Path) -> None:
    project(tmp_path, {"a.md": "# A\n\nxylophone"}, SEMANTIC)
    assert ctx("index", "--no-embed", cwd=tmp_path).returncode == 0
    answer = json.loads(ctx("search", "xylophone", "--mode", "hybrid", "--json", cwd=tmp_path).stdout)
    assert answer["partial"].endswith("not found by meaning: 1 chunk")
    (source,) = json.loads(ctx("sources", "--json", cwd=tmp_path).stdout)["sources"]
    assert source["pending"] == 1
    stats = ctx("stats", "--json", cwd=tmp_path).stdout
    assert '"pending"' in stats


def test_metrics_tell_of_calls_by_name_and_of_freshness_where_asked_for(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# A\n\nxylophone"})
    with serving(config) as server, pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{server.address}/metrics", timeout=60)
    assert refused.value.code == 404
    refused.value.close()
    config.write_text(config.read_text() + "[server]\nmetrics = true\n")
    with serving(config) as server:
        server.search("xylophone")
        server.post("/tools/made-up-by-a-caller", {})
        with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=60) as reply:
            text = reply.read().decode()
    assert re.search(r'ctx_calls_total\{[^}]*outcome="ok"[^}]*tool="search"\} 1.0', text)
    assert "made-up" not in text
    assert "ctx_pending_chunks 0.0" in text
    assert "ctx_index_behind" in text


# -- deployment ----------------------------------------------------------------------------------------------
def test_the_systemd_unit_is_one(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze (package systemd)")
    unit = tmp_path / "ctx.service"
    text = (ROOT / "docs/deploy/ctx.service").read_text()
    unit.write_text(text.replace("%h/.local/bin/ctx", sys.executable).replace("%h/notes", str(tmp_path)))
    completed = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(unit)], capture_output=True, text=True
    )
    complaints = [line for line in completed.stderr.splitlines() if "ctx.service" in line]
    assert complaints == []


def test_the_paths_that_the_dockerfile_names_are_there() -> None:
    text = (ROOT / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for path in line.split():
            assert (ROOT / path).exists(), path
    assert "USER ctx" in text
