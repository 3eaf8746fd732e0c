"""CSV and TSV: each row becomes a line with its column names, at the same line number as in the file."""

import csv
import io
from collections.abc import Sequence
from itertools import islice

from ctx.formats.base import Parsed
from ctx.formats.cells import table_lines

_SEPARATORS = ",;\t|"
_BLANKS = True  # a cell in quotation marks may have a blank in front
_SAMPLE_CHARS = 65_536
_SAMPLE_ROWS = 10


def parse(text: str) -> Parsed:
    """A table as lines of "name: value". A file that is not a table is read as plain text.

    A row that has several lines in the file becomes one line and blank lines, so that line numbers do not
    change.
    """
    separator = max(_SEPARATORS, key=lambda mark: _columns(text, mark))
    if _columns(text, separator)[1] < 2:
        return Parsed(text)
    reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=_BLANKS)
    rows: list[Sequence[str]] = []
    starts: list[int] = []  # the first line of each row in the file, counted from 0
    end = 0
    try:
        for row in reader:
            if any(map(str.strip, row)):
                rows.append(row)
                starts.append(end)
            end = reader.line_num
    except csv.Error:
        return Parsed(text)
    lines = [""] * end
    for start, line in zip(starts, table_lines(rows), strict=True):
        lines[start] = line
    return Parsed("\n".join(lines).rstrip("\n"))


def _columns(text: str, separator: str) -> tuple[int, int]:
    """(cells in the narrowest row, cells in the first row) of the first few rows, if split by
    this separator.
    """
    reader = csv.reader(io.StringIO(text[:_SAMPLE_CHARS]), delimiter=separator, skipinitialspace=_BLANKS)
    try:
        widths = list(islice((len(row) for row in reader if any(map(str.strip, row))), _SAMPLE_ROWS))
    except csv.Error:
        return 0, 0
    return min(widths, default=0), widths[0] if widths else 0
