"""Plain text: finds headings in capitals at the margin, as in manual pages and RFCs, and
underlined headings.
"""

import re

from ctx.formats.base import Parsed, clipped, first_title
from ctx.models import Heading

_LINE = re.compile(
    r"\n(?:([A-Z0-9][A-Z0-9 ,.:;&/()'\"+_-]{2,70})[ \t]*(?=\n|\Z)|([=~*#^-])\2{2,}[ \t]*(?=\n|\Z))"
)
_LETTERS = re.compile(r"[A-Z]{2}")
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[ -/]?[@-~]|[()][A-Z0-9]|[=>78])")
_STRUCK = re.compile(r"[^\n]\x08")


def without_overstrike(text: str) -> str:
    """The text of a formatted manual page without backspaces: "a\\ba" means a bold a, "_\\ba" an underlined
    a.
    """
    while "\x08" in text:
        shorter = _STRUCK.sub("", text)
        if shorter == text:
            return text.replace("\x08", "")
        text = shorter
    return text


def parse(text: str) -> Parsed:
    """Parse a plain text. The first heading is the title if the text begins with it."""
    text = without_overstrike(text)
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    lines = "\n" + text  # offsets in `lines` are one more than in `text`
    headings: list[Heading] = []
    for match in _LINE.finditer(lines):
        heading = _heading(lines, match)
        if heading and not (headings and headings[-1].start >= heading.start):
            headings.append(heading)
    begins = headings and not text[: headings[0].start].strip()
    return Parsed(text, tuple(headings), (), first_title(headings) if begins else None)


def _heading(lines: str, match: re.Match[str]) -> Heading | None:
    """The heading that a match is, or that a matching underline is below; None if it is not a heading."""
    start, end = match.span()
    if match[2]:
        return _underlined(lines, start, end - start - 1, 1 if match[2] in "=*#" else 2)
    if _stands_alone(lines, start, end) and _LETTERS.search(match[1]):
        return Heading(start, 1, clipped(match[1].rstrip(" :")))
    return None


def _stands_alone(lines: str, at: int, end: int) -> bool:
    """Whether the line above is blank, and the line below blank or indented."""
    above = at == 0 or lines[at - 1] == "\n"
    return above and lines[end + 1 : end + 2] in ("\n", " ", "\t")


def _underlined(lines: str, at: int, width: int, level: int) -> Heading | None:
    """The heading above an underline of about the same width; None unless it is a single line below a blank
    line or an overline.
    """
    start = lines.rfind("\n", max(0, at - 200), at)
    if start < 0:
        return None
    words = lines[start + 1 : at].strip()
    if not words or abs(width - (at - start - 1)) > max(3, width // 3) or not any(map(str.isalpha, words)):
        return None
    if start and lines[start - 1] != "\n":
        before = lines.rfind("\n", 0, start)
        if not _is_rule(lines[before + 1 : start].strip()):
            return None
        start = before
    return Heading(start, level, clipped(words))


def _is_rule(line: str) -> bool:
    return len(set(line)) == 1 and not line[0].isalnum()
