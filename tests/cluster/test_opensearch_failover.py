"""Three nodes of OpenSearch, of which one is killed (`kill -9`) while the index is brought up to date.
`CTX_ROUNDS` for more.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import opensearch
import pytest
from store_tree import MODEL, embed_pending, make, vector_of

from ctx.cluster.opensearch import OpenSearchIndex
from ctx.cluster.opensearch_client import Client
from ctx.config.settings import Index
from ctx.errors import StoreError
from ctx.models import Filters
from ctx.store.sqlite import SqliteCatalog

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

ROUNDS = int(os.environ.get("CTX_ROUNDS", "1"))
ALL = Filters()
BATCH = 20


@pytest.fixture(scope="module")
def nodes() -> Iterator[opensearch.Cluster]:
    # A manager that hangs is noticed soon too; one that is killed is noticed at once, by its connections.
    started = opensearch.Cluster(3, "cluster.fault_detection.leader_check.interval=500ms")
    try:
        yield started.wait("green")
    finally:
        started.discard()


def victim(nodes: opensearch.Cluster, round_number: int) -> int:
    """The elected manager, and another one, in turn."""
    manager = nodes.ask("GET", "/_cat/cluster_manager?format=json")[0]["node"]
    elected = int(manager.removeprefix("n"))
    return elected if round_number % 2 else (elected + 1) % 3


class Searches(threading.Thread):
    """Searches until it is told to stop. `failures`: what went wrong; `count`: what went right."""

    def __init__(self, index: OpenSearchIndex) -> None:
        super().__init__(daemon=True)
        self._index = index
        self.over = threading.Event()
        self.failures: list[str] = []
        self.count = 0

    def run(self) -> None:
        while not self.over.wait(0.05):  # the nodes have the same two cores
            try:
                assert self._index.vocabulary(["otter"], ())[0]
                assert self._index.keyword("otter", ALL, 5)
                assert self._index.semantic(vector_of(b"q"), ALL, 5, MODEL)
                self.count += 1
            except (StoreError, AssertionError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")


def test_a_killed_node_loses_nothing_and_searches_go_on(nodes: opensearch.Cluster, tmp_path: Path) -> None:
    count = 0
    with (
        closing(Client(Index(url=",".join(nodes.urls), timeout_secs=60.0, max_retries=12))) as client,
        SqliteCatalog(str(tmp_path / "ctx.db")) as catalog,
    ):
        index = OpenSearchIndex(client, lambda: MODEL, name="kill", layout=(3, 1))

        def write() -> None:
            nonlocal count
            catalog.put_documents(
                [make("a", f"{count + i}.md", [f"otter number{count + i}"]) for i in range(BATCH)]
            )
            count += BATCH
            embed_pending(catalog)
            index.catch_up(catalog)

        write()
        nodes.wait("green")
        for round_number in range(ROUNDS):
            searches = Searches(index)
            searches.start()
            number = victim(nodes, round_number)
            killer = threading.Timer(0.3, nodes.kill, (number,))
            killer.start()
            while killer.is_alive() or searches.count == 0:
                write()
            for _ in range(5):
                write()
            searches.over.set()
            searches.join()
            assert not searches.failures
            assert len(index.keyword("otter", ALL, 10_000)) == count
            assert len(index.semantic(vector_of(b"q"), ALL, 10_000, MODEL)) == count
            assert index.check() == []
            nodes.start(number)
            nodes.wait("green")
            write()
            assert len(index.keyword("otter", ALL, 10_000)) == count
