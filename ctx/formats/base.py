"""The result of a format's reader."""

from collections.abc import Mapping
from typing import NamedTuple

from ctx.code.symbols import Definition
from ctx.models import JSON, NO_METADATA, Heading

LOCKED = "is encrypted: it opens only with a password"
OLE_MARK = b"\xd0\xcf\x11\xe0"  # begins the old Office formats, and the new ones when encrypted
MAX_HEADING_CHARS = 160  # a longer heading is cut at a word, because each chunk below it repeats it


class Parsed(NamedTuple):
    """A text with its structure. Spans are as in `Extracted`. `title` is None if the text has none.

    `note` is for the report (for example that a document has no text). A heading without a title ends the
    headings of its level and below (for the statement after a function).
    """

    body: str
    headings: tuple[Heading, ...] = ()
    atoms: tuple[tuple[int, int], ...] = ()
    title: str | None = None
    metadata: Mapping[str, JSON] = NO_METADATA
    note: str | None = None
    definitions: tuple[Definition, ...] = ()  # of source code


def first_title(headings: tuple[Heading, ...] | list[Heading]) -> str | None:
    """The title of the first heading that has one."""
    for heading in headings:
        if heading.title:
            return heading.title
    return None


def clipped(title: str) -> str:
    """A heading's title on one line, cut to the maximum length."""
    title = " ".join(title[: 4 * MAX_HEADING_CHARS].split())
    if len(title) <= MAX_HEADING_CHARS:
        return title
    return title[:MAX_HEADING_CHARS].rsplit(" ", 1)[0] + "…"


def fenced(code: str, language: str = "") -> str:
    """A code block in Markdown, with a fence that is not in the code."""
    fence = "```"
    while fence in code:
        fence += "`"
    return f"{fence}{language}\n{code}\n{fence}"
