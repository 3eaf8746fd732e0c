"""JSON and JSON lines as readable text: names and values, with each record's name as a heading."""

import json
from collections.abc import Iterator

from ctx.formats.base import Parsed, clipped
from ctx.models import JSON, Heading
from ctx.text.strings import sound

MAX_GROWTH = 4  # maximum text length / source length: deeply nested data would be mostly indentation
MAX_INDENT = 8  # deeper levels are indented the same
MIN_RECORD_CHARS = 40  # a shorter record with a name gets no heading

_NAMES = ("title", "name", "subject", "label", "heading", "question", "key", "id", "slug", "path", "url")


class _TooLarge(Exception):
    """The text would be many times as long as the data."""


def parse(text: str) -> Parsed:
    """Parse JSON or JSON lines. Other text, also JSON with comments, is read as plain text."""
    try:
        return _written(_value(text), MAX_GROWTH * len(text) + 10_000)
    except (ValueError, RecursionError, _TooLarge):
        return Parsed(text)


def _value(text: str) -> JSON:
    try:
        return _loads(text)
    except ValueError:
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) < 2:
            raise
        *records, last = lines
        return [*map(_loads, records), _last(last)]


def _last(line: str) -> JSON:
    """The last record; its text if it is incomplete because a program is still writing it."""
    try:
        return _loads(line)
    except ValueError:
        return line


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
    return Parsed("".join(body), tuple(headings), (), _title(value))


def _title(value: JSON) -> str | None:
    title = value.get("title") if isinstance(value, dict) else None
    return clipped(sound(title)) if isinstance(title, str) else None


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


def _entry_lines(table: dict[str, JSON], depth: int, indent: str) -> Iterator[str]:
    for key, entry in table.items():
        if _flat(entry):
            yield f"{indent}{key}: {_shown(entry, indent)}"
        elif entry:
            yield f"{indent}{key}:"
            yield from _lines(entry, depth + 1)


def _lines(value: JSON, depth: int) -> Iterator[str]:
    indent = "  " * min(depth, MAX_INDENT)
    if isinstance(value, dict):
        yield from _entry_lines(value, depth, indent)
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
