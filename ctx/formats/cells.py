"""Write tables as text: each row repeats the names of its columns, because a chunk may contain one row of
thousands.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from typing import NamedTuple

MAX_GROWTH_CHARS = 8_000_000  # if the names of columns would add more, they are left out

ABOVE = "\0"  # a cell that is merged with the one above

_NUMBER = re.compile(r"[-+(]?[$€£]?\d[\d.,: /%eE+-]*\)?")
_ADDRESS = re.compile(r"[^\s@]+@[^\s@]+\.\w+|(?:https?://|www\.)\S+")
_SAMPLE_ROWS = 100
_MAX_NAME_CHARS = 100  # of a column or a row; a longer text is not a name
_LEAST_PAIRS, _MAX_PAIRS = 3, 30  # rows of a form
_LEAST_MIXED = 2  # of its values that are words, and that are numbers or addresses
_MAX_TITLE_ROWS = 8  # above a sheet's header: its title, a date, who made it


def table_lines(rows: Sequence[Sequence[str]], *, bullet: str = "") -> list[str]:
    """A line for each row that is not blank.

    Below a header a row is "name: value; name: value", without empty cells; in a table without a header
    "value | value"; in a form, whose first column has the names, "name: value". Rows with a single cell do
    not change. Merged names are repeated in each row. After a blank row another table may begin.
    """
    joined: list[list[list[str]]] = []
    above = _Header([], [], set())
    for table in _between_blanks(rows):
        header = None if _is_form(table) else _header(table)
        if joined and not (header and _begins_anew(header, above)):
            joined[-1] += table
        else:
            joined.append(table)
            above = header or _Header(table[0] if len(table) == 1 else [], [], set())
    return [line for table in joined for line in _lines(table, bullet)]


def _between_blanks(rows: Sequence[Sequence[str]]) -> Iterator[list[list[str]]]:
    """The runs of rows that are not blank, each cell on one line."""
    lines = ([" ".join(cell.split()) for cell in row] for row in _filled_down(rows))
    return (list(run) for filled, run in groupby(lines, any) if filled)


def _filled_down(rows: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
    """The rows with `ABOVE` replaced by the name above, but not in rows of only `ABOVE` or by long texts."""
    above: Sequence[str] = ()
    for row in rows:
        blank = ABOVE in row and not any(cell and cell != ABOVE for cell in row)
        above = [_name_above(above, column) if cell == ABOVE else cell for column, cell in enumerate(row)]
        yield () if blank else above


def _name_above(above: Sequence[str], column: int) -> str:
    name = above[column] if column < len(above) else ""
    return name if len(name) <= _MAX_NAME_CHARS else ""


class _Header(NamedTuple):
    """The names of a table's columns, its first rows below them, and which columns hold numbers there."""

    names: Sequence[str]
    below: Sequence[Sequence[str]]
    numeric: set[int]


def _header(table: Sequence[Sequence[str]]) -> _Header | None:
    index = _header_index(table)
    if index is None:
        return None
    return _Header(table[index], table[index + 1 : index + 1 + _SAMPLE_ROWS], _numeric(table, index))


def _begins_anew(table: _Header, above: _Header) -> bool:
    """Whether rows after a blank row are a new table and not a continuation: they have names above numbers,
    or repeat the names; or all fill other columns; or they have words where the table above has numbers.
    """
    if table.numeric or table.names == above.names:
        return True
    columns = _filled(table.names)
    if above.names and columns != _filled(above.names):
        return all(_filled(cells) == columns for cells in table.below)
    words = any(column < len(cells) and cells[column] for column in above.numeric for cells in table.below)
    return words and all(map(set(filter(None, table.names)).isdisjoint, table.below))


def _filled(cells: Sequence[str]) -> list[int]:
    """The columns that are not empty."""
    return [column for column, cell in enumerate(cells) if cell]


def _is_form(table: Sequence[Sequence[str]]) -> bool:
    """Whether each row is a name and its value ("City: | Paris"), so the first row is not a header.

    Either the names end in colons, or the values mix words with numbers or addresses, which is rare in one
    column. This is a guess, for short tables only: there a header is in the same chunk as its rows, so a
    wrong guess loses nothing.
    """
    if any(not cells[0] or len(_filled(cells)) > 2 for cells in table):
        return False
    pairs = [(cells[0], cells[1]) for cells in table if any(cells[1:2])]
    if len(pairs) < _LEAST_PAIRS:
        return False
    return all(name.endswith(":") for name, _ in pairs) or _are_mixed(pairs)


def _are_mixed(pairs: Sequence[tuple[str, str]]) -> bool:
    """Whether some values of a few names are words, and others numbers or addresses."""
    names = [name for name, _ in pairs]
    if len(pairs) > _MAX_PAIRS or len(set(names)) < len(names) or not _are_words(names):
        return False
    codes = sum(bool(_NUMBER.fullmatch(value) or _ADDRESS.fullmatch(value)) for _, value in pairs)
    return min(codes, len(pairs) - codes) >= _LEAST_MIXED


def _lines(table: Sequence[Sequence[str]], bullet: str) -> list[str]:
    if _is_form(table):
        return [_pair(cells, bullet) for cells in table]
    header_index = _header_index(table)
    if header_index is None or len("".join(table[header_index])) * len(table) > MAX_GROWTH_CHARS:
        return [_joined(cells, bullet) for cells in table]
    names = table[header_index]
    lines = [_joined(cells, "") for cells in table[: header_index + 1]]
    return lines + [_named(names, cells, bullet) for cells in table[header_index + 1 :]]


def _pair(cells: Sequence[str], bullet: str) -> str:
    name, *values = filter(None, cells)
    return f"{bullet}{name.rstrip(':')}: {values[0]}" if values else name


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
    """The index of the header: the first row that is about as wide as most, if all its cells can be names."""
    widths = sorted(sum(map(bool, cells)) for cells in table[:_SAMPLE_ROWS])
    if len(table) < 2 or widths[-1] < 2:
        return None
    common = max(2, widths[len(widths) // 2])
    enough = common - (common > 2)  # one column may have no name
    for index, cells in enumerate(table[: min(_MAX_TITLE_ROWS, len(table) - 1)]):
        names = [cell for cell in cells if cell]
        if len(names) >= enough:
            return index if _are_words(names) and _are_names(names, table, index) else None
    return None


def _are_names(names: Sequence[str], table: Sequence[Sequence[str]], index: int) -> bool:
    """Whether the cells of a row can be names of columns: they differ, or are above numbers, or some repeat
    ("Name, Phone, Phone") and none is a value below.
    """
    kinds = set(names)
    if len(kinds) == len(names) or _numeric(table, index):
        return True
    below = table[index + 1 : index + 1 + _SAMPLE_ROWS]
    return len(kinds) > 1 and len(kinds) * 2 >= len(names) and all(map(kinds.isdisjoint, below))


def _are_words(cells: Sequence[str]) -> bool:
    return all(len(cell) <= _MAX_NAME_CHARS and not _NUMBER.fullmatch(cell) for cell in cells)


def _numeric(table: Sequence[Sequence[str]], index: int) -> set[int]:
    """The columns with words in this row and numbers below, which shows that it is a header."""
    below = table[index + 1 : index + 1 + _SAMPLE_ROWS]
    return {column for column, name in enumerate(table[index]) if name and _are_numbers(below, column)}


def _are_numbers(rows: Sequence[Sequence[str]], column: int) -> bool:
    cells = [row[column] for row in rows if column < len(row) and row[column]]
    return bool(cells) and all(map(_NUMBER.fullmatch, cells))
