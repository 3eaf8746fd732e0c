"""The interface between a source and the index."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from ctx.models import SourceItem

Progress = Callable[[str, int, int | None], None]
"""`progress(step, count, total)` reports the progress of a step; `total` is None if it is unknown."""


SLOW_KINDS = frozenset({"web", "s3", "script"})
"""Source types that take minutes to read, most of it waiting. The writer's lock is held only for each batch
of items.
"""
EMPTY_IS_SUSPECT = 10  # an empty source that had this many documents is an error; fewer are cheap to re-read
FETCHED_KINDS = frozenset({"git"})
"""Source types that first wait and are then quick to read. The lock is held from the first batch on."""


class Problem(NamedTuple):
    """An entry of the report, usually about something that could not be read. It does not end the run."""

    source_id: str  # "" when it concerns the source as a whole
    message: str


EVERY_TEXT = "text:"  # begins the signature of a source without include globs
KEPT = "Its index is kept"  # for messages about a source that cannot be read
GOES_ON = "the next run continues"  # for messages about a scan that stopped early


class ScanLog:
    """The findings of a scan, apart from the items it yields.

    unchanged   ids whose fingerprint equals the known one (they are not yielded)
    problems    what could not be read
    left_out    the number of files and folders left out by name, by kind
    notes       information for the user that is not a problem
    gone        ids that a scan of single paths (watch mode) found to be deleted
    withheld    id prefixes that could not be listed: known ids below them are kept
    news        True: the scan lists only new items; the other known ones are unchanged
    complete    False: the scan stopped early, and nothing may be deleted
    revision    what was scanned, if the source has a name for it (a git commit)
    progress    receives the progress of a long step, or None
    expected    counts the items in advance, if possible; slow, so call it once
    rescan      single paths are not enough (an ignore file changed): scan the whole source
    stored      called when all items are stored, so that the next scan may continue from there
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self.progress = progress
        self.unchanged: set[str] = set()
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []
        self.left_out: Counter[str] = Counter()
        self.gone: set[str] = set()
        self.withheld: list[str] = []
        self.news = False
        self.complete = True
        self.revision: str | None = None
        self.rescan = False
        self.expected: Callable[[], int] | None = None
        self.stored: Callable[[], None] | None = None

    def problem(self, source_id: str, message: str) -> None:
        self.problems.append(Problem(source_id, message))

    def break_off(self, reason: str, mend: str = GOES_ON) -> None:
        """Record that the scan stopped early because of `reason`. `mend` says what continues it."""
        self.complete = False
        self.problem("", f"{reason}: {mend}; this run deletes nothing")

    def note(self, source_id: str, message: str) -> None:
        self.notes.append(Problem(source_id, message))


class Connector(Protocol):
    """A source of documents.

    `name` is the full name, such as `git:platform`; its type is the part before the colon. `signature`
    changes when the configuration changes which items a scan yields or their content (globs, branch): the
    run then ignores the known fingerprints. The part after "@" is the source's place on this machine, which
    does not affect the items.
    """

    @property
    def name(self) -> str: ...

    @property
    def signature(self) -> str: ...

    def scan(self, known: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
        """Yield items that are new or differ from `known` (source_id -> fingerprint), and fill `log`.

        Raises `SourceError` if the source cannot be read; nothing is deleted then.
        """
        ...
