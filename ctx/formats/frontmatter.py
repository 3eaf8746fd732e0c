"""Front matter: the metadata block at the head of a Markdown, reStructuredText or HTML file.

YAML between `---`, TOML between `+++`, or one JSON object. Of YAML only what front matter uses is read: scalars, lists in either
style, folded and literal blocks, one level of nesting; the rest is passed over. A block that cannot be read is text like any other.
"""

import json
import re
from typing import NamedTuple

from ctx.formats.base import clipped
from ctx.types import JSON

MAX_FRONT_MATTER = 65_536  # characters; a longer block is not front matter
MAX_VALUE_CHARS = 2000
MAX_KEYS = 100

_YAML_END = re.compile(r"\n(?:---|\.\.\.)[ \t]*(?=\n|\Z)")
_TOML_END = re.compile(r"\n\+\+\+[ \t]*(?=\n|\Z)")
_KEY = re.compile(r"([A-Za-z_][\w .\-]{0,99}?)[ \t]*:(?:[ \t]+(.*)|[ \t]*)\Z")
_NUMBER = re.compile(r"[-+]?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?\Z")
_CONSTANTS: dict[str, JSON] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "~": None,
    "": None,
}


class FrontMatter(NamedTuple):
    """`end` is where the text after the block starts (characters)."""

    end: int
    metadata: dict[str, JSON]


def read_front_matter(text: str) -> FrontMatter | None:
    """The block at the head of a text, or None where there is none that can be read."""
    head = text[:4]
    if head == "---\n":
        found = _YAML_END.search(text, 3, MAX_FRONT_MATTER)
        if found is None:
            return None
        metadata = _yaml(text[4 : found.start() + 1])
        # "---" is a ruler too: a block in which nothing looks like a key is text between two rulers.
        return FrontMatter(_after(text, found.end()), metadata) if metadata is not None else None
    if head == "+++\n":
        found = _TOML_END.search(text, 3, MAX_FRONT_MATTER)
        return FrontMatter(_after(text, found.end()), _toml(text[4 : found.start() + 1])) if found else None
    if head[:2] == "{\n" or head[:2] == '{"':
        try:
            value, end = json.JSONDecoder().raw_decode(text[:MAX_FRONT_MATTER])
        except (ValueError, RecursionError):
            return None
        if isinstance(value, dict) and text[end : end + 1] == "\n" and text[end:].strip():
            return FrontMatter(_after(text, end), _bounded(value))
    return None


def front_title(front: FrontMatter) -> str | None:
    """The title that a block gives, or None."""
    title = front.metadata.get("title", front.metadata.get("Title"))
    if isinstance(title, str | int | float) and not isinstance(title, bool):
        return clipped(str(title)) or None
    return None


def _after(text: str, end: int) -> int:
    return end + 1 if text[end : end + 1] == "\n" else end


def _toml(block: str) -> dict[str, JSON]:
    import tomli  # 6 ms, and few files have such a block

    try:
        return _bounded(tomli.loads(block))
    except (tomli.TOMLDecodeError, RecursionError):
        return {}


def _bounded(value: dict[str, JSON]) -> dict[str, JSON]:
    return {str(key)[:100]: _plain(item) for key, item in list(value.items())[:MAX_KEYS]}


def _plain(value: JSON, depth: int = 0) -> JSON:
    """A value as JSON can say it; dates become text, and what is long or deep is cut."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list) and depth < 4:
        return [_plain(item, depth + 1) for item in value[:MAX_KEYS]]
    if isinstance(value, dict) and depth < 4:
        return {str(key)[:100]: _plain(item, depth + 1) for key, item in list(value.items())[:MAX_KEYS]}
    return str(value)[:MAX_VALUE_CHARS]


def _yaml(block: str) -> dict[str, JSON] | None:
    """Keys and values of a simple YAML block; None where no line is a key."""
    metadata: dict[str, JSON] = {}
    lines = block.split("\n")
    i = 0
    while i < len(lines) and len(metadata) < MAX_KEYS:
        line = lines[i]
        i += 1
        found = (
            _KEY.match(line[: MAX_VALUE_CHARS + 200].rstrip())
            if line[:1] not in ("#", " ", "\t", "-")
            else None
        )
        if found is None:
            continue
        key, value = found[1], (found[2] or "").strip()
        below: list[str] = []
        while i < len(lines) and (
            not lines[i].strip() or lines[i][0] in " \t" or (lines[i][:2] in ("- ", "-") and not value)
        ):
            below.append(lines[i])
            i += 1
        metadata[key] = _yaml_value(value, below)
    return metadata or None


def _yaml_value(value: str, below: list[str]) -> JSON:
    if value[:1] in ("|", ">") and len(value) <= 3:
        joint = "\n" if value[0] == "|" else " "
        return joint.join(line.strip() for line in below).strip()[:MAX_VALUE_CHARS]
    items = [line.strip() for line in below if line.strip()]
    if not value and items:
        if items[0].startswith("-"):
            return [_scalar(item[1:].strip()) for item in items[:MAX_KEYS] if item.startswith("-")]
        nested = {}
        for item in items[:MAX_KEYS]:
            found = _KEY.match(item[:MAX_VALUE_CHARS])
            if found:
                nested[found[1]] = _scalar((found[2] or "").strip())
        return nested or None
    if items and value[:1] not in "\"'[{":
        value = " ".join([value, *items])  # a plain scalar goes on over indented lines
    elif items:
        value = " ".join([value, *items]) if not _closed(value) else value
    if value[:1] == "[" and value.endswith("]"):
        return [_scalar(item) for item in _flow_items(value[1:-1])]
    return _scalar(value)


def _closed(value: str) -> bool:
    return len(value) > 1 and value[-1] == {"[": "]", "{": "}"}.get(value[0], value[0])


def _flow_items(inner: str) -> list[str]:
    """The items of `[a, "b, c"]`: cut at commas outside quotes."""
    items, item, quote = [], [], ""
    for char in inner[:MAX_VALUE_CHARS]:
        if quote:
            quote = "" if char == quote else quote
            item.append(char)
        elif char == ",":
            items.append("".join(item).strip())
            item = []
        else:
            quote = char if char in "\"'" and not "".join(item).strip() else ""
            item.append(char)
    items.append("".join(item).strip())
    return [item for item in items if item][:MAX_KEYS]


def _scalar(value: str) -> JSON:
    value = value[:MAX_VALUE_CHARS]
    if value[:1] == '"':
        try:
            return str(json.JSONDecoder(strict=False).raw_decode(value)[0])
        except ValueError:
            return value.strip('"')
    if value[:1] == "'":
        end = value.rfind("'")
        return value[1:end].replace("''", "'") if end > 0 else value[1:]
    comment = value.find(" #")
    if comment >= 0:
        value = value[:comment].rstrip()
    if value in _CONSTANTS:
        return _CONSTANTS[value]
    if _NUMBER.match(value):
        return float(value) if "." in value else int(value)
    return value
