"""The seam between a source and the index."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from ctx.items import SourceItem

Progress = Callable[[str, int, int | None], None]
"""`progress(step, count, total)`: how far a source, or a step of it, has come; the total if it is known."""


SLOW_KINDS = frozenset({"web", "s3", "script"})
"""The types of sources whose reading waits for others most of the time: minutes, for what is stored in
seconds. The writer's lock is not held while they are read, but for each batch.
"""
EMPTY_IS_SUSPECT = 10  # documents that a source had which holds none: fewer are as cheap to read anew
FETCHED_KINDS = frozenset({"git"})
"""The types whose reading begins with a wait for others, and is quick then: the lock is held from the first
batch on.
"""


class Problem(NamedTuple):
    """A line of the report, most often on what could not be read; never the end of the run."""

    source_id: str  # "" when it concerns the source as a whole
    message: str


EVERY_TEXT = "text:"  # begins the signature of a source without include globs
KEPT = "What is indexed from it is kept"  # where a source cannot be read
GOES_ON = "the next run goes on"  # what mends a scan that was broken off


class ScanLog:
    """What a scan saw besides the items it yields.

    unchanged   ids that are there and whose fingerprint equals the known one (they are not yielded)
    problems    what could not be read
    left_out    how many files and folders are left out by their names, by kind
    notes       what whoever asks should know of what was read, or is rightly not
    gone        ids that a look at single paths (watch mode) found to be no longer there
    withheld    id prefixes that could not be listed: the known ids below them are kept, not deleted
    news        True: the scan gives only what is new; what else is known is there as it was
    complete    False: the scan stopped early, and nothing at all may be deleted
    revision    what was scanned, where the source has a name for it (a git commit)
    progress    who wants to know how far a long step has come (a first copy); None where nobody does
    expected    counts what the scan yields, where that can be told before it ends; slow: to be asked once
    rescan      a look at single paths cannot tell (an ignore file changed): scan the whole source
    stored      to be called when all that the scan yielded is stored: what the next one may go on from
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
        """Says that the scan ends before its end, and why."""
        self.complete = False
        self.problem("", f"{reason}: {mend}, and nothing is deleted in this one")

    def note(self, source_id: str, message: str) -> None:
        self.notes.append(Problem(source_id, message))


class Connector(Protocol):
    """A source of documents.

    `name` is the full name: `filesystem`, `filesystem:docs`, `git:platform`, `script:jira`; its type is the
    part before the colon. `signature` changes when the configuration changes what a scan would yield or how
    an item reads (globs, branch): the run then ignores the known fingerprints. Behind an "@" in it is where
    the source lies on this machine, which changes neither.
    """

    @property
    def name(self) -> str: ...

    @property
    def signature(self) -> str: ...

    def scan(self, known: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
        """Yields what is new or changed against `known` (source_id -> fingerprint), and fills `log`.

        Raises `SourceError` when the source as a whole cannot be read: nothing is deleted then.
        """
        ...
