"""Spreadsheets: each sheet gets a heading, and each row becomes a line with its column names."""

import datetime
import io
from collections.abc import Mapping

import python_calamine as calamine

from ctx.errors import SourceError
from ctx.formats.base import LOCKED, OLE_MARK, Parsed
from ctx.formats.cells import ABOVE
from ctx.formats.manuscript import MAX_CHARS, TOO_LONG, Manuscript
from ctx.formats.odf import Ranges, tall_cells
from ctx.formats.package import MAX_PART_BYTES, Package, properties
from ctx.formats.sparse import without_gaps

MAX_UNPACKED_BYTES = 512 << 20  # limit for the declared size; the memory limit catches false declarations

_EXACT_BELOW = 2.0**53  # smaller integers are exact; of other numbers a sheet shows 15 digits
_META = ("docProps/core.xml", "meta.xml")


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
        return title, author, _tall_cells(package), data


def _tall_cells(package: Package) -> Mapping[str, Ranges]:
    """The merged cells of an OpenDocument workbook, which the library does not read."""
    if "content.xml" not in package or package.size("content.xml") > MAX_PART_BYTES:
        return {}  # too large; names of merged cells are not repeated then
    return tall_cells(package.read("content.xml"))


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
