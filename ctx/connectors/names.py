"""File names as parts of a source id, and sources as parts of a configuration."""

import re

_AMBIGUOUS = re.compile(r"%(?=25|[89A-F][0-9A-F])")
_UNDECODABLE = re.compile("[\udc80-\udcff]")


def section_of(source: str) -> str:
    """Where a source stands in `ctx.toml`: `[connectors.git.NAME]` for `git:NAME`."""
    return f"[connectors.{source.replace(':', '.', 1)}]"


def encode_name(name: str) -> str:
    """A file name as part of a source id: text that any store can hold, and that stands for one name only.

    A byte that is not UTF-8 (a lone surrogate in Python's reading of the name) is written `%XX`; a `%` that
    could be taken for such an escape is written `%25`. Every other name stays as it is.
    """
    if "%" in name:
        name = _AMBIGUOUS.sub("%25", name)
    if not name.isascii():
        name = _UNDECODABLE.sub(_as_hex, name)
    return name


def _as_hex(match: "re.Match[str]") -> str:
    return f"%{ord(match[0]) - 0xDC00:02X}"
