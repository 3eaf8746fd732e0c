"""Extract the text of an item in any encoding and format.

For text, the encoding is detected, then the format from media type, name and first characters. The format's
reader then finds title, headings and blocks. Readers of text raise no errors: what does not parse is indexed
as plain text. Binary documents (PDF, Office, mail) and large texts are read in a separate process.
"""

import gzip
import io
import json
import re
import struct
import zlib
from collections.abc import Callable
from functools import partial

from ctx.code.grammars import GRAMMARS
from ctx.errors import SourceError
from ctx.formats.base import LOCKED, OLE_MARK, Parsed, clipped
from ctx.formats.code import kind_of, reader
from ctx.formats.encoding import decode
from ctx.formats.process import READER, Text
from ctx.formats.table import (
    BY_MEDIA_TYPE,
    BY_SUFFIX,
    EML,
    HTML,
    MARKDOWN,
    MBOX,
    PDF,
    PLAIN,
    RTF,
    XLS,
    Format,
    function_of,
)
from ctx.models import Content, Extracted
from ctx.text.strings import sound

# Longer texts (bytes or characters) are read in the separate process: a reader may take 2 s for a million
# characters, and regular expressions block other threads.
MAX_TEXT = 1 << 20
MAX_UNZIPPED = 64 * 1024 * 1024  # bytes; ordinary compressed text files have a few thousand

_HEAD = 1024  # bytes at the start of a file in which to look for a document's format
_GZIP_MARK = b"\x1f\x8b"
_PDF_MARK = b"%PDF-"
_RTF_MARK = b"{\\rtf"  # old versions of Word also save RTF as .doc
_APPLE_MARK = b"\0\x05\x16\x07"  # AppleDouble: metadata that a Mac stores next to a file, as "._NAME"
_OWNER_PREFIX = "~$"  # a file in which Office stores who has a document open
_MAX_OWNER = 512  # bytes; such a file has 162 or 165
# Names of mail files without a suffix: Thunderbird's mailboxes, and messages in a Maildir, whose names begin
# with the time in seconds.
_UNTOLD = re.compile(r"(?:.*/)?(?:[^./]+|\d{9,11}\.[^/]+)\Z")
_HEADERS = re.compile(rb"(From [^\n]*\n)?((?:[!-9;-~]{1,100}:[^\n]*\n(?:[ \t][^\n]*\n)*)+)(?:\r?\n|[^\n]*\Z)")
_OF_MAIL = frozenset(
    (b"received", b"return-path", b"message-id", b"from", b"date", b"subject", b"delivered-to")
)
_LOCKED_OFFICE = f"{LOCKED} (or it is an old Office file)"
_HTML_HEAD = re.compile(
    r"\s{0,100}(?:<\?xml[^>]{0,200}>\s{0,100})?(?:<!--.{0,2000}?-->\s{0,100})?<(?:!doctype\s+html|html|head"
    r"|body)\b",
    re.I | re.S,
)
_MARKDOWN_SIGN = re.compile(r"(?:\A|\n)(?:#{1,3} \S|```|- \[[ x]\] |\[[^\]\n]{1,100}\]: )")
# Embedded data, such as a picture or a font, which is useless for search.
_CARRIED = re.compile(
    r"(data:[\w.+-]{1,60}/[\w.+-]{1,80}(?:;[\w.=-]{1,60}){0,5};base64,)[A-Za-z0-9+/=_-]{100,}"
)
_SUFFIX = re.compile(r"(?<=[^/])\.([A-Za-z][A-Za-z0-9_+-]{0,14})\Z")

_END_MARK = b"PK\x05\x06"
_ZIP_MARKS = (b"PK\x03\x04", _END_MARK)
# OpenDocument 1.3 part 2, 3.3, and EPUB OCF 3.3, 4.3.3: the first part is called `mimetype` and is stored
# uncompressed.
_TYPE = re.compile(rb"(?s)PK\x03\x04.{4}\0\0.{20}mimetype([a-z]+/[a-z0-9.+-]{1,100})")
_TEMPLATE = "-template"
# An entry of a zip file's directory (APPNOTE.TXT 4.3.12) for the main part of an Office document. Embedded
# documents are in subfolders, so they do not match.
_OFFICE_PART = re.compile(rb"(?s)PK\x01\x02.{42}(word/document|xl/workbook|ppt/presentation)")
_OFFICE_SUFFIXES = {b"word/document": "docx", b"xl/workbook": "xlsx", b"ppt/presentation": "pptx"}
_END = struct.Struct("<4s4H2LH")  # APPNOTE.TXT 4.3.16; a comment of up to 64 KiB may follow
_MAX_END = _END.size + 0xFFFF


def extract(content: Content, source_id: str) -> Extracted | None:
    """Read one item. None if there is nothing to index: binary data, or neither text nor title.

    The title comes from the connector, the front matter, the first heading, or the file's name. In the body
    every line end is "\\n" and the data of a `data:` URI is "…". Raises `SourceError` for a document (PDF,
    Office, mail) or a compressed file that cannot be read.
    """
    return begin(content, source_id)()


def begin(content: Content, source_id: str) -> Callable[[], Extracted | None]:
    """Begin to `extract` an item, and return a function that waits for the result. Source code is parsed in
    another process, so the caller can work meanwhile. Both functions raise `SourceError`.
    """
    name, data = source_id.rsplit("/", 1)[-1], content.data
    if isinstance(data, bytes) and data.startswith(_GZIP_MARK) and name.endswith(".gz"):
        name, data = name[:-3], unzipped(data, MAX_UNZIPPED)
    declared, charset = declared_type(content.media_type)
    if name.startswith(_OWNER_PREFIX) and len(data) <= _MAX_OWNER:
        return lambda: None
    row = _document(declared, name, data)
    read = _begin_text(declared, charset, name, data) if row is None else partial(_read_document, row, data)
    return lambda: _extracted(content, source_id, name, read())


def _extracted(
    content: Content, source_id: str, name: str, reading: tuple[str, Parsed] | None
) -> Extracted | None:
    if reading is None:
        return None
    media_type, (body, headings, atoms, own_title, metadata, note, found) = reading
    title = clipped(sound(content.title)) if content.title else own_title
    if not (title or note or body.strip()):
        return None
    # The URL of a folder ends in a slash.
    untitled = _SUFFIX.sub("", name) if name else source_id.rstrip("/").rpartition("/")[2]
    return Extracted(title or untitled, body, media_type, headings, atoms, metadata, note, found)


def _read_document(row: Format, data: bytes | str) -> tuple[str, Parsed]:
    return row.media_type, READER.read(row.reader, data if isinstance(data, bytes) else sound(data).encode())


def _begin_text(
    declared: str | None, charset: str | None, name: str, data: bytes | str
) -> Callable[[], tuple[str, Parsed] | None]:
    """Begin to read a text, and return a function that waits for the media type and the text, or for None if
    the data is binary. It raises `SourceError` if a large text takes too much time or memory.
    """
    text = Text(declared, charset, name, isinstance(data, str))
    head = data[:_HEAD] if isinstance(data, str) else data[:_HEAD].decode("utf-8-sig", "replace")
    # Grammars are native code, so files that are parsed by one are read in the separate process.
    if len(data) <= MAX_TEXT and kind_of(suffix_of(name), name, head) not in GRAMMARS:
        return partial(read_text, text, data)
    encoded = sound(data).encode() if isinstance(data, str) else data
    wait = READER.begin_text(text._replace(grammar=True), encoded)

    def read() -> tuple[str, Parsed] | None:
        try:
            return wait()
        except SourceError:
            if len(data) > MAX_TEXT:
                raise
            return read_text(text, data)  # the grammar failed; patterns find most definitions

    return read


def _document(declared: str | None, name: str, data: bytes | str) -> Format | None:
    """The format of a binary document; None for text. Raises `SourceError` if no reader supports it.

    The bytes decide, not the name: a PDF may be called `.docx`, a new Word document `.doc`, an HTML page
    `.pdf`, a text table `.xls`.
    """
    row = BY_MEDIA_TYPE.get(declared or "") or BY_SUFFIX.get(suffix_of(name))
    if isinstance(data, str):  # already decoded; mail is the only document format that is text
        return row if row in (EML, MBOX) and row.media_type == declared else None
    if data.startswith(_PDF_MARK):
        by_bytes: Format | None = PDF
    else:
        by_bytes = RTF if data.startswith(_RTF_MARK) else _zipped_format(data)
    kinds = {(known.reader, known.paged) for known in (row, by_bytes) if known}
    if by_bytes and (row is None or row is XLS or len(kinds) > 1):
        return by_bytes
    if declared is None and _UNTOLD.match(name) and (mail := _mail(data[:_HEAD])):
        return mail
    return row if row is not None and _is_sound(row, name, data) else None


def _is_sound(row: Format, name: str, data: bytes) -> bool:
    """Whether a file can be read in the format that its name says; False if it is text. Raises `SourceError`
    if it cannot be read at all.
    """
    head = data[:_HEAD]
    if not row.document or head.startswith(_APPLE_MARK):
        return False
    if _begins_as(row, head):
        return True
    if head.startswith(OLE_MARK):
        raise SourceError(row.refusal or _LOCKED_OFFICE)
    if decode(data) is None:
        raise SourceError(f"is damaged, or no .{suffix_of(name) or row.suffixes[0]} file")
    return False


def _mail(head: bytes) -> Format | None:
    """The mail format of a file that begins with headers, if at least two are specific to e-mail;
    else None.
    """
    match = _HEADERS.match(head)
    if match is None:
        return None
    names = {line.partition(b":")[0].lower() for line in match[2].split(b"\n")}
    return None if len(names & _OF_MAIL) < 2 else MBOX if match[1] else EML


def _begins_as(row: Format, head: bytes) -> bool:
    """Whether the first bytes fit a document format."""
    if row is PDF:
        return _PDF_MARK in head
    if row in (EML, MBOX):
        return bool(head.strip())  # mailboxes are often empty
    if row.reader == "sheets.parse" and head.startswith(OLE_MARK):
        return True
    return not row.refusal and head.startswith(_RTF_MARK if row is RTF else _ZIP_MARKS)


def unzipped(data: bytes, limit: int) -> bytes:
    """Decompress a gzip file of at most `limit` bytes uncompressed. Other data is returned unchanged. Raises
    `SourceError`.
    """
    if not data.startswith(_GZIP_MARK):
        return data
    try:
        with gzip.open(io.BytesIO(data)) as file:
            text = file.read(limit + 1)
    except EOFError as error:
        raise SourceError("is a gzip file that is cut off") from error
    except (OSError, zlib.error) as error:
        raise SourceError("is a damaged gzip file") from error
    if len(text) > limit:
        raise SourceError(f"has more than {limit:,} bytes uncompressed")
    return text


def _zipped_format(data: bytes) -> Format | None:
    """The format of a zip file, from its first bytes or the names of its parts; None if it is not a document,
    or if its directory is damaged.

    This runs in the main process, without limits of time or memory. A zip library would create an object for
    each entry, and a hostile file may have a million entries.
    """
    if not data.startswith(_ZIP_MARKS):
        return None
    if match := _TYPE.match(data):
        return BY_MEDIA_TYPE.get(match[1].decode().removesuffix(_TEMPLATE))
    part = _OFFICE_PART.search(_directory(data))
    return BY_SUFFIX[_OFFICE_SUFFIXES[part[1]]] if part else None


def _directory(data: bytes) -> bytes:
    """The bytes of a zip file's central directory; empty if it is not found."""
    end = data.rfind(_END_MARK, max(0, len(data) - _MAX_END))
    if end < 0 or end + _END.size > len(data):
        return b""
    *_, size, offset, _ = _END.unpack_from(data, end)
    return data[offset : offset + size]


# -- texts ---------------------------------------------------------------------------------------------------


def read_text(text: Text, data: bytes | str) -> tuple[str, Parsed] | None:
    """The media type of a text and the result of its reader; None for binary data."""
    words = sound(data) if isinstance(data, str) else decode(data, text.charset)
    if words is None:
        return None
    words = words.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    words = words.replace("\0", "\ufffd")  # some libraries stop at a NUL
    if ";base64," in words:
        words = _CARRIED.sub(r"\1…", words)
    media_type, parse = _reader(text, words)
    return media_type, parse(words)


def read_packed(request: bytes) -> tuple[str, Parsed] | None:
    """Like `read_text`, for a request of `ReadingProcess.begin_text`."""
    head, _, data = request.partition(b"\n")
    text = Text(*json.loads(head))
    return read_text(text, data.decode() if text.decoded else data)


def suffix_of(name: str) -> str:
    match = _SUFFIX.search(name)
    return match[1].lower() if match else ""


def _reader(known: Text, text: str) -> tuple[str, Callable[[str], Parsed]]:
    """The media type of a text and the `parse` function of its reader. A declared type wins over the name,
    except "text/plain".
    """
    media_type, name = known.media_type, known.name
    suffix = suffix_of(name)
    row = BY_MEDIA_TYPE.get(media_type or "") or BY_SUFFIX.get(suffix)
    if row is not None and row.document:  # a binary format, but the file is text: ignore its suffix
        row, suffix = None, ""
    if row is None and (language := kind_of(suffix, name, text)) is not None:
        return language, reader(language, known.grammar)
    # The name does not tell the format, so look at the beginning of the text.
    if row is None or (row is PLAIN and suffix in ("", "txt", "text")):
        if _HTML_HEAD.match(text[:4096]):
            row = HTML
        else:
            row = MARKDOWN if _MARKDOWN_SIGN.search(text[:16_384]) else PLAIN
    return row.media_type, function_of(row.reader)


def declared_type(declared: str | None) -> tuple[str | None, str | None]:
    """The media type and the charset in a Content-Type header. Either is None if it is missing."""
    if not declared:
        return None, None
    kind, _, parameters = declared.partition(";")
    _, _, charset = parameters.partition("charset=")
    return kind.strip().lower(), charset.split(";")[0].strip(" \"'") or None
