"""Data as readable text: JSON and JSON lines, CSV and TSV, Jupyter notebooks."""

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from ctx.formats import html, markdown
from ctx.formats.base import Parsed, clipped, fenced
from ctx.formats.cells import table_lines
from ctx.models import JSON, Heading, as_table
from ctx.text.strings import sound

# -- JSON ----------------------------------------------------------------------------------------------------

MAX_GROWTH = 4  # maximum text length / source length: deeply nested data would be mostly indentation
MAX_INDENT = 8  # levels; deeper levels are indented like this one
MIN_RECORD_CHARS = 40  # a record with a name gets a heading only if it has at least this many characters

_NAMES = ("title", "name", "subject", "label", "heading", "question", "key", "id", "slug", "path", "url")


class _TooLarge(Exception):
    """The text would be many times as long as the data."""


def parse_json(text: str) -> Parsed:
    """Parse JSON or JSON lines. Other text, also JSON with comments, is read as plain text."""
    try:
        return _written(_value(text), MAX_GROWTH * len(text) + 10_000)
    except (ValueError, RecursionError, _TooLarge):
        return Parsed(text)


def _value(text: str) -> JSON:
    try:
        return _loads(text)
    except ValueError:
        *records, last = [line for line in text.split("\n") if line.strip()]
        if not records:
            raise
        try:
            return [*map(_loads, records), _loads(last)]
        except ValueError:  # the last record may be incomplete, because a program is still writing the file
            return [*map(_loads, records), last]


def _loads(text: str) -> JSON:
    return json.loads(text, parse_float=str)  # keeps a price such as 7.50 unchanged


def _written(value: JSON, room: int) -> Parsed:
    """The text of a JSON value: one block for each record or entry, with blank lines between. Raises
    `_TooLarge` if it has more than `room` characters.
    """
    body: list[str] = []
    headings: list[Heading] = []
    size = 0
    for name, part in _parts(value):
        block = _block(part, room - size)
        if not block.strip():
            continue
        if body:
            body.append("\n\n" if name or (isinstance(value, list) and "\n" in block) else "\n")
            size += len(body[-1])
        if name and len(block) >= MIN_RECORD_CHARS:
            headings.append(Heading(size, 1, clipped(sound(name))))
        body.append(block)
        size += len(block)
    title = value.get("title") if isinstance(value, dict) else None
    return Parsed(
        "".join(body), tuple(headings), (), clipped(sound(title)) if isinstance(title, str) else None
    )


def _block(part: JSON, room: int) -> str:
    """The lines of one record or entry as text. Raises `_TooLarge` if they have more than `room`
    characters.
    """
    lines = []
    for line in _lines(part, 0):
        lines.append(line)
        room -= len(line) + 1
        if room < 0:
            raise _TooLarge
    return sound("\n".join(lines)).replace("\0", "\ufffd")


def _parts(value: JSON) -> Iterator[tuple[str | None, JSON]]:
    """(name or None, value) of each record of a list, or of each entry of an object."""
    if isinstance(value, list):
        for record in value:
            yield (_name(record) if isinstance(record, dict) else None), record
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield (key if isinstance(entry, dict | list) else None), {key: entry}
    else:
        yield None, value


def _name(record: dict[str, JSON]) -> str | None:
    for key in _NAMES:
        name = record.get(key)
        if isinstance(name, str | int) and not isinstance(name, bool) and str(name).strip():
            return str(name)
    return None


def _lines(value: JSON, depth: int) -> Iterator[str]:
    indent = "  " * min(depth, MAX_INDENT)
    if isinstance(value, dict):
        for key, entry in value.items():
            if _flat(entry):
                yield f"{indent}{key}: {_shown(entry, indent)}"
            elif entry:
                yield f"{indent}{key}:"
                yield from _lines(entry, depth + 1)
    elif isinstance(value, list) and not _flat(value):
        for entry in value:
            for number, line in enumerate(_lines(entry, depth + 1)):
                yield line if number else f"{indent}- {line.lstrip()}"
    else:
        yield indent + _shown(value, indent)


def _flat(value: JSON) -> bool:
    """Whether a value fits on one line: a scalar, or a list of short scalars."""
    if isinstance(value, list):
        return bool(value) and all(
            not isinstance(entry, dict | list) and (not isinstance(entry, str) or len(entry) < 80)
            for entry in value
        )
    return not isinstance(value, dict)


def _shown(value: JSON, indent: str) -> str:
    if isinstance(value, list):
        return ", ".join(_shown(entry, indent) for entry in value)
    if isinstance(value, str):
        return value.replace("\r\n", "\n").replace("\n", f"\n{indent}  ")
    return json.dumps(value)


# -- CSV and TSV ---------------------------------------------------------------------------------------------

_SEPARATORS = ",;\t|"
_NAMED_SEPARATOR = re.compile(r"sep=([,;\t|])\r?\n")  # the first line that Excel writes and reads
_SAMPLE_CHARS = 65_536
_SAMPLE_ROWS = 10


def parse_table(text: str) -> Parsed:
    """A table as lines of "name: value". A file that is not a table is read as plain text.

    A row that has several lines in the file becomes one line and blank lines, so that line numbers do not
    change.
    """
    separator = max(_SEPARATORS, key=lambda mark: _columns(text, mark))
    if named := _NAMED_SEPARATOR.match(text):
        separator, text = named[1], "\n" + text[named.end() :]
    if _columns(text, separator)[1] < 2:
        return Parsed(text)
    reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
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
    reader = csv.reader(io.StringIO(text[:_SAMPLE_CHARS]), delimiter=separator, skipinitialspace=True)
    try:
        widths = list(islice((len(row) for row in reader if any(map(str.strip, row))), _SAMPLE_ROWS))
    except csv.Error:
        return 0, 0
    return min(widths, default=0), widths[0] if widths else 0


# -- notebooks -----------------------------------------------------------------------------------------------

MAX_OUTPUT_CHARS = 1000  # characters per output; longer outputs, which are often tables of numbers, are cut
MAX_CELL_OUTPUT_CHARS = 2000

# The text that Python prints for an object without a readable form.
_OBJECT = re.compile(r"<[\w.]+ object[^\n>]*>")


def parse_notebook(text: str) -> Parsed:
    """A Jupyter notebook (nbformat 3 and 4) as Markdown: text cells, and code cells with their short outputs.
    A file that is not a notebook is read as plain text.
    """
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return Parsed(text)
    cells = _notebook_cells(notebook)
    if cells is None:
        return Parsed(text)
    language = _language(as_table(notebook.get("metadata")))
    parts = [part for cell in cells if isinstance(cell, dict) for part in _cell_parts(cell, language)]
    # JSON escapes may be lone surrogates, which UTF-8 cannot encode.
    return markdown.parse(sound("\n\n".join(parts)))


def _notebook_cells(notebook: JSON) -> list[JSON] | None:
    if not isinstance(notebook, dict):
        return None
    if isinstance(cells := notebook.get("cells"), list):
        return cells
    sheets = notebook.get("worksheets")  # only in nbformat 3
    if not isinstance(sheets, list):
        return None
    lists = [as_table(sheet).get("cells") for sheet in sheets]
    return [cell for cells in lists if isinstance(cells, list) for cell in cells]


def _cell_parts(cell: dict[str, JSON], language: str) -> Iterator[str]:
    """The Markdown blocks of a cell: its text, or its code and output."""
    source = _joined(cell.get("source", cell.get("input", ""))).strip("\n")
    kind, level = cell.get("cell_type"), cell.get("level")
    if source.strip():
        if kind == "code":
            yield fenced(source, language)
        elif kind == "heading" and isinstance(level, int) and level > 0:  # only in nbformat 3
            yield f"{'#' * min(level, 6)} {source}"
        else:
            yield source
    if kind == "code" and (outputs := _outputs(cell.get("outputs"))):
        yield fenced(outputs)


def _language(metadata: dict[str, JSON]) -> str:
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        value = as_table(metadata.get(key)).get(name)
        if isinstance(value, str) and value.isidentifier():
            return value
    return "python"


def _joined(source: JSON) -> str:
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""


def _printed(output: dict[str, JSON]) -> str:
    if output.get("output_type") == "error":
        return f"{output.get('ename', '')}: {output.get('evalue', '')}"
    shown = as_table(output.get("data", output))
    text = _joined(output.get("text")) or _joined(shown.get("text/markdown"))
    plain = _joined(shown.get("text/plain"))
    if not text and (not plain or _OBJECT.fullmatch(plain)) and (page := _joined(shown.get("text/html"))):
        text = html.parse(page).body.strip()
    return text or plain


def _outputs(outputs: JSON) -> str:
    """The text of a cell's outputs without pictures, widgets and tracebacks; long outputs are cut."""
    parts: list[str] = []
    for output in outputs if isinstance(outputs, list) else []:
        if not isinstance(output, dict):
            continue
        text = _printed(output).strip("\n")
        if len(text) > MAX_OUTPUT_CHARS:
            text = text[:MAX_OUTPUT_CHARS].rsplit("\n", 1)[0] + "\n…"
        if text.strip():
            parts.append(text)
        if sum(map(len, parts)) > MAX_CELL_OUTPUT_CHARS:
            break
    return "\n".join(parts)
