"""Spreadsheets: each sheet gets a heading, and each row becomes a line with its column names."""

import datetime
import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping

import python_calamine as calamine

from ctx.errors import SourceError
from ctx.formats.base import LOCKED, MAX_CHARS, OLE_MARK, TOO_LONG, Manuscript, Parsed
from ctx.formats.cells import ABOVE
from ctx.formats.odf import Ranges, tall_cells
from ctx.formats.package import MAX_PART_BYTES, Package, properties

# Limit for the size that a workbook declares; the memory limit catches false declarations.
MAX_UNPACKED_BYTES = 512 << 20

_EXACT_BELOW = 2.0**53  # integers below this are exact as floats; of other numbers a sheet shows 15 digits
_META = ("docProps/core.xml", "meta.xml")

# Maximum cells per sheet (rows times columns, including empty cells); so many cells take 130 MB.
MAX_CELLS = 4_000_000

_PLACE = re.compile(rb'(<(?:\w+:)?(?:c|row)\s(?:[^<>]*?\s)?r=")([A-Z]{0,3})(\d{1,7})(?=")')
_ROW, _CELLS, _DIMENSION = 0, range(1, 12), 148  # numbers of record types in [MS-XLSB]
_REPEATED = re.compile(rb'(?<=number-)(row|column)s-repeated="(\d{1,9})"')
_MAX_ROWS_REPEATED = 100
# Removed when cells are moved, because the positions of merged cells would be wrong.
_MERGED = re.compile(rb"<((?:\w+:)?mergeCells)\b.*?</\1>", re.S)


def _opened(data: bytes) -> calamine.CalamineWorkbook:
    try:
        return calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
    except calamine.PasswordError as error:
        raise SourceError(LOCKED) from error
    except (calamine.CalamineError, OSError) as error:
        if data.startswith(OLE_MARK):
            raise SourceError(f"{LOCKED}, or it is damaged") from error
        raise SourceError("is damaged: no workbook that can be opened") from error


def parse(data: bytes) -> Parsed:
    """The text of a workbook: the displayed values of its cells. A formula has its last stored value."""
    title = author = None
    tall: Mapping[str, Ranges] = {}
    if not data.startswith(OLE_MARK):
        title, author, tall, data = _about(data)
    workbook = _opened(data)
    manuscript = Manuscript()
    for sheet in workbook.sheets_metadata:
        name = sheet.name
        try:
            rows = _rows(workbook.get_sheet_by_name(name), tall.get(name, []))
        except calamine.CalamineError:
            continue  # a chart sheet has no cells
        if any(rows):
            visible = sheet.visible is calamine.SheetVisibleEnum.Visible
            manuscript.heading(1, f"Sheet {name}" if visible else f"Sheet {name} (hidden)")
            manuscript.table(rows)
    return manuscript.parsed(title, {"author": author, "sheets": len(workbook.sheet_names)})


def _about(data: bytes) -> tuple[str | None, str | None, Mapping[str, Ranges], bytes]:
    """Title, author and merged cells of a zipped workbook, and the bytes to open."""
    with Package(data) as package:
        package.refuse_above(MAX_UNPACKED_BYTES)
        meta = next((name for name in _META if name in package), "")
        title, author = properties(package.optional_xml(meta))
        data = without_gaps(package, data)
    with Package(data) as package:
        # The library does not read the merged cells of an OpenDocument workbook. If it is too large, names of
        # merged cells are not repeated.
        if "content.xml" in package and package.size("content.xml") <= MAX_PART_BYTES:
            return title, author, tall_cells(package.read("content.xml")), data
    return title, author, {}, data


def _rows(sheet: calamine.CalamineSheet, tall: Ranges) -> list[list[str]]:
    """The displayed values of all rows. Several blank rows become one."""
    rows: list[list[str]] = []
    size = 0
    tops = _tops(sheet, sheet.merged_cell_ranges or tall)
    merged: dict[int, int] = {}  # column -> the last row of a merged cell from above
    for number, row in enumerate(sheet.iter_rows()):
        cells = list(map(_shown, row))
        merged = {column: last for column, last in merged.items() if number <= last}
        for column in merged if any(cells) else ():
            cells[column] = cells[column] or ABOVE
        merged.update(tops.get(number, ()))
        size += sum(map(len, cells))
        if any(cells):
            rows.append(cells)
        elif rows and rows[-1]:
            rows.append([])
        if size > MAX_CHARS:
            raise SourceError(TOO_LONG)
    return rows


def _tops(sheet: calamine.CalamineSheet, ranges: Ranges) -> dict[int, list[tuple[int, int]]]:
    """Row -> (column, last row) of the merged cells that begin in that row."""
    tops: dict[int, list[tuple[int, int]]] = {}
    if sheet.start is not None:
        for (top, left), (bottom, _) in ranges:
            column = left - sheet.start[1]  # the library skips empty columns at the left, but no rows
            if bottom > top and 0 <= column < sheet.width:
                tops.setdefault(top, []).append((column, bottom))
    return tops


def _shown(cell: object) -> str:
    """A cell's value as text."""
    if cell is None or cell == "":
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < _EXACT_BELOW else f"{cell:.15g}"
    if isinstance(cell, datetime.datetime):
        return cell.isoformat(" ", "seconds").removesuffix(":00").removesuffix(" 00:00")
    if isinstance(cell, datetime.timedelta):
        seconds = round(cell.total_seconds())
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return str(cell)


# -- distant cells -------------------------------------------------------------------------------------------
# The spreadsheet library allocates memory for every cell between two cells, so distant ones are moved closer.


def without_gaps(package: Package, data: bytes) -> bytes:
    """The bytes of the workbook with distant cells moved closer; unchanged if no sheet needs that."""
    moved = {}
    for name in package.names:
        shrink = next((shrink for pattern, shrink in _SHRINKERS if pattern.fullmatch(name)), None)
        try:
            part = shrink(package.read(name)) if shrink else None
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
    """An OOXML sheet with at most one empty row or column between its cells; None if it is already small."""
    places = [(_number(match[2]), int(match[3])) for match in _PLACE.finditer(part)]
    columns, rows = {column for column, _ in places if column}, {row for _, row in places}
    if max(rows, default=0) * max(columns, default=0) <= MAX_CELLS:
        return None
    column_of, row_of = _closer(columns), _closer(rows)

    def placed(match: re.Match[bytes]) -> bytes:
        letters = _letters(column_of[_number(match[2])]) if match[2] else b""
        return match[1] + letters + b"%d" % row_of[int(match[3])]

    return _PLACE.sub(placed, _MERGED.sub(b"", part))


def _repeated_less(part: bytes) -> bytes | None:
    """The `content.xml` of an OpenDocument workbook with fewer repetitions of equal rows and columns; None if
    there are few already.
    """
    repeats = [(match[1], int(match[2])) for match in _REPEATED.finditer(part)]
    rows = sum(min(count, _MAX_ROWS_REPEATED) for kind, count in repeats if kind == b"row")
    rows += part.count(b"table-row>")
    limits = {b"row": _MAX_ROWS_REPEATED, b"column": max(_MAX_ROWS_REPEATED, MAX_CELLS // max(1, rows))}
    if all(count <= limits[kind] for kind, count in repeats):
        return None

    def limited(match: re.Match[bytes]) -> bytes:
        return b'%ss-repeated="%d"' % (match[1], min(int(match[2]), limits[match[1]]))

    return _REPEATED.sub(limited, part)


def _moved_records(part: bytes) -> bytes | None:
    """A sheet of a binary workbook ([MS-XLSB]) with its cells moved closer, as in `_moved`; None if it is
    already small. Records of rows and cells begin with the row or column number in 4 bytes.
    """
    places = list(_records(part))
    rows = {_uint(part, start) for kind, start in places if kind == _ROW}
    columns = {_uint(part, start) for kind, start in places if kind in _CELLS}
    if (max(rows, default=0) + 1) * (max(columns, default=0) + 1) <= MAX_CELLS:
        return None
    column_of, row_of = _closer(columns), _closer(rows)
    moved = bytearray(part)
    for kind, start in places:
        if kind == _ROW:
            moved[start : start + 4] = row_of[_uint(part, start)].to_bytes(4, "little")
        elif kind in _CELLS:
            moved[start : start + 4] = column_of[_uint(part, start)].to_bytes(4, "little")
        elif kind == _DIMENSION:
            last = (max(row_of.values()), 0, max(column_of.values()))
            moved[start + 4 : start + 16] = b"".join(number.to_bytes(4, "little") for number in last)
    return bytes(moved)


def _records(part: bytes) -> Iterator[tuple[int, int]]:
    """The type of each record and the offset of its content. Before the content come the type and the length,
    both as variable-length numbers with 7 bits per byte.
    """
    position = 0
    while position < len(part):
        numbers = []
        for most in (2, 4):
            number = 0
            for index in range(most):
                byte = part[position : position + 1] or b"\0"
                position += 1
                number |= (byte[0] & 0x7F) << 7 * index
                if byte[0] < 0x80:
                    break
            numbers.append(number)
        if position + numbers[1] <= len(part):
            yield numbers[0], position
        position += numbers[1]


def _uint(part: bytes, start: int) -> int:
    return int.from_bytes(part[start : start + 4], "little")


def _closer(numbers: Iterable[int]) -> dict[int, int]:
    """Old number -> new number, in the same order, with at most one unused number between two."""
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


_SHRINKERS = (
    (re.compile(r"xl/worksheets/[^/]+\.xml"), _moved),
    (re.compile(r"xl/worksheets/[^/]+\.bin"), _moved_records),
    (re.compile(r"content\.xml"), _repeated_less),
)
