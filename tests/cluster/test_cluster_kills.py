"""Writers of a shared database die at any moment, and whoever follows it misses nothing: no number hides a
document.

`CTX_KILLS` says how many die.
"""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import store_tree
import store_writer

from ctx.errors import StoreError
from ctx.models import Filters
from ctx.store.index import LocalIndex

pytest.importorskip("psycopg", reason="psycopg is missing: run `make setup`")

from ctx.cluster.catalog import PostgresCatalog

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("CTX_KILLS", "8"))  # 200 take five minutes
WRITERS = 4  # beside each other


def start(url: str, number: int) -> "subprocess.Popen[str]":
    # A source of its own for each place: two never write one, or they would wait for each other's.
    command = [sys.executable, store_writer.__file__, url, f"git:{number % WRITERS}", str(number)]
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(store_tree.__file__)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def follow(catalog: PostgresCatalog, index: LocalIndex, stop: threading.Event) -> None:
    while not stop.is_set():
        index.catch_up(catalog)


def contents(
    catalog: PostgresCatalog, index: LocalIndex
) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """The chunks that the catalog holds, and those that the index finds."""
    stored = {(entry.document.id, no) for entry in catalog.export() for no in entry.chunk_nos}
    hits = index.keyword("otter", Filters(), 10_000)
    rows = catalog.chunk_rows([hit.chunk_no for hit in hits])
    return stored, {(row.id, no) for no, row in rows.items()}


def test_an_index_that_follows_writers_who_die_has_what_the_catalog_has(
    postgres_server: object, database_url: str, tmp_path: Path
) -> None:
    lots = random.Random(7)
    stop = threading.Event()
    with PostgresCatalog(database_url) as catalog:
        index = LocalIndex(str(tmp_path / "index"), lambda: None)
        follower = threading.Thread(target=follow, args=(catalog, index, stop), daemon=True)
        follower.start()
        writers = [start(database_url, number) for number in range(WRITERS)]
        try:
            for number in range(KILLS):
                writer = writers[number % WRITERS]
                assert writer.stdout is not None
                assert writer.stdout.readline() == "ready\n"
                try:
                    writer.wait(lots.random() * 0.5)
                except subprocess.TimeoutExpired:
                    pass  # as meant
                assert writer.poll() is None
                writer.send_signal(signal.SIGKILL)
                writer.communicate()
                writers[number % WRITERS] = start(database_url, number + WRITERS)
                assert follower.is_alive()
        finally:
            for writer in writers:
                writer.kill()
                writer.communicate()
            stop.set()
            follower.join(60)
        assert not follower.is_alive()
        settled(catalog)
        index.catch_up(catalog)
        stored, indexed = contents(catalog, index)
        assert indexed == stored
        assert len(stored) > WRITERS
        assert catalog.check() == []
        index.close()


def settled(catalog: PostgresCatalog) -> None:
    """Waits until the server has seen that the writers are gone: what they had begun is taken back by
    then.
    """
    for number in range(WRITERS):
        try:
            catalog.delete_documents(f"git:{number}", ["none.md"])
        except StoreError as error:
            raise AssertionError(f"git:{number} is still held") from error
