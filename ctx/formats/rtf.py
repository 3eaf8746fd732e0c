"""Rich Text Format: the text as paragraphs, and the title in the file's properties."""

import re

from striprtf.striprtf import rtf_to_text

from ctx.errors import SourceError
from ctx.formats.base import Parsed
from ctx.formats.manuscript import MAX_CHARS, TOO_LONG, readable, telling_title

_CODE_PAGE = re.compile(rb"\\ansicpg(\d{3,5})")
_TITLE = re.compile(r"\{\\title ((?:[^{}\\]|\\.){1,2000})\}", re.S)
_HEAD = 4096  # characters with the code page and the properties


def parse(data: bytes) -> Parsed:
    """The text of a file, without footnotes, headers, footers and pictures."""
    declared = _CODE_PAGE.search(data[:_HEAD])
    encoding = f"cp{declared[1].decode()}" if declared else "cp1252"
    try:
        "".encode(encoding)
    except LookupError:
        encoding = "cp1252"
    source = data.decode("latin-1")  # RTF is ASCII; other bytes belong to the code page
    text = readable(_plain(source, encoding))
    if len(text) > MAX_CHARS:
        raise SourceError(TOO_LONG)
    title = _TITLE.search(source[:_HEAD])
    words = _plain(f"{{\\rtf1 {title[1]}}}", encoding) if title else None
    return Parsed(text, title=telling_title(words))


def _plain(source: str, encoding: str) -> str:
    return str(rtf_to_text(source, encoding, errors="replace"))  # type: ignore[no-untyped-call]
