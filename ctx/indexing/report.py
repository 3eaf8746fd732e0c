"""The report of an index run, and why an item was not indexed."""

from typing import NamedTuple

from ctx.connectors.base import Problem
from ctx.items import Content
from ctx.models import JSON

MAX_NAMED = 1000  # skipped or changed documents that a report names; it counts all of them


class Change(NamedTuple):
    """A document that a run added, updated or deleted."""

    kind: str  # added | updated | deleted
    source_id: str


class IndexReport(NamedTuple):
    """What a run of one source did. `ok` is False where the source as a whole could not be read; `note` says
    why.
    """

    source: str
    ok: bool
    added: int
    updated: int
    unchanged: int
    deleted: int
    chunks: int
    skipped: int  # binary or empty of text
    empty: int  # of those the empty ones
    problems: tuple[Problem, ...]
    note: str | None
    revision: str | None
    duration_s: float
    notes: tuple[Problem, ...] = ()  # what is worth knowing though nothing failed
    skips: tuple[Problem, ...] = ()  # the skipped ones and why, as far as MAX_NAMED goes: empty ones last
    changes: tuple[Change, ...] = ()  # what was stored and deleted, as far as MAX_NAMED goes

    def answer(self) -> dict[str, JSON]:
        """What `refresh` says of it."""
        counts = {name: getattr(self, name) for name in ("added", "updated", "unchanged", "deleted")}
        about = {"note": self.note, "revision": self.revision}
        return {"source": self.source, "ok": self.ok, **counts, "failed": len(self.problems), **about}


# How what holds no text begins, and what to call it. The longer beginnings first.
_BEGINNINGS = (
    (b"PK\x03\x04", "an archive, or a document of a kind that ctx does not read"),
    (b"\xd0\xcf\x11\xe0", "an office document of the old kind: save it in the new one, or as text"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
    (b"\x7fELF", "a program"),
    (b"\x1f\x8b", "compressed data that is no text"),
    (b"SQLite format 3\0", "a database"),
    (b"\0\x05\x16\x07", "what a Mac keeps beside a file"),
)


EMPTY = "empty"  # or nothing but spaces and line ends: there are many such files, and nobody misses them


def why_no_text(content: Content) -> str:
    """Why there is nothing to index in what was read."""
    data = content.data
    if not data.strip():
        return EMPTY
    if isinstance(data, str):
        return "no text and no title in it"
    for beginning, reason in _BEGINNINGS:
        if data.startswith(beginning):
            return reason
    return "binary data, not text" if b"\0" in data else "no text in it that could be read"
