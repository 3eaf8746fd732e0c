"""Extraction: what an item says, whatever its encoding and format.

The encoding is settled first, then the format by media type, name and first bytes; then one reader of this room finds title,
headings and blocks. No reader fails: what does not parse is text, and is indexed as such.
"""

import re
import zlib
from collections.abc import Callable
from importlib import import_module

from ctx.errors import SourceError
from ctx.formats.base import Parsed, clipped
from ctx.formats.encoding import decode
from ctx.formats.table import BY_MEDIA_TYPE, BY_SUFFIX, HTML, MARKDOWN, PLAIN, Format
from ctx.text import sound
from ctx.types import Content, Extracted

MAX_UNZIPPED = 64 * 1024 * 1024  # bytes; a compressed text file has a few thousand

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
        text: str | None = sound(content.data)
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
    title = clipped(sound(content.title)) if content.title else parsed.title
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


def _media_type(declared: str | None) -> tuple[str | None, str | None]:
    """The known type and the charset that a connector gave."""
    if not declared:
        return None, None
    kind, _, parameters = declared.partition(";")
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
    match = _SUFFIX.search(name)
    return (name[: match.start()] if match else name) or "untitled"


def _reader(media_type: str | None, name: str, text: str) -> tuple[str, Callable[[str], Parsed]]:
    """The media type of a text and what reads it.

    An explicit type wins over the name, except "text/plain", which says nothing.
    """
    match = _SUFFIX.search(name)
    suffix = match[1].lower() if match else ""
    row = BY_MEDIA_TYPE.get(media_type or "") or BY_SUFFIX.get(suffix)
    if row is None:
        from ctx.formats.code import kind_of, reader  # 1 ms; its patterns are compiled when a language is met

        language = kind_of(suffix, name, text)
        if language is not None:
            return language, reader(language)
    if row is None or (row is PLAIN and suffix in ("", "txt", "text")):
        row = _by_head(text)
    # Each reader compiles its patterns when first met: a run over Markdown need not pay for HTML.
    return row.media_type, import_module(f"ctx.formats.{row.reader}").parse


def _by_head(text: str) -> Format:
    """The format of a text whose name tells nothing, by how it begins."""
    if _HTML_HEAD.match(text[:4096]):
        return HTML
    return MARKDOWN if _MARKDOWN_SIGN.search(text[:16_384]) else PLAIN
