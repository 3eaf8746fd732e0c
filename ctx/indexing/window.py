"""Part of a source: the items of some days, or the first few. The rest of the source stays as it is."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ctx.connectors.base import Connector, ScanLog
from ctx.models import SourceItem


class Window(NamedTuple):
    """The new and changed items that a run takes: updated from `since_ms` to `until_ms`, at most `limit`."""

    since_ms: int | None = None
    until_ms: int | None = None
    limit: int | None = None

    def items(
        self, connector: Connector, fingerprints: Mapping[str, str]
    ) -> Callable[[Mapping[str, str], ScanLog], Iterator[SourceItem]]:
        """The connector's scan, narrowed to the window, for `IndexRun`. Skips items with known
        `fingerprints`.

        The fingerprints come from here because the run reads everything again until one run was complete; a
        limit would then take the same items each time.
        """

        def scan(_: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
            log.complete = False  # items outside the window are neither gone nor read
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
