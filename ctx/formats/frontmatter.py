"""Front matter: the metadata block at the start of a Markdown, reStructuredText or HTML file.

It is YAML between `---`, TOML between `+++`, or a JSON object. If a block is not valid YAML, its lines `key:
value` are read. If it has no such lines, it counts as text.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from typing import ClassVar, NamedTuple

import tomli
import yaml

from ctx.formats.base import clipped
from ctx.models import JSON

MAX_FRONT_MATTER = 65_536  # characters; a longer block is not front matter
MAX_VALUE_CHARS = 2000
MAX_KEYS = 100
# Maximum bits of an integer. Python prints at most 4,300 digits, and TOML may have longer hexadecimal
# numbers.
MAX_BITS = 10_000
MAX_DEPTH = 20  # maximum levels of nested tables and lists

_YAML_END = re.compile(r"\n(?:---|\.\.\.)[ \t]*(?=\n|\Z)")
_TOML_END = re.compile(r"\n\+\+\+[ \t]*(?=\n|\Z)")
# A line `key: value` in a block that is not valid YAML.
_PAIR = re.compile(r"([A-Za-z_][\w .\-]{0,99}?)[ \t]*:[ \t]+(\S.{0,1999}?)[ \t]*\Z")
_SCALARS = (
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), "tTfF"),
    ("int", re.compile(r"[-+]?(?:0|[1-9]\d{0,17})\Z"), "-+0123456789"),
    ("float", re.compile(r"[-+]?(?:0|[1-9]\d{0,17})\.\d{1,17}\Z"), "-+0123456789"),
)


class FrontMatter(NamedTuple):
    """The metadata in a front matter block. `end` is the offset where the text after the block starts."""

    end: int
    metadata: dict[str, JSON]


NO_FRONT_MATTER = FrontMatter(0, {})


def read_front_matter(text: str) -> FrontMatter:
    """The front matter at the start of a text; `NO_FRONT_MATTER` if there is none or it cannot be read."""
    if text.startswith("---\n"):
        return _fenced(text, _YAML_END, _yaml)
    if text.startswith("+++\n"):
        return _fenced(text, _TOML_END, _toml)
    if not text.startswith(("{\n", '{"')):
        return NO_FRONT_MATTER
    try:
        value, end = json.JSONDecoder().raw_decode(text[:MAX_FRONT_MATTER])
    except (ValueError, RecursionError):
        return NO_FRONT_MATTER
    if isinstance(value, dict) and text[end : end + 1] == "\n" and text[end:].strip():
        return FrontMatter(end + 1, _bounded(value))
    return NO_FRONT_MATTER


def _toml(block: str) -> dict[str, JSON]:
    try:
        return _bounded(tomli.loads(block))
    except (ValueError, RecursionError):  # ValueError also for a number with too many digits for Python
        return {}


def _fenced(text: str, ending: re.Pattern[str], read: Callable[[str], dict[str, JSON] | None]) -> FrontMatter:
    """The block up to its end line; `NO_FRONT_MATTER` if there is no end line or nothing can be read."""
    fence = ending.search(text, 3, MAX_FRONT_MATTER)
    # "---" is also a ruler: a block without keys is text between two rulers.
    metadata = read(text[4 : fence.start() + 1]) if fence else None
    if fence is None or metadata is None:
        return NO_FRONT_MATTER
    return FrontMatter(min(fence.end() + 1, len(text)), metadata)


def front_title(front: FrontMatter) -> str | None:
    """The title in the front matter, or None."""
    title = front.metadata.get("title", front.metadata.get("Title"))
    if isinstance(title, str | int | float) and not isinstance(title, bool):
        return clipped(str(title)) or None
    return None


def _bounded(value: dict[str, JSON], depth: int = 0) -> dict[str, JSON]:
    return {str(key)[:100]: _json_value(item, depth) for key, item in list(value.items())[:MAX_KEYS]}


def _json_value(value: JSON, depth: int) -> JSON:
    """Convert a value to JSON. Dates become text; long and deeply nested values are cut."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return hex(value)[:MAX_VALUE_CHARS]
    if isinstance(value, int | float | None):
        return value
    if isinstance(value, list) and depth < 4:
        return [_json_value(item, depth + 1) for item in value[:MAX_KEYS]]
    if isinstance(value, dict) and depth < 4:
        return _bounded(value, depth + 1)
    return str(value)[:MAX_VALUE_CHARS].strip()


def _yaml(block: str) -> dict[str, JSON] | None:
    """The mapping in a YAML block. If the YAML is invalid, its `key: value` lines; None if there is nothing
    to read.
    """
    try:
        depth = 0
        for event in yaml.parse(block, Loader=_loader()):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            # With a few aliases, a small block can expand to a very large one. The C library has no depth
            # limit, and deep nesting would crash the process.
            if isinstance(event, yaml.AliasEvent) or depth > MAX_DEPTH:
                return None
        value = yaml.load(block, _loader())  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, RecursionError):
        return _pairs(block)
    return _bounded(value) or None if isinstance(value, dict) else None


def _pairs(block: str) -> dict[str, JSON] | None:
    """The `key: value` lines of a block that is not valid YAML; None if it has none."""
    pairs = {match[1]: match[2] for line in block.split("\n") if (match := _PAIR.match(line))}
    if not pairs:
        return None
    # A value with a bracket is invalid YAML or a template's placeholder, and not a title.
    return _bounded(
        {key: text for key, text in pairs.items() if key.lower() != "title" or text[0] not in "[{"}
    )


@cache
def _loader() -> "type[yaml.SafeLoader]":
    """A safe YAML loader that reads most plain scalars as text.

    In YAML 1.1 `12:30` is the number 750 and `no` is false, which authors of front matter do not mean.
    """
    base: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar = {
            first: [(tag, pattern) for tag, pattern in rules if tag.endswith((":null", ":merge"))]
            for first, rules in base.yaml_implicit_resolvers.items()
        }

    for kind, pattern, first in _SCALARS:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", pattern, list(first))
    return Loader
