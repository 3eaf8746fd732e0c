"""Progress of long commands: a bar on a terminal, or JSON lines on standard error."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager

from ctx.cli.common import plain, styled
from ctx.cli.options import Parser
from ctx.indexing.run import Progress


def add_progress_options(options: Parser) -> None:
    """Adds `--progress FORM` and `--no-progress`."""
    options.add_argument(
        "--progress",
        choices=("human", "json"),
        default="human",
        help="bars on a terminal, or JSON lines on standard error",
    )
    options.add_argument("--no-progress", action="store_true", help="no progress at all")


def json_line(source: str, done: int, total: int | None) -> None:
    """Prints one step as Context Harness does: `{"event", "connector", "phase", "n", "total"}` on standard
    error.
    """
    phase = "embedding" if source == "embed" else "ingesting"
    event = {"event": "progress", "connector": source, "phase": phase, "n": done, "total": total}
    print(json.dumps(event), file=sys.stderr, flush=True)


@contextmanager
def shown_progress(args: Namespace) -> Iterator[Progress | None]:
    """A function that shows progress as the options say; None if nothing is shown."""
    if args.no_progress:
        yield None
    elif args.progress == "json":
        yield json_line
    else:
        with bars() as progress:
            yield progress


@contextmanager
def bars() -> Iterator[Progress | None]:
    """A bar on standard error if that is a terminal; else None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich  # 110 ms
    from rich.console import Console

    columns = (
        rich.SpinnerColumn(),
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.MofNCompleteColumn(separator=" of "),
        rich.TextColumn("{task.fields[rate]}", markup=False),
        rich.TimeRemainingColumn(),
    )
    console = Console(stderr=True, no_color=not styled(sys.stderr))
    with rich.Progress(*columns, console=console, transient=True) as display:
        shown = ""

        def progress(source: str, done: int, total: int | None) -> None:
            nonlocal shown
            if source != shown:  # one source at a time, then the embeddings
                for task in display.tasks:
                    display.remove_task(task.id)
                display.add_task(plain(source), total=total, rate="")
                shown = source
            (task,) = display.tasks
            rate = f"{task.speed:,.0f}/s" if task.speed else ""
            display.update(task.id, completed=done, total=total, rate=rate)

        yield progress
