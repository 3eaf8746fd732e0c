"""CSV and TSV: each row a line that names its columns, at the line of the file where the row begins."""

import csv
import io
from collections.abc import Sequence
from itertools import islice

from ctx.formats.base import Parsed
from ctx.formats.cells import table_lines

_SEPARATORS = ",;\t|"
_BLANKS = True  # people write one behind a comma; a quotation mark behind it still begins a cell
_SAMPLE_CHARS = 65_536
_SAMPLE_ROWS = 10


def parse(text: str) -> Parsed:
    """A table as lines of "name: value"; what is no table is read as the text it is.

    A row that spans several lines is followed by as many blank ones, so that the lines keep their numbers.
    """
    separator = max(_SEPARATORS, key=lambda mark: _columns(text, mark))
    if _columns(text, separator)[1] < 2:
        return Parsed(text)
    reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=_BLANKS)
    rows: list[Sequence[str]] = []
    starts: list[int] = []  # the line of each row in the file, from 0
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
    """Of the first rows, were they parted by this: how many cells the narrowest has, and how many the
    first.
    """
    reader = csv.reader(io.StringIO(text[:_SAMPLE_CHARS]), delimiter=separator, skipinitialspace=_BLANKS)
    try:
        widths = list(islice((len(row) for row in reader if any(map(str.strip, row))), _SAMPLE_ROWS))
    except csv.Error:
        return 0, 0
    return min(widths, default=0), widths[0] if widths else 0
