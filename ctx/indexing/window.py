"""Index only part of a source: the items in a range of dates, or the first few. The rest of the index does
not change.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ctx.connectors.base import Connector, ScanLog
from ctx.models import SourceItem


class Window(NamedTuple):
    """Limits a run to new and changed items updated from `since_ms` to `until_ms` (milliseconds, inclusive),
    and to `limit` items. None means no limit.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    limit: int | None = None

    def items(
        self, connector: Connector, fingerprints: Mapping[str, str]
    ) -> Callable[[Mapping[str, str], ScanLog], Iterator[SourceItem]]:
        """Returns a function that replaces the connector's scan in `IndexRun`. It yields only items in the
        window that are new or changed compared to `fingerprints`.

        The fingerprints that the run passes to it are ignored: they are empty until one run was complete, so
        a run with a `limit` would take the same items each time.
        """

        def scan(_: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
            log.complete = False  # so that items outside the window are not deleted
            count = 0
            for item in connector.scan(fingerprints, log):
                if count == self.limit:
                    return
                if self.holds(item.updated_ms):
                    count += 1
                    yield item

        return scan

    def holds(self, updated_ms: int) -> bool:
        """Whether an item with this date is in the window."""
        after_begin = self.since_ms is None or updated_ms >= self.since_ms
        return after_begin and (self.until_ms is None or updated_ms <= self.until_ms)
