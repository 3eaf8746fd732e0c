"""Names of sources and of their sections in the configuration, and file names in source ids."""

import os
import re

_AMBIGUOUS = re.compile(r"%(?=25|[89A-F][0-9A-F])")
_UNDECODABLE = re.compile("[\udc80-\udcff]")


def name_of(path: str) -> str:
    """A name for the source at a path or address: its last part, in characters that a name may have."""
    words = re.sub(r"[^A-Za-z0-9_.-]+", "-", os.path.basename(path.rstrip("/")).removesuffix(".git"))
    return words.strip("-.").lower()[:64] or "docs"


def section_of(source: str) -> str:
    """The section of a source in `ctx.toml`: `[connectors.git.NAME]` for `git:NAME`."""
    return f"[connectors.{source.replace(':', '.', 1)}]"


def encode_name(name: str) -> str:
    """Encode a file name for a source id, as valid text and without collisions.

    A byte that is not UTF-8 (a lone surrogate in Python) becomes `%XX`, and a `%` that looks like such an
    escape becomes `%25`. Other names do not change.
    """
    if "%" in name:
        name = _AMBIGUOUS.sub("%25", name)
    if not name.isascii():
        name = _UNDECODABLE.sub(_as_hex, name)
    return name


def _as_hex(match: "re.Match[str]") -> str:
    return f"%{ord(match[0]) - 0xDC00:02X}"
