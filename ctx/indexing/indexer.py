"""Brings the store up to date: indexes sources, then embeds new chunks.

One process writes at a time. It holds a file lock for one run, for one batch of a slow run (a site, a bucket,
a script), or for one batch of embeddings. So `ctx index` waits only a few seconds while a server is writing.
If a source must be fetched before it can be read, such as a git repository, the lock is taken after the
fetch. Searches never wait.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Protocol

from ctx.connectors.base import FETCHED_KINDS, SLOW_KINDS, Connector
from ctx.embed import Embedder
from ctx.errors import Busy, NotFound
from ctx.indexing.embedding import EmbeddingQueue, EmbeddingRun, EmbedReport
from ctx.indexing.run import ConfigurationFile, IndexRun, Items, Progress, Window
from ctx.indexing.status import IDLE, Activity, IndexReport, Pace
from ctx.models import SourceStatus, source_kind
from ctx.store.base import Catalog, Projection

logger = logging.getLogger(__name__)

LOCK_TIMEOUT_S = 60.0  # how long to wait for the lock while another process writes many documents
PROBLEMS_LOGGED = 20  # maximum problems to log per run; the report has all of them
PUBLISH_EVERY_S = 1.0  # seconds between two publications of the index at the beginning of a run
# The same later in the run: a commit with its merges takes 0.3 s.
PUBLISH_AT_LAST_S = 10.0


class Lock(Protocol):
    def acquire(self, timeout_s: float) -> None: ...
    def release(self) -> None: ...


Turn = Callable[[str, threading.Event | None], AbstractContextManager[threading.Event | None]]
"""Called with a source's name and a stop event. Returns a context in which no other machine indexes the
source, and which yields the event that ends the run early. Raises `Busy`.
"""


class _Publishing:
    """The index that a run writes to. It is opened at first use, and published from time to time: searches
    then see what was written.
    """

    def __init__(self, catalog: Catalog, hold: Callable[[], Projection]) -> None:
        self._catalog = catalog
        self._hold = hold
        self._index: Projection | None = None
        self._began_s = self._published_s = 0.0

    def begin(self) -> Projection:
        """Opens the index at the first call, and returns it. It stays open."""
        if self._index is None:
            self._index = self._hold()
            self._index.catch_up(self._catalog)
            self._began_s = self._published_s = time.monotonic()
        return self._index

    @contextmanager
    def writing(self) -> Iterator[None]:
        self.begin()
        yield

    def publish(self) -> None:
        """Publishes the written documents if enough time has passed since the last publication."""
        index, now_s = self.begin(), time.monotonic()
        # Publish after 1, 3 and 9 s, then every 10 s: each commit adds segments, and merging them is a fifth
        # of the engine's work.
        if now_s - self._published_s > min(
            max(PUBLISH_EVERY_S, (now_s - self._began_s) * 2 / 3), PUBLISH_AT_LAST_S
        ):
            index.catch_up(self._catalog)
            self._published_s = time.monotonic()


class Indexer:
    """Indexes sources and embeds chunks. Thread-safe: one thread writes, the others wait.

    `open_index()` opens the index for writing; it is closed before the lock is released. `work_lock(work)`
    returns a lock for work that does not write to the index, by name: `reading git:site`, `embedding`.
    """

    def __init__(
        self,
        connectors: Sequence[Connector],
        catalog: Catalog,
        open_index: Callable[[], Projection],
        lock: Lock,
        open_embedder: Callable[[], Embedder | None],
        *,
        model: str | None,
        max_tokens: int,
        overlap_tokens: int,
        work_lock: Callable[[str], Lock],
        turn: Turn | None,
        configuration: ConfigurationFile | None,
    ) -> None:
        self._configuration = configuration
        self.connectors = {connector.name: connector for connector in connectors}
        self.catalog = catalog
        self.model = model
        self.activity: Activity = IDLE
        self._open_index = open_index
        self._lock = lock
        self.lock_timeout_s = LOCK_TIMEOUT_S
        self._work_lock = work_lock
        self._turn = turn or (lambda source, stop: nullcontext(stop))
        self._open_embedder = open_embedder
        self._max_tokens = max_tokens
        self._overlap_tokens = overlap_tokens
        self._mutex = threading.RLock()
        self._embedding = False
        self._paces: dict[tuple[str, str | None], Pace] = {}  # (phase, source) -> pace
        self.reports: dict[str, IndexReport] = {}  # source -> the report of its last run
        self._problems: dict[str, set[int]] = {}  # source -> hashes of the problems of its last run
        self._failures: dict[str, str] = {}  # name of what does not work -> the reason

    def select(self, names: Sequence[str]) -> list[Connector]:
        """The connectors with these names or types; all connectors for no names or for "all". Raises
        `NotFound`, which lists the known names.
        """
        if not names or "all" in names:
            return list(self.connectors.values())
        chosen: list[Connector] = []
        for name in names:
            matches = [
                connector
                for full, connector in self.connectors.items()
                if name in (full, source_kind(connector.name))
            ]
            if not matches:
                sources = ", ".join(self.connectors) or "none is configured"
                raise NotFound(f"unknown source '{name}' (known: {sources})")
            chosen += [connector for connector in matches if connector not in chosen]
        return chosen

    def run(
        self,
        names: Sequence[str] = (),
        *,
        full: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
        stop: threading.Event | None = None,
        window: Window | None = None,
    ) -> list[IndexReport]:
        """Indexes these sources (all if there are no names) one after the other and returns their reports.
        With a `window`, takes only the items in it and deletes nothing. Raises `Busy`, `StoreError`.
        """
        reports = []
        for connector in self.select(names):
            if stop is not None and stop.is_set():
                break
            items = None
            if window is not None:
                known = {} if full else self.catalog.fingerprints(connector.name)
                items = partial(window.scan, connector, known)
            reports.append(
                self.run_source(
                    connector, full=full, dry_run=dry_run, progress=progress, stop=stop, items=items
                )
            )
        return reports

    def run_source(
        self,
        connector: Connector,
        *,
        full: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
        stop: threading.Event | None = None,
        items: Items | None = None,
    ) -> IndexReport:
        """Indexes one source and returns the report. `items` replaces the connector's `scan`, as in
        `IndexRun`.
        """

        def report_progress(source: str, done: int, total: int | None) -> None:
            self._now(phase="indexing", source=source, done=done, total=total)
            if progress:
                progress(source, done, total)

        new_run = partial(
            IndexRun,
            connector,
            self.catalog,
            max_tokens=self._max_tokens,
            overlap_tokens=self._overlap_tokens,
            full=full,
            dry_run=dry_run,
            items=items,
            configuration=self._configuration,
        )
        if dry_run:
            return new_run(progress=progress, stop=stop).run()
        with self._turn(connector.name, stop) as stop:
            new_run = partial(new_run, progress=report_progress, stop=stop)
            slow = source_kind(connector.name) in SLOW_KINDS
            report = (self._run_slowly if slow else self._run_at_once)(connector.name, new_run)
        self.reports[connector.name] = report
        changed = report.added or report.updated or report.deleted
        # A failure is logged once, and again only when its message changes.
        news = self.degrade(report.source, None if report.ok else report.note)
        counts = (report.added, report.updated, report.deleted, report.unchanged, len(report.problems))
        logger.log(
            logging.INFO if changed or news else logging.DEBUG,
            "indexed source=%s ok=%s added=%d updated=%d deleted=%d unchanged=%d failed=%d seconds=%.2f",
            *(report.source, report.ok, *counts, report.duration_s),
        )
        self._log_problems(report)
        return report

    def _run_at_once(self, source: str, new_run: Callable[..., IndexRun]) -> IndexReport:
        """Runs under the lock. If the source must be fetched first, takes the lock only before the first
        batch.
        """
        with ExitStack() as stack:
            publishing = _Publishing(self.catalog, lambda: stack.enter_context(self._resumed()))
            fetched = source_kind(source) in FETCHED_KINDS
            if fetched:
                stack.enter_context(self._reading(source))
            self._now(phase="indexing", source=source, done=0, total=None)
            if not fetched:
                publishing.begin()
            report = new_run(published=publishing.publish, writing=publishing.writing).run()
            publishing.begin().catch_up(self.catalog)
            if report.updated or report.deleted:
                self.catalog.trim_embeddings()
        return report

    def _run_slowly(self, source: str, new_run: Callable[..., IndexRun]) -> IndexReport:
        """Runs with the lock only for each batch, so that other processes can write in between."""
        with self._reading(source):
            self._now(phase="indexing", source=source, done=0, total=None)
            report = new_run(writing=self._batch).run()
            if report.updated or report.deleted:
                with self.writing():
                    self.catalog.trim_embeddings()
        return report

    @contextmanager
    def _reading(self, source: str) -> Iterator[None]:
        """A context in which no other process reads this source: two runs would delete each other's
        documents.
        """
        lock = self._work_lock(f"reading {source}")
        lock.acquire(self.lock_timeout_s)
        try:
            yield
        finally:
            lock.release()
            self._now(phase="embedding" if self._embedding else "idle", source=None, done=0, total=None)

    @contextmanager
    def _batch(self) -> Iterator[None]:
        """Takes the lock for one batch of a slow run, then updates the index."""
        before = self.activity
        with self._resumed() as index:
            yield
            index.catch_up(self.catalog)
        self._resume(before)

    @contextmanager
    def _resumed(self) -> Iterator[Projection]:
        """Yields the index under the lock for one batch of a run, with the run's progress still shown."""
        before = self.activity
        with self.writing() as index:
            self._resume(before)
            yield index

    def _resume(self, activity: Activity) -> None:
        self._now(phase=activity.phase, source=activity.source, done=activity.done, total=activity.total)

    def _log_problems(self, report: IndexReport) -> None:
        """Logs the problems that the last run did not have, so that a broken file in a source that is scanned
        again and again is logged once.
        """
        before = self._problems.get(report.source, set())
        news = [problem for problem in report.problems if hash(problem) not in before]
        for problem in news[:PROBLEMS_LOGGED]:
            logger.warning(
                "not indexed source=%s item=%s reason=%s", report.source, problem.source_id, problem.message
            )
        if len(news) > PROBLEMS_LOGGED:
            logger.warning("not indexed source=%s more=%d", report.source, len(news) - PROBLEMS_LOGGED)
        self._problems[report.source] = {hash(problem) for problem in report.problems}

    def embed(
        self,
        *,
        limit: int | None = None,
        progress: Progress | None = None,
        stop: threading.Event | None = None,
        rebuild: bool = False,
    ) -> EmbedReport:
        """Embeds the pending chunks, at most `limit`; each batch is searchable at once. `rebuild` first
        deletes all embeddings of the model. Raises the embedder's errors.
        """
        began_s = time.monotonic()
        if self.model is None:
            return EmbedReport(0, 0, 0.0)
        if rebuild:
            self.warm(documents=True)  # check that the embedder answers before anything is deleted
            with self.writing() as index:
                self.catalog.forget_embeddings(self.model)
                index.catch_up(self.catalog)
        if not self.catalog.pending_count(self.model):
            return EmbedReport(0, 0, time.monotonic() - began_s)
        try:
            with self._embedding_queue() as queue:
                run = EmbeddingRun(
                    catalog=self.catalog,
                    model=self.model,
                    queue=queue,
                    open_embedder=self._open_embedder,
                    writing=self.writing,
                    working=self._embedded,
                    limit=limit,
                    progress=progress,
                    stop=stop,
                )
                count = run.run()
            return EmbedReport(count, self.catalog.pending_count(self.model), time.monotonic() - began_s)
        finally:
            self._embedding = False
            self._now(phase="idle", source=None, done=0, total=None)

    @contextmanager
    def _embedding_queue(self) -> Iterator[EmbeddingQueue]:
        """The chunks to embed. If another process is embedding too, this queue starts at the other end."""
        lock = self._work_lock("embedding")
        try:
            lock.acquire(0)
        except Busy:
            yield EmbeddingQueue(backwards=True)
            return
        try:
            yield EmbeddingQueue()
        finally:
            lock.release()

    def _embedded(self, done: int, total: int) -> None:
        self._embedding = True
        self._now(phase="embedding", source=None, done=done, total=total)

    def warm(self, *, documents: bool) -> None:
        """Loads the model for queries or for documents, so that it is ready when needed. Raises the
        embedder's errors.
        """
        embedder = self._open_embedder() if self.model is not None else None
        if embedder is not None and documents:
            list(embedder.embed(["warm"]))
        elif embedder is not None:
            embedder.embed_query("warm")

    def forget(self, names: Sequence[str]) -> int:
        """Deletes sources that are no longer configured, with their documents. Returns the number of
        documents.
        """
        dropped = 0
        with self.writing() as index:
            for name in names:
                dropped += len(self.catalog.fingerprints(name))
                self.catalog.delete_source(name)
            index.catch_up(self.catalog)
        return dropped

    def forget_models(self, choose: Callable[[], Sequence[str]]) -> int:
        """Deletes the embeddings of the models that `choose()` returns; it is called under the lock. Returns
        the number of embeddings.
        """
        with self.writing() as index:
            count = sum(self.catalog.forget_embeddings(model) for model in choose())
            index.catch_up(self.catalog)
        return count

    def repair(self) -> None:
        """Brings the index up to date with the catalog, and rebuilds its missing or damaged parts."""
        with self.writing() as index:
            index.catch_up(self.catalog)

    def rebuild_damaged(self, *, adopt: bool = False) -> list[str]:
        """Checks the whole index and rebuilds it if there are problems. Returns one line per problem. With
        `adopt`, also rebuilds an index that belongs to another catalog.
        """
        with self.writing() as index:
            problems = index.check()
            if problems and adopt:
                index.adopt()
            if problems:
                for problem in problems:
                    logger.warning("the index is rebuilt reason=%s", problem)
                index.catch_up(self.catalog)
        return problems

    @contextmanager
    def writing(self) -> Iterator[Projection]:
        """Yields the index, opened for writing, under the lock. Raises `Busy`, which names the holder, if the
        lock is not free in time.
        """
        with self._mutex:
            before = self.activity
            self._now(phase="waiting", source=before.source, done=before.done, total=before.total)
            try:
                self._lock.acquire(self.lock_timeout_s)
            except BaseException:
                self._now(phase="idle", source=None, done=0, total=None)
                raise
            try:
                index = self._open_index()
                try:
                    yield index
                finally:
                    index.close()
            finally:
                self._lock.release()
                # Another thread may be embedding a batch, or this write may end such a batch.
                work = before if before.phase == "embedding" else IDLE
                phase = "embedding" if self._embedding else "idle"
                self._now(phase=phase, source=None, done=work.done, total=work.total)

    def degrade(self, key: str, reason: str | None) -> bool:
        """Sets the reason why something does not work, or clears it with None. `key` is the name of what does
        not work. Returns whether that changed anything.
        """
        before = self._failures.pop(key, None)
        if reason:
            self._failures[key] = reason.removeprefix(f"{key}: ")  # some reasons already begin with the key
        lines = tuple(f"{name}: {cause}" for name, cause in self._failures.items())
        self.activity = self.activity._replace(degraded=lines)
        return self._failures.get(key) != before

    def failure(self, key: str) -> str | None:
        """The reason that `degrade` set for this key, or None."""
        return self._failures.get(key)

    def with_failures(self, statuses: Sequence[SourceStatus]) -> list[SourceStatus]:
        """The catalog's statuses of sources, plus failures that the catalog does not have: on a full disk a
        failed run cannot be recorded.
        """
        notes = {status.name: self.failure(status.name) for status in statuses if status.healthy}
        return [
            status._replace(healthy=False, note=notes[status.name]) if notes.get(status.name) else status
            for status in statuses
        ]

    def await_first_run(self) -> None:
        """Sets the phase to indexing before the first run begins, so that clients do not take the index for
        complete.
        """
        if self.connectors and self.activity.phase == "idle":
            self._now(phase="indexing", source=None, done=0, total=None)

    def watching(self, how: str) -> None:
        self.activity = self.activity._replace(watching=how)

    def _now(self, *, phase: str, source: str | None, done: int, total: int | None) -> None:
        rate = left_s = None
        if phase in ("indexing", "embedding"):
            pace = self._paces.setdefault((phase, source), Pace())
            rate = pace.rate(time.monotonic(), done)
            left_s = (total - done) / rate if rate and total is not None else None
        elif phase == "idle":
            self._paces = {}
        self.activity = self.activity._replace(
            phase=phase, source=source, done=done, total=total, rate=rate, left_s=left_s
        )
