"""A worker process: indexes sources and embeds chunks, for a catalog that several machines share.

Workers divide the work among themselves by reservations in the shared database: a lease for a source to
index, a claim for texts to embed. A worker keeps no state: if it dies, another takes its work when the lease
or claim expires.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ctx.errors import Busy, CtxError
from ctx.indexing.indexer import Indexer

logger = logging.getLogger(__name__)

ROLES = ("scan", "embed", "pump")
SCAN_EVERY_S = 60.0  # seconds between two scans of a source without a configured interval
LOOK_EVERY_S = 2.0  # seconds between two checks for pending work


class NoLock:
    """A lock that does nothing, for a catalog in a database, which itself keeps writers apart."""

    def acquire(self, timeout_s: float) -> None:
        pass

    def release(self) -> None:
        pass


@dataclass(eq=False)
class Worker:
    """Does the work of its roles until it is stopped: `scan` (index sources), `embed` (embed chunks) and
    `pump` (update the search index). `intervals_s` are the seconds between two scans, by source name.
    """

    indexer: Indexer
    roles: Sequence[str]
    intervals_s: Mapping[str, float]

    def __post_init__(self) -> None:
        self._next_s = dict.fromkeys(self.indexer.connectors, 0.0)
        self._failing: dict[str, str] = {}  # name of work that failed the last time -> the error message

    def run(self, stop: threading.Event) -> None:
        """Works until `stop` is set. Failures are logged and retried."""
        logger.info("working roles=%s sources=%d", ",".join(self.roles), len(self._next_s))
        while not stop.is_set():
            self.work(stop)
            stop.wait(LOOK_EVERY_S)

    def work(self, stop: threading.Event) -> bool:
        """Does the work of its roles once: scans the sources that are due, embeds pending chunks, updates the
        index. Returns whether all succeeded.
        """
        succeeded = True
        if "scan" in self.roles:
            for name in list(self._next_s):
                if self._next_s[name] <= time.monotonic() and not stop.is_set():
                    succeeded = self._scan(name, stop) and succeeded
        if "embed" in self.roles and not stop.is_set():
            succeeded = self._attempt("embedding", partial(self._embed, stop)) and succeeded
        if "pump" in self.roles and not stop.is_set():
            succeeded = self._attempt("index update", self.indexer.repair) and succeeded
        return succeeded

    def _scan(self, name: str, stop: threading.Event) -> bool:
        self._next_s[name] = time.monotonic() + self.intervals_s.get(name, SCAN_EVERY_S)

        def run() -> bool:
            try:
                return self.indexer.run_source(self.indexer.connectors[name], stop=stop).ok
            except Busy as error:
                logger.debug("another process is indexing source=%s: %s", name, error.message)
                return True

        return self._attempt("index run", run, f" source={name}")

    def _embed(self, stop: threading.Event) -> None:
        report = self.indexer.embed(stop=stop)
        if report.embedded:
            logger.info("embedded=%d pending=%d", report.embedded, report.pending)

    def _attempt(self, work: str, action: Callable[[], bool | None], subject: str = "") -> bool:
        """Calls `action` and returns whether it succeeded: it neither returns False nor raises an error. An
        error is logged once, until its message changes or the work succeeds.
        """
        key = work + subject
        try:
            succeeded = action() is not False
        except CtxError as error:
            if self._failing.get(key) != error.message:
                logger.error("%s failed%s reason=%s", work, subject, error.message)
            self._failing[key] = error.message
            return False
        if self._failing.pop(key, None) is not None:
            logger.info("%s works again%s", work, subject)
        return succeeded
