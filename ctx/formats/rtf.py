"""Rich Text Format: the text as paragraphs, and the title in the file's properties."""

import re

from striprtf.striprtf import rtf_to_text

from ctx.errors import SourceError
from ctx.formats.base import Parsed
from ctx.formats.manuscript import MAX_CHARS, TOO_LONG, readable, telling_title

_CODE_PAGE = re.compile(rb"\\ansicpg(\d{3,5})")
_CHARACTER_SET = re.compile(rb"\\(mac|pca|pc)(?![a-z])")
_SETS = {b"mac": "mac_roman", b"pc": "cp437", b"pca": "cp850"}
_NOTE = re.compile(r"(?<!\\)((?:\\\\)*)\\footnote(?![a-z])")
_TITLE = re.compile(r"\{\\title ((?:[^{}\\]|\\.){1,2000})\}", re.S)
_HEAD = 4096  # characters in which to look for the code page and the properties


def parse(data: bytes) -> Parsed:
    """The text of an RTF file with footnotes at their marks, without headers, footers and pictures."""
    declared, character_set = _CODE_PAGE.search(data[:_HEAD]), _CHARACTER_SET.search(data[:_HEAD])
    encoding = _SETS[character_set[1]] if character_set else "cp1252"
    if declared:
        encoding = f"cp{declared[1].decode()}"
    try:
        "".encode(encoding)
    except LookupError:
        encoding = "cp1252"
    source = data.decode("latin-1")  # RTF is ASCII; other bytes belong to the code page
    # The library leaves out footnotes, so make their text part of the paragraph.
    text = readable(_plain(_NOTE.sub(r"\1 ", source), encoding))
    if len(text) > MAX_CHARS:
        raise SourceError(TOO_LONG)
    title = _TITLE.search(source[:_HEAD])
    words = _plain(f"{{\\rtf1 {title[1]}}}", encoding) if title else None
    return Parsed(text, title=telling_title(words))


def _plain(source: str, encoding: str) -> str:
    return str(rtf_to_text(source, encoding, errors="replace"))  # type: ignore[no-untyped-call]
