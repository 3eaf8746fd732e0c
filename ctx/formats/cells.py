"""Write tables as text. Each row repeats the column names, because a chunk may contain one row of
thousands.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from typing import NamedTuple

# Column names are left out if repeating them would add more characters than this.
MAX_GROWTH_CHARS = 8_000_000

ABOVE = "\0"  # marks a cell that is merged with the cell above

_NUMBER = re.compile(r"[-+(]?[$€£]?\d[\d.,: /%eE+-]*\)?")
_ADDRESS = re.compile(r"[^\s@]+@[^\s@]+\.\w+|(?:https?://|www\.)\S+")
_SAMPLE_ROWS = 100
_MAX_NAME_CHARS = 100  # a longer text is not the name of a column or row
_LEAST_PAIRS, _MAX_PAIRS = 3, 30  # minimum and maximum number of rows of a form
# A form has at least this many values that are words, and as many that are numbers or addresses.
_LEAST_MIXED = 2
_MAX_TITLE_ROWS = 8  # maximum rows above a sheet's header, such as a title, a date, an author


def table_lines(rows: Sequence[Sequence[str]], *, bullet: str = "") -> list[str]:
    """One line of text for each row that is not blank.

    A row below a header becomes "name: value; name: value", without empty cells. In a table without a header
    it becomes "value | value", and in a form (names in the first column) "name: value". Rows with a single
    cell do not change. Merged names are repeated in each row. A new table may begin after a blank row.
    """
    joined: list[list[list[str]]] = []
    above = _Header([], [], set())
    for table in _between_blanks(rows):
        index = None if _is_form(table) else _header_index(table)
        header = None
        if index is not None:
            below = table[index + 1 : index + 1 + _SAMPLE_ROWS]
            header = _Header(table[index], below, _numeric(table, index))
        if joined and not (header and _begins_anew(header, above)):
            joined[-1] += table
        else:
            joined.append(table)
            above = header or _Header(table[0] if len(table) == 1 else [], [], set())
    return [line for table in joined for line in _lines(table, bullet)]


def _between_blanks(rows: Sequence[Sequence[str]]) -> Iterator[list[list[str]]]:
    """The groups of rows between blank rows, with each cell on one line."""
    lines = ([" ".join(cell.split()) for cell in row] for row in _filled_down(rows))
    return (list(run) for filled, run in groupby(lines, any) if filled)


def _filled_down(rows: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
    """The rows with `ABOVE` replaced by the name in the cell above. Long texts are not repeated, and rows of
    only `ABOVE` become empty.
    """
    above: Sequence[str] = ()
    for row in rows:
        if ABOVE not in row:
            above = row
            yield row
            continue
        blank = not any(cell and cell != ABOVE for cell in row)
        names = [name if len(name) <= _MAX_NAME_CHARS else "" for name in above[: len(row)]]
        above = [name if cell == ABOVE else cell for cell, name in zip_longest(row, names, fillvalue="")]
        yield () if blank else above


class _Header(NamedTuple):
    """The column names of a table, its first rows below them, and the indexes of the columns with numbers."""

    names: Sequence[str]
    below: Sequence[Sequence[str]]
    numeric: set[int]


def _begins_anew(table: _Header, above: _Header) -> bool:
    """Whether the rows after a blank row are a new table rather than a continuation: they have a header above
    numbers or the same header again, or they fill other columns, or they have words where the table above has
    numbers.
    """
    if table.numeric or table.names == above.names:
        return True
    columns = _filled(table.names)
    if above.names and columns != _filled(above.names):
        return all(_filled(cells) == columns for cells in table.below)
    words = any(column < len(cells) and cells[column] for column in above.numeric for cells in table.below)
    return words and all(map(set(filter(None, table.names)).isdisjoint, table.below))


def _filled(cells: Sequence[str]) -> list[int]:
    """The indexes of the cells that are not empty."""
    return [column for column, cell in enumerate(cells) if cell]


def _is_form(table: Sequence[Sequence[str]]) -> bool:
    """Whether each row is a name and its value ("City: | Paris"), so that the first row is not a header.

    That is so if all names end in colons, or if the values mix words with numbers or addresses, which is rare
    in one column of a table. The second rule is a guess, so it applies only to short tables: there a header
    is in the same chunk as its rows, and a wrong guess loses nothing.
    """
    if any(not cells[0] or len(_filled(cells)) > 2 for cells in table):
        return False
    pairs = [(cells[0], cells[1]) for cells in table if any(cells[1:2])]
    if len(pairs) < _LEAST_PAIRS:
        return False
    return all(name.endswith(":") for name, _ in pairs) or _are_mixed(pairs)


def _are_mixed(pairs: Sequence[tuple[str, str]]) -> bool:
    """Whether a table is short, has different names, and some values are words and others numbers or
    addresses.
    """
    names = [name for name, _ in pairs]
    if len(pairs) > _MAX_PAIRS or len(set(names)) < len(names) or not _are_words(names):
        return False
    codes = sum(bool(_NUMBER.fullmatch(value) or _ADDRESS.fullmatch(value)) for _, value in pairs)
    return min(codes, len(pairs) - codes) >= _LEAST_MIXED


def _lines(table: Sequence[Sequence[str]], bullet: str) -> list[str]:
    if _is_form(table):
        pairs = [[cell for cell in cells if cell] for cells in table]
        return [f"{bullet}{name.rstrip(':')}: {values[0]}" if values else name for name, *values in pairs]
    header_index = _header_index(table)
    if header_index is None or len("".join(table[header_index])) * len(table) > MAX_GROWTH_CHARS:
        return [_joined(cells, bullet) for cells in table]
    names = table[header_index]
    lines = [_joined(cells, "") for cells in table[: header_index + 1]]
    return lines + [_named(names, cells, bullet) for cells in table[header_index + 1 :]]


def _joined(cells: Sequence[str], bullet: str) -> str:
    filled = [cell for cell in cells if cell]
    return (bullet if len(filled) > 1 else "") + " | ".join(filled)


def _named(names: Sequence[str], cells: Sequence[str], bullet: str) -> str:
    pairs = [
        f"{name.rstrip(':')}: {cell}" if name else cell
        for name, cell in zip_longest(names, cells, fillvalue="")
        if cell
    ]
    return bullet + "; ".join(pairs)


def _header_index(table: Sequence[Sequence[str]]) -> int | None:
    """The index of the header: the first row with about as many cells as most rows, if all its cells can be
    names; else None.
    """
    widths = sorted(sum(map(bool, cells)) for cells in table[:_SAMPLE_ROWS])
    if len(table) < 2 or widths[-1] < 2:
        return None
    common = max(2, widths[len(widths) // 2])
    enough = common - (common > 2)  # one column of a wider table may have no name
    for index, cells in enumerate(table[: min(_MAX_TITLE_ROWS, len(table) - 1)]):
        names = [cell for cell in cells if cell]
        if len(names) >= enough:
            return index if _are_words(names) and _are_names(names, table, index) else None
    return None


def _are_names(names: Sequence[str], table: Sequence[Sequence[str]], index: int) -> bool:
    """Whether the cells of a row can be column names: all differ, or some are above numbers, or some repeat
    ("Name, Phone, Phone") and none occurs as a value below.
    """
    kinds = set(names)
    if len(kinds) == len(names) or _numeric(table, index):
        return True
    below = table[index + 1 : index + 1 + _SAMPLE_ROWS]
    return len(kinds) > 1 and len(kinds) * 2 >= len(names) and all(map(kinds.isdisjoint, below))


def _are_words(cells: Sequence[str]) -> bool:
    return all(len(cell) <= _MAX_NAME_CHARS and not _NUMBER.fullmatch(cell) for cell in cells)


def _numeric(table: Sequence[Sequence[str]], index: int) -> set[int]:
    """The indexes of the columns with a word in this row and numbers below, which shows that the row is a
    header.
    """
    below = table[index + 1 : index + 1 + _SAMPLE_ROWS]
    numeric: set[int] = set()
    for column, name in enumerate(table[index]):
        cells = [row[column] for row in below if column < len(row) and row[column]]
        if name and cells and all(map(_NUMBER.fullmatch, cells)):
            numeric.add(column)
    return numeric
