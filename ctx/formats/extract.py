"""Extraction: what an item says, whatever its encoding and format.

Of a text the encoding is settled first, then the format by media type, name and first bytes; then one reader
of this room finds title, headings and blocks. No reader of text fails: what does not parse is text, and is
indexed as such. Documents that are no text (PDF, Office, mail) are read in a process of their own, and so are
large texts; what cannot be read there is refused with the reason.
"""

import re
import zlib

from ctx.errors import SourceError
from ctx.formats.archive import ZIP_MARKS, document_format
from ctx.formats.base import LOCKED, OLE_MARK, Parsed, clipped
from ctx.formats.code import has_grammar
from ctx.formats.encoding import decode
from ctx.formats.table import BY_MEDIA_TYPE, BY_SUFFIX, EML, MBOX, PDF, RTF, XLS, Format
from ctx.formats.texts import SUFFIX, Text, declared_type, read_text, suffix_of
from ctx.items import Content, Extracted
from ctx.text.strings import sound

# Bytes or characters that are read here. A reader may take 2 s for each million of odd ones, and a
# pattern holds the interpreter meanwhile.
MAX_TEXT = 1 << 20
MAX_UNZIPPED = 64 * 1024 * 1024  # bytes; a compressed text file has a few thousand

_HEAD = 1024  # bytes within which a document says what it is
_PDF_MARK = b"%PDF-"
_RTF_MARK = b"{\\rtf"  # of what old versions of Word call .doc, too
_APPLE_MARK = b"\0\x05\x16\x07"  # AppleDouble: macOS metadata of another file, under its name with "._" ahead
_OWNER_PREFIX = "~$"  # the file by which Office says who has a document open
_MAX_OWNER = 512  # bytes; it has 162 or 165
# A mailbox of Thunderbird's is a file without an ending, a message in a Maildir one named by its second.
_UNTOLD = re.compile(r"(?:.*/)?(?:[^./]+|\d{9,11}\.[^/]+)\Z")
_HEADERS = re.compile(rb"(From [^\n]*\n)?((?:[!-9;-~]{1,100}:[^\n]*\n(?:[ \t][^\n]*\n)*)+)(?:\r?\n|[^\n]*\Z)")
_OF_MAIL = frozenset(
    (b"received", b"return-path", b"message-id", b"from", b"date", b"subject", b"delivered-to")
)
_LOCKED_OFFICE = f"{LOCKED} (or it is an old Office file)"


def extract(content: Content, source_id: str) -> Extracted | None:
    """Reads one item; None where there is nothing to index: binary data, or neither text nor title.

    The title is the connector's, else the front matter's, else the first heading, else the name's stem. The
    body has "\\n" for every line end, and "…" for the bytes of a `data:` URI. Raises `SourceError` for a
    document (PDF, Office, mail) or a compressed file that cannot be read.
    """
    name, data = _plain(source_id.rsplit("/", 1)[-1], content.data)
    declared, charset = declared_type(content.media_type)
    if name.startswith(_OWNER_PREFIX) and len(data) <= _MAX_OWNER:
        return None
    row = _document(declared, name, data)
    reading = _read_document(row, data) if row is not None else _read_text(declared, charset, name, data)
    if reading is None:
        return None
    media_type, (body, headings, atoms, own_title, metadata, note, found) = reading
    title = clipped(sound(content.title)) if content.title else own_title
    if not (title or note or body.strip()):
        return None
    return Extracted(title or _stem(name), body, media_type, headings, atoms, metadata, note, found)


def _read_document(row: Format, data: bytes | str) -> tuple[str, Parsed]:
    from ctx.formats.process import READER  # a run over small texts starts no process

    return row.media_type, READER.read(row.reader, data if isinstance(data, bytes) else sound(data).encode())


def _read_text(
    declared: str | None, charset: str | None, name: str, data: bytes | str
) -> tuple[str, Parsed] | None:
    """The media type and the text; None of binary data. Raises `SourceError` for a large one that takes too
    much.
    """
    text = Text(declared, charset, name, isinstance(data, str))
    if len(data) <= MAX_TEXT and not has_grammar(suffix_of(name)):
        return read_text(text, data)
    from ctx.formats.process import READER

    encoded = sound(data).encode() if isinstance(data, str) else data
    try:
        return READER.read_text(text._replace(grammar=True), encoded)
    except SourceError:
        if len(data) > MAX_TEXT:
            raise
        return read_text(text, data)  # the grammar failed: patterns find most definitions


def _plain(name: str, data: bytes | str) -> tuple[str, bytes | str]:
    """A name and its bytes without compression."""
    if isinstance(data, bytes) and data[:2] == b"\x1f\x8b" and name.endswith(".gz"):
        return name[:-3], _unzipped(data)
    return name, data


def _document(declared: str | None, name: str, data: bytes | str) -> Format | None:
    """The format of what is read from its bytes; None of a text. Raises `SourceError` for what no reader
    takes.

    A name may lie: a PDF that is called `.docx`, a new Word document `.doc`, a page that was saved as PDF, a
    table of text that is called `.xls`. It is read as what it is.
    """
    row = BY_MEDIA_TYPE.get(declared or "") or BY_SUFFIX.get(suffix_of(name))
    if isinstance(data, str):  # decoded by who read it: only mail is made of text
        return row if row is not None and row.reader == "mail" and row.media_type == declared else None
    package = _told_by_bytes(data)
    kinds = {(known.reader, known.paged) for known in (row, package) if known}
    if package and (row is None or row is XLS or len(kinds) > 1):
        return package
    if declared is None and _UNTOLD.match(name) and (mail := _mail(data[:_HEAD])):
        return mail
    return row if row is not None and _is_sound(row, name, data) else None


def _told_by_bytes(data: bytes) -> Format | None:
    """The format of a file by how it begins."""
    if data.startswith(_PDF_MARK):
        return PDF
    if data.startswith(_RTF_MARK):
        return RTF
    return document_format(data)


def _is_sound(row: Format, name: str, data: bytes) -> bool:
    """Whether a file can be read as the document that it is called; not one that is a text. Raises
    `SourceError` where it can be read in no way.
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
    """The format of what begins as e-mail does: with headers, two of them such as only mail has."""
    match = _HEADERS.match(head)
    if match is None:
        return None
    names = {line.partition(b":")[0].lower() for line in match[2].split(b"\n")}
    return None if len(names & _OF_MAIL) < 2 else MBOX if match[1] else EML


def _begins_as(row: Format, head: bytes) -> bool:
    """Whether the first bytes are those of a document that can be read so."""
    if row is PDF:
        return _PDF_MARK in head
    if row.reader == "mail":
        return bool(head.strip())  # many a mailbox is empty
    if row.reader == "sheets" and head.startswith(OLE_MARK):
        return True
    return not row.refusal and head.startswith(_RTF_MARK if row is RTF else ZIP_MARKS)


def _unzipped(data: bytes) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    try:
        text = inflater.decompress(data, MAX_UNZIPPED)
        if inflater.unconsumed_tail:
            raise SourceError(
                f"more than {MAX_UNZIPPED >> 20} MiB uncompressed; exclude it with exclude_globs"
            )
        if not inflater.eof:
            raise SourceError("the gzip file is cut off")
    except zlib.error as error:
        raise SourceError("the gzip file is damaged") from error
    return text


def _stem(name: str) -> str:
    match = SUFFIX.search(name)
    return (name[: match.start()] if match else name) or "untitled"
