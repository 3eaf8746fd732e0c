"""reStructuredText: finds sections by under- and overlines, with levels in the order of first use, and
literal blocks and tables. The body is the unchanged source.
"""

import re
import unicodedata
from collections.abc import Iterator

from ctx.formats.base import Parsed, clipped, first_title
from ctx.formats.frontmatter import front_title, read_front_matter
from ctx.models import Heading

_ADORNMENT = re.compile(r"\n([!-/:-@\[-`{-~])\1+[ \t]*(?=\n|\Z)")
_LITERAL = re.compile(
    r"::[ \t]*\n|\n[ \t]*\.\.[ \t]+(?:[\w-]+:)?(?:code|code-block|sourcecode|parsed-literal|math"
    r"|productionlist|csv-table|list-table)::[^\n]*\n"
)
_GRID = re.compile(r"\n[ \t]*\+[-=+]{3,}\+[ \t]*(?:\n[ \t]*[|+][^\n]*)+")
_SIMPLE_TABLE = re.compile(r"\n={2,}(?:[ \t]+={2,})+[ \t]*(?=\n)")
_ROLE = re.compile(r":[A-Za-z][\w.+:-]{0,40}:`([^`]{1,300})`")
_TARGET = re.compile(r"[ \t]*<[^<>]{1,300}>\Z")
_MARKUP = re.compile(
    r"``([^`]+)``|`([^`]+)`_{0,2}|\*\*([^*]+)\*\*|\*([^*]+)\*|\|([^|]+)\|_{0,2}|\b(\w+)__?(?!\w)"
)
MAX_ANNOUNCEMENT = 500  # a paragraph up to this long stays with the block it introduces: about six lines
_ANCHOR = re.compile(r"\.\. (?:_[^\n]{1,200}:|index::[^\n]{0,200})[ \t]*\Z")


def parse(text: str) -> Parsed:
    """Parse a reStructuredText document. Raises no errors: other text is plain text."""
    front = read_front_matter(text)
    lines = "\n" + text  # offsets in `lines` are one more than in `text`
    headings: list[Heading] = []
    styles: list[str] = []  # the style of each level
    consumed = front.end  # text before this offset already belongs to a heading
    for match in _ADORNMENT.finditer(lines, consumed):
        section = _section(lines, match, consumed) if match.start() >= consumed else None
        if section is None:
            continue
        start, style, words = section
        if style not in styles:
            styles.append(style)
        headings.append(Heading(_with_anchors(lines, start, consumed), styles.index(style) + 1, words))
        consumed = match.end()
    title_text = front_title(front) or first_title(headings)
    atoms = _blocks(lines)
    return Parsed(text, tuple(headings), tuple(atoms), title_text, front.metadata)


def _section(lines: str, underline: re.Match[str], floor: int) -> tuple[int, str, str] | None:
    """The start of a section, its style (the mark, twice if there is an overline) and its title; None if the
    match is not the underline of a title.
    """
    position, mark = underline.start(), underline[1]
    line_start = lines.rfind("\n", max(floor, position - 1000), position)
    title = lines[line_start + 1 : position] if line_start >= 0 else ""
    if not title.strip():
        return None  # an overline, or a transition
    width = underline.end() - position - 1
    if width < 4 and width < _columns(title.rstrip()):
        return None
    above = _line_above(lines, line_start, floor)
    words = plain_inline(title)
    if not words:
        return None
    if len(above) > 1 and above == mark * len(above):
        return lines.rfind("\n", floor, line_start), mark * 2, words
    if title[0] in " \t":
        return None  # only a title with an overline may be indented
    if above and not above.startswith(".."):
        return None  # the last line of a paragraph or a table
    return line_start, mark, words


def _line_above(lines: str, start: int, floor: int) -> str:
    """The line that ends at offset `start`; "" if it is longer than a thousand characters."""
    over = lines.rfind("\n", max(floor, start - 1000), start)
    return lines[over + 1 : start].rstrip() if over >= 0 else ""


def _columns(title: str) -> int:
    """The width of a title in columns, as docutils counts: a wide character has two columns."""
    if title.isascii():
        return len(title)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in title)


def _with_anchors(lines: str, start: int, floor: int) -> int:
    """The start of a section, including the link targets and index entries above its title."""
    position = start
    while position > floor:
        above = lines.rfind("\n", max(floor, position - 400), position)
        if above < 0:
            break
        line = lines[above + 1 : position]
        if _ANCHOR.match(line):
            start = above
        elif line.strip():
            break
        position = above
    return start


def _blocks(lines: str) -> list[tuple[int, int]]:
    """The spans of literal blocks, code directives and tables, in order and without overlaps."""
    spans = sorted((*_literals(lines), *_tables(lines)))
    disjoint: list[tuple[int, int]] = []
    for start, end in spans:
        if not disjoint or start >= disjoint[-1][1]:
            disjoint.append((start, end))
    return disjoint


def _literals(lines: str) -> Iterator[tuple[int, int]]:
    floor = position = 0
    while (rule := _LITERAL.search(lines, position)) is not None:
        position = rule.end()
        directive = lines[rule.start()] == "\n"
        line_start = rule.start()
        if not directive:
            line_start = lines.rfind("\n", max(0, rule.start() - 1000), rule.start())
        line = lines[line_start + 1 : position].lstrip(" \t") if line_start >= 0 else ""
        if not line or (line[:2] == ".." and not directive and not _LITERAL.match(lines, line_start)):
            continue
        end = _block_end(lines, position, position - line_start - 1 - len(line))
        if end > position:
            yield (line_start if directive else _paragraph_start(lines, line_start, floor)), end - 1
            floor = position = end


def _paragraph_start(lines: str, line_start: int, floor: int) -> int:
    """The start of the paragraph that introduces a block; if the paragraph is long, the start of its last
    line.

    Both offsets point to the newline before a line. The paragraph stays with the block because a chunk must
    not begin inside a sentence.
    """
    start = line_start
    while start > floor:
        above = lines.rfind("\n", max(floor, line_start - MAX_ANNOUNCEMENT), start)
        if above < 0:
            return line_start
        line = lines[above + 1 : start].strip()
        if not line or line == line[0] * len(line):  # a blank line, or a heading's underline
            break
        start = above
    return start


def _tables(lines: str) -> Iterator[tuple[int, int]]:
    for table in _GRID.finditer(lines):
        yield table.start(), table.end() - 1
    position = 0
    while (rule := _SIMPLE_TABLE.search(lines, position)) is not None:
        position = lines.find("\n\n", rule.end())
        position = position if position >= 0 else len(lines)
        yield rule.start(), position - 1


def _block_end(lines: str, position: int, indent: int) -> int:
    """The end of the lines after `position` that are blank or indented by more than `indent` characters."""
    end = position
    while position < len(lines):
        line_end = lines.find("\n", position)
        line_end = line_end if line_end >= 0 else len(lines)
        line = lines[position:line_end]
        stripped = line.lstrip(" \t")
        if stripped:
            if len(line) - len(stripped) <= indent:
                break
            end = line_end
        position = line_end + 1
    return end


def plain_inline(words: str) -> str:
    """A title without roles and inline markup."""
    words = " ".join(words[:1000].split())
    if any(mark in words for mark in "`*|_\\"):
        words = _ROLE.sub(lambda match: _TARGET.sub("", match[1]), words)
        words = _MARKUP.sub(lambda match: _TARGET.sub("", next(filter(None, match.groups()))), words)
        words = words.replace("\\ ", "").replace("\\", "")
    return clipped(words)
