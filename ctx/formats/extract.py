"""Extraction: what an item says, whatever its encoding and format.

The encoding is settled first, then the format by media type, name and first bytes; then one reader of `formats/` finds title,
headings and blocks. No reader fails: what does not parse is text, and is indexed as such.
"""

import re
import zlib
from collections.abc import Callable, Mapping

from ctx.errors import SourceError
from ctx.formats.base import Parsed, clipped
from ctx.formats.encoding import decode
from ctx.types import Content, Extracted

MAX_UNZIPPED = 64 * 1024 * 1024  # bytes; a compressed manual page has a few thousand

MARKDOWN, RST, HTML, PLAIN, ROFF, NOTEBOOK = (
    "text/markdown", "text/x-rst", "text/html", "text/plain", "text/troff", "application/x-ipynb+json",
)  # fmt: skip

_SUFFIXES: Mapping[str, str] = {
    **dict.fromkeys(
        ("md", "markdown", "mdown", "mkd", "mkdn", "mdx", "rmd", "qmd", "mdc", "livemd"), MARKDOWN
    ),
    **dict.fromkeys(("rst", "rest"), RST),
    **dict.fromkeys(("html", "htm", "xhtml", "shtml"), HTML),
    **dict.fromkeys(("txt", "text", "log"), PLAIN),
    **dict.fromkeys(("man", "mdoc", "roff", "troff", "nroff"), ROFF),
    "ipynb": NOTEBOOK,
}
_MEDIA_TYPES: Mapping[str, str] = {
    "text/x-markdown": MARKDOWN,
    "text/x-web-markdown": MARKDOWN,
    "text/rst": RST,
    "text/prs.fallenstein.rst": RST,
    "application/xhtml+xml": HTML,
    "application/x-troff-man": ROFF,
    "application/vnd.jupyter": NOTEBOOK,
    **{known: known for known in (MARKDOWN, RST, HTML, ROFF, NOTEBOOK)},
}
_MANUAL = re.compile(r"\.[1-9n][A-Za-z]{0,8}\Z")
_ROFF_SIGN = re.compile(r"(?:\A|\n)[.'][ \t]*(?:TH|SH|Sh|Dd|Dt|so)[ \t]")
_HTML_HEAD = re.compile(
    r"\s{0,100}(?:<\?xml[^>]{0,200}>\s{0,100})?(?:<!--.{0,2000}?-->\s{0,100})?<(?:!doctype\s+html|html|head|body)\b",
    re.I | re.S,
)
_MARKDOWN_SIGN = re.compile(r"(?:\A|\n)(?:#{1,3} \S|```|- \[[ x]\] |\[[^\]\n]{1,100}\]: )")
_SUFFIX = re.compile(r"(?<=[^/])\.([A-Za-z][A-Za-z0-9_+-]{0,14})\Z")


def extract(content: Content, source_id: str) -> Extracted | None:
    """Reads one item; None where there is nothing to index: binary data, or neither text nor title.

    The title is the connector's, else the front matter's, else the first heading, else the name's stem. The body has "\\n" for
    every line end. Raises `SourceError` for a compressed file that is damaged or too large.
    """
    name = source_id.rsplit("/", 1)[-1]
    media_type, charset = _media_type(content.media_type)
    if isinstance(content.data, str):
        text: str | None = _storable(content.data)
    else:
        data = content.data
        if data[:2] == b"\x1f\x8b" and name.endswith(".gz"):
            data = _unzipped(data, source_id)
            name = name[:-3]
        text = decode(data, charset)
    if text is None:
        return None
    text = _normalised(text)
    media_type, parse = _reader(media_type, name, text)
    parsed = parse(text)
    title = clipped(_storable(content.title)) if content.title else parsed.title
    if not title and not parsed.body.strip():
        return None
    return Extracted(
        title or _stem(name), parsed.body, media_type, parsed.headings, parsed.atoms, parsed.metadata
    )


def _normalised(text: str) -> str:
    if text[:1] == "\ufeff":
        text = text[1:]
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\0", "\ufffd") if "\0" in text else text  # a NUL ends a text for some that read it


def _storable(text: str) -> str:
    """Without lone surrogates, which no UTF-8 can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _media_type(given: str | None) -> tuple[str | None, str | None]:
    """The known type and the charset that a connector gave."""
    if not given:
        return None, None
    kind, _, parameters = given.partition(";")
    _, _, charset = parameters.partition("charset=")
    return kind.strip().lower(), charset.split(";")[0].strip(" \"'") or None


def _unzipped(data: bytes, source_id: str) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    try:
        text = inflater.decompress(data, MAX_UNZIPPED)
        if inflater.unconsumed_tail:
            raise SourceError(
                f"{source_id}: more than {MAX_UNZIPPED >> 20} MiB uncompressed; exclude it with exclude_globs"
            )
        if not inflater.eof:
            raise SourceError(f"{source_id}: the gzip file is cut off")
    except zlib.error as error:
        raise SourceError(f"{source_id}: the gzip file is damaged") from error
    return text


def _stem(name: str) -> str:
    found = _SUFFIX.search(name)
    return (name[: found.start()] if found else name) or "untitled"


def _reader(media_type: str | None, name: str, text: str) -> tuple[str, Callable[[str], Parsed]]:
    """The media type of a text and what reads it. An explicit type wins over the name, except "text/plain", which says nothing."""
    found = _SUFFIX.search(name)
    suffix = found[1].lower() if found else ""
    kind = _MEDIA_TYPES.get(media_type or "") or _SUFFIXES.get(suffix)
    if kind is None or (kind == PLAIN and suffix in ("", "txt", "text")):
        from ctx.formats.code import (
            kind_of,
        )  # 1 ms; its patterns are compiled when a language is met

        kind = (kind is None and kind_of(suffix, name, text)) or _by_head(name, text)
    # Each reader compiles its patterns when first met: a run over Markdown need not pay for roff.
    if kind == MARKDOWN:
        from ctx.formats.markdown import parse
    elif kind == RST:
        from ctx.formats.rst import parse
    elif kind == HTML:
        from ctx.formats.html import parse
    elif kind == ROFF:
        from ctx.formats.roff import parse
    elif kind == NOTEBOOK:
        from ctx.formats.notebook import parse
    elif kind == PLAIN:
        from ctx.formats.plain import parse
    else:
        from ctx.formats.code import reader

        return kind, reader(kind)
    return kind, parse


def _by_head(name: str, text: str) -> str:
    """The kind of a text whose name tells nothing, by how it begins."""
    if _HTML_HEAD.match(text[:4096]):
        return HTML
    if (text[:3] in ('.\\"', "'\\\"", ".TH", ".Dd") or _MANUAL.search(name)) and _ROFF_SIGN.search(
        text[:65_536]
    ):
        return ROFF
    if _MARKDOWN_SIGN.search(text[:16_384]):
        return MARKDOWN
    return PLAIN
