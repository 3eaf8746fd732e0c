"""The primary dies in mid-run and its standby takes over, and a worker dies with it: what was acknowledged is
there, once, and found on every node.

`CTX_ROUNDS` says how often; CI has one round. The worker's turn runs out after half a minute, which a round
lasts.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import postgres
import pytest
from store_tree import make

from ctx.errors import StoreError
from ctx.memory.bank import MemoryBank
from ctx.memory.store import MemoryStore
from ctx.models import JSON, Filters
from ctx.store.base import Catalog
from ctx.store.index import LocalIndex

psycopg = pytest.importorskip("psycopg", reason="psycopg is missing: run `make setup`")

from ctx.cluster.catalog import PostgresCatalog  # noqa: E402

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROUNDS = int(os.environ.get("CTX_ROUNDS", "1"))
WRITERS = 3
BANKS = ("alice", "alice", "bruno")  # of those who write memories: two in one bank, on two servers
FILES = 400  # of the source that the worker runs
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
    """Stores one thing after the other; one whose storing broke off is stored again, as an index run does."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.acknowledged: list[str] = []
        self.interruptions = 0
        self.stop = threading.Event()
        self._url = url

    def run(self) -> None:
        with self._opened() as store:
            count = 0
            while not self.stop.is_set():
                try:
                    self.acknowledged.append(self._store(store, count))
                except StoreError:
                    self.interruptions += 1
                    continue
                count += 1

    def _opened(self) -> PostgresCatalog | MemoryStore:
        return PostgresCatalog(self._url)

    def _store(self, store: PostgresCatalog | MemoryStore, count: int) -> str:
        assert isinstance(store, PostgresCatalog)
        document, chunks = make(f"git:{self.name}", f"{count}.md", [f"{self.name} word{count}"])
        store.put_documents([(document, chunks)])
        return document.id


class Remembering(Writing):
    """Stores memory after memory, each under a key of its own, so that a second asking stores nothing."""

    bank = ""

    def _opened(self) -> MemoryStore:
        return MemoryStore(self._url)

    def _store(self, store: PostgresCatalog | MemoryStore, count: int) -> str:
        assert isinstance(store, MemoryStore)
        text = f"{self.name} noted thing{count}"
        reply = store.bank(self.bank).put(text, kind="note", idempotency_key=f"{self.name} {count}")
        return str(reply["id"])


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


class Pair(NamedTuple):
    """A primary, the standby that acknowledges its commits, and the address of both."""

    primary: postgres.Server
    standby: postgres.Server
    url: str

    def fail_over(self) -> None:
        self.primary.kill()
        self.standby.promote()
        run_sql(self.standby, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")


@contextmanager
def running_pair(programs: postgres.Programs) -> Iterator[Pair]:
    primary = postgres.Server(programs, durable=True).create()
    standby = primary.standby()
    try:
        wait_for_standby(primary)
        name = primary.database().rsplit("/", 1)[1]
        yield Pair(
            primary, standby, f"postgresql://ctx@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/{name}"
        )
    finally:
        primary.discard()
        standby.discard()


class Worker:
    """`ctx worker` in a project of its own, which dies in mid-batch and is started again."""

    def __init__(self, folder: Path, url: str) -> None:
        (folder / "docs").mkdir(parents=True)
        for number in range(FILES):
            (folder / "docs" / f"{number}.md").write_text(
                f"# Page {number}\n\nwhat worker knows of {number}\n"
            )
        self._folder = folder
        (folder / "ctx.toml").write_text(
            f'[store]\nurl = "{url}"\n[connectors.filesystem.pages]\nroot = "./docs"\n'
            '[embedding]\nprovider = "disabled"\n'
        )

    def start(self, *values: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", "ctx", "worker", *values],
            cwd=self._folder,
            env=os.environ | {"CTX_CONFIG": str(self._folder / "ctx.toml")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def finish(self, catalog: PostgresCatalog) -> None:
        """Starts it again and again until the turn of the dead one has run out and all is stored."""
        deadline_s = time.monotonic() + LATE_S
        while len(catalog.fingerprints("filesystem:pages")) < FILES:
            assert time.monotonic() < deadline_s
            self.start("--once").wait(LATE_S)


@pytest.mark.parametrize("_round", range(ROUNDS))
def test_nothing_acknowledged_is_lost_when_the_primary_and_a_worker_are_killed(
    _round: int, postgres_programs: postgres.Programs, tmp_path: Path
) -> None:
    with ExitStack() as opened:
        pair = opened.enter_context(running_pair(postgres_programs))
        stop = threading.Event()
        opened.callback(stop.set)
        catalogs = [opened.enter_context(PostgresCatalog(pair.url)) for _ in range(2)]
        indexes = [LocalIndex(str(tmp_path / f"index-{no}"), lambda: None) for no in range(2)]
        followers = [
            threading.Thread(target=follow, args=(catalog, index, stop), daemon=True)
            for catalog, index in zip(catalogs, indexes, strict=True)
        ]
        remembering = [Remembering(pair.url, f"writer{no}") for no in range(len(BANKS))]
        for writer, bank in zip(remembering, BANKS, strict=True):
            writer.bank = bank
        documents = [Writing(pair.url, f"writer{no}") for no in range(WRITERS)]
        writers = [*documents, *remembering]
        for thread in (*writers, *followers):
            thread.start()
        worker = Worker(tmp_path / "worker", pair.url)
        dying = worker.start()
        opened.callback(dying.wait)
        opened.callback(dying.kill)
        wait_for(writers, BEFORE)
        wait_for_batch(catalogs[0])
        dying.kill()
        pair.fail_over()
        wait_for(writers, max(len(writer.acknowledged) for writer in writers) + BEFORE)
        for writer in writers:
            writer.stop.set()
        for writer in writers:
            writer.join(LATE_S)
        worker.finish(catalogs[0])
        stop.set()
        for follower in followers:
            follower.join(LATE_S)
        check_documents(catalogs, indexes, documents)
        check_memories(pair.url, remembering)


def wait_for_batch(catalog: PostgresCatalog) -> None:
    """Until the worker has stored something, which is not all of it."""
    deadline_s = time.monotonic() + LATE_S
    while not catalog.fingerprints("filesystem:pages"):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def check_documents(
    catalogs: list[PostgresCatalog], indexes: list[LocalIndex], writers: list[Writing]
) -> None:
    acknowledged = {id for writer in writers for id in writer.acknowledged}
    stored = [entry.document.id for entry in catalogs[0].export()]
    assert acknowledged <= set(stored)
    assert len(stored) == len(set(stored)), "none twice"
    assert catalogs[0].check() == []
    for catalog, index in zip(catalogs, indexes, strict=True):
        index.catch_up(catalog)
        for writer in writers:
            hits = index.keyword(writer.name, Filters(), 10_000)
            rows = catalog.chunk_rows([hit.chunk_no for hit in hits])
            assert set(writer.acknowledged) <= {row.id for row in rows.values()}
        hits = index.keyword("worker", Filters(), 10_000)
        rows = catalog.chunk_rows([hit.chunk_no for hit in hits])
        assert sorted(row.source_id for row in rows.values()) == sorted(
            f"{number}.md" for number in range(FILES)
        )
        index.close()


def check_memories(url: str, writers: list[Remembering]) -> None:
    """Every memory that was acknowledged is found on two servers, and no text is there twice."""
    with MemoryStore(url) as first, MemoryStore(url) as second:
        assert first.check(deep=True) == []
        for store in (first, second):
            for writer in writers:
                bank = store.bank(writer.bank)
                texts = [record["text"] for record in records_of(bank)]
                assert len(texts) == len(set(texts)), "none twice"
                results = bank.search(writer.name, mode="keyword", limit=1000, budget="high")["results"]
                matches = {result["record"]["id"] for result in results}
                assert set(writer.acknowledged) <= {record["id"] for record in records_of(bank)}
                assert set(writer.acknowledged[:900]) <= matches or len(matches) >= 900


def records_of(bank: MemoryBank) -> list[dict[str, JSON]]:
    """All memories of a bank."""
    records: list[dict[str, JSON]] = []
    cursor = None
    while True:
        page = bank.browse(limit=1000, cursor=cursor)
        records += page["items"]
        cursor = page["cursor"]
        if cursor is None:
            return records
