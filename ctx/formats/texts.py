"""Texts: their encoding and their format settled, then read by the reader of that format."""

import json
import re
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from ctx.formats.base import Parsed
from ctx.formats.encoding import decode
from ctx.formats.table import BY_MEDIA_TYPE, BY_SUFFIX, HTML, MARKDOWN, PLAIN, Format
from ctx.text.strings import sound

_HTML_HEAD = re.compile(
    r"\s{0,100}(?:<\?xml[^>]{0,200}>\s{0,100})?(?:<!--.{0,2000}?-->\s{0,100})?<(?:!doctype\s+html|html|head"
    r"|body)\b",
    re.I | re.S,
)
_MARKDOWN_SIGN = re.compile(r"(?:\A|\n)(?:#{1,3} \S|```|- \[[ x]\] |\[[^\]\n]{1,100}\]: )")
# A picture or a font that a text carries in itself. Its bytes in letters are nothing that anybody looks for.
_CARRIED = re.compile(
    r"(data:[\w.+-]{1,60}/[\w.+-]{1,80}(?:;[\w.=-]{1,60}){0,5};base64,)[A-Za-z0-9+/=_-]{100,}"
)
SUFFIX = re.compile(r"(?<=[^/])\.([A-Za-z][A-Za-z0-9_+-]{0,14})\Z")


class Text(NamedTuple):
    """What is known of a text before it is read: media type and charset as they were declared, its name.

    `decoded`: its bytes are UTF-8, made of what was decoded before. `grammar`: source code may be parsed by
    its grammar, which is native code.
    """

    media_type: str | None
    charset: str | None
    name: str
    decoded: bool
    grammar: bool = False


def read_text(text: Text, data: bytes | str) -> tuple[str, Parsed] | None:
    """The media type of a text and what its reader finds; None of binary data."""
    words = sound(data) if isinstance(data, str) else decode(data, text.charset)
    if words is None:
        return None
    words = _without_carried(_normalised(words))
    media_type, parse = _reader(text, words)
    return media_type, parse(words)


def parse(request: bytes) -> tuple[str, Parsed] | None:
    """Likewise, of what `packed` made: so the process that reads apart is asked."""
    head, _, data = request.partition(b"\n")
    text = Text(*json.loads(head))
    return read_text(text, data.decode() if text.decoded else data)


def packed(text: Text, data: bytes) -> bytes:
    """A text and what is known of it, for `parse`."""
    return json.dumps(text).encode() + b"\n" + data


def _normalised(text: str) -> str:
    if text[:1] == "\ufeff":
        text = text[1:]
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\0", "\ufffd") if "\0" in text else text  # a NUL ends a text for some that read it


def _without_carried(text: str) -> str:
    """The text with "…" for the bytes of what it carries in itself; lines stay where they are."""
    return _CARRIED.sub(r"\1…", text) if ";base64," in text else text


def suffix_of(name: str) -> str:
    match = SUFFIX.search(name)
    return match[1].lower() if match else ""


def _code(suffix: str, name: str, text: str, grammar: bool) -> tuple[str, Callable[[str], Parsed]] | None:
    from ctx.formats.code import kind_of, reader  # 1 ms; its patterns are compiled when a language is met

    language = kind_of(suffix, name, text)
    return None if language is None else (language, reader(language, grammar))


def _reader(known: Text, text: str) -> tuple[str, Callable[[str], Parsed]]:
    """The media type of a text and what reads it.

    An explicit type wins over the name, except "text/plain", which says nothing.
    """
    media_type, name = known.media_type, known.name
    suffix = suffix_of(name)
    row = BY_MEDIA_TYPE.get(media_type or "") or BY_SUFFIX.get(suffix)
    if row is not None and row.document:  # its bytes are a text all the same
        row, suffix = None, ""
    if row is None and (code := _code(suffix, name, text, known.grammar)) is not None:
        return code
    if row is None or (row is PLAIN and suffix in ("", "txt", "text")):
        row = _by_head(text)
    # Each reader compiles its patterns when first met: a run over Markdown need not pay for HTML.
    return row.media_type, import_module(f"ctx.formats.{row.reader}").parse


def _by_head(text: str) -> Format:
    """The format of a text whose name tells nothing, by how it begins."""
    if _HTML_HEAD.match(text[:4096]):
        return HTML
    return MARKDOWN if _MARKDOWN_SIGN.search(text[:16_384]) else PLAIN


def declared_type(declared: str | None) -> tuple[str | None, str | None]:
    """The type and the charset in what a connector or a server says of a text."""
    if not declared:
        return None, None
    kind, _, parameters = declared.partition(";")
    _, _, charset = parameters.partition("charset=")
    return kind.strip().lower(), charset.split(";")[0].strip(" \"'") or None
