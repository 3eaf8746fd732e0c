"""Where an export goes: standard output, or a file that appears once it is whole."""

import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TextIO

from ctx import file_writing
from ctx.cli.common import json_printable
from ctx.errors import BadRequest


@contextmanager
def Output(path: str | None, *, mode: int = 0o600) -> Iterator[TextIO]:
    """UTF-8 text for standard output (None), or for a file that replaces `path` when the block succeeds.
    Raises `BadRequest` if it cannot be made.
    """
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            # An export is data, whatever the terminal.
            sys.stdout.reconfigure(encoding="utf-8", errors="replace")
        yield sys.stdout
        return
    with ExitStack() as stack:
        try:
            descriptor = stack.enter_context(file_writing.replacement(path, mode=mode))
        except OSError as error:
            mend = "" if isinstance(error, IsADirectoryError) else "; name a file in a folder of yours"
            reason = f"--output: {path} cannot be written: {error.strerror}{mend}"
            raise BadRequest(reason) from error
        with open(descriptor, "w", encoding="utf-8", errors="replace", closefd=False) as out:
            yield out


def written(path: str | None) -> Callable[[str], str]:
    """How JSON goes there: to a file or a program as it is, to a terminal without what drives one."""
    return json_printable if path is None and sys.stdout.isatty() else str


def mode_of(path: str | None) -> int:
    """That of the file that is there, which a web server may have to read; of a new one 0600."""
    try:
        return 0o600 if path is None else stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return 0o600


def output_path(text: str) -> str | None:
    """For argparse: `-` is standard output, as everywhere."""
    return None if text == "-" else text
