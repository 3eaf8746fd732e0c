"""E-mail: a message, or a mailbox of them, each under its subject. Attachments are named, not read."""

import re
from collections.abc import Iterator
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from itertools import islice

from ctx.errors import SourceError
from ctx.formats import html
from ctx.formats.base import Parsed
from ctx.formats.encoding import decode
from ctx.formats.manuscript import Manuscript, readable

MAX_MESSAGES = 50_000
MAX_PARTS = 200  # of one message
MAX_HEADER_BYTES = 1 << 20  # of one message: the library reads them in more than linear time

_SEPARATOR = re.compile(rb"^From [^\n]{1,1000}\n", re.MULTILINE)
_QUOTED_SEPARATOR = re.compile(rb"^>(>*From )", re.MULTILINE)
_SHOWN = ("From", "To", "Cc", "Date")
_HEADER = re.compile(rb"(?:[!-9;-~]{1,100}:|From )")


def parse(data: bytes) -> Parsed:
    """The messages' text; one alone gives its subject, sender and date as the document's."""
    manuscript = Manuscript()
    subjects: list[str] = []
    about: dict[str, str] = {}
    for content in _messages(data):
        if len(subjects) == MAX_MESSAGES:
            raise SourceError(f"holds more than {MAX_MESSAGES:,} messages")
        message = message_from_bytes(_bounded(content))
        subject = _header(message, "Subject") or "(no subject)"
        subjects.append(subject)
        about = {name.lower(): _header(message, name) for name in _SHOWN}
        _write(message, subject, about, manuscript)
    if len(subjects) == 1:
        return manuscript.parsed(subjects[0], about)
    return manuscript.parsed(None, {"messages": len(subjects)})


def _messages(data: bytes) -> Iterator[bytes]:
    """Each message of a mailbox (its lines "From " begin them), or the one there is."""
    data = data.replace(b"\r\n", b"\n").lstrip()
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


def _bounded(content: bytes) -> bytes:
    headers, blank, body = content.partition(b"\n\n")
    return content if len(headers) <= MAX_HEADER_BYTES else headers[:MAX_HEADER_BYTES] + blank + body


def _write(message: Message, subject: str, about: dict[str, str], manuscript: Manuscript) -> None:
    manuscript.heading(1, subject)
    manuscript.paragraph(
        "\n".join(f"{name}: {about[name.lower()]}" for name in _SHOWN if about[name.lower()])
    )
    texts: dict[str, Message] = {}
    attachments = []
    for part in islice(message.walk(), MAX_PARTS):
        name = part.get_filename() if part is not message else None
        if name:
            attachments.append(" ".join(readable(_decoded(name)).split()))
        elif part.get_content_maintype() == "text":
            texts.setdefault(part.get_content_subtype(), part)
    if "plain" in texts or "html" not in texts:
        text = texts.get("plain") or next(iter(texts.values()), None)
        manuscript.paragraph(_content(text) if text is not None else "")
    else:
        manuscript.insert(html.parse(_content(texts["html"])), 1)
    if attachments:
        manuscript.paragraph("Attachments: " + ", ".join(attachments))


def _content(part: Message) -> str:
    """A part's text."""
    payload = part.get_payload(decode=True)
    content = payload if isinstance(payload, bytes) else b""
    return readable(decode(content, part.get_content_charset()) or "")


def _header(message: Message, name: str) -> str:
    """A header's words on one line; "" where there is none."""
    values = (str(value) for key, value in message.raw_items() if key.lower() == name.lower())
    raw = next(values, "").encode("utf-8", "surrogateescape")  # its bytes, which need not be ASCII
    return " ".join(readable(_decoded(decode(raw) or "")).split())


def _decoded(words: str) -> str:
    """A header whose words may be encoded (RFC 2047); as it stands where they are so in no known way."""
    if "=?" not in words:
        return words
    try:
        return str(make_header(decode_header(words)))
    except (HeaderParseError, LookupError, ValueError):
        return words
