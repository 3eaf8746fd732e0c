"""Where an export goes: standard output, or a file that appears once it is whole."""

import io
import os
import stat
import sys
from collections.abc import Callable
from typing import TextIO

from ctx import file_writing
from ctx.cli.common import json_printable
from ctx.errors import BadRequest


class Output:
    """`with Output(path) as out`: UTF-8 text for standard output (None), or for a file that takes
    its place at the end.

    What ends in an error leaves no file behind. Raises `BadRequest` where none can be made.
    """

    def __init__(self, path: str | None, *, mode: int = 0o600) -> None:
        self._path = path
        self._file = None if path is None else file_writing.Replacement(path, mode=mode)
        self._out: TextIO = sys.stdout

    def __enter__(self) -> TextIO:
        if self._file is not None:
            try:
                descriptor = self._file.__enter__()
            except OSError as error:
                mend = "" if isinstance(error, IsADirectoryError) else "; name a file in a folder of yours"
                reason = f"--output: {self._path} cannot be written: {error.strerror}{mend}"
                raise BadRequest(reason) from error
            self._out = open(descriptor, "w", encoding="utf-8", errors="replace", closefd=False)
        elif isinstance(self._out, io.TextIOWrapper):
            # An export is data, whatever the terminal.
            self._out.reconfigure(encoding="utf-8", errors="replace")
        return self._out

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._file is None:
            return
        try:
            self._out.close()  # of the buffer: the descriptor stays open
        except OSError as failure:  # a full disk
            self._file.__exit__(type(failure))
            raise
        self._file.__exit__(kind)


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
