"""A worker: runs the sources whose turn nobody else has, and embeds what nobody else embeds, into a catalog
that machines share.

It keeps no index and no state of its own. What it was at when it died is another one's as soon as its lease,
or its claim, runs out.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ctx.errors import Busy, CtxError
from ctx.indexing.indexer import Indexer
from ctx.store.base import Catalog

logger = logging.getLogger(__name__)

ROLES = ("scan", "embed", "pump")
SCAN_EVERY_S = 60.0  # of sources without an interval of their own
LOOK_EVERY_S = 2.0  # between two looks at what is pending


class _Work(NamedTuple):
    """What the log says of work that fails, and of the next time that it does not."""

    failure: str
    success: str
    subject: str = ""


_PUMP = _Work("index not brought up to date", "index is brought up to date again")
_EMBED = _Work("embedding failed", "embedding works again")


class NoProjection:
    """The index of a machine that answers nothing."""

    def catch_up(self, catalog: Catalog) -> int:
        return catalog.seq()

    def feed(self, catalog: Catalog) -> None:
        pass

    def check(self) -> list[str]:
        return []

    def adopt(self) -> None:
        pass

    def close(self) -> None:
        pass


class NoLock:
    """The lock of what needs none: the database orders who writes."""

    def acquire(self, timeout_s: float) -> None:
        pass

    def release(self) -> None:
        pass


class Worker:
    """Works for an indexer until it is told to stop. `intervals_s`: how often a source is run, by name."""

    def __init__(self, indexer: Indexer, roles: Sequence[str], intervals_s: Mapping[str, float]) -> None:
        self._indexer = indexer
        self._roles = roles
        self._intervals_s = intervals_s
        self._next_s = dict.fromkeys(indexer.connectors, 0.0)
        self._failing: dict[_Work, str] = {}  # work that failed last, and why: told once

    def run(self, stop: threading.Event) -> None:
        """Works until `stop` is set. What fails is logged, and tried again."""
        logger.info("working roles=%s sources=%d", ",".join(self._roles), len(self._next_s))
        while not stop.is_set():
            self.work(stop)
            stop.wait(LOOK_EVERY_S)

    def _scan_due(self, stop: threading.Event) -> bool:
        whole = True
        for name in list(self._next_s):
            if self._next_s[name] <= time.monotonic() and not stop.is_set():
                whole = self._scan(name, stop) and whole
        return whole

    def work(self, stop: threading.Event) -> bool:
        """Runs what is due and embeds what is pending, once; whether nothing failed."""
        whole = True
        if "scan" in self._roles:
            whole = self._scan_due(stop)
        if "embed" in self._roles and not stop.is_set():
            whole = self._embed(stop) and whole
        if "pump" in self._roles and not stop.is_set():
            whole = self._pump() and whole
        return whole

    def _pump(self) -> bool:
        try:
            self._indexer.repair()
        except CtxError as error:
            return self._failed(_PUMP, error)
        self._worked(_PUMP)
        return True

    def _scan(self, name: str, stop: threading.Event) -> bool:
        work = _Work("index run failed", "index run works again", f" source={name}")
        self._next_s[name] = time.monotonic() + self._intervals_s.get(name, SCAN_EVERY_S)
        try:
            report = self._indexer.run_source(self._indexer.connectors[name], stop=stop)
        except Busy as error:
            logger.debug("source=%s is another's turn: %s", name, error.message)
            return True
        except CtxError as error:
            return self._failed(work, error)
        self._worked(work)
        return report.ok

    def _embed(self, stop: threading.Event) -> bool:
        try:
            report = self._indexer.embed(stop=stop)
        except CtxError as error:
            return self._failed(_EMBED, error)
        self._worked(_EMBED)
        if report.embedded:
            logger.info("embedded=%d pending=%d", report.embedded, report.pending)
        return True

    def _failed(self, work: _Work, error: CtxError) -> bool:
        """False, having told it once."""
        if self._failing.get(work) != error.message:
            logger.error("%s%s reason=%s", work.failure, work.subject, error.message)
        self._failing[work] = error.message
        return False

    def _worked(self, work: _Work) -> None:
        if self._failing.pop(work, None) is not None:
            logger.info("%s%s", work.success, work.subject)
