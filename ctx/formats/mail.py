"""E-mail: one message or a mailbox. Each message is under a heading with its subject, followed by the
messages it forwards. Other attachments are named but not read.
"""

import re
from base64 import b64decode
from codecs import BOM_UTF8
from collections.abc import Iterator
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import collapse_rfc2231_value
from itertools import islice
from typing import Any

from ctx.errors import SourceError
from ctx.formats import html
from ctx.formats.base import Manuscript, Parsed, readable
from ctx.formats.encoding import decode

MAX_MESSAGES = 50_000
MAX_PARTS = 200  # per message
MAX_DEPTH = 20  # maximum levels of nested parts, and of nested messages
_LEFT_OUT = (
    f"of a message only {MAX_PARTS} parts are read, and {MAX_DEPTH} within each other: the rest is left out"
)
MAX_HEADER_BYTES = 1 << 20  # per message, because the library takes more than linear time
_VALUES_CHARS = 1 << 14  # characters per header with several values, because the library takes quadratic time
# Characters of encoded words to decode at once, because the library takes quadratic time.
_TOGETHER_CHARS = 1 << 12

# The line before each message of a mailbox: "From", sender and time, with headers below. Other lines may
# begin with "From" too, such as "From now on".
_SEPARATOR = re.compile(
    rb"(?:\A|^(?=From (?:[^\n]{1,1000}\d\d:\d\d|\S{1,320}[ \t]*\n)))From [^\n]{1,1000}\n"
    rb"(?=>From |[!-9;-~]{1,100}:)",
    re.MULTILINE,
)
_QUOTED_SEPARATOR = re.compile(rb"^>(>*From )", re.MULTILINE)
_BINARY = re.compile("[\0-\b\x0e-\x1f\x7f\ufffd]")
_EVENT = {
    "SUMMARY": "Event",
    "LOCATION": "Where",
    "DTSTART": "Begins",
    "DTEND": "Ends",
    "DESCRIPTION": "About",
}
_SHOWN = ("From", "To", "Cc", "Date")
_FOLDED_BOUNDARY = re.compile(rb'(boundary="[^"\n]{1,70})\n(?=[ \t])', re.IGNORECASE)
_ENCODED_WORD = re.compile(r"=\?[^?\s]{1,100}\?[bBqQ]\?[^?\n]*\?=")
_BETWEEN_WORDS = re.compile(r"(?<=\?=)[ \t\n]+(?==\?)")
_HEADER = re.compile(rb"(?:[!-9;-~]{1,100}:|From )")


def parse(data: bytes) -> Parsed:
    """The text of one or more messages. A single message also gives the document's title, author and date."""
    manuscript = Manuscript()
    subjects: list[str] = []
    about: dict[str, str] = {}
    whole = True
    for content in _messages(data):
        if len(subjects) == MAX_MESSAGES:
            raise SourceError(f"holds more than {MAX_MESSAGES:,} messages")
        message = _read(content)
        subjects.append(_subject(message))
        about = {name.lower(): _header(message, name) for name in _SHOWN}
        whole &= _write(message, 1, manuscript)
    single = len(subjects) == 1
    return manuscript.parsed(
        subjects[0] if single else None,
        about if single else {"messages": len(subjects)},
        None if whole else _LEFT_OUT,
    )


def _messages(data: bytes) -> Iterator[bytes]:
    """Each message of a mailbox, whose messages are separated by lines with "From "; else the
    only message.
    """
    data = data.removeprefix(BOM_UTF8).replace(b"\r\n", b"\n").lstrip()
    if not _HEADER.match(data):
        raise SourceError("is damaged: no e-mail, since it does not begin with a header")
    borders = list(_SEPARATOR.finditer(data)) if data.startswith(b"From ") else []
    if not borders:
        yield data
    for index, border in enumerate(borders):
        end = borders[index + 1].start() if index + 1 < len(borders) else len(data)
        content = data[border.end() : end]
        if content.strip():
            yield _QUOTED_SEPARATOR.sub(rb"\1", content)


class _Message(Message):
    """A message or a part of a message. Reading its parameters is safe even if it is hostile."""

    def get_param(
        self, param: str, failobj: Any = None, header: str = "content-type", unquote: bool = True
    ) -> Any:
        """A parameter of a header, such as a name, boundary or charset, as one text. Also returns `failobj`
        if the library fails, for example at numbered pieces out of order or an unsuitable charset.
        """
        value = str(self.get(header, ""))
        if len(value) > _VALUES_CHARS:
            self.replace_header(header, value[:_VALUES_CHARS].rpartition(";")[0])
        try:
            read = super().get_param(param, failobj, header, unquote)
            return collapse_rfc2231_value(read) if isinstance(read, tuple) else read
        except (TypeError, ValueError):
            return failobj


def _read(content: bytes) -> Message:
    """Parse a message. Limits the length of its headers, and removes line breaks inside the boundary."""
    content = _FOLDED_BOUNDARY.sub(rb"\1", content)
    headers, blank, body = content.partition(b"\n\n")
    if len(headers) > MAX_HEADER_BYTES:
        content = headers[:MAX_HEADER_BYTES] + blank + body
    return message_from_bytes(content, _Message)


class _Parts:
    """The parts of a message: its texts, the names of its attachments, and forwarded messages."""

    def __init__(self, message: Message) -> None:
        self.texts: list[Message] = []
        self.attachments: list[str] = []
        self.forwarded: list[Message] = []
        self.invitations: list[Message] = []
        self.whole = True
        self._room = MAX_PARTS
        self._add(message, 0)

    def _add(self, part: Message, depth: int) -> None:
        self._room -= 1
        if self._room < 0 or depth > MAX_DEPTH:
            self.whole = False
            return
        kind, children = part.get_content_type(), _children(part)
        if kind == "message/rfc822":
            self.forwarded += map(_unpacked, children) if "content-transfer-encoding" in part else children
        elif kind == "text/calendar":
            self.invitations.append(part)
        elif depth and (name := part.get_filename()):
            self._name(name)
        elif children:
            chosen = _chosen(children) if kind == "multipart/alternative" else None
            for child in children:
                if chosen in (None, child):
                    self._add(child, depth + 1)
                    continue
                # Of another version of the same text, list only attachments and invitations.
                for each in islice(child.walk(), MAX_PARTS):
                    self._name(each.get_filename())
                    if each.get_content_type() == "text/calendar":
                        self.invitations.append(each)
        elif kind.startswith(("text/", "multipart/")):  # a multipart without boundary lines is one text
            self.texts.append(part)

    def _name(self, name: str | None) -> None:
        if name:
            self.attachments.append(" ".join(readable(_decoded(name)).split()))


def _unpacked(message: Message) -> Message:
    """Decode a forwarded message that is base64 as a whole. The standard forbids that, but some gateways do
    it.
    """
    payload = message.get_payload(decode=True)  # bytes
    if message.keys() or not isinstance(payload, bytes):
        return message
    try:
        return _read(b64decode(payload, validate=False))
    except ValueError:
        return message


def _children(part: Message) -> list[Message]:
    payload = part.get_payload() if part.is_multipart() else ()
    return [child for child in payload if isinstance(child, Message)]


def _chosen(alternatives: list[Message]) -> Message:
    """The alternative to read: plain text if it has words, else HTML, else the last one."""
    for kind in ("text/plain", "text/html"):
        for form in alternatives:
            leaves = [leaf for leaf in islice(form.walk(), MAX_PARTS) if leaf.get_content_type() == kind]
            if any(_content(leaf).strip() for leaf in leaves if not leaf.get_filename()):
                return form
    return alternatives[-1]


def _subject(message: Message) -> str:
    return _header(message, "Subject") or "(no subject)"


def _write(message: Message, level: int, manuscript: Manuscript) -> bool:
    """Add a message and the messages it forwards. Returns whether all parts were read."""
    manuscript.heading(level, _subject(message))
    headers = {name: _header(message, name) for name in _SHOWN}
    manuscript.paragraph("\n".join(f"{name}: {value}" for name, value in headers.items() if value))
    parts = _Parts(message)
    texts = [text for text in parts.texts if text.get_content_subtype() in ("plain", "html")]
    for text in texts or parts.texts[:1]:
        if text.get_content_subtype() == "html":
            manuscript.insert(html.parse(_content(text)), level)
        else:
            manuscript.paragraph(_content(text))
    for invitation in parts.invitations:
        manuscript.paragraph(_event(_content(invitation)))
    if parts.attachments:
        manuscript.paragraph("Attachments: " + ", ".join(parts.attachments))
    if level == MAX_DEPTH:
        return parts.whole and not parts.forwarded
    return all([parts.whole, *(_write(forwarded, level + 1, manuscript) for forwarded in parts.forwarded)])


def _event(calendar: str) -> str:
    """The summary, place, times and description of a calendar invitation, as lines (RFC 5545)."""
    lines = calendar.replace("\n ", "").replace("\n\t", "").split("\n")
    values: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        label = _EVENT.get(name.partition(";")[0].upper())
        if label is not None and value.strip():
            values.setdefault(label, value.replace("\\n", " ").replace("\\", "").strip())
    return "\n".join(f"{label}: {value}" for label, value in values.items())


def _content(part: Message) -> str:
    """The text of a part. If it looks binary, lines with binary data are left out."""
    payload = part.get_payload(decode=True)
    content = payload if isinstance(payload, bytes) else b""
    text = decode(content, part.get_content_charset())
    if text is None:
        lines = content.decode("utf-8", "replace").split("\n")
        text = "\n".join(line for line in lines if _BINARY.search(line) is None)
    return readable(text)


def _header(message: Message, name: str) -> str:
    """The value of a header on one line; "" if it is missing."""
    values = (str(value) for key, value in message.raw_items() if key.lower() == name.lower())
    raw = next(values, "").encode("utf-8", "surrogateescape")  # the raw bytes, which may not be ASCII
    return " ".join(readable(_decoded(decode(raw) or "")).split())


def _decoded(words: str) -> str:
    """Decode the encoded words of a header (RFC 2047). Invalid ones do not change."""
    decoded = []
    while "=?" in words:
        end = len(words)
        if end > _TOGETHER_CHARS:
            end = words.rfind(" ", 0, _TOGETHER_CHARS) + 1 or _TOGETHER_CHARS
        together, words = words[:end], words[end:]
        try:
            decoded.append(str(make_header(decode_header(together))))
        except (HeaderParseError, LookupError, ValueError):
            decoded.append(_ENCODED_WORD.sub(_decoded_word, _BETWEEN_WORDS.sub("", together)))
    return " ".join([*decoded, words])


def _decoded_word(match: re.Match[str]) -> str:
    """Decode one encoded word. If its charset is unknown, the encoding is guessed."""
    try:
        [(data, charset)] = decode_header(match[0])
    except (HeaderParseError, ValueError):
        return match[0]
    text = decode(data, charset) if isinstance(data, bytes) else data
    return match[0] if text is None else text
