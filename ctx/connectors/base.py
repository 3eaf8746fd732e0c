"""The interface between a source and the index, and the names of sources and of their items."""

import os
import re
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
# An empty source is an error if it had at least this many documents; fewer are cheap to re-read.
EMPTY_IS_SUSPECT = 10
FETCHED_KINDS = frozenset({"git"})
"""Source types that first wait and are then quick to read. The writer's lock is held from the first batch."""


class Problem(NamedTuple):
    """An entry of an index report, usually about an item that could not be read. The run then goes on."""

    source_id: str  # "" when it concerns the source as a whole
    message: str


EVERY_TEXT = "text:"  # begins the signature of a source without include globs
KEPT = "Its index is kept"  # used in messages about a source that cannot be read
GOES_ON = "the next run continues"  # used in messages about a scan that stopped early

_AMBIGUOUS = re.compile(r"%(?=25|[89A-F][0-9A-F])")
_UNDECODABLE = re.compile("[\udc80-\udcff]")


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
    rescan      True: single paths are not enough (an ignore file changed), so scan the whole source
    stored      a function to call when all items are stored; the next scan then continues from there
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

    def break_off(self, reason: str, advice: str = GOES_ON) -> None:
        """Record that the scan stopped early because of `reason`. `advice` says what continues it."""
        self.complete = False
        self.problem("", f"{reason}: {advice}; this run deletes nothing")

    def note(self, source_id: str, message: str) -> None:
        self.notes.append(Problem(source_id, message))


class Connector(Protocol):
    """A source of documents.

    `name` is the full name, such as `git:platform`; its type is the part before the colon. `signature`
    changes when the configuration changes which items a scan yields or their content (globs, branch): the run
    then ignores the known fingerprints. The part of the signature after "@" is the path or address of the
    source, which does not affect the items.
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


def name_of(path: str) -> str:
    """A name for the source at a path or address: its last part, in characters that a name may have."""
    words = re.sub(r"[^A-Za-z0-9_.-]+", "-", os.path.basename(path.rstrip("/")).removesuffix(".git"))
    return words.strip("-.").lower()[:64] or "docs"


def section_of(source: str) -> str:
    """The section of a source in `ctx.toml`: `[connectors.git.NAME]` for `git:NAME`."""
    return f"[connectors.{source.replace(':', '.', 1)}]"


def encode_name(name: str) -> str:
    """Encode a file name or a path for a source id, as valid text and without collisions.

    A byte that is not UTF-8 (a lone surrogate in Python) becomes `%XX`, and a `%` that looks like such an
    escape becomes `%25`. Other names do not change.
    """
    if "%" in name:
        name = _AMBIGUOUS.sub("%25", name)
    if not name.isascii():
        name = _UNDECODABLE.sub(lambda match: f"%{ord(match[0]) - 0xDC00:02X}", name)
    return name


def too_large(size_bytes: int, max_file_bytes: int) -> str:
    """The message for a file of this size."""
    return f"{size_bytes:,} bytes are more than max_file_bytes ({max_file_bytes:,}), which may be raised"
