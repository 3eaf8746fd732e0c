"""Detect the document format of a zip file from its first bytes and the names of its parts, without
unpacking.

This runs in the main process, without limits of time or memory. A zip library would create an object for each
entry, and a hostile file may have a million entries.
"""

import re
import struct

from ctx.formats.table import BY_MEDIA_TYPE, BY_SUFFIX, Format

_END_MARK = b"PK\x05\x06"
ZIP_MARKS = (b"PK\x03\x04", _END_MARK)

# OpenDocument 1.3 part 2, 3.3, and EPUB OCF 3.3, 4.3.3: the first part is called `mimetype` and is stored
# uncompressed.
_TYPE = re.compile(rb"(?s)PK\x03\x04.{4}\0\0.{20}mimetype([a-z]+/[a-z0-9.+-]{1,100})")
_TEMPLATE = "-template"
_OFFICE_PARTS = ((b"word/document", "docx"), (b"xl/workbook", "xlsx"), (b"ppt/presentation", "pptx"))
_END = struct.Struct("<4s4H2LH")  # APPNOTE.TXT 4.3.16; a comment of up to 64 KiB may follow
_MAX_END = _END.size + 0xFFFF
_ENTRY_MARK = b"PK\x01\x02"
_ENTRY_NAME_AT = 46  # offset of the name in a directory entry (APPNOTE.TXT 4.3.12)


def document_format(data: bytes) -> Format | None:
    """The format of a zip file; None if it is not a document, or if its directory is damaged."""
    if not data.startswith(ZIP_MARKS):
        return None
    if match := _TYPE.match(data):
        return BY_MEDIA_TYPE.get(match[1].decode().removesuffix(_TEMPLATE))
    directory = _directory(data)
    for part, suffix in _OFFICE_PARTS:
        if _holds(directory, part):
            return BY_SUFFIX[suffix]
    return None


def _directory(data: bytes) -> bytes:
    """The bytes of a zip file's central directory; empty if it is not found."""
    end = data.rfind(_END_MARK, max(0, len(data) - _MAX_END))
    if end < 0 or end + _END.size > len(data):
        return b""
    *_, size, offset, _ = _END.unpack_from(data, end)
    return data[offset : offset + size]


def _holds(directory: bytes, part: bytes) -> bool:
    """Whether the name of some entry begins with `part`. Embedded documents do not match, because they are in
    subfolders.
    """
    index = directory.find(part)
    while index >= 0:
        if directory[index - _ENTRY_NAME_AT : index - _ENTRY_NAME_AT + 4] == _ENTRY_MARK:
            return True
        index = directory.find(part, index + 1)
    return False
