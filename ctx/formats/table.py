"""The formats ctx reads: one row each, from which suffixes, media types, prose or code and the text format's version follow."""

import zlib
from collections.abc import Mapping

from ctx.lean import NamedTuple


class Format(NamedTuple):
    """`reader` is the module of this room whose `parse` reads the text.

    `version` is raised when the reader would read the same bytes otherwise: every source is then read again. `prose` decides
    where a long text is cut (at sentences, not at statements).
    """

    media_type: str
    reader: str
    suffixes: tuple[str, ...]
    aliases: tuple[str, ...] = ()  # other names of the media type
    version: int = 1
    prose: bool = True


MARKDOWN = Format(
    "text/markdown",
    "markdown",
    ("md", "markdown", "mdown", "mkd", "mkdn", "mdx", "rmd", "qmd", "mdc", "livemd"),
    ("text/x-markdown", "text/x-web-markdown"),
)
RST = Format("text/x-rst", "rst", ("rst", "rest"), ("text/rst", "text/prs.fallenstein.rst"))
HTML = Format("text/html", "html", ("html", "htm", "xhtml", "shtml"), ("application/xhtml+xml",))
NOTEBOOK = Format("application/x-ipynb+json", "notebook", ("ipynb",), ("application/vnd.jupyter",))
ORG = Format("text/x-org", "org", ("org",), ("text/org",))
ASCIIDOC = Format("text/asciidoc", "asciidoc", ("adoc", "asciidoc", "asc"), ("text/x-asciidoc",))
PLAIN = Format("text/plain", "plain", ("txt", "text", "log"))
CODE = Format("text/x-code", "code", (), prose=False)  # its languages are a table of their own, in code.py

FORMATS: tuple[Format, ...] = (MARKDOWN, RST, HTML, NOTEBOOK, ORG, ASCIIDOC, PLAIN, CODE)

BY_SUFFIX: Mapping[str, Format] = {suffix: row for row in FORMATS for suffix in row.suffixes}
BY_MEDIA_TYPE: Mapping[str, Format] = {
    name: row for row in FORMATS if row not in (PLAIN, CODE) for name in (row.media_type, *row.aliases)
}
PROSE = frozenset(row.media_type for row in FORMATS if row.prose)

CUTTING = 2  # raised when chunks would be cut otherwise, or a text is decoded otherwise
TEXT_FORMAT = f"{CUTTING}-{zlib.crc32(repr([(row.media_type, row.reader, row.version) for row in FORMATS]).encode()):08x}"
"""Changes when the same bytes would be extracted or cut otherwise: everything is then read again (nothing is embedded again)."""
