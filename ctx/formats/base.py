"""What a format's reader gives."""

from collections.abc import Mapping
from typing import NamedTuple

from ctx.code.symbols import Definition
from ctx.items import Heading
from ctx.models import JSON, NO_METADATA

LOCKED = "is encrypted: it opens only with a password"
OLE_MARK = b"\xd0\xcf\x11\xe0"  # begins the old Office formats, and the new ones when encrypted
MAX_HEADING_CHARS = 160  # a longer heading is cut at a word: it is read again with every chunk below it


class Parsed(NamedTuple):
    """A text with its structure; spans as in `Extracted`. `title` is None where the text names itself
    nowhere.

    `note` is what the report should say of a document that was read (that it has no text, say). A heading
    without a title ends the scope of those at its level and below (the statement after a function).
    """

    body: str
    headings: tuple[Heading, ...] = ()
    atoms: tuple[tuple[int, int], ...] = ()
    title: str | None = None
    metadata: Mapping[str, JSON] = NO_METADATA
    note: str | None = None
    definitions: tuple[Definition, ...] = ()  # of source code


def first_title(headings: tuple[Heading, ...] | list[Heading]) -> str | None:
    """The words of the first heading that has any."""
    for heading in headings:
        if heading.title:
            return heading.title
    return None


def clipped(title: str) -> str:
    """A heading's words on one line and of bounded length."""
    title = " ".join(title[: 4 * MAX_HEADING_CHARS].split())
    if len(title) <= MAX_HEADING_CHARS:
        return title
    return title[:MAX_HEADING_CHARS].rsplit(" ", 1)[0] + "…"


def fenced(code: str, language: str = "") -> str:
    """A code block in Markdown whose fence no line of it can close."""
    fence = "```"
    while fence in code:
        fence += "`"
    return f"{fence}{language}\n{code}\n{fence}"
