"""The reports of index runs, and the state of the indexer for `/health` and `/activity`, also as a file for a
server's worker processes.
"""

import json
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ctx.connectors.base import Problem
from ctx.models import JSON, Content

if TYPE_CHECKING:
    from ctx.indexing.indexer import Indexer

EMPTY = "empty"  # the reason for files that are empty or have only white space
MAX_NAMED = 1000  # maximum skipped or changed documents to name in a report; the counts include all of them
MAX_PROBLEMS = 200  # maximum problems to list per run; the counts include all of them
PUBLISH_S = 0.5  # seconds between two checks whether the state changed

# Rates are averages over this time: long enough to be steady, short enough to follow the machine's load.
PACE_OVER_S = 60.0
# How long a starting server only answers requests, before it loads the model and numpy, watches folders and
# scans the sources.
FIRST_ANSWERS_S = 0.2
# If requests keep coming, this work waits at most this long.
FIRST_ANSWERS_AT_MOST_S = 2.0
PACE_AFTER_S = 1.0  # no rate is reported before this time, because the first batch mostly measures the start


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
    skipped: int  # items that are binary or without text
    empty: int  # the number of skipped items that are empty
    problems: tuple[Problem, ...]
    note: str | None
    revision: str | None
    duration_s: float
    notes: tuple[Problem, ...] = ()  # remarks about documents that were indexed
    skips: tuple[Problem, ...] = ()  # skipped items with the reason, at most MAX_NAMED, empty items last
    changes: tuple[Change, ...] = ()  # stored and deleted documents, at most MAX_NAMED

    def answer(self) -> dict[str, JSON]:
        """The reply of the tool `refresh`."""
        counts = {name: getattr(self, name) for name in ("added", "updated", "unchanged", "deleted")}
        about = {"note": self.note, "revision": self.revision}
        return {"source": self.source, "ok": self.ok, **counts, "failed": len(self.problems), **about}


# (first bytes of files in a format without text, reason to report for such a file)
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


class Activity(NamedTuple):
    """What the indexer is doing. `phase` is idle | waiting | indexing | embedding; `source` is the source
    being indexed. `done` and `total` count documents or chunks.
    """

    phase: str = "idle"
    source: str | None = None
    done: int = 0
    total: int | None = None
    watching: str = "off"  # off | native | polling
    degraded: tuple[str, ...] = ()  # lines of the form `what does not work: the reason`
    rate: float | None = None  # documents or chunks per second over the last minute; None if not known yet
    left_s: float | None = None  # seconds left at this rate

    def health(self) -> dict[str, JSON]:
        """The part of `/health` about indexing."""
        state: dict[str, JSON] = {"activity": self.phase}
        if self.total is not None:
            rate = None if self.rate is None else round(self.rate, 2)
            left_s = None if self.left_s is None else round(self.left_s)
            state["progress"] = {"done": self.done, "total": self.total, "rate": rate, "left_s": left_s}
        return state | {"watching": self.watching}


IDLE = Activity()


class Pace:
    """Measures the rate of one task in steps per second."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()  # (seconds, done) of the last minute, oldest first

    def rate(self, now_s: float, done: int) -> float | None:
        """Records how many steps are done at `now_s` and returns the steps per second over the last minute;
        None if not known yet. If `done` is smaller than before, the measurement starts again.
        """
        looks = self._looks
        if looks and done < looks[-1][1]:
            looks.clear()
        looks.append((now_s, done))
        while len(looks) > 2 and looks[1][0] <= now_s - PACE_OVER_S:
            looks.popleft()
        seconds, steps = now_s - looks[0][0], done - looks[0][1]
        return steps / seconds if steps and seconds >= PACE_AFTER_S else None


def indexer_state(indexer: "Indexer") -> dict[str, JSON]:
    """The indexer's state as JSON: `health` and `degraded` for `/health`, and `activity` and `runs` (the last
    run of each source) for `/activity`.
    """
    activity = indexer.activity
    return {
        "health": activity.health(),
        "degraded": list(activity.degraded),
        "activity": {**activity._asdict(), "degraded": list(activity.degraded)},
        "runs": {name: _report(report) for name, report in sorted(dict(indexer.reports).items())},
    }


def _report(report: IndexReport) -> JSON:
    named = {"problems": report.problems, "notes": report.notes, "skips": report.skips}
    return {
        **report.answer(),
        "skipped": report.skipped,
        **{
            name: [problem._asdict() for problem in problems[:MAX_PROBLEMS]]
            for name, problems in named.items()
        },
        "seconds": round(report.duration_s, 2),
    }


def publish(indexer: "Indexer", path: str, stopping: threading.Event) -> None:
    """Writes the indexer's state to a file as JSON whenever it changes, until `stopping` is set."""
    written = ""
    while True:
        state = json.dumps(indexer_state(indexer))
        if state != written:
            with open(f"{path}.new", "w", encoding="ascii") as file:
                file.write(state)
            os.replace(f"{path}.new", path)
            written = state
        if stopping.wait(PUBLISH_S):
            return


def published(path: str) -> dict[str, JSON]:
    """The state that another process wrote with `publish`."""
    with open(path, encoding="ascii") as file:
        state: dict[str, JSON] = json.load(file)
    return state
