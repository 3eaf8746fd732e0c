"""E-mail: messages under their subjects, whatever they are encoded in."""

from email import message_from_bytes
from email.header import decode_header
from email.message import EmailMessage

import document_kit as made_of
import pytest

from ctx.formats import mail
from ctx.formats.extract import extract
from ctx.formats.mail import MAX_DEPTH, parse
from ctx.models import Content


def written(text: str, html: str = "", attachment: str = "", charset: str = "utf-8") -> bytes:
    """A message as a mail program writes it."""
    message = EmailMessage()
    message["Subject"] = "Größe der Schleuse"
    message["From"] = "Zoë <zoe@example.org>"
    message.set_content(text, charset=charset)
    if html:
        message.add_alternative(html, subtype="html")
    if attachment:
        message.add_attachment(b"%PDF-", maintype="application", subtype="pdf", filename=attachment)
    return message.as_bytes()


def test_a_message_has_its_subject_sender_text_and_the_names_of_its_attachments() -> None:
    parsed = parse(written("Näher am Wasser", "<p>not this one</p>", "Plan für März.pdf"))
    assert parsed.title == "Größe der Schleuse"
    assert parsed.metadata == {"from": "Zoë <zoe@example.org>"}
    assert parsed.body == (
        "# Größe der Schleuse\n\nFrom: Zoë <zoe@example.org>\n\nNäher am Wasser\n\nAttachments: Plan für "
        "März.pdf"
    )


@pytest.mark.parametrize("charset", ["utf-8", "latin-1", "utf-16"])
def test_a_text_is_read_in_the_encoding_it_names(charset: str) -> None:
    assert "Näher am Wasser" in parse(written("Näher am Wasser", charset=charset)).body


def test_a_message_of_html_alone_is_read_as_a_page() -> None:
    parsed = parse(made_of.message("Page", "<h1>Dike</h1><p>It <b>holds</b></p>", "text/html").encode())
    assert [(heading.level, heading.title) for heading in parsed.headings] == [(1, "Page"), (2, "Dike")]
    assert "holds" in parsed.body
    assert "<b>" not in parsed.body


def test_a_forwarded_message_is_read_below_the_one_that_forwards_it() -> None:
    innermost = message_from_bytes(written("The gate opens at dawn", "<p>dawn, twice</p>", "gate.pdf"))
    inner = EmailMessage()
    inner["Subject"] = "Fwd: gate"
    inner.set_content("See below.")
    inner.add_attachment(innermost)
    outer = EmailMessage()
    outer["Subject"] = "FYI"
    outer.set_content("<p>A page <b>of mine</b></p>", subtype="html")
    outer.add_attachment(inner, filename="gate.eml")
    parsed = parse(outer.as_bytes())
    assert [(heading.level, heading.title) for heading in parsed.headings] == [
        (1, "FYI"),
        (2, "Fwd: gate"),
        (3, "Größe der Schleuse"),
    ]
    places = [parsed.body.index(words) for words in ("A page", "See below.", "opens at dawn", "gate.pdf")]
    assert places == sorted(places)
    assert "twice" not in parsed.body


def test_all_text_parts_are_read_and_the_plain_alternative_is_preferred() -> None:
    message = EmailMessage()
    message["Subject"] = "Parts"
    message.set_content("first")
    message.add_attachment(b"%PDF-", maintype="application", subtype="pdf", filename="a.pdf")
    message.add_attachment("second", disposition="inline")
    body = parse(message.as_bytes()).body
    assert body == "# Parts\n\nfirst\n\nsecond\n\nAttachments: a.pdf"
    assert "only here" in parse(written(" \n", "<p>only here</p>", "b.pdf")).body


def test_messages_in_messages_come_to_an_end() -> None:
    head = b"Subject: deep\nContent-Type: message/rfc822\n\n"
    parsed = parse(head * 60 + b"Subject: end\n\nwords")
    assert len(parsed.headings) == MAX_DEPTH
    assert parsed.note is not None
    assert "the rest is left out" in parsed.note
    assert parse(head * (MAX_DEPTH - 1) + b"Subject: end\n\nwords").note is None


def test_an_undecodable_word_of_a_subject_keeps_the_others() -> None:
    subject = (
        b"Re: =?utf-8?B?R3LDvMOfZ?= =?no-such?Q?caf=E9_au?=\n =?utf-8?Q?_l=C3=A4it?= [=?utf-8?Q?=C3=BC?=]"
    )
    title = parse(b"Subject: " + subject + b"\n\nwords").title
    assert title == "Re: =?utf-8?B?R3LDvMOfZ?=café au läit [ü]"


def test_a_header_of_many_encoded_words_takes_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def counted(words: str) -> list[tuple[bytes | str, str | None]]:
        lengths.append(len(words))
        return decode_header(words)

    monkeypatch.setattr(mail, "decode_header", counted)  # which takes the square: 7 s for these at once
    body = parse(b"Subject: all\nTo: " + b"=?utf-8?q?Ren=C3=A9?= " * 45_000 + b"\n\nthe herons nest\n").body
    assert max(lengths) < 5_000
    assert body.count("René") == 45_000
    assert "=?" not in body
    assert "the herons nest" in body


def test_the_name_of_an_attachment_in_very_many_pieces_is_cut() -> None:
    pieces = "".join(f"; filename*{number}=piece{number}" for number in range(80_000))
    head = b"Subject: all\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nthe herons nest\n--b\n"
    part = f"Content-Type: text/plain\nContent-Disposition: attachment{pieces}\n\nwords\n--b--\n".encode()
    body = parse(head + part).body  # which took 18 s
    assert "the herons nest" in body
    name = body.partition("Attachments: ")[2]
    assert name.startswith("piece0piece1")
    assert 1_000 < len(name) < 20_000


@pytest.mark.parametrize(
    ("kind", "disposition"),
    [
        ("multipart/mixed; boundary=b", "attachment; filename*=a.txt; filename*0=b"),
        ("multipart/mixed; boundary*=b; boundary*0=c", "attachment; filename=a.txt"),
        ("multipart/mixed; boundary=b; charset*=a\0b'en'x", "attachment; filename*0*=undefined'en'x"),
    ],
)
def test_malformed_header_parameters_lose_no_message(kind: str, disposition: str) -> None:
    part = f"Content-Disposition: {disposition}\n\nsecond\n--b--\n"
    body = parse(f"Subject: all\nContent-Type: {kind}\n\n--b\n\nthe herons nest\n--b\n{part}".encode()).body
    assert "the herons nest" in body


@pytest.mark.parametrize("name", ["a.eml", "Drafts.mbox"])
def test_an_empty_mailbox_is_empty_and_not_damaged(name: str) -> None:
    for data in (b"", b"\n \n"):
        assert extract(Content(data), name) is None


def test_a_mailbox_is_its_messages_and_a_quoted_from_begins_none() -> None:
    box = (
        f"From a\n{made_of.message('One', 'first')}\n"
        f"From b\n{made_of.message('Two', '>From here on it is flat')}\n"
    )
    parsed = parse(box.encode())
    assert [heading.title for heading in parsed.headings] == ["One", "Two"]
    assert "\nFrom here on it is flat" in parsed.body
    assert parsed.metadata == {"messages": 2}
    assert parsed.title is None


def test_a_subject_that_was_written_without_encoding_is_read() -> None:
    assert parse("Subject: Größe\n\nwords".encode()).title == "Größe"
    assert parse("Subject: Größe\n\nwords".encode("latin-1")).title == "Größe"


def test_lines_that_begin_with_from_do_not_split_a_message() -> None:
    border = "From ann@example.org Tue Mar  3 10:00:00 2026\n"
    first = "Subject: One\n\nDear all,\n\nFrom now on we meet on Mondays.\nNote: at noon.\n\nFrom 10:30 on\nlunch\n\n"
    parsed = parse(
        f"{border}{first}{border}Subject: Two\n\nyes\n\nFrom bob@example.org\nSubject: Three\n\nno\n".encode()
    )
    assert [heading.title for heading in parsed.headings] == ["One", "Two", "Three"]
    assert "From now on we meet on Mondays." in parsed.body
    assert "From 10:30 on" in parsed.body


def test_a_page_that_a_browser_saved_as_mail_is_read() -> None:
    page = (
        "From: <Saved by Blink>\r\nSubject: Tides\r\nMIME-Version: 1.0\r\n"
        "Content-Type: multipart/related; boundary=B\r\n\r\n--B\r\nContent-Type: text/html\r\n"
        "Content-Transfer-Encoding: quoted-printable\r\n\r\n<p>High =\r\nwater</p>\r\n--B\r\n"
        "Content-Type: text/css\r\nContent-Transfer-Encoding: 8bit\r\n\r\np {}\r\n--B--\r\n"
    )
    extracted = extract(Content(page.encode()), "tides.mhtml")
    assert extracted is not None
    assert extracted.title == "Tides"
    assert "High water" in extracted.body
    assert "p {}" not in extracted.body
