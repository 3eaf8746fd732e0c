"""Extract the text of an item in any encoding and format.

For text, the encoding is detected, then the format from media type, name and first characters. The format's
reader then finds title, headings and blocks. Readers of text raise no errors: what does not parse is indexed
as plain text. Binary documents (PDF, Office, mail) and large texts are read in a separate process.
"""

import re
import zlib
from collections.abc import Callable
from functools import partial

from ctx.errors import SourceError
from ctx.formats.archive import ZIP_MARKS, document_format
from ctx.formats.base import LOCKED, OLE_MARK, Parsed, clipped
from ctx.formats.code import has_grammar
from ctx.formats.encoding import decode
from ctx.formats.process import READER
from ctx.formats.table import BY_MEDIA_TYPE, BY_SUFFIX, EML, MBOX, PDF, RTF, XLS, Format
from ctx.formats.texts import SUFFIX, Text, declared_type, read_text, suffix_of
from ctx.models import Content, Extracted
from ctx.text.strings import sound

# Longer texts (bytes or characters) are read in the separate process: a reader may take 2 s for a million
# characters, and regular expressions block other threads.
MAX_TEXT = 1 << 20
MAX_UNZIPPED = 64 * 1024 * 1024  # bytes; ordinary compressed text files have a few thousand

_HEAD = 1024  # bytes in which to look for a document's format
_PDF_MARK = b"%PDF-"
_RTF_MARK = b"{\\rtf"  # old versions of Word also save it as .doc
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


def extract(content: Content, source_id: str) -> Extracted | None:
    """Read one item. None if there is nothing to index: binary data, or neither text nor title.

    The title comes from the connector, the front matter, the first heading, or the file's name. In the body
    every line end is "\\n" and the data of a `data:` URI is "…". Raises `SourceError` for a document (PDF,
    Office, mail) or a compressed file that cannot be read.
    """
    return begin(content, source_id)()


def begin(content: Content, source_id: str) -> Callable[[], Extracted | None]:
    """Begin to `extract` an item, and return a function that waits for the result. Source code is parsed in
    another process meanwhile. Both functions raise `SourceError`.
    """
    name, data = _plain(source_id.rsplit("/", 1)[-1], content.data)
    declared, charset = declared_type(content.media_type)
    if name.startswith(_OWNER_PREFIX) and len(data) <= _MAX_OWNER:
        return lambda: None
    row = _document(declared, name, data)
    read: Callable[[], tuple[str, Parsed] | None]
    if row is not None:
        read = partial(_read_document, row, data)
    else:
        read = _begin_text(declared, charset, name, data)
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
    untitled = _stem(name) if name else source_id.rstrip("/").rpartition("/")[2]
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
    if len(data) <= MAX_TEXT and not has_grammar(suffix_of(name)):
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


def _plain(name: str, data: bytes | str) -> tuple[str, bytes | str]:
    """Decompress a .gz file. Returns its name without the suffix, and the data."""
    if isinstance(data, bytes) and data[:2] == b"\x1f\x8b" and name.endswith(".gz"):
        return name[:-3], _unzipped(data)
    return name, data


def _document(declared: str | None, name: str, data: bytes | str) -> Format | None:
    """The format of a binary document; None for text. Raises `SourceError` if no reader supports it.

    The bytes decide, not the name: a PDF may be called `.docx`, a new Word document `.doc`, an HTML page
    `.pdf`, a text table `.xls`.
    """
    row = BY_MEDIA_TYPE.get(declared or "") or BY_SUFFIX.get(suffix_of(name))
    if isinstance(data, str):  # already decoded; mail is the only document format that is text
        return row if row is not None and row.reader == "mail" and row.media_type == declared else None
    package = _told_by_bytes(data)
    kinds = {(known.reader, known.paged) for known in (row, package) if known}
    if package and (row is None or row is XLS or len(kinds) > 1):
        return package
    if declared is None and _UNTOLD.match(name) and (mail := _mail(data[:_HEAD])):
        return mail
    return row if row is not None and _is_sound(row, name, data) else None


def _told_by_bytes(data: bytes) -> Format | None:
    """The format of a file according to its first bytes; None if unknown."""
    if data.startswith(_PDF_MARK):
        return PDF
    if data.startswith(_RTF_MARK):
        return RTF
    return document_format(data)


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
    if row.reader == "mail":
        return bool(head.strip())  # mailboxes are often empty
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
    return name[: match.start()] if match else name
