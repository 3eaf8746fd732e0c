"""Markdown: headings (also `<h1>` in HTML), code blocks and tables (CommonMark 0.31, by markdown-it-py).

The body is the unchanged source including front matter, so line numbers are those of the file.
"""

import html
import re
from collections.abc import Iterator
from itertools import accumulate

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ctx.formats.base import MAX_HEADING_CHARS, Parsed, clipped, disjoint, first_title
from ctx.formats.frontmatter import front_title, read_front_matter
from ctx.models import Heading

# Parse only blocks: inline markup matters only in headings, and link definitions take quadratic time.
_BLOCKS = MarkdownIt("commonmark", {"maxNesting": 20}).disable("reference")
_BLOCKS.core.ruler.enableOnly(["block"])

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
# Inline markup to remove, in this order: (characters, one of which must be present, pattern, replacement).
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
    lines = text[front.end :].split("\n")
    starts = list(accumulate((len(line) + 1 for line in lines), initial=front.end))
    tokens = _BLOCKS.parse(text[front.end :])
    spans = [(0, front.end)] if front.end else []
    for token in tokens:
        if token.type == "fence" and token.map:
            first, last = token.map
            spans.append((starts[first], max(starts[first], min(starts[last] - 1, len(text)))))
    spans += [match.span() for match in _ROWS.finditer(text, front.end)]
    headings = tuple(_headings(tokens, lines, starts))
    title = front_title(front) or first_title(headings)
    return Parsed(text, headings, tuple(disjoint(spans)), title, front.metadata)


def _headings(tokens: list[Token], lines: list[str], starts: list[int]) -> Iterator[Heading]:
    quotes = 0  # depth of quotations, whose headings are not part of the outline
    for number, token in enumerate(tokens):
        if token.type in ("blockquote_open", "blockquote_close"):
            quotes += token.nesting
        if token.map is None or quotes:
            continue
        first, last = token.map
        if token.type == "html_block":
            yield from _html_headings("\n".join(lines[first:last]), starts[first])
        elif token.type == "heading_open" and (token.level == 0 or lines[first].lstrip().startswith("#")):
            source = tokens[number + 1].content
            words = "" if _NO_TITLE.search(source) else plain_inline(source)
            if words:
                yield Heading(starts[first], int(token.tag[1:]), words)


def _html_headings(block: str, start: int) -> Iterator[Heading]:
    block = _COMMENT.sub(lambda match: " " * len(match[0]), block)
    for match in _HTML_HEADING.finditer(block):
        words = plain_inline(match[2])
        if words:
            yield Heading(start + match.start(), int(match[1]), words)


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
