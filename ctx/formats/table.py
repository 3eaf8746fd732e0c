"""The table of formats: suffixes, media types, readers and versions. `ctx/text/filetypes.py` says which
formats are prose.
"""

import zlib
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple


class Format(NamedTuple):
    """One format. `reader` is the function of this package that reads a text, or for a `document` its bytes
    in a separate process, such as `markup.parse_rst`.

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


def _old_office(media_type: str, name: str, successor: str, *suffixes: str) -> Format:
    refusal = f"is in {name}'s old binary format, which ctx does not read; save it as .{successor}"
    return Format(media_type, "", suffixes, document=True, refusal=refusal)


_OOXML = "application/vnd.openxmlformats-officedocument."
_ODF = "application/vnd.oasis.opendocument."

MARKDOWN = Format(
    "text/markdown",
    "markdown.parse",
    ("md", "markdown", "mdown", "mkd", "mkdn", "mdx", "rmd", "qmd", "mdc", "livemd"),
    ("text/x-markdown", "text/x-web-markdown"),
    version=2,
)
RST = Format(
    "text/x-rst", "markup.parse_rst", ("rst", "rest"), ("text/rst", "text/prs.fallenstein.rst"), version=3
)
HTML = Format(
    "text/html", "html.parse", ("html", "htm", "xhtml", "shtml"), ("application/xhtml+xml",), version=3
)
NOTEBOOK = Format("application/x-ipynb+json", "data.parse_notebook", ("ipynb",), ("application/vnd.jupyter",))
ORG = Format("text/x-org", "markup.parse_org", ("org",), ("text/org",), version=2)
ASCIIDOC = Format(
    "text/asciidoc", "markup.parse_asciidoc", ("adoc", "asciidoc", "asc"), ("text/x-asciidoc",), version=2
)
LATEX = Format(
    "text/x-tex", "markup.parse_latex", ("tex", "latex", "ltx"), ("application/x-latex", "application/x-tex")
)
CSV = Format("text/csv", "data.parse_table", ("csv",), version=7)
TSV = Format("text/tab-separated-values", "data.parse_table", ("tsv", "tab"), version=6)
JSON = Format("application/json", "data.parse_json", ("json", "canvas", "geojson"), version=3)
JSON_LINES = Format(
    "application/jsonl", "data.parse_json", ("jsonl", "ndjson"), ("application/x-ndjson",), version=2
)
PLAIN = Format("text/plain", "markup.parse_plain", ("txt", "text", "log"), version=2)
CODE = Format("text/x-code", "code", (), version=2)  # code.py has the languages

RTF = Format("application/rtf", "office.parse_rtf", ("rtf",), ("text/rtf", "text/richtext"), document=True)
PDF = Format("application/pdf", "pdf.parse", ("pdf",), version=4, document=True, paged=True)
EML = Format("message/rfc822", "mail.parse", ("eml", "mht", "mhtml"), version=5, document=True, paged=True)
MBOX = Format("application/mbox", "mail.parse", ("mbox",), version=5, document=True, paged=True)
XLS = Format("application/vnd.ms-excel", "sheets.parse", ("xls", "xlt"), document=True, paged=True)
_DOCX = f"{_OOXML}wordprocessingml.document"
_PPTX = f"{_OOXML}presentationml.presentation"
_XLSX = f"{_OOXML}spreadsheetml.sheet"
_XLSB = "application/vnd.ms-excel.sheet.binary.macroenabled.12"

FORMATS: tuple[Format, ...] = (
    *(MARKDOWN, RST, HTML, NOTEBOOK, ORG, ASCIIDOC, LATEX, CSV, TSV, JSON, JSON_LINES, PLAIN, CODE),
    *(PDF, RTF),
    Format("application/epub+zip", "package.parse_epub", ("epub",), version=3, document=True),
    Format(f"{_ODF}text", "odf.parse", ("odt", "ott"), version=6, document=True),
    Format(f"{_ODF}presentation", "odf.parse", ("odp", "otp"), version=5, document=True, paged=True),
    Format(f"{_ODF}spreadsheet", "sheets.parse", ("ods", "ots"), version=6, document=True, paged=True),
    Format(_DOCX, "office.parse_docx", ("docx", "docm", "dotx"), version=7, document=True),
    Format(_PPTX, "office.parse_pptx", ("pptx", "pptm", "ppsx"), version=5, document=True, paged=True),
    Format(_XLSX, "sheets.parse", ("xlsx", "xlsm"), version=8, document=True, paged=True),
    Format(_XLSB, "sheets.parse", ("xlsb",), version=7, document=True, paged=True),
    XLS,
    EML,
    MBOX,
    _old_office("application/msword", "Word", "docx", "doc", "dot"),
    _old_office("application/vnd.ms-powerpoint", "PowerPoint", "pptx", "ppt", "pps"),
)


def function_of(reader: str) -> Callable[..., Any]:
    """The function of a reader, which is imported at first use, because each reader compiles its patterns."""
    module, _, name = reader.partition(".")
    function: Callable[..., Any] = getattr(import_module(f"ctx.formats.{module}"), name)
    return function


BY_SUFFIX: Mapping[str, Format] = {suffix: row for row in FORMATS for suffix in row.suffixes}
BY_MEDIA_TYPE: Mapping[str, Format] = {
    name: row for row in FORMATS if row not in (PLAIN, CODE) for name in (row.media_type, *row.aliases)
}
PAGED = frozenset(row.media_type for row in FORMATS if row.paged)
DOCUMENT_SUFFIXES: tuple[str, ...] = tuple(
    suffix for row in FORMATS if row.document for suffix in row.suffixes
)
"""The suffixes of binary document formats."""

CUTTING = 9  # increase this number when chunking or decoding changes
TEXT_FORMAT = (
    f"{CUTTING}-"
    f"{zlib.crc32(repr([(row.media_type, row.reader, row.version) for row in FORMATS]).encode()):08x}"
)
"""The version of reading and chunking. When it changes, all sources are read again.

Unchanged chunks are not embedded again.
"""
