"""Output of commands: JSON, tables, progress bars, log lines and exported files.

Text that does not come from ctx (names, titles, documents) is printed through `plain` or `prose`, so that it
can neither control the terminal nor look like a line of ctx.
"""

import io
import json
import logging
import os
import shutil
import stat
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TextIO

from ctx import files
from ctx.clock import now_ms
from ctx.connectors.base import Progress
from ctx.errors import BadRequest
from ctx.models import JSON
from ctx.text.strings import one_line

MAX_LOG_LINE = 16_000  # characters; a script's own line has at most 2000, escaped
_UNLIMITED = 100_000  # columns, for tables in a pipe
_QUIET_LOGGERS = ("watchfiles", "httpx", "httpcore", "mcp", "asyncio", "uvicorn.error")
_SILENT_LOGGERS = ("psycopg.pool", "opensearch")  # they log each failed attempt; ctx reports the outcome
# Line ends, tabs, and the marks and joiners of scripts and emoji. Overrides of text direction are not here.
_HARMLESS = "\n\t\u00ad\u200b\u200c\u200d\u200e\u200f\u2060"


Columns = Mapping[str, str | Callable[[JSON], str]]
"""The columns of a table: header -> the key of a row, or a function that formats the row."""


# -- text ----------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Returns the text as one printable line."""
    return text if text.isprintable() else one_line(text, len(text))


def prose(text: str) -> str:
    """Returns the text without control characters. Line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in _HARMLESS else " " if char.isspace() else "?" for char in text
    )


def json_printable(text: str) -> str:
    """Returns the JSON with every unprintable character escaped, except line ends."""
    if text.isprintable() or (text.isascii() and "\x7f" not in text):
        return text  # JSON itself escapes what is below U+0020
    escapes = {"\n": "\n", " ": " ", "\x7f": "\\u007f"}  # json.dumps does not escape U+007F
    return "".join(
        char if char.isprintable() else escapes.get(char) or json.dumps(char)[1:-1] for char in text
    )


def print_json(value: JSON) -> None:
    """Prints one JSON document."""
    text = json.dumps(value, ensure_ascii=(sys.stdout.encoding or "").lower() != "utf-8", indent=2)
    print(json_printable(text.encode("utf-8", "replace").decode("utf-8")))


def tell(as_json: bool, value: JSON, *lines: str, notes: Sequence[str] = (), code: int = 0) -> int:
    """Prints a command's result, as JSON or as lines with `notes` on standard error. Returns `code`."""
    if as_json:
        print_json(value)
        return code
    if lines:
        print("\n".join(lines))
    if notes:
        print("\n".join(notes), file=sys.stderr)
    return code


def warn(*lines: str) -> None:
    """Prints lines on standard error."""
    print("\n".join(lines), file=sys.stderr)


def styled(stream: TextIO | None = None) -> bool:
    """Whether to use colour: on a terminal, unless NO_COLOR is set or the terminal is dumb."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream or sys.stdout).isatty()


def terminal_width() -> int | None:
    """The columns of the terminal; None if standard output is not a terminal. A width of 0 counts as 80."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(rows: Sequence[Sequence[str]], headers: Sequence[str]) -> str:
    """Formats rows as aligned columns, numbers to the right. On a terminal, long cells are wrapped."""
    from rich.console import Console  # 60 ms
    from rich.table import Table
    from rich.text import Text

    listing = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for number, header in enumerate(headers):
        cells = [row[number].replace(",", "").replace("%", "") for row in rows]
        numeric = bool(cells) and all(map(str.isdigit, cells))
        listing.add_column(header, justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    for row in rows:
        listing.add_row(*(Text(plain(cell)) for cell in row))
    console = Console(width=terminal_width() or _UNLIMITED, color_system=None)
    with console.capture() as capture:
        console.print(listing)
    return "\n".join(map(str.rstrip, capture.get().splitlines()))


def cell(value: JSON) -> str:
    """Formats a value for a table: `-` for None, 1,234 for a number, commas between the values of a list."""
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def tell_table(
    as_json: bool, reply: JSON, rows: Sequence[JSON], columns: Columns, empty: str, notes: Sequence[str] = ()
) -> int:
    """Prints a command's result, as JSON or as a table of `rows`. Returns 0.

    Without rows, the text is `empty`. `notes` go to standard error.
    """
    cells = [
        [cell(row[column]) if isinstance(column, str) else column(row) for column in columns.values()]
        for row in rows
    ]
    listing = table(cells, tuple(columns)) if rows else empty
    return tell(as_json, reply, listing, notes=notes)


def ago(ms: int | None) -> str:
    """Formats the time since `ms` (milliseconds since the epoch), such as "3 h ago"; "never" for None."""
    if ms is None:
        return "never"
    seconds = max(0, (now_ms() - ms) // 1000)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


# -- progress ------------------------------------------------------------------------------------------------


def json_line(source: str, done: int, total: int | None) -> None:
    """Prints one step of progress on standard error, in the JSON format of Context Harness."""
    phase = "embedding" if source == "embed" else "ingesting"
    event = {"event": "progress", "connector": source, "phase": phase, "n": done, "total": total}
    print(json.dumps(event), file=sys.stderr, flush=True)


@contextmanager
def shown_progress(args: Namespace) -> Iterator[Progress | None]:
    """Yields a function that shows progress as `--progress` and `--no-progress` say; None if nothing is
    shown.
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
    """Yields a function that shows a progress bar on standard error; None if that is not a terminal."""
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
        tasks: dict[str, rich.TaskID] = {}

        def progress(source: str, done: int, total: int | None) -> None:
            if source not in tasks:  # one bar at a time: each source, then the embeddings
                for task in display.task_ids:
                    display.remove_task(task)
                tasks.clear()
                tasks[source] = display.add_task(plain(source), total=total, rate="")
            speed = display.tasks[0].speed
            rate = f"{speed:,.0f}/s" if speed else ""
            display.update(tasks[source], completed=done, total=total, rate=rate)

        yield progress


# -- log lines -----------------------------------------------------------------------------------------------


class Lines(logging.Formatter):
    """Formats a log record as one printable line. The lines of a traceback follow, indented."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = one_line(record.getMessage(), MAX_LOG_LINE)
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        traces = [self.formatException(record.exc_info)] if record.exc_info else []
        traces += [record.stack_info] if record.stack_info else []
        indented = ["    " + one_line(line, MAX_LOG_LINE) for trace in traces for line in trace.splitlines()]
        return "\n".join([self.formatMessage(record), *indented])


class JsonLines(logging.Formatter):
    """Formats a log record as one line with a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json_printable(json.dumps(line, ensure_ascii=False))


def log_to_stderr(level: str, form: str = "text", *, without: str | None = None) -> None:
    """Writes log lines to standard error. `form` is "text", "json", or "bare" (only the message); `without`
    names a logger that is left out.
    """
    handler = logging.StreamHandler(sys.stderr)
    if without:
        handler.addFilter(lambda record: record.name != without)
    bare = "%(message)s" if form == "bare" else "%(asctime)s %(levelname)s %(name)s %(message)s"
    handler.setFormatter(JsonLines() if form == "json" else Lines(bare))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in _SILENT_LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    # Warnings of Python modules help only their developers.
    logging.captureWarnings(True)
    logging.getLogger("py.warnings").setLevel(logging.DEBUG if level == "debug" else logging.ERROR)


def format_unhandled_logs() -> None:
    """Formats warnings as printable lines in commands that do not call `log_to_stderr`."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Lines("%(message)s"))


@contextmanager
def without_reported(*expected: str) -> Iterator[None]:
    """Hides log lines during the block if they repeat what the command reports, or begin with `expected`."""

    def unreported(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(("not indexed ", "git remote failed ", *expected))

    names = ("indexing.indexer", "connectors.repository", "store.index")
    logs = [logging.getLogger(f"ctx.{name}") for name in names]
    for log in logs:
        log.addFilter(unreported)
    try:
        yield
    finally:
        for log in logs:
            log.removeFilter(unreported)


# -- exports -------------------------------------------------------------------------------------------------


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """Yields a UTF-8 text file: standard output if `path` is None, else a file that replaces `path` when the
    block succeeds and keeps its permissions, so that a web server can still read it. A new file is private.
    Raises `BadRequest`.
    """
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # whatever the locale is
        yield sys.stdout
        return
    with ExitStack() as stack:
        try:
            mode = stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else 0o600
            descriptor = stack.enter_context(files.replacement(path, mode=mode))
        except OSError as error:
            hint = "" if isinstance(error, IsADirectoryError) else "; name a file that you can write"
            reason = f"--output: {path} cannot be written: {error.strerror}{hint}"
            raise BadRequest(reason) from error
        with open(descriptor, "w", encoding="utf-8", errors="replace", closefd=False) as out:
            yield out


def export_form(path: str | None) -> Callable[[str], str]:
    """The function to apply to exported JSON: `json_printable` for a terminal, else `str`, which changes
    nothing.
    """
    return json_printable if path is None and sys.stdout.isatty() else str
