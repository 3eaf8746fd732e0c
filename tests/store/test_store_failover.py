"""The primary dies in mid-run and its standby takes over: what was acknowledged is there, once, and found on
every node.

`CTX_ROUNDS` says how often; CI has one round, which takes about ten seconds.
"""

import os
import threading
import time
from pathlib import Path

import postgres
import pytest
from store_tree import make

from ctx.errors import StoreError
from ctx.store.base import Catalog
from ctx.store.local import LocalIndex
from ctx.types import Filters

psycopg = pytest.importorskip("psycopg", reason="psycopg is missing: run `make setup`")

from ctx.store.postgres_catalog import PostgresCatalog  # noqa: E402

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROUNDS = int(os.environ.get("CTX_ROUNDS", "1"))
WRITERS = 3
BEFORE = 20  # documents of each writer before the primary dies, and after
LATE_S = 120.0


def run_sql(server: postgres.Server, *statements: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for sql in statements:
            connection.execute(sql)


def replicated(server: postgres.Server) -> bool:
    """Whether a standby acknowledges each commit."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        ).fetchone()
    return row == (1,)


class Writing(threading.Thread):
    """Stores document after document; one whose storing broke off is stored again, as an index run does."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.acknowledged: list[str] = []
        self.interruptions = 0
        self.stop = threading.Event()
        self._url = url

    def run(self) -> None:
        with PostgresCatalog(self._url) as catalog:
            count = 0
            while not self.stop.is_set():
                document, chunks = make(f"git:{self.name}", f"{count}.md", [f"{self.name} word{count}"])
                try:
                    catalog.put_documents([(document, chunks)])
                except StoreError:
                    self.interruptions += 1
                    continue
                self.acknowledged.append(document.id)
                count += 1


def wait_for(writers: list[Writing], count: int) -> None:
    deadline_s = time.monotonic() + LATE_S
    while any(len(writer.acknowledged) < count for writer in writers):
        assert time.monotonic() < deadline_s, [(len(w.acknowledged), w.interruptions) for w in writers]
        assert all(writer.is_alive() for writer in writers)
        time.sleep(0.02)


def follow(catalog: Catalog, index: LocalIndex, stop: threading.Event) -> None:
    while not stop.wait(0.2):
        try:
            index.catch_up(catalog)
        except StoreError:
            pass  # no primary just now


def wait_for_standby(primary: postgres.Server) -> None:
    """From here on a write is acknowledged when the standby has applied it."""
    run_sql(
        primary,
        "ALTER SYSTEM SET synchronous_standby_names = '*'",
        "ALTER SYSTEM SET synchronous_commit = 'remote_apply'",
        "SELECT pg_reload_conf()",
    )
    deadline_s = time.monotonic() + LATE_S
    while not replicated(primary):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    with PostgresCatalog(primary.url()) as catalog:
        whole, line = catalog.server() or (False, "")
        assert whole, line
        assert "PostgreSQL 18" in line
        assert "1 standby (1 synchronous)" in line


@pytest.mark.parametrize("_round", range(ROUNDS))
def test_no_acknowledged_document_is_lost_when_the_primary_is_killed(
    _round: int, postgres_programs: postgres.Programs, tmp_path: Path
) -> None:
    primary = postgres.Server(postgres_programs, durable=True).create()
    standby = primary.standby()
    stop = threading.Event()
    try:
        wait_for_standby(primary)
        name = primary.database().rsplit("/", 1)[1]
        url = f"postgresql://ctx@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/{name}"
        catalogs = [PostgresCatalog(url) for _ in range(2)]
        indexes = [
            LocalIndex(str(tmp_path / f"index-{no}"), lambda: (None, None), writable=True) for no in range(2)
        ]
        followers = [
            threading.Thread(target=follow, args=(catalog, index, stop), daemon=True)
            for catalog, index in zip(catalogs, indexes, strict=True)
        ]
        writers = [Writing(url, f"writer{no}") for no in range(WRITERS)]
        for thread in (*writers, *followers):
            thread.start()
        wait_for(writers, BEFORE)
        primary.kill()
        standby.promote()
        run_sql(standby, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        wait_for(writers, max(len(writer.acknowledged) for writer in writers) + BEFORE)
        for writer in writers:
            writer.stop.set()
        for writer in writers:
            writer.join(LATE_S)
        stop.set()
        for follower in followers:
            follower.join(LATE_S)
        acknowledged = {id for writer in writers for id in writer.acknowledged}
        stored = [entry.document.id for entry in catalogs[0].export()]
        assert acknowledged <= set(stored)
        assert len(stored) == len(set(stored)), "none twice"
        assert catalogs[0].check() == []
        for catalog, index in zip(catalogs, indexes, strict=True):
            index.catch_up(catalog)
            for no in range(WRITERS):
                hits = index.keyword(f"writer{no}", Filters(), 10_000)
                rows = catalog.chunk_rows([hit.chunk_no for hit in hits])
                assert set(writers[no].acknowledged) <= {row.id for row in rows.values()}
            index.close()
            catalog.close()
    finally:
        stop.set()
        primary.discard()
        standby.discard()
