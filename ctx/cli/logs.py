"""Log lines on standard error, one an event: whatever a name holds, it begins no line of its own and drives
no terminal.
"""

import json
import logging
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager

from ctx.cli.common import json_printable
from ctx.text import one_line

MAX_LINE = 16_000  # characters; a script's own line has 2000 at most, escaped
_QUIET = ("watchfiles", "httpx", "httpcore", "mcp", "asyncio", "uvicorn.error")
_SILENT = ("psycopg.pool", "opensearch")  # each failed attempt; ctx reports the outcome


class Lines(logging.Formatter):
    """A record as one printable line; the lines of a traceback follow it, indented, so that none can pass for
    a record.
    """

    def format(self, record: logging.LogRecord) -> str:
        record.message = one_line(record.getMessage(), MAX_LINE)
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        lines = [self.formatMessage(record)]
        if record.exc_info:
            lines += _indented(self.formatException(record.exc_info))
        if record.stack_info:
            lines += _indented(record.stack_info)
        return "\n".join(lines)


class JsonLines(logging.Formatter):
    """A record as one JSON object a line."""

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


def log_option(
    options: ArgumentParser,
    default: str,
    *,
    purpose: str | None = "how much goes to standard error",
) -> None:
    """Adds `--log-level` to a command's options."""
    options.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default=default, help=purpose
    )


def log_to_stderr(level: str, form: str = "text", *, without: str | None = None) -> None:
    """Log lines on standard error; standard output belongs to answers. `form` is "text", "json", or "bare":
    the message alone. `without` names a logger whose lines the command says itself.
    """
    handler = logging.StreamHandler(sys.stderr)
    if without:
        handler.addFilter(lambda record: record.name != without)
    handler.setFormatter(
        JsonLines()
        if form == "json"
        else Lines("%(message)s" if form == "bare" else "%(asctime)s %(levelname)s %(name)s %(message)s")
    )
    _without_the_unsaid()
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in _SILENT:
        logging.getLogger(name).setLevel(logging.ERROR)
    # What Python modules warn their developers of is no line of ours; filters of theirs do not hold while
    # others import in threads.
    logging.captureWarnings(True)
    logging.getLogger("py.warnings").setLevel(logging.DEBUG if level == "debug" else logging.ERROR)


def _without_the_unsaid() -> None:
    """Has records go without what no line of ours says: from where one was logged, and by which thread and
    process. To find that out is a quarter of what a line costs (the optimizations of Python's Logging HOWTO).
    """
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


@contextmanager
def without_the_reported(*asked_for: str) -> Iterator[None]:
    """Keeps out of the log, for the block, what a report or an error says that is printed anyway, and the
    lines that begin with what the command was asked for.
    """

    def unreported(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(("not indexed ", "git remote failed ", *asked_for))

    logs = [
        logging.getLogger(f"ctx.{name}")
        for name in ("indexing.indexer", "connectors.repository", "store.local")
    ]
    for log in logs:
        log.addFilter(unreported)
    try:
        yield
    finally:
        for log in logs:
            log.removeFilter(unreported)


def guard_last_resort() -> None:
    """Where a command sets no log up, Python prints warnings as they are; they are made lines as well."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Lines("%(message)s"))


def _indented(text: str) -> list[str]:
    return ["    " + one_line(line, MAX_LINE) for line in text.splitlines()]
