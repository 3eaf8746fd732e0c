"""Move distant cells of a workbook closer: the library allocates memory for every cell between them."""

import io
import re
import zipfile
from collections.abc import Iterable

from ctx.errors import SourceError
from ctx.formats.package import Package

MAX_CELLS = 4_000_000  # of a sheet's rectangle, full or not: 130 MB

_SHEET = re.compile(r"xl/worksheets/[^/]+\.xml")
_PLACE = re.compile(rb'(<(?:\w+:)?(?:c|row)\s(?:[^<>]*?\s)?r=")([A-Z]{0,3})(\d{1,7})(?=")')
_MERGED = re.compile(rb"<((?:\w+:)?mergeCells)\b.*?</\1>", re.S)  # removed: their positions would be wrong


def without_gaps(package: Package, data: bytes) -> bytes:
    """The workbook with distant cells moved closer, unchanged if no sheet needs that."""
    moved = {}
    for name in filter(_SHEET.fullmatch, package.names):
        try:
            part = _moved(package.read(name))
        except SourceError:
            continue  # too large or damaged: the library reports it
        if part is not None:
            moved[name] = part
    if not moved:
        return data
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(target, "w") as copy:
        for name in dict.fromkeys(source.namelist()):
            copy.writestr(name, moved[name] if name in moved else source.read(name))
    return target.getvalue()


def _moved(part: bytes) -> bytes | None:
    """A sheet with at most one empty row or column between its cells; None if it is already small."""
    places = [(_number(match[2]), int(match[3])) for match in _PLACE.finditer(part)]
    columns, rows = {column for column, _ in places if column}, {row for _, row in places}
    if max(rows, default=0) * max(columns, default=0) <= MAX_CELLS:
        return None
    column_of, row_of = _closer(columns), _closer(rows)

    def placed(match: re.Match[bytes]) -> bytes:
        letters = _letters(column_of[_number(match[2])]) if match[2] else b""
        return match[1] + letters + b"%d" % row_of[int(match[3])]

    return _PLACE.sub(placed, _MERGED.sub(b"", part))


def _closer(numbers: Iterable[int]) -> dict[int, int]:
    """Number -> new number, in the same order with gaps of at most one."""
    closer: dict[int, int] = {}
    last = place = 0
    for number in sorted(numbers):
        place += min(2, number - last)
        closer[number], last = place, number
    return closer


def _number(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number


def _letters(number: int) -> bytes:
    letters = b""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = bytes([65 + rest]) + letters
    return letters
