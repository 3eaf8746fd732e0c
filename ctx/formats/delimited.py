"""CSV and TSV: each row a line that names its columns. Lines keep their numbers, but for rows that span
several.
"""

import csv
import io

from ctx.formats.base import Parsed
from ctx.formats.cells import table_lines

_SEPARATORS = ",;\t|"
_SAMPLE_LINES = 10


def parse(text: str) -> Parsed:
    """A table as lines of "name: value"; what is no table is read as the text it is."""
    sample = [line for line in text[:65_536].split("\n")[:_SAMPLE_LINES] if line.strip()]
    separator = max(_SEPARATORS, key=lambda mark: min((line.count(mark) for line in sample), default=0))
    if not sample or separator not in sample[0]:
        return Parsed(text)
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter=separator))
    except csv.Error:
        return Parsed(text)
    return Parsed("\n".join(table_lines(rows)))
