"""The report of an index run, and the reasons why items have no text."""

from typing import NamedTuple

from ctx.connectors.base import Problem
from ctx.models import JSON, Content

MAX_NAMED = 1000  # skipped or changed documents to name in a report; the counts include all


class Change(NamedTuple):
    """A document that a run added, updated or deleted."""

    kind: str  # added | updated | deleted
    source_id: str


class IndexReport(NamedTuple):
    """The result of indexing one source. `ok` is False if the source as a whole could not be read; then
    `note` says why.
    """

    source: str
    ok: bool
    added: int
    updated: int
    unchanged: int
    deleted: int
    chunks: int
    skipped: int  # binary, or without text
    empty: int  # how many of the skipped ones are empty
    problems: tuple[Problem, ...]
    note: str | None
    revision: str | None
    duration_s: float
    notes: tuple[Problem, ...] = ()  # remarks about indexed documents
    skips: tuple[Problem, ...] = ()  # skipped items with the reason, at most MAX_NAMED, empty items last
    changes: tuple[Change, ...] = ()  # stored and deleted documents, at most MAX_NAMED

    def answer(self) -> dict[str, JSON]:
        """The reply of the tool `refresh`."""
        counts = {name: getattr(self, name) for name in ("added", "updated", "unchanged", "deleted")}
        about = {"note": self.note, "revision": self.revision}
        return {"source": self.source, "ok": self.ok, **counts, "failed": len(self.problems), **about}


# Magic numbers of file formats without text, and the reason to report.
_BEGINNINGS = (
    (b"PK\x03\x04", "an archive, or a document of an unknown format"),
    (b"\xd0\xcf\x11\xe0", "an old Office format: save it in the new format or as text"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
    (b"\x7fELF", "a program"),
    (b"\x1f\x8b", "compressed data that is not text"),
    (b"SQLite format 3\0", "a database"),
    (b"\0\x05\x16\x07", "macOS metadata of another file"),
)


EMPTY = "empty"  # also for files with only white space


def why_no_text(content: Content) -> str:
    """The reason why an item has no text to index."""
    data = content.data
    if not data.strip():
        return EMPTY
    if isinstance(data, str):
        return "no text and no title in it"
    for beginning, reason in _BEGINNINGS:
        if data.startswith(beginning):
            return reason
    return "binary data, not text" if b"\0" in data else "no readable text"
