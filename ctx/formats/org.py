"""Org: finds headings by their stars, the title in `#+TITLE:`, and blocks, which should not be split. The
body is the unchanged source.
"""

import re

from ctx.formats.base import Parsed, clipped, first_title
from ctx.models import Heading

_LINE = re.compile(
    r"\n(?:(\*{1,12})[ \t]+([^\n]{1,1000})|#\+(?i:title):[ \t]*([^\n]{1,1000})"
    r"|#\+(?i:begin)_(\w{1,20})[^\n]*)"
)
_KEYWORD = re.compile(r"(?:TODO|DONE|NEXT|WAITING|CANCELLED)[ \t]+|\[#[A-Z0-9]\][ \t]*")
_TAGS = re.compile(r"[ \t]+:[\w@#%:]+:[ \t]*\Z")
_LINK = re.compile(r"\[\[(?:[^\]\n]{1,500}\]\[)?([^\]\n]{1,500})\]\]")
_MARKS = re.compile(r"(?<!\w)([*/=~_+])(?=\S)([^\n]+?)(?<=\S)\1(?!\w)")


def _block_end(low: str, begin: re.Match[str]) -> int:
    """The end of a block; if it is not closed, the end of its first line. `low` is the text in lower case."""
    end = low.find(f"\n#+end_{begin[4].lower()}", begin.end())
    if end < 0:
        return begin.end()
    line_end = low.find("\n", end + 1)
    return line_end if line_end >= 0 else len(low)


def parse(text: str) -> Parsed:
    """Parse an Org document. Without `#+TITLE:`, the first heading is the title."""
    lines = "\n" + text  # offsets in `lines` are one more than in `text`
    low = lines.lower() if len(lines.lower()) == len(lines) else lines
    headings: list[Heading] = []
    atoms: list[tuple[int, int]] = []
    title = None
    match = _LINE.search(lines)
    while match:
        stop = match.end()
        if match[1]:
            words = _TAGS.sub("", _LINK.sub(r"\1", _KEYWORD.sub("", match[2])))
            words = _MARKS.sub(r"\2", clipped(words))
            if words:
                headings.append(Heading(match.start(), len(match[1]), words))
        elif match[3]:
            title = title or clipped(match[3]) or None
        else:  # ignore stars inside a block
            stop = _block_end(low, match)
            if stop > match.end():
                atoms.append((match.start(), stop - 1))
        match = _LINE.search(lines, stop)
    return Parsed(text, tuple(headings), tuple(atoms), title or first_title(headings))
