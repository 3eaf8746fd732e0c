"""Rows that are printed as a table, as wide as the terminal."""

from collections.abc import Sequence

from ctx.cli.common import plain, terminal_width
from ctx.clock import now_ms

# Characters of a column that is cut, or those of its heading: with fewer, a row becomes a block of lines.
LEAST_COLUMN = 6
_GAP = 2  # between columns


def table(rows: Sequence[Sequence[str]], headers: Sequence[str], width: int | None = None) -> str:
    """Columns aligned on the widest cell, numbers to the right, in lines of at most `width` characters.

    `width` None: that of the terminal, and no limit where there is none. What is too wide is cut from the
    widest columns, with an ellipsis, but never from the first, which says what the row is of; where even that
    is too narrow, each row is a block of lines.
    """
    from ctx.text import one_line  # a plain search does without it

    cells = [list(headers), *[[plain(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    numeric = [_numeric(cells[1:], column) for column in range(len(headers))]
    limit = terminal_width() if width is None else width
    if limit is not None:
        least = [max(LEAST_COLUMN, len(header)) for header in headers]
        fitting = _fitted(widths, least, numeric, limit)
        if fitting is None:
            return _blocks(cells[1:], headers, limit)
        widths = fitting
    signs = [">" if number else "<" for number in numeric]
    lines = [
        (" " * _GAP).join(
            f"{one_line(cell, size):{sign}{size}}"
            for cell, size, sign in zip(row, widths, signs, strict=True)
        )
        for row in cells
    ]
    return "\n".join(map(str.rstrip, lines))


def _numeric(rows: Sequence[Sequence[str]], column: int) -> bool:
    return bool(rows) and all(row[column].replace(",", "").replace("%", "").isdigit() for row in rows)


def _fitted(
    widths: Sequence[int], least: Sequence[int], numeric: Sequence[bool], limit: int
) -> list[int] | None:
    """The widths with the widest columns of words but the first made narrower, none below its `least`, until
    a line fits; None where it cannot.
    """
    fitting = list(widths)
    excess = sum(fitting) + _GAP * (len(fitting) - 1) - limit
    while excess > 0:
        words = [
            column
            for column in range(1, len(fitting))
            if not numeric[column] and fitting[column] > least[column]
        ]
        widest = max(words, key=lambda column: fitting[column], default=None)
        if widest is None:
            return None
        fitting[widest] -= 1
        excess -= 1
    return fitting


def _blocks(rows: Sequence[Sequence[str]], headers: Sequence[str], limit: int) -> str:
    """Each row as lines of `HEADER  cell`, for a terminal that no table fits; a long cell goes on below."""
    import textwrap  # 2 ms, for narrow terminals alone

    size = max(map(len, headers)) + _GAP
    room = max(LEAST_COLUMN, limit - size)
    blocks = []
    for row in rows:
        lines = []
        for header, cell in zip(headers, row, strict=True):
            for part in textwrap.wrap(cell, room, break_on_hyphens=False):
                lines.append(f"{header:<{size}}{part}")
                header = ""
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def ago(ms: int | None) -> str:
    """How long ago, in words."""
    if ms is None:
        return "never"
    seconds = max(0, (now_ms() - ms) // 1000)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
