"""A part of a source: the items of some days, or the first so many. What lies outside stays as it is."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ctx.connectors.base import Connector, ScanLog
from ctx.items import SourceItem


class Window(NamedTuple):
    """Which new and changed items a run takes: updated from `since_ms` to `until_ms`, at most `limit`."""

    since_ms: int | None = None
    until_ms: int | None = None
    limit: int | None = None

    def items(
        self, connector: Connector, fingerprints: Mapping[str, str]
    ) -> Callable[[Mapping[str, str], ScanLog], Iterator[SourceItem]]:
        """A scan of the connector narrowed to the window, for `IndexRun`; known `fingerprints` are passed
        over.

        They are given here, and not by the run, which would read everything again until a run was whole: a
        limit would then take the same items each time.
        """

        def scan(_: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
            log.complete = False  # what the window leaves out is neither gone nor read
            count = 0
            for item in connector.scan(fingerprints, log):
                if count == self.limit:
                    return
                if self.holds(item.updated_ms):
                    count += 1
                    yield item

        return scan

    def holds(self, updated_ms: int) -> bool:
        """Whether an item of this date is in the window."""
        after_begin = self.since_ms is None or updated_ms >= self.since_ms
        return after_begin and (self.until_ms is None or updated_ms <= self.until_ms)
