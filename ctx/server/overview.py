"""What the page shows of a running server beside its tools: the work at hand, the last runs, how long
searches took, and the map of the index.
"""

import threading
import time
from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from ctx.errors import EmbeddingsDisabled
from ctx.tools.base import Call
from ctx.types import JSON
from ctx.workspace import Workspace

if TYPE_CHECKING:
    from ctx.indexing.run import IndexReport
    from ctx.store.atlas import AtlasRoom

MAX_PROBLEMS = 200  # shown of one run; the count beside them is of all
_MINUTES = 60  # of search times
_SEARCHES = 20_000  # kept of them: five a second for an hour


class Overview(Protocol):
    """What the page's own endpoints answer from. Called in threads."""

    def activity(self) -> JSON: ...

    def atlas(self) -> JSON:
        """Raises `EmbeddingsDisabled` and `StoreError`."""
        ...


class WorkspaceOverview:
    """The overview of a workspace, from the moment it is made."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        self._searches: deque[tuple[float, float]] = deque(maxlen=_SEARCHES)  # ended_s (monotonic), ms
        workspace.toolbox.observe(self._note)

    def _note(self, call: Call) -> None:
        if call.tool == "search" and call.outcome == "ok":
            with self._lock:
                self._searches.append((time.monotonic(), call.duration_s * 1000))

    def activity(self) -> JSON:
        """What the indexer does now, how the last run of each source went, search times of the last hour."""
        indexer = self._workspace.__dict__.get("indexer")  # made by the first run: looking makes none
        activity = {"phase": "idle"} if indexer is None else indexer.activity._asdict()
        reports = {} if indexer is None else dict(indexer.reports)
        return {
            **activity,
            "degraded": list(activity.get("degraded", ())),
            "runs": {name: _report_json(report) for name, report in sorted(reports.items())},
            "searches": self._search_times(),
        }

    def _search_times(self) -> list[JSON]:
        """Of each minute of the last hour that had searches, latest first: how long ago, how many, their median
        and the slowest, in ms.
        """
        now_s = time.monotonic()
        by_minute: dict[int, list[float]] = {}
        with self._lock:
            for ended_s, duration_ms in self._searches:
                by_minute.setdefault(int((now_s - ended_s) // 60), []).append(duration_ms)
        return [
            {
                "minutes_ago": minute,
                "count": len(durations),
                "median_ms": round(sorted(durations)[len(durations) // 2], 1),
                "slowest_ms": round(max(durations), 1),
            }
            for minute, durations in sorted(by_minute.items())
            if minute < _MINUTES
        ]

    def atlas(self) -> JSON:
        """The map of the index. Raises `EmbeddingsDisabled` and `StoreError`."""
        model = self._workspace.model
        if model is None:
            raise EmbeddingsDisabled("the map is drawn from embeddings, which are disabled on this server")
        return self._atlas_room.atlas(self._workspace.catalog, model)._asdict()

    @cached_property
    def _atlas_room(self) -> "AtlasRoom":
        from ctx.store.atlas import AtlasRoom  # numpy: 70 ms that a server's start does without

        return AtlasRoom()


def _report_json(report: "IndexReport") -> JSON:
    problems = [
        {"source_id": each.source_id, "message": each.message} for each in report.problems[:MAX_PROBLEMS]
    ]
    notes = [{"source_id": each.source_id, "message": each.message} for each in report.notes[:MAX_PROBLEMS]]
    return {
        "ok": report.ok,
        "added": report.added,
        "updated": report.updated,
        "unchanged": report.unchanged,
        "deleted": report.deleted,
        "skipped": report.skipped,
        "failed": len(report.problems),
        "problems": problems,
        "notes": notes,
        "note": report.note,
        "seconds": round(report.duration_s, 2),
    }
