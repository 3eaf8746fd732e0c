"""Jupyter notebooks (nbformat 3 and 4): Markdown and code cells in order, with short output of the code."""

import json
import re
from collections.abc import Iterator

from ctx.formats import html, markdown
from ctx.formats.base import Parsed, fenced
from ctx.models import JSON, as_table
from ctx.text.strings import sound

MAX_OUTPUT_CHARS = 1000  # per output; longer outputs are often tables of numbers
MAX_CELL_OUTPUT_CHARS = 2000

_OBJECT = re.compile(r"<[\w.]+ object[^\n>]*>")  # the text of an output without a useful text form


def parse(text: str) -> Parsed:
    """A notebook as Markdown. A file that is not a notebook is read as plain text."""
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return Parsed(text)
    cells = _cells(notebook)
    if cells is None:
        return Parsed(text)
    language = _language(as_table(notebook.get("metadata")))
    body = "\n\n".join(part for cell in cells if isinstance(cell, dict) for part in _parts(cell, language))
    # JSON escapes may be lone surrogates, which UTF-8 cannot encode.
    return markdown.parse(sound(body))


def _parts(cell: dict[str, JSON], language: str) -> Iterator[str]:
    """The Markdown blocks of a cell: its text, or its code and output."""
    source = _joined(cell.get("source", cell.get("input", ""))).strip("\n")
    kind = cell.get("cell_type")
    if source.strip():
        if kind == "code":
            yield fenced(source, language)
        else:
            yield _words(source, cell.get("level") if kind == "heading" else None)
    if kind == "code" and (outputs := _outputs(cell.get("outputs"))):
        yield fenced(outputs)


def _words(source: str, level: JSON) -> str:
    """The text of a text cell. With a `level` it is a heading cell of nbformat 3."""
    return f"{'#' * min(level, 6)} {source}" if isinstance(level, int) and level > 0 else source


def _cells(notebook: JSON) -> list[JSON] | None:
    if not isinstance(notebook, dict):
        return None
    cells = notebook.get("cells")
    if isinstance(cells, list):
        return cells
    sheets = notebook.get("worksheets")
    return _cells_of_sheets(sheets) if isinstance(sheets, list) else None


def _cells_of_sheets(sheets: list[JSON]) -> list[JSON]:
    """The cells of a notebook in nbformat 3."""
    lists = [sheet.get("cells") for sheet in sheets if isinstance(sheet, dict)]
    return [cell for cells in lists if isinstance(cells, list) for cell in cells]


def _language(metadata: dict[str, JSON]) -> str:
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        info = metadata.get(key)
        value = info.get(name) if isinstance(info, dict) else None
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
