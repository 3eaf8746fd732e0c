"""`[index] engine = "opensearch"`: what the commands and a server make of it, with a file and with a
PostgreSQL as the record.
"""

import json
import socket
import threading
import time
from pathlib import Path

import opensearch
import pytest
from kit import project
from postgres import free_port
from test_two_nodes import ctx, eventually, health, ran, results, serving

from ctx.config import load_config
from ctx.indexing.worker import Worker
from ctx.workspace import open_workspace

pytestmark = pytest.mark.cluster

DOCUMENTS = {"otter.md": "# Otters\n\nThe otter swims.\n", "heron.md": "# Herons\n\nThe heron stands.\n"}


def machine(folder: Path, index: str, name: str, *, store: str | None = None, source: str = "docs") -> Path:
    """A machine's project whose index is in an OpenSearch; its ctx.toml."""
    text = (
        f'[index]\nengine = "opensearch"\nurl = "{index}"\nname = "{name}"\nreplicas = 0\nmax_retries = 1\n'
    )
    text += f'[store]\nurl = "{store}"\n' if store else ""
    text += '[embedding]\nprovider = "disabled"\n[server]\nbind = "127.0.0.1:0"\n'
    text += f'[connectors.filesystem.{source}]\nroot = "./docs"\n'
    return project(folder, DOCUMENTS, text)


def ids(config: Path, query: str) -> list[str]:
    return [entry["source_id"] for entry in results(config, query)]


def failure(config: Path, *values: str) -> str:
    """What a command says that fails for want of the store."""
    completed = ran(config, *values)
    assert completed.returncode == 4, (completed.stdout, completed.stderr)
    assert "Traceback" not in completed.stderr
    return completed.stderr


def test_a_file_as_the_record_and_an_opensearch_as_the_index(
    tmp_path: Path, opensearch_url: str, index_name: str
) -> None:
    config = machine(tmp_path, opensearch_url, index_name)
    ctx(config, "index")
    assert ids(config, "otters") == ["otter.md"]
    assert not (tmp_path / ".ctx" / "index").exists()
    (tmp_path / "docs" / "otter.md").unlink()
    ctx(config, "index")
    assert ids(config, "otter heron") == ["heron.md"]
    findings = {row["what"]: row for row in json.loads(ctx(config, "doctor", "--json"))["findings"]}
    assert findings["search engine"]["detail"].startswith("OpenSearch 3.")
    assert findings["index"]["state"] == "ok"
    opensearch.forget(opensearch_url, index_name)
    assert "no keyword index of this version yet" in ctx(config, "doctor", code=1)
    ctx(config, "doctor", "--fix")
    assert ids(config, "heron") == ["heron.md"]


def test_an_index_that_is_deleted_under_a_server_is_built_anew(
    tmp_path: Path, opensearch_url: str, index_name: str
) -> None:
    config = machine(tmp_path, opensearch_url, index_name)
    ctx(config, "index")
    with serving(config) as address:
        eventually(address, "otters", ["otter.md"])
        opensearch.forget(opensearch_url, index_name)
        eventually(address, "herons", ["heron.md"])


def test_machines_with_one_database_share_one_index(
    tmp_path: Path, opensearch_url: str, index_name: str, database_url: str
) -> None:
    first, second = (
        machine(tmp_path / name, opensearch_url, index_name, store=database_url, source=name)
        for name in ("first", "second")
    )
    ctx(first, "index")
    assert ids(second, "otters") == ["otter.md"]
    ctx(second, "worker", "--once")
    assert ids(first, "otters") == ["otter.md", "otter.md"]
    with serving(first) as address:
        (second.parent / "docs" / "vole.md").write_text("The vole hides.\n")
        ctx(second, "worker", "--once")
        eventually(address, "vole", ["vole.md"])
        assert health(address)["index_behind"] == 0
    assert not list(tmp_path.glob("*/.ctx/index"))


def test_a_search_engine_that_is_away_is_told_by_the_search_and_by_health(tmp_path: Path) -> None:
    config = machine(tmp_path, f"http://127.0.0.1:{free_port()}", "ctx")
    for command in (("index",), ("search", "otter")):
        assert "OpenSearch cannot be reached" in failure(config, *command)
    with serving(config) as address:
        state = health(address)
        while not state.get("degraded"):
            time.sleep(0.05)
            state = health(address)
    assert (state["status"], state["index_behind"]) == ("ok", None)
    assert any("OpenSearch cannot be reached" in line for line in state["degraded"])


def test_health_does_not_wait_for_a_search_engine_that_says_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections
        config = machine(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}", "ctx")
        config.write_text(config.read_text().replace("max_retries = 1", "timeout_secs = 60"))
        with serving(config) as address:
            state = health(address, timeout_s=30.0)
    assert (state["status"], state["index_behind"]) == ("ok", None)
    assert any("OpenSearch cannot be reached" in line for line in state["degraded"])


def test_what_the_record_knows_is_told_while_the_search_engine_is_away(
    tmp_path: Path, database_url: str
) -> None:
    config = machine(tmp_path, f"http://127.0.0.1:{free_port()}", "ctx", store=database_url)
    ctx(config, "worker", "--once", "--roles", "scan,embed")
    (source,) = json.loads(ctx(config, "sources", "--json"))["sources"]
    assert (source["healthy"], source["doc_count"]) == (True, 2)
    stats = json.loads(ctx(config, "stats", "--json"))
    assert (stats["documents"], stats["index_behind"]) == (2, None)
    assert "OpenSearch cannot be reached" in ctx(config, "stats")
    assert "heron" in ctx(config, "get", "heron.md").lower()
    failed = [
        row
        for row in json.loads(ctx(config, "doctor", "--json", code=1))["findings"]
        if row["state"] == "failed"
    ]
    assert [row["what"] for row in failed] == ["index"], "told once"


def test_a_worker_tells_once_that_the_search_engine_is_away(
    tmp_path: Path, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = machine(tmp_path, f"http://127.0.0.1:{free_port()}", "ctx", store=database_url)
    with open_workspace(load_config(str(config), {})) as space:
        worker = Worker(space.indexer, ["pump"], {})
        assert [worker.work(threading.Event()) for _ in range(3)] == [False] * 3
    assert [record.message for record in caplog.records].count(
        "index update failed reason=OpenSearch cannot be reached: is it running, and is [index] url "
        "its address?"
    ) == 1
