"""Markdown: ATX and setext headings, `<h1>` in HTML, fenced code, comments and tables (CommonMark 0.31 with
GitHub's tables).

The body is the source as it stands, front matter included: line numbers are the file's own, and tags and
descriptions are found.
"""

import html
import re
from typing import NamedTuple

from ctx.formats.base import MAX_HEADING_CHARS, Parsed, clipped, first_title
from ctx.formats.frontmatter import front_title, read_front_matter
from ctx.items import Heading

# Every line that may mean something, but for fences; each match begins with the newline before the line, so
# that the search jumps from line to line at the speed of memchr. Groups: 1 ATX hashes, 2 setext underline, 3
# HTML, 4 rows of a table.
_MARK = re.compile(
    r"\n {0,3}(?:(#{1,6})(?=[ \t\n]|\Z)|(=+|--+)[ \t]*(?=\n|\Z)|(<!--|<h[1-6](?=[\s>]))"
    r"|(\|[^\n]*(?:\n {0,3}\|[^\n]*)*))"
)
_ATX, _SETEXT, _ROWS = 1, 2, 4
_FENCE_PREFIX = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?\Z")
_MAX_FENCE_PREFIX = 200  # characters before a fence: indentation, list and quotation marks
_MARKUP = re.compile(r"[\\<\[*{~&\t\n]|(?<!\w)_|  ")
_CLOSING_HASHES = re.compile(r"(?:^|[ \t])#+[ \t]*\Z")
_ATTRIBUTES = re.compile(r"[ \t]*\{[#.:][^{}]*\}[ \t]*\Z")
_IMAGE = re.compile(r"!\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])?")
_LINK = re.compile(r"\[([^\[\]]+)\](?:\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\])?")
_TAG = re.compile(r"<[/!]?[A-Za-z-][^<>]*>")
_EMPHASIS = re.compile(r"(\*{1,3}|(?<!\w)_{1,3})(?=\S)([^*_]+)(?<=\S)\1(?!\w)|~~([^~]+)~~")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
# What of a heading is markup, in this order: marks of which one must be there, what goes, what stays of that.
_INLINE: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("!", _IMAGE, r"\1"),
    ("[", _LINK, r"\1"),
    ("<", _TAG, ""),
    ("*_~", _EMPHASIS, r"\2\3"),
    ("\\", _ESCAPE, r"\1"),
)
_NO_PARAGRAPH = re.compile(
    r"[ \t]*(?:[-*+][ \t]|\d{1,9}[.)][ \t]|>|\||#{1,6}[ \t]|<!--|```|~~~|[-=*_][-=*_ \t]*\Z|\Z)|(?: {4}|\t)"
)
_HTML_HEADING = 600  # characters in which `</h1>` must follow


def parse(text: str) -> Parsed:
    """A Markdown text. Never fails: what is not Markdown is text."""
    front = read_front_matter(text)
    begin = front.end
    # Offsets in `lines` are one more than in `text`: the added newline gives the first line its own.
    lines = "\n" + text
    blocks = _Blocks(_fences(lines, begin))
    headings: list[Heading] = []
    if begin:
        blocks.atoms.append((0, begin))
    skip_to = begin
    for match in _MARK.finditer(lines, begin):
        position, kind = match.start(), match.lastindex
        if position < skip_to or (blocks.fences and blocks.inside(position, skip_to, kind == _ATX)):
            continue
        if kind == _ROWS:
            blocks.atoms.append((position, match.end() - 1))
            continue
        if kind == _ATX:
            heading = _atx(lines, match)
        elif kind == _SETEXT:
            heading = _setext(lines, position, 1 if match[2][0] == "=" else 2, skip_to)
        else:
            end, heading = _html(lines, match)
            if end < 0:
                break  # such a block runs to the end of the document
            skip_to = max(skip_to, end)
        if heading and not (headings and headings[-1].start >= heading.start):
            headings.append(heading)
    blocks.inside(len(lines), skip_to, False)
    title = front_title(front) or first_title(headings)
    return Parsed(text, tuple(headings), tuple(blocks.closed(len(text))), title, front.metadata)


def _atx(lines: str, match: re.Match[str]) -> Heading | None:
    """The heading of a line that begins with hashes."""
    line_end = lines.find("\n", match.end())
    words = lines[match.end() : line_end if line_end >= 0 else len(lines)].strip()
    if words[-1:] == "#":
        words = _CLOSING_HASHES.sub("", words)
    words = plain_inline(words)
    return Heading(match.start(), len(match[1]), words) if words else None


def _html(lines: str, match: re.Match[str]) -> tuple[int, Heading | None]:
    """Where a comment or a heading in HTML ends (0: nowhere near, -1: nowhere), and the heading."""
    position = match.start()
    if match[3] == "<!--":
        return lines.find("-->", position), None
    end = lines.find(f"</{match[3][1:]}", match.end(), match.end() + _HTML_HEADING)
    if end < 0:
        return 0, None
    words = plain_inline(lines[lines.find(">", match.end(), end) + 1 : end])
    return end, Heading(position, int(match[3][2]), words) if words else None


class _Fence(NamedTuple):
    """A line that may open or close a code block. `deep`: indented as in a list item."""

    at: int
    end: int
    mark: str
    info: str
    deep: bool


def _fences(lines: str, begin: int) -> list[_Fence]:
    fences = []
    for triple in ("```", "~~~"):
        # One character is found ten times as fast as three.
        position = lines.find(triple, begin) if triple[0] in lines else -1
        while position >= 0:
            line_end = lines.find("\n", position)
            line_end = line_end if line_end >= 0 else len(lines)
            if (fence := _fence(lines, position, line_end)) is not None:
                fences.append(fence)
            position = lines.find(triple, line_end)
    fences.sort()
    return fences


def _fence(lines: str, position: int, line_end: int) -> _Fence | None:
    """The fence that begins there; None where it is inline code, or stands behind words."""
    start = lines.rfind("\n", max(0, position - _MAX_FENCE_PREFIX), position)
    prefix = lines[start + 1 : position] if start >= 0 else None
    if prefix is None or not _FENCE_PREFIX.match(prefix):
        return None
    fence_line = lines[position:line_end]
    info = fence_line.lstrip(fence_line[0])
    if fence_line[0] == "`" and "`" in info:
        return None
    mark = fence_line[: len(fence_line) - len(info)]
    return _Fence(start, line_end, mark, info.strip(), len(prefix.expandtabs(4)) > 3)


def _closes(fence: _Fence, opened: _Fence) -> bool:
    return fence.mark[0] == opened.mark[0] and len(fence.mark) >= len(opened.mark) and not fence.info


class _Blocks:
    """Code blocks, opened and closed as the reading passes their fences."""

    def __init__(self, fences: list[_Fence]) -> None:
        self.fences = fences
        self.atoms: list[tuple[int, int]] = []
        self._next = 0
        self._open: _Fence | None = None

    def inside(self, at: int, skip_to: int, is_heading: bool) -> bool:
        """Is the line at `at` within a code block? Fences before `skip_to` are within a comment."""
        while self._next < len(self.fences) and self.fences[self._next].at < at:
            fence = self.fences[self._next]
            self._next += 1
            opened = self._open
            if opened is None:
                self._open = fence if fence.at >= skip_to else None
            elif _closes(fence, opened):
                self.atoms.append((opened.at, fence.end - 1))
                self._open = None
        if self._open is not None and self._open.deep and is_heading:
            self._open = None  # a fence in a list item ends with the item, closed or not
        return self._open is not None

    def closed(self, end: int) -> list[tuple[int, int]]:
        """The atoms in order; a block that nothing closes runs to the end."""
        if self._open is not None:
            self.atoms.append((self._open.at, end))
        self.atoms.sort()
        return self.atoms


def _setext(lines: str, at: int, level: int, begin: int) -> Heading | None:
    """The heading underlined by the line after `at`: the paragraph above, of at most three lines."""
    end = at
    first = at
    for _ in range(4):
        start = lines.rfind("\n", begin, first)
        if start < 0:
            break
        line = lines[start + 1 : first]
        if len(line) > 1000 or _NO_PARAGRAPH.match(line):
            if line.strip() and line.lstrip()[:1] in "-*+>0123456789|" and first != end:
                return None  # the paragraph belongs to a list or a quotation
            break
        first = start
    else:
        return None
    words = plain_inline(lines[first + 1 : end]) if first != end else ""
    return Heading(first, level, words) if words else None


def plain_inline(words: str) -> str:
    """The words of a line of Markdown, without its markup."""
    if len(words) <= MAX_HEADING_CHARS and not _MARKUP.search(words):
        return words.replace("`", "")
    words = " ".join(words[:1000].split())
    if "{" in words:
        words = _ATTRIBUTES.sub("", words)
    parts = words.split("`")
    if len(parts) % 2 == 0:
        return clipped(html.unescape(_without_marks(words)))
    words = _without_marks("\0".join(parts[::2]))
    for code in parts[1::2]:  # which keeps its own characters
        words = words.replace("\0", code, 1)
    return clipped(html.unescape(words))


def _without_marks(words: str) -> str:
    for marks, pattern, remainder in _INLINE:
        if any(mark in words for mark in marks):
            words = pattern.sub(remainder, words)
    return words
