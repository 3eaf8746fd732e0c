"""Read a text: detect its encoding and format, then call the reader of that format."""

import json
import re
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from ctx.formats.base import Parsed
from ctx.formats.code import kind_of, reader
from ctx.formats.encoding import decode
from ctx.formats.table import BY_MEDIA_TYPE, BY_SUFFIX, HTML, MARKDOWN, PLAIN, Format
from ctx.text.strings import sound

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
SUFFIX = re.compile(r"(?<=[^/])\.([A-Za-z][A-Za-z0-9_+-]{0,14})\Z")


class Text(NamedTuple):
    """Facts about a text that are known before it is read: the declared media type and charset, and the
    file's name.

    `decoded`: the text was already decoded, so its bytes are UTF-8. `grammar`: source code may be parsed with
    a grammar, which is native code.
    """

    media_type: str | None
    charset: str | None
    name: str
    decoded: bool
    grammar: bool = False


def read_text(text: Text, data: bytes | str) -> tuple[str, Parsed] | None:
    """The media type of a text and the result of its reader; None for binary data."""
    words = sound(data) if isinstance(data, str) else decode(data, text.charset)
    if words is None:
        return None
    words = _without_carried(_normalised(words))
    media_type, parse = _reader(text, words)
    return media_type, parse(words)


def parse(request: bytes) -> tuple[str, Parsed] | None:
    """Like `read_text`, but takes a request made by `packed`. The reading process calls it."""
    head, _, data = request.partition(b"\n")
    text = Text(*json.loads(head))
    return read_text(text, data.decode() if text.decoded else data)


def packed(text: Text, data: bytes) -> bytes:
    """Encodes a text and the facts about it as a request for `parse`."""
    return json.dumps(text).encode() + b"\n" + data


def _normalised(text: str) -> str:
    if text[:1] == "\ufeff":
        text = text[1:]
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\0", "\ufffd") if "\0" in text else text  # some libraries stop at a NUL


def _without_carried(text: str) -> str:
    """The text with "…" in place of embedded base64 data. Line numbers do not change."""
    return _CARRIED.sub(r"\1…", text) if ";base64," in text else text


def suffix_of(name: str) -> str:
    match = SUFFIX.search(name)
    return match[1].lower() if match else ""


def _code(suffix: str, name: str, text: str, grammar: bool) -> tuple[str, Callable[[str], Parsed]] | None:
    language = kind_of(suffix, name, text)
    return None if language is None else (language, reader(language, grammar))


def _reader(known: Text, text: str) -> tuple[str, Callable[[str], Parsed]]:
    """The media type of a text and the `parse` function of its reader. A declared type wins over the name,
    except "text/plain".
    """
    media_type, name = known.media_type, known.name
    suffix = suffix_of(name)
    row = BY_MEDIA_TYPE.get(media_type or "") or BY_SUFFIX.get(suffix)
    if row is not None and row.document:  # the name is wrong, because the file is text
        row, suffix = None, ""
    if row is None and (code := _code(suffix, name, text, known.grammar)) is not None:
        return code
    if row is None or (row is PLAIN and suffix in ("", "txt", "text")):
        row = _by_head(text)
    # Import at first use, because each reader compiles its patterns.
    return row.media_type, import_module(f"ctx.formats.{row.reader}").parse


def _by_head(text: str) -> Format:
    """The format of a text with an unknown name, by its first characters."""
    if _HTML_HEAD.match(text[:4096]):
        return HTML
    return MARKDOWN if _MARKDOWN_SIGN.search(text[:16_384]) else PLAIN


def declared_type(declared: str | None) -> tuple[str | None, str | None]:
    """The media type and the charset in a Content-Type header; None for what is missing."""
    if not declared:
        return None, None
    kind, _, parameters = declared.partition(";")
    _, _, charset = parameters.partition("charset=")
    return kind.strip().lower(), charset.split(";")[0].strip(" \"'") or None
