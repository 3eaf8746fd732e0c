"""The table of formats: suffixes, media types, readers and versions. `ctx/text/filetypes.py` says which
formats are prose.
"""

import zlib
from collections.abc import Mapping
from typing import NamedTuple


class Format(NamedTuple):
    """One format. `reader` is the module of this package whose `parse` function reads a text, or for a
    `document` its bytes in a separate process.

    Increase `version` when the reader's result changes; every source is then read again. `paged`: no chunk
    crosses a level-1 heading, so that a hit names its page, slide, sheet or message. `refusal` is the error
    message for a format that ctx cannot read.
    """

    media_type: str
    reader: str
    suffixes: tuple[str, ...]
    aliases: tuple[str, ...] = ()  # other names of the media type
    version: int = 1
    document: bool = False
    paged: bool = False
    refusal: str | None = None


def _document(
    media_type: str,
    reader: str,
    *suffixes: str,
    aliases: tuple[str, ...] = (),
    paged: bool = False,
    version: int = 1,
) -> Format:
    return Format(media_type, reader, suffixes, aliases, version=version, document=True, paged=paged)


def _old_office(media_type: str, name: str, successor: str, *suffixes: str) -> Format:
    refusal = f"is in {name}'s old binary format, which ctx does not read; save it as .{successor}"
    return Format(media_type, "", suffixes, document=True, refusal=refusal)


_OOXML = "application/vnd.openxmlformats-officedocument."
_ODF = "application/vnd.oasis.opendocument."

MARKDOWN = Format(
    "text/markdown",
    "markdown",
    ("md", "markdown", "mdown", "mkd", "mkdn", "mdx", "rmd", "qmd", "mdc", "livemd"),
    ("text/x-markdown", "text/x-web-markdown"),
    version=2,
)
RST = Format("text/x-rst", "rst", ("rst", "rest"), ("text/rst", "text/prs.fallenstein.rst"), version=3)
HTML = Format("text/html", "html", ("html", "htm", "xhtml", "shtml"), ("application/xhtml+xml",), version=3)
NOTEBOOK = Format("application/x-ipynb+json", "notebook", ("ipynb",), ("application/vnd.jupyter",))
ORG = Format("text/x-org", "org", ("org",), ("text/org",), version=2)
ASCIIDOC = Format("text/asciidoc", "asciidoc", ("adoc", "asciidoc", "asc"), ("text/x-asciidoc",), version=2)
LATEX = Format("text/x-tex", "latex", ("tex", "latex", "ltx"), ("application/x-latex", "application/x-tex"))
CSV = Format("text/csv", "delimited", ("csv",), version=6)
TSV = Format("text/tab-separated-values", "delimited", ("tsv", "tab"), version=6)
JSON = Format("application/json", "records", ("json", "canvas", "geojson"), version=3)
JSON_LINES = Format("application/jsonl", "records", ("jsonl", "ndjson"), ("application/x-ndjson",), version=2)
PLAIN = Format("text/plain", "plain", ("txt", "text", "log"), version=2)
CODE = Format("text/x-code", "code", ())  # code.py has the languages

RTF = _document("application/rtf", "rtf", "rtf", aliases=("text/rtf", "text/richtext"))
PDF = _document("application/pdf", "pdf", "pdf", paged=True, version=4)
EPUB = _document("application/epub+zip", "epub", "epub", version=3)
ODT = _document(f"{_ODF}text", "odf", "odt", "ott", version=6)
ODP = _document(f"{_ODF}presentation", "odf", "odp", "otp", paged=True, version=5)
EML = _document("message/rfc822", "mail", "eml", "mht", "mhtml", paged=True, version=5)
MBOX = _document("application/mbox", "mail", "mbox", paged=True, version=5)
ODS = _document(f"{_ODF}spreadsheet", "sheets", "ods", "ots", paged=True, version=6)
XLS = _document("application/vnd.ms-excel", "sheets", "xls", "xlt", paged=True)

FORMATS: tuple[Format, ...] = (
    *(MARKDOWN, RST, HTML, NOTEBOOK, ORG, ASCIIDOC, LATEX, CSV, TSV, JSON, JSON_LINES, PLAIN, CODE),
    *(PDF, RTF, EPUB, ODT, ODP, ODS),
    _document(f"{_OOXML}wordprocessingml.document", "docx", "docx", "docm", "dotx", version=7),
    _document(f"{_OOXML}presentationml.presentation", "pptx", "pptx", "pptm", "ppsx", paged=True, version=5),
    _document(f"{_OOXML}spreadsheetml.sheet", "sheets", "xlsx", "xlsm", paged=True, version=8),
    _document(
        "application/vnd.ms-excel.sheet.binary.macroenabled.12", "sheets", "xlsb", paged=True, version=7
    ),
    XLS,
    EML,
    MBOX,
    _old_office("application/msword", "Word", "docx", "doc", "dot"),
    _old_office("application/vnd.ms-powerpoint", "PowerPoint", "pptx", "ppt", "pps"),
)

BY_SUFFIX: Mapping[str, Format] = {suffix: row for row in FORMATS for suffix in row.suffixes}
BY_MEDIA_TYPE: Mapping[str, Format] = {
    name: row for row in FORMATS if row not in (PLAIN, CODE) for name in (row.media_type, *row.aliases)
}
PAGED = frozenset(row.media_type for row in FORMATS if row.paged)
DOCUMENT_SUFFIXES: tuple[str, ...] = tuple(
    suffix for row in FORMATS if row.document for suffix in row.suffixes
)
"""The suffixes of binary document formats."""

CUTTING = 9  # increase it when chunking or decoding changes
TEXT_FORMAT = (
    f"{CUTTING}-"
    f"{zlib.crc32(repr([(row.media_type, row.reader, row.version) for row in FORMATS]).encode()):08x}"
)
"""The version of reading and chunking. When it changes, all sources are read again.

Unchanged chunks are not embedded again.
"""
