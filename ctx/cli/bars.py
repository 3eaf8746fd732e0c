"""Progress: one bar at a time on a terminal, with its total, its rate and the time left, or a line of JSON a
step.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from ctx.cli.common import plain, styled
from ctx.indexing.run import Progress

if TYPE_CHECKING:
    import argparse

SLOWEST = 0.05  # items a second: below it no time that is left can be told


FORMS = ("human", "json")


def add_options(options: "argparse.ArgumentParser") -> None:
    """`--progress FORM` and `--no-progress`."""
    options.add_argument(
        "--progress",
        choices=FORMS,
        default=FORMS[0],
        help="bars on a terminal, or JSON lines on standard error",
    )
    options.add_argument("--no-progress", action="store_true", help="no progress at all")


def json_line(source: str, done: int, total: int | None) -> None:
    """One step as Context Harness writes it: `{"event", "connector", "phase", "n", "total"}` on standard
    error.
    """
    phase = "embedding" if source == "embed" else "ingesting"
    event = {"event": "progress", "connector": source, "phase": phase, "n": done, "total": total}
    print(json.dumps(event), file=sys.stderr, flush=True)


class ProgressOptions(Protocol):
    """What `add_options` adds."""

    progress: str
    no_progress: bool


@contextmanager
def shown_progress(args: ProgressOptions) -> Iterator[Progress | None]:
    """Progress as the options have it: bars where standard error is a terminal, JSON lines anywhere; else
    None.
    """
    if args.no_progress:
        yield None
    elif args.progress == "json":
        yield json_line
    else:
        with bars() as progress:
            yield progress


@contextmanager
def bars() -> Iterator[Progress | None]:
    """Bars on standard error where it is a terminal; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    import shutil

    # rich costs 70 ms: only where somebody looks
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn
    from rich.progress import Progress as Display

    width = shutil.get_terminal_size().columns
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=max(5, min(40, width - 60))),
        TextColumn("{task.fields[count]}", markup=False),
    )
    console = Console(stderr=True, width=width, no_color=not styled(sys.stderr))
    with Display(*columns, console=console, transient=True) as display:
        # One at most: sources are read one after the other, then come the embeddings.
        tasks: dict[str, TaskID] = {}
        pace = Pace(time.monotonic)

        def progress(source: str, done: int, total: int | None) -> None:
            count = pace.count(source, done, total)
            if source not in tasks:
                while tasks:
                    display.remove_task(tasks.popitem()[1])
                tasks[source] = display.add_task(plain(source), total=total, count=count)
            display.update(tasks[source], completed=done, total=total, count=count)

        yield progress


class Pace:
    """Counts with their rate. `clock` gives seconds; a step's time begins where the one before it was last
    seen.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen_s = self._began_s = clock()
        self._step = ""

    def count(self, step: str, done: int, total: int | None) -> str:
        """`1,024 of 10,610, 38/s, 4 min left`, as far as it is known."""
        if step != self._step:
            self._step, self._began_s = step, self._seen_s
        self._seen_s = self._clock()
        parts = [f"{done:,}" if total is None else f"{done:,} of {total:,}"]
        rate = done / max(self._seen_s - self._began_s, 0.001)
        if done and rate > SLOWEST:
            parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
            if total is not None and total > done:
                parts.append(f"{duration((total - done) / rate)} left")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """A time to wait, as roughly as one plans with it: `40 s`, `7 min`, `2 h 5 min`."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
