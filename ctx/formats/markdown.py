"""Markdown: headings (also `<h1>` in HTML), code blocks and tables (CommonMark 0.31, by markdown-it-py).

The body is the unchanged source including front matter, so line numbers are those of the file.
"""

import html
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from markdown_it import MarkdownIt

from ctx.formats.base import MAX_HEADING_CHARS, Parsed, clipped, disjoint, first_title
from ctx.formats.frontmatter import front_title, read_front_matter
from ctx.models import Heading

# Parse only blocks: inline markup matters only in headings, and link definitions take quadratic time.
_BLOCKS = MarkdownIt("commonmark", {"maxNesting": 20}).disable("reference")
_BLOCKS.core.ruler.enableOnly(["block"])

# The beginning of a line that is a heading, or opens a fence, or is not simple: it may open an HTML block, or
# be a heading or fence that is indented or in a list or quotation, or underline a heading.
_MARK = re.compile(
    r"(?P<level>#{1,6})(?=[ \t]|\Z)(?P<words>.*)|(?P<fence>`{3,}(?=[^`]*\Z)|~{3,})"
    r"|(?:[ \t]|[-*+>]|\d{1,9}[.)])*(?:#|`{3}|~{3}|<)|[ \t>*+\d.)-]*(?P<underline>=+|-)[ \t]*\Z",
    re.S,
)
_FENCE_END = re.compile(r" {0,3}(`+|~+)[ \t]*\Z")
_ROWS = re.compile(r"^ {0,3}\|[^\n]*(?:\n {0,3}\|[^\n]*)*", re.M)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
_HTML_HEADING = re.compile(r"^[ \t]*<h([1-6])(?:\s[^<>]{0,300})?>(.{0,600}?)</h\1", re.S | re.M | re.I)
# Text that is not a title: a table row above a ruler, or a link definition.
_NO_TITLE = re.compile(r"^(?:\||\[[^\]\n]{1,200}\]:)", re.M)
_MARKUP = re.compile(r"[\\<\[*{~&\t\n]|(?<!\w)_|  ")
_ATTRIBUTES = re.compile(r"[ \t]*\{:?[ \t]*[#.:][^{}]*\}[ \t]*\Z")
_WIKI_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]+)\]\]")
_IMAGE = re.compile(r"!\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])?")
_LINK = re.compile(r"\[([^\[\]]+)\](?:\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\])?")
_TAG = re.compile(r"<[/!]?[A-Za-z-][^<>]*>")
_EMPHASIS = re.compile(r"(\*{1,3}|(?<!\w)_{1,3})(?=\S)([^*_]+)(?<=\S)\1(?!\w)|~~([^~]+)~~")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
# Inline markup to remove, in this order: (characters, pattern, replacement). The pattern is tried only on a
# text with at least one of the characters.
_INLINE: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("!", _IMAGE, r"\1"),
    ("[", _WIKI_LINK, r"\1"),
    ("[", _LINK, r"\1"),
    ("<", _TAG, ""),
    ("*_~", _EMPHASIS, r"\2\3"),
    ("\\", _ESCAPE, r"\1"),
)


def parse(text: str) -> Parsed:
    """Parse a Markdown text. Raises no errors, because any text is valid Markdown."""
    front = read_front_matter(text)
    source = text[front.end :]
    lines = source.split("\n")
    starts = list(accumulate((len(line) + 1 for line in lines), initial=front.end))
    outline = _simple_outline(lines) or _outline(source, lines)
    spans = [(0, front.end)] if front.end else []
    for first, last in outline.fences:
        spans.append((starts[first], max(starts[first], min(starts[last] - 1, len(text)))))
    if "|" in source:
        spans += [match.span() for match in _ROWS.finditer(text, front.end)]
    headings = []
    for line, offset, level, words in outline.headings:
        if plain := plain_inline(words):
            headings.append(Heading(starts[line] + offset, level, plain))
    title = front_title(front) or first_title(headings)
    return Parsed(text, tuple(headings), tuple(disjoint(spans)), title, front.metadata)


class _Outline(NamedTuple):
    """The headings of a text as (line, offset from its start, level, source of the title), and its fenced
    code blocks as (first line, line after the last).
    """

    headings: list[tuple[int, int, int, str]]
    fences: list[tuple[int, int]]


def _simple_outline(lines: list[str]) -> _Outline | None:
    """The outline of a text whose headings and fences begin at the start of a line; None if it may have
    others, or HTML. Most texts are so simple, and markdown-it takes 20 times as long.
    """
    outline = _Outline([], [])
    fence, opened = "", 0  # the marks that opened the current fence, and its line
    in_text = False  # whether an underline may make the line before a heading
    for number, line in enumerate(lines):
        if fence:
            closing = _FENCE_END.match(line)
            if closing and closing[1].startswith(fence):
                outline.fences.append((opened, number + 1))
                fence = ""
            continue
        mark = _MARK.match(line)
        if mark is None:
            in_text = bool(line.strip(" \t"))
        elif mark["level"]:
            words = mark["words"].strip(" \t")
            bare = words.rstrip("#")  # the text without the closing marks of the heading
            words = (bare if not bare or bare[-1] in " \t" else words).strip()
            if not _NO_TITLE.match(words):
                outline.headings.append((number, 0, len(mark["level"]), words))
            in_text = False
        elif mark["fence"]:
            fence, opened, in_text = mark["fence"], number, False
        elif in_text or not mark["underline"]:
            return None
        else:
            in_text = True
    if fence:
        outline.fences.append((opened, len(lines) - (not lines[-1].strip(" \t"))))
    return outline


def _outline(source: str, lines: list[str]) -> _Outline:
    """The outline of any text."""
    outline = _Outline([], [])
    tokens = _BLOCKS.parse(source)
    quotes = 0  # depth of quotations, whose headings are not part of the outline
    for number, token in enumerate(tokens):
        if token.type in ("blockquote_open", "blockquote_close"):
            quotes += token.nesting
        if token.map is None:
            continue
        first, last = token.map
        if token.type == "fence":
            outline.fences.append((first, last))
        elif quotes:
            continue
        elif token.type == "html_block":
            html_headings = _html_headings("\n".join(lines[first:last]))
            outline.headings.extend((first, *heading) for heading in html_headings)
        elif token.type == "heading_open" and (token.level == 0 or lines[first].lstrip().startswith("#")):
            words = tokens[number + 1].content
            if not _NO_TITLE.search(words):
                outline.headings.append((first, 0, int(token.tag[1:]), words))
    return outline


def _html_headings(block: str) -> Iterator[tuple[int, int, str]]:
    block = _COMMENT.sub(lambda match: " " * len(match[0]), block)
    for match in _HTML_HEADING.finditer(block):
        yield match.start(), int(match[1]), match[2]


def plain_inline(words: str) -> str:
    """A line of Markdown without its inline markup."""
    if len(words) <= MAX_HEADING_CHARS and not _MARKUP.search(words):
        return words.replace("`", "")
    words = " ".join(words[:1000].split())
    if "{" in words:
        words = _ATTRIBUTES.sub("", words)
    parts = words.split("`")
    if len(parts) % 2 == 0:
        return clipped(html.unescape(_without_marks(words)))
    words = _without_marks("\0".join(parts[::2]))
    for code in parts[1::2]:  # inline code does not change
        words = words.replace("\0", code, 1)
    return clipped(html.unescape(words))


def _without_marks(words: str) -> str:
    for marks, pattern, remainder in _INLINE:
        if any(mark in words for mark in marks):
            words = pattern.sub(remainder, words)
    return words
