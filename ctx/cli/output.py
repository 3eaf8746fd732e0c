"""Where an export goes: standard output, or a file that appears once it is whole."""

import io
import sys
from typing import TextIO

from ctx import files
from ctx.errors import BadRequest


class Output:
    """`with Output(path) as out`: UTF-8 text for standard output (None), or for a file, 0600, that takes
    its place at the end.

    What ends in an error leaves no file behind. Raises `BadRequest` where none can be made.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file = None if path is None else files.Replacement(path)
        self._out: TextIO = sys.stdout

    def __enter__(self) -> TextIO:
        if self._file is not None:
            try:
                descriptor = self._file.__enter__()
            except OSError as error:
                raise BadRequest(
                    f"--output: {self._path} cannot be written: {error.strerror}; name a file in a folder of yours"
                ) from error
            self._out = open(descriptor, "w", encoding="utf-8", errors="replace", closefd=False)
        elif isinstance(self._out, io.TextIOWrapper):
            self._out.reconfigure(
                encoding="utf-8", errors="replace"
            )  # an export is data, whatever the terminal
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
