"""Malicious, damaged or encrypted documents: each gives one clear line, and the others are indexed."""

import json
from collections.abc import Callable
from pathlib import Path

import document_kit as made_of
import pytest
from kit import ctx, project

from ctx.errors import SourceError
from ctx.formats.extract import extract
from ctx.models import Content

PDF = made_of.pdf(["first words", "second words"])
DOCX = made_of.docx(made_of.word_paragraph("some words"))
LOCK = b"/Encrypt << /Filter /Standard /V 1 /R 2 /O (%s) /U (%s) /P -4 >> /ID [(a) (a)] /Info" % (
    b"o" * 32,
    b"u" * 32,
)
BOMB = (
    '<!DOCTYPE b [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY a{n} "{f"&a{n - 1 if n > 1 else str()};" * 10}">' for n in range(1, 10))
    + "]>"
)
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504)


def locked(document: bytes) -> bytes:
    """A zip whose parts say that they are encrypted."""
    parts = document.replace(b"PK\x03\x04\x14\0\0\0", b"PK\x03\x04\x14\0\1\0")
    return parts.replace(b"PK\x01\x02\x14\x03\x14\0\0\0", b"PK\x01\x02\x14\x03\x14\0\1\0")


def refusal(name: str, content: bytes) -> str:
    """Why a document is not read; "" of one that is."""
    try:
        extract(Content(content), name)
    except SourceError as error:
        return error.message
    return ""


def bomb_letter() -> bytes:
    return made_of.with_part(DOCX, "word/document.xml", b" " * (80 << 20))


def letter_of_many_parts() -> bytes:
    return made_of.zipped({f"{n}.xml": "" for n in range(20_100)})


def bomb_workbook() -> bytes:
    return made_of.with_part(made_of.xlsx({"a": [["b"]]}), "xl/bomb.xml", bytes(600 << 20))


# What takes seconds to make is made by the test that needs it.
HOSTILE: dict[str, tuple[bytes | Callable[[], bytes], str]] = {
    "locked.pdf": (PDF.replace(b"/Info", LOCK), "is encrypted"),
    "rubbish.pdf": (b"%PDF-1.7\n" + bytes(range(256)) * 40, "is damaged"),
    "head-only.pdf": (b"%PDF-1.7\n", "is damaged"),
    "no-pdf.pdf": (bytes(range(256)) * 40, "is damaged, or no .pdf file"),
    "cut.docx": (DOCX[: len(DOCX) // 2], "is damaged"),
    "no-document.docx": (
        made_of.zipped({"a.txt": "a"}),
        "is damaged: its part 'word/document.xml' is missing",
    ),
    "bomb.docx": (bomb_letter, "unpacks to more than 64 MiB"),
    "entities.docx": (
        made_of.with_part(DOCX, "word/document.xml", BOMB + "<b>&a9;</b>"),
        "declares entities",
    ),
    "deep.docx": (made_of.with_part(DOCX, "word/document.xml", "<a>" * 100_000), "is nested more than"),
    "broken.docx": (made_of.with_part(DOCX, "word/document.xml", "<a><b></a>"), "is damaged: its XML"),
    "locked.docx": (OLE, "is encrypted"),
    "locked-parts.docx": (locked(DOCX), "is encrypted"),
    "parts.docx": (letter_of_many_parts, "has more than 20,000 parts"),
    "entities.pptx": (
        made_of.with_part(made_of.pptx([("a", "b")]), "ppt/presentation.xml", BOMB + "<b>&a9;</b>"),
        "declares entities",
    ),
    "diagonal.xlsx": (made_of.diagonal_workbook(), "memory"),
    "bomb.xlsx": (bomb_workbook, "unpacks to more than"),
    "cut.xlsx": (made_of.xlsx({"a": [["b"]]})[:200], "is damaged"),
    "locked.odt": (
        made_of.odf(
            "text", "<text:p>a</text:p>", manifest="<m><file-entry><encryption-data/></file-entry></m>"
        ),
        "is encrypted",
    ),
    "deep.odt": (made_of.odf("text", "<text:p>" * 600 + "</text:p>" * 600), "is nested more than"),
    "locked.epub": (
        made_of.epub(["<p>a</p>"], encrypted=["OEBPS/text/c%200.xhtml"]),
        "is protected against copying",
    ),
    "no-book.epub": (made_of.zipped({"a": "b"}), "is damaged"),
    "old.doc": (OLE, "is in Word's old binary format, which ctx does not read; save it as .docx"),
    "damaged.xls": (OLE, "is damaged"),
    "cut.xls": (made_of.xls({"a": [["b"]]})[:512], "is damaged"),
    "letter.xls": (made_of.compound_file("WordDocument", b""), "is encrypted: it opens only with a password"),
    "locked.xlsx": (made_of.compound_file("EncryptedPackage", b""), "is encrypted"),
    "old.ppt": (OLE, "is in PowerPoint's old binary format"),
    "no-mail.eml": (b"just some words without a header", "is damaged: no e-mail"),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("hostile")
    project(folder)
    for name, (content, _) in HOSTILE.items():
        (folder / "docs" / name).write_bytes(content() if callable(content) else content)
    (folder / "docs" / "z-good.pdf").write_bytes(made_of.pdf(["one", "the stork returns"]))
    run = ctx("index", "--json", cwd=folder, timeout_s=110)
    assert run.returncode == 0, run.stderr
    (source,) = json.loads(run.stdout)["sources"]
    return folder, {problem["source_id"]: problem["message"] for problem in source["problems"]}


def test_documents_after_hostile_ones_are_indexed(report: tuple[Path, dict[str, str]]) -> None:
    folder, problems = report
    assert set(problems) == set(HOSTILE)
    hits = json.loads(ctx("search", "stork returns", "--json", cwd=folder).stdout)["results"]
    assert [(hit["source_id"], hit["heading"]) for hit in hits] == [("z-good.pdf", "Page 2")]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_is_reported_in_one_clear_line(
    report: tuple[Path, dict[str, str]], name: str
) -> None:
    message = report[1][name]
    assert HOSTILE[name][1] in message
    assert "\n" not in message
    assert "Traceback" not in message


def test_a_pdf_of_pictures_is_found_by_its_name_and_the_report_says_that_pictures_are_not_read(
    tmp_path: Path,
) -> None:
    project(tmp_path)
    (tmp_path / "docs" / "ferry-timetable.pdf").write_bytes(made_of.pdf(["", ""]))
    run = ctx("index", cwd=tmp_path)
    assert "ferry-timetable.pdf" in run.stderr + run.stdout
    assert "(no OCR)" in run.stderr + run.stdout
    hits = json.loads(ctx("search", "ferry timetable", "--json", cwd=tmp_path).stdout)["results"]
    assert [hit["source_id"] for hit in hits] == ["ferry-timetable.pdf"]


@pytest.mark.parametrize(
    ("name", "content", "media_type"),
    [
        ("saved.pdf", b"<!DOCTYPE html><html><title>Log in</title><p>Log in first</p></html>", "text/html"),
        ("export.xls", b"<html><table><tr><td>Log in</td></tr></table></html>", "text/html"),
        ("readme.doc", b"Log in as root\n", "text/plain"),
    ],
)
def test_a_text_file_named_like_a_document_is_read_as_text(
    name: str, content: bytes, media_type: str
) -> None:
    extracted = extract(Content(content), name)
    assert extracted is not None
    assert extracted.media_type == media_type
    assert "Log in" in extracted.title + extracted.body
