"""Org: headings by their stars, the title that `#+TITLE:` gives; blocks and tables are kept whole. The body
is the source.
"""

import re

from ctx.formats.base import Parsed, clipped, first_title
from ctx.items import Heading

_LINE = re.compile(
    r"\n(?:(\*{1,12})[ \t]+([^\n]{1,1000})|#\+(?i:title):[ \t]*([^\n]{1,1000})"
    r"|#\+(?i:begin)_(\w{1,20})[^\n]*)"
)
_KEYWORD = re.compile(r"(?:TODO|DONE|NEXT|WAITING|CANCELLED)[ \t]+|\[#[A-Z0-9]\][ \t]*")
_TAGS = re.compile(r"[ \t]+:[\w@#%:]+:[ \t]*\Z")
_LINK = re.compile(r"\[\[[^\]\n]{1,500}\]\[([^\]\n]{1,500})\]\]")


def parse(text: str) -> Parsed:
    """An Org document; without `#+TITLE:` its first heading is the title."""
    lines = "\n" + text  # offsets in it are one more than in `text`
    low = lines.lower() if len(lines.lower()) == len(lines) else lines
    headings: list[Heading] = []
    atoms: list[tuple[int, int]] = []
    title = None
    match = _LINE.search(lines)
    while match:
        stop = match.end()
        if match[1]:
            words = clipped(_TAGS.sub("", _LINK.sub(r"\1", _KEYWORD.sub("", match[2]))))
            if words:
                headings.append(Heading(match.start(), len(match[1]), words))
        elif match[3]:
            title = title or clipped(match[3]) or None
        else:  # stars within a block are no headings
            end = low.find(f"\n#+end_{match[4].lower()}", stop)
            if end >= 0:
                stop = low.find("\n", end + 1)
                stop = stop if stop >= 0 else len(lines)
                atoms.append((match.start(), stop - 1))
        match = _LINE.search(lines, stop)
    return Parsed(text, tuple(headings), tuple(atoms), title or first_title(headings))
