"""Extraction: format, title and text of a file."""

import gzip

import document_kit as made_of
import pytest

from ctx.errors import SourceError
from ctx.formats.extract import extract
from ctx.models import Content, Extracted


def _extract(
    data: bytes | str, source_id: str, media_type: str | None = None, title: str | None = None
) -> Extracted:
    extracted = extract(Content(data, media_type, title), source_id)
    assert extracted is not None
    return extracted


def test_the_title_is_the_connectors_then_front_matter_then_the_first_heading_then_the_stem() -> None:
    text = "---\ntitle: From front matter\n---\n# From a heading\n"
    assert _extract(text, "docs/file.md", title="From the connector").title == "From the connector"
    assert _extract(text, "docs/file.md").title == "From front matter"
    assert _extract("intro\n\n## From a heading\n", "docs/file.md").title == "From a heading"
    assert _extract("just words", "docs/getting.started.md").title == "getting.started"


def test_a_definition_in_code_is_no_title() -> None:
    extracted = _extract("def authenticate():\n    pass\n", "src/login.py")
    assert extracted.title == "login"
    assert extracted.media_type == "text/x-python"


def test_binary_data_has_nothing_to_index() -> None:
    for data in (
        b"\x89PNG\r\n\x1a\nrest",
        b"MZ\0\0\0\0\0\0rest",
        b"PK\x03\x04rest",
        bytes(range(1, 32)) * 40,
    ):
        assert extract(Content(data), "file.md") is None


def test_an_explicit_media_type_wins_over_the_name_except_plain_text() -> None:
    assert _extract("<h1>Page</h1><p>x</p>", "page-1", "text/html; charset=utf-8").title == "Page"
    assert _extract("# Page\n", "page.md", "text/plain").media_type == "text/markdown"
    assert _extract("# Page\n", "page.txt.md", "application/octet-stream").media_type == "text/markdown"


def test_a_text_without_a_suffix_is_told_by_how_it_begins() -> None:
    assert _extract("<!DOCTYPE html><p>x", "index").media_type == "text/html"
    assert _extract("#!/usr/bin/env python3\nprint(1)\n", "bin/tool").media_type == "text/x-python"
    assert _extract("#!/bin/sh\necho x\n", "bin/tool").media_type == "text/x-shellscript"
    assert _extract("#!/usr/bin/env -S node --no-warnings\n", "bin/tool").media_type == "text/javascript"
    assert _extract("# Notes\n\nwords\n", "issue-12", "text/plain").media_type == "text/markdown"
    assert _extract("all:\n\tmake\n", "Makefile").media_type == "text/x-makefile"
    assert _extract("plain words", "LICENSE").media_type == "text/plain"
    assert _extract("words\n", "release.1").media_type == "text/plain"


def test_a_compressed_text_is_read() -> None:
    members = [b"# Changes\n\n", b"words\n"]  # gzip files that were put together are one
    extracted = _extract(b"".join(map(gzip.compress, members)), "doc/changes.md.gz")
    assert (extracted.title, extracted.media_type) == ("Changes", "text/markdown")
    assert extracted.body.endswith("words\n")


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:40], lambda data: data[:20] + b"\xff\xff\xff" + data[23:]]
)
def test_a_damaged_compressed_file_is_an_error_that_says_so(spoil: "object") -> None:
    data = gzip.compress(b"some words that are long enough to compress " * 20)
    with pytest.raises(SourceError, match=r"^is a (gzip file that is cut off|damaged gzip file)"):
        extract(Content(spoil(data)), "notes.txt.gz")  # type: ignore[operator]


def test_a_compressed_file_may_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctx.formats.extract.MAX_UNZIPPED", 1 << 20)
    with pytest.raises(SourceError, match="more than 1,048,576 bytes uncompressed"):
        extract(Content(gzip.compress(b"0" * (2 << 20))), "bomb.txt.gz")


def test_lone_surrogates_are_replaced() -> None:
    extracted = _extract("half \ud83d a pair", "a.md", title="t\udc00")
    extracted.body.encode()
    extracted.title.encode()
    assert extracted.body == "half \ufffd a pair"


def test_a_nul_byte_deep_in_a_text_does_not_cut_it() -> None:
    assert _extract(b"x" * 9000 + b"\0tail", "a.txt").body.endswith("x\ufffdtail")


@pytest.mark.parametrize("name", ["a.md", "a.css", "a.html", "a.txt", "a.json"])
def test_embedded_data_urls_are_left_out(name: str) -> None:
    letters = "QUJD" * 10_000
    page = f"before\n\n![map](data:image/png;charset=x;base64,{letters}==) beside\n\nafter\n"
    text = f'{{"page": "{page}"}}'.replace("\n", "\\n") if name.endswith("json") else page
    extracted = extract(Content(text), name)
    assert extracted is not None
    assert "QUJD" not in extracted.body
    assert [word in extracted.body for word in ("before", "beside", "after")] == [True] * 3
    if name == "a.md":
        assert extracted.body.count("\n") == page.count("\n")


@pytest.mark.parametrize("name", ["scan", "report.docx", "report.txt", "report.md", "mail.eml"])
def test_a_pdf_is_read_as_one_whatever_it_is_called(name: str) -> None:
    extracted = _extract(made_of.pdf(["The sluice opens at dawn"]), name)
    assert extracted.media_type == "application/pdf"
    assert "The sluice opens at dawn" in extracted.body


def test_rich_text_is_read_in_the_code_page_that_it_names() -> None:
    source = rb"{\rtf1\ansi\ansicpg1250{\fonttbl{\f0 Arial;}}\f0 f{\b \'fb}t\'f5 \u337?\par two\cell three\row\par}"
    extracted = extract(Content(source), "letter.rtf")
    assert extracted is not None
    assert extracted.media_type == "application/rtf"
    assert extracted.body == "fűtő ő\ntwo|three"


def test_rich_text_of_many_groups_or_pictures_is_read() -> None:
    deep = b"{\\rtf1 " + b"{\\b " * 100_000 + b"word" + b"}" * 100_000 + b"{\\pict " + b"0a" * 200_000 + b"}}"
    extracted = extract(Content(deep), "deep.rtf")
    assert extracted is not None
    assert extracted.body == "word"


MESSAGE = b"Return-Path: <ann@example.org>\r\nReceived: from a\r\n\tby b\r\nSubject: =?utf-8?Q?D=C3=A9j=C3=A0?=\r\n\r\nA dike\r\n"


@pytest.mark.parametrize(
    "name", ["1795578041.M732643P5588Q2.host:2,S", "1795578041.M7P5.mail.example.org", "message"]
)
def test_a_message_is_read_as_one_where_the_name_says_nothing(name: str) -> None:
    extracted = _extract(MESSAGE, f"Maildir/cur/{name}")
    assert (extracted.media_type, extracted.title) == ("message/rfc822", "Déjà")


def test_the_address_of_a_folder_is_titled_by_its_last_part() -> None:
    extracted = extract(Content("<p>words", media_type="text/html"), "https://example.org/guide/v1.2/")
    assert extracted is not None
    assert extracted.title == "v1.2"
