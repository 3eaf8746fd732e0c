"""What readers return, and functions that several readers need.

`Manuscript` builds a Markdown body from the parts of a document: headings, paragraphs, tables, and results of
other readers.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ctx.code.symbols import Definition
from ctx.errors import SourceError
from ctx.formats.cells import table_lines
from ctx.models import JSON, NO_METADATA, Heading
from ctx.text.strings import sound

LOCKED = "is encrypted: it opens only with a password"
OLE_MARK = b"\xd0\xcf\x11\xe0"  # first bytes of old Office files, and of encrypted new ones
MAX_HEADING_CHARS = 160  # longer headings are cut at a word, because each chunk below repeats them
MAX_CHARS = 20_000_000  # characters of text per document, which are ten thousand pages
TOO_LONG = f"holds more than {MAX_CHARS // 1_000_000} million characters of text"

_CONTROL = re.compile("[\0-\b\x0b\x0e-\x1f\x7f\ufffe\uffff]")
# Private-use characters of symbol fonts, which are nearly always bullets.
_SYMBOL = re.compile("[\uf000-\uf0ff]")
_MANY_LINES = re.compile(r"[ \t]*\n(?:[ \t]*\n){2,}")
_JUNK_TITLE = re.compile(
    r"(?:untitled|\(anonymous\)|\(unspecified\)|document|title|slide|presentation|powerpoint|microsoft "
    r"|.*\.(?:docx?|pptx?|xlsx?|od[tps]|tex|dvi|indd|qxd|p65|rtf|html?)$)",
    re.IGNORECASE,
)


class Parsed(NamedTuple):
    """A text with its structure. Spans are character offsets, as in `Extracted`. `title` is None if the text
    has none.

    `note` is a remark for the report, for example that a document has no text. A heading with an empty title
    ends the sections of its level and below (used for the code after a function).
    """

    body: str
    headings: tuple[Heading, ...] = ()
    atoms: tuple[tuple[int, int], ...] = ()
    title: str | None = None
    metadata: Mapping[str, JSON] = NO_METADATA
    note: str | None = None
    definitions: tuple[Definition, ...] = ()  # only source code has definitions


def first_title(headings: tuple[Heading, ...] | list[Heading]) -> str | None:
    """The first heading title that is not empty; None if there is none."""
    for heading in headings:
        if heading.title:
            return heading.title
    return None


def clipped(title: str) -> str:
    """A heading's title on one line, cut to MAX_HEADING_CHARS."""
    title = " ".join(title[: 4 * MAX_HEADING_CHARS].split())
    if len(title) <= MAX_HEADING_CHARS:
        return title
    return title[:MAX_HEADING_CHARS].rsplit(" ", 1)[0] + "…"


def disjoint(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The spans in order, without those inside another span, such as rows of a table in a code block."""
    end = 0
    for span in sorted(spans):
        if span[0] >= end and span[1] > span[0]:
            yield span
            end = span[1]


def fenced(code: str, language: str = "") -> str:
    """A code block in Markdown. The fence is long enough not to occur in the code."""
    fence = "```"
    while fence in code:
        fence += "`"
    return f"{fence}{language}\n{code}\n{fence}"


def readable(text: str) -> str:
    """Clean a text: "\\n" for every line end, no control characters or lone surrogates, and at most one blank
    line in a row.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x0c", "\n\n").replace("\xa0", " ")
    text = _SYMBOL.sub("•", sound(_CONTROL.sub("", text)))
    return _MANY_LINES.sub("\n\n", text).strip("\n")


def telling_title(title: str | None) -> str | None:
    """The title from a file's properties; None if it is only a program's default (a file name,
    "Untitled").
    """
    words = clipped(readable(title or ""))
    return None if not words or _JUNK_TITLE.match(words) else words


class Manuscript:
    """Collects the parts of a document; `parsed` returns the result. Adding more than `MAX_CHARS` raises
    `SourceError`.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0
        self._headings: list[Heading] = []
        self._atoms: list[tuple[int, int]] = []

    def heading(self, level: int, title: str) -> None:
        """Add a heading, unless its title is blank."""
        words = clipped(readable(title))
        if words:
            start = self._write(f"{'#' * min(level, 6)} {words}")
            self._headings.append(Heading(start, level, words))

    def slide(self, number: int, title: str) -> None:
        """Add the heading of a slide."""
        self.heading(1, f"Slide {number}: {title}" if title else f"Slide {number}")

    def paragraph(self, text: str) -> None:
        """Add a paragraph, unless it is blank."""
        text = readable(text)
        if text.strip():
            self._write(text)

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Add a table with a line for each row."""
        text = readable("\n".join(table_lines(rows, bullet="- ")))
        if text.strip():
            start = self._write(text)
            self._atoms.append((start, self._size))

    def insert(self, part: Parsed, below: int) -> None:
        """Add the result of another reader. `below` is added to the levels of that result's headings."""
        if not part.body.strip():
            return
        start = self._write(part.body)
        self._headings += [
            heading._replace(start=start + heading.start, level=below + heading.level)
            for heading in part.headings
        ]
        self._atoms += [(start + first, start + last) for first, last in part.atoms]

    def parsed(self, title: str | None, metadata: Mapping[str, JSON], note: str | None = None) -> Parsed:
        """The collected document. Empty metadata is left out."""
        about = {name: value for name, value in metadata.items() if value}
        return Parsed("".join(self._parts), tuple(self._headings), tuple(self._atoms), title, about, note)

    def _write(self, text: str) -> int:
        """Add text after a blank line, and return its start in the body."""
        if self._parts:
            self._parts.append("\n\n")
            self._size += 2
        start = self._size
        self._size += len(text)
        if self._size > MAX_CHARS:
            raise SourceError(TOO_LONG)
        self._parts.append(text)
        return start
