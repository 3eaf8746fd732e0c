"""What the indexer does, as JSON: for `/health` and `/activity` of this process, and in a file for the worker
processes of a server.
"""

import json
import os
import threading
from collections.abc import Sequence

from ctx.connectors.base import Problem
from ctx.indexing.indexer import Indexer
from ctx.indexing.run import IndexReport
from ctx.models import JSON

MAX_PROBLEMS = 200  # shown of one run; the count beside them is of all
PUBLISH_S = 0.5  # between two looks at whether something changed


def indexer_state(indexer: Indexer) -> dict[str, JSON]:
    """`health` and `degraded` for `/health`; `activity` and `runs` (the last one of each source) for
    `/activity`.
    """
    activity = indexer.activity
    return {
        "health": activity.health(),
        "degraded": list(activity.degraded),
        "activity": {**activity._asdict(), "degraded": list(activity.degraded)},
        "runs": {name: _report(report) for name, report in sorted(dict(indexer.reports).items())},
    }


def _report(report: IndexReport) -> JSON:
    return {
        **report.answer(),
        "skipped": report.skipped,
        "problems": _problems(report.problems),
        "notes": _problems(report.notes),
        "skips": _problems(report.skips),
        "seconds": round(report.duration_s, 2),
    }


def _problems(problems: Sequence[Problem]) -> list[JSON]:
    return [problem._asdict() for problem in problems[:MAX_PROBLEMS]]


def publish(indexer: Indexer, path: str, stopping: threading.Event) -> None:
    """Writes the state to a file whenever it has changed, until `stopping`."""
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
    """The state that another process has published."""
    with open(path, encoding="ascii") as file:
        state: dict[str, JSON] = json.load(file)
    return state
