"""E-mail: a message, or a mailbox of them, each under its subject. Attachments are named, not read."""

import re
from collections.abc import Iterator
from email import errors, message_from_bytes, policy
from email.message import EmailMessage

from ctx.errors import SourceError
from ctx.formats import html
from ctx.formats.base import Parsed
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
        message = message_from_bytes(_bounded(content), policy=policy.default)
        assert isinstance(message, EmailMessage)
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


def _write(message: EmailMessage, subject: str, about: dict[str, str], manuscript: Manuscript) -> None:
    manuscript.heading(1, subject)
    manuscript.paragraph(
        "\n".join(f"{name}: {about[name.lower()]}" for name in _SHOWN if about[name.lower()])
    )
    body = message.get_body(("plain", "html"))
    attachments = []
    for number, part in enumerate(message.walk()):
        if number == MAX_PARTS:
            break
        name = part.get_filename()
        if part is body:
            _write_body(part, manuscript)
        elif name and part is not message:
            attachments.append(" ".join(readable(name).split()))
    if attachments:
        manuscript.paragraph("Attachments: " + ", ".join(attachments))


def _write_body(part: EmailMessage, manuscript: Manuscript) -> None:
    try:
        text = readable(str(part.get_content()))
    except (LookupError, ValueError, AttributeError):  # an unknown charset or encoding
        payload = part.get_payload(decode=True)
        text = readable(payload.decode("utf-8", "replace")) if isinstance(payload, bytes) else ""
    if part.get_content_subtype() == "html":
        manuscript.insert(html.parse(text), 1)
    else:
        manuscript.paragraph(text)


def _header(message: EmailMessage, name: str) -> str:
    """A header's words on one line; "" where it is missing or cannot be read."""
    try:
        return " ".join(readable(str(message.get(name) or "")).split())
    except (errors.MessageError, ValueError, IndexError, AttributeError):  # what the library trips over
        return ""
