"""The result type of the readers, and functions that several readers need."""

from collections.abc import Mapping
from typing import NamedTuple

from ctx.code.symbols import Definition
from ctx.models import JSON, NO_METADATA, Heading

LOCKED = "is encrypted: it opens only with a password"
OLE_MARK = b"\xd0\xcf\x11\xe0"  # first bytes of old Office files, and of encrypted new ones
MAX_HEADING_CHARS = 160  # longer headings are cut at a word, because each chunk below repeats them


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
    definitions: tuple[Definition, ...] = ()  # only for source code


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


def fenced(code: str, language: str = "") -> str:
    """A code block in Markdown. The fence is long enough not to occur in the code."""
    fence = "```"
    while fence in code:
        fence += "`"
    return f"{fence}{language}\n{code}\n{fence}"
