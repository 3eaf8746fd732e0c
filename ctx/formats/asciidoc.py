"""AsciiDoc: finds sections by their equals signs or underlines, and delimited blocks and tables, which should
not be split. The body is the unchanged source.
"""

import re

from ctx.formats.base import Parsed, clipped, first_title
from ctx.formats.frontmatter import front_title, read_front_matter
from ctx.models import Heading

_LINE = re.compile(
    r"\n(?:(={1,6}|#{1,6})[ \t]+(\S[^\n]{0,1000})|(-{4,}|\.{4,}|={4,}|\+{4,}|/{4,}|[|,:!]===)[ \t]*(?=\n|\Z)"
    r"|([\w\"'`*_(<&{$][^\n]{1,200})\n(={3,}|-{3,}|~{3,}|\^{3,}|\+{4,})[ \t]*(?=\n|\Z))"
)
_UNDERLINES = "=-~^+"  # underline characters of levels 1 to 5
_UNDERLINE_SLACK = 2  # characters by which a title may be longer or shorter than its underline
_ANCHOR = re.compile(r"\[\[[^\]\n]{1,200}\]\]|\[#[^\]\n]{1,200}\]")
_LINK = re.compile(
    r"\b(?:link|xref|https?):[^\s\[]{1,500}\[([^\]\n]{1,500})\]|<<[^,>\n]{1,200},([^>\n]{1,200})>>"
)

_MARKS = re.compile(r"(?<!\w)(\*\*?|__?|``?|\+\+?|##?)(?=\S)([^\n]+?)(?<=\S)\1(?!\w)")


def parse(text: str) -> Parsed:
    """Parse an AsciiDoc document. Its title is the title in the front matter, or else that of the first
    section.
    """
    front = read_front_matter(text)
    lines = "\n" + text  # offsets in `lines` are one more than in `text`
    headings: list[Heading] = []
    atoms: list[tuple[int, int]] = []
    match = _LINE.search(lines, front.end)
    while match:
        stop = match.end()
        if match[1] or match[4]:
            level = len(match[1]) if match[1] else _UNDERLINES.index(match[5][0]) + 1
            words = _LINK.sub(lambda link: link[1] or link[2], _ANCHOR.sub("", match[2] or match[4]))
            words = _MARKS.sub(r"\2", clipped(words.rstrip(" =")))
            if match[4] and not _is_title(lines, match):
                stop = match.end(4)  # the next line may begin a block
            elif words:
                headings.append(Heading(match.start(), level, words))
        else:  # ignore section marks inside a block
            end = lines.find("\n" + match[3], stop)
            if end >= 0:
                stop = end + 1 + len(match[3])
                atoms.append((match.start(), stop - 1))
        match = _LINE.search(lines, stop)
    title = front_title(front) or first_title(headings)
    return Parsed(text, tuple(headings), tuple(atoms), title)


def _is_title(lines: str, match: re.Match[str]) -> bool:
    """Whether a line above a row of marks is a title: it begins a block, and is about as long as
    the marks.
    """
    above = lines[lines.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
    begins = not above or (above[0] == "[" and above[-1] == "]") or above.startswith("//")
    return begins and abs(len(match[4].rstrip()) - len(match[5])) <= _UNDERLINE_SLACK
