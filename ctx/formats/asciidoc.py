"""AsciiDoc: sections by their equals signs. Delimited blocks and tables are not split. The body is the
source.
"""

import re

from ctx.formats.base import Parsed, clipped, first_title
from ctx.formats.frontmatter import front_title, read_front_matter
from ctx.models import Heading

_LINE = re.compile(
    r"\n(?:(={1,6}|#{1,6})[ \t]+(\S[^\n]{0,1000})|(-{4,}|\.{4,}|={4,}|\+{4,}|/{4,}|[|,:!]===)[ \t]*(?=\n|\Z))"
)
_ANCHOR = re.compile(r"\[\[[^\]\n]{1,200}\]\]|\[#[^\]\n]{1,200}\]")
_LINK = re.compile(
    r"\b(?:link|xref|https?):[^\s\[]{1,500}\[([^\]\n]{1,500})\]|<<[^,>\n]{1,200},([^>\n]{1,200})>>"
)

_MARKS = re.compile(r"(?<!\w)(\*\*?|__?|``?|\+\+?|##?)(?=\S)([^\n]+?)(?<=\S)\1(?!\w)")


def parse(text: str) -> Parsed:
    """An AsciiDoc document; its title is the front matter's, else the first section's."""
    front = read_front_matter(text)
    lines = "\n" + text  # offsets are one more than in `text`
    headings: list[Heading] = []
    atoms: list[tuple[int, int]] = []
    match = _LINE.search(lines, front.end)
    while match:
        stop = match.end()
        if match[1]:
            words = _LINK.sub(lambda link: link[1] or link[2], _ANCHOR.sub("", match[2])).rstrip(" =")
            words = _MARKS.sub(r"\2", clipped(words))
            if words:
                headings.append(Heading(match.start(), len(match[1]), words))
        else:  # ignore section marks inside a block
            end = lines.find("\n" + match[3], stop)
            if end >= 0:
                stop = end + 1 + len(match[3])
                atoms.append((match.start(), stop - 1))
        match = _LINE.search(lines, stop)
    title = front_title(front) or first_title(headings)
    return Parsed(text, tuple(headings), tuple(atoms), title)
