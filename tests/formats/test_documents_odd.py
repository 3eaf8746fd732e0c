"""Documents that are not quite what they say: under a wrong ending, or an e-book whose list of chapters is wrong."""

import io
import zipfile

import document_kit as made_of
import pytest

from ctx.formats.archive import document_format
from ctx.formats.extract import extract
from ctx.formats.table import BY_SUFFIX
from ctx.items import Content

SHEET = (
    '<table:table table:name="Beta"><table:table-row><table:table-cell office:value-type="string">'
    "<text:p>bittern</text:p></table:table-cell></table:table-row></table:table>"
)
DOCUMENTS: dict[str, bytes] = {
    "manual.docx": made_of.docx(made_of.word_paragraph("Sails", "heading1") + made_of.word_paragraph("turn")),
    "deck.pptx": made_of.pptx([("Opening", "Welcome"), ("Numbers", "Revenue rose in Frisia")]),
    "prices.xlsx": made_of.xlsx({"Fruit": [["Name", "Price"], ["Quince", 3.5]]}),
    "old.xls": made_of.xls({"Fruit": [["Name", "Price"], ["Quince", 3.5]]}),
    "letter.rtf": rb"{\rtf1\ansi Hello {\b world}\par}",
    "letter.odt": made_of.odf("text", "<text:p>Wooden clogs are late again</text:p>"),
    "talk.odp": made_of.odf(
        "presentation", "<draw:page><draw:frame><text:p>Hi</text:p></draw:frame></draw:page>"
    ),
    "count.ods": made_of.odf("spreadsheet", SHEET),
}


@pytest.mark.parametrize(
    ("name", "aliases"),
    [
        ("manual.docx", ["doc", "odt", "xlsx", "pdf", "txt", "zip", "eml"]),
        ("deck.pptx", ["ppt", "docx", "odp"]),
        ("prices.xlsx", ["xls", "docx", "csv"]),
        ("letter.rtf", ["doc", "txt", "docx"]),
        ("letter.odt", ["docx", "ods", "odp", "doc"]),
        ("talk.odp", ["pptx", "odt"]),
        ("count.ods", ["odt", "xls"]),
    ],
)
def test_a_document_under_a_wrong_ending_is_read_as_what_it_is(name: str, aliases: list[str]) -> None:
    own = extract(Content(DOCUMENTS[name]), name)
    assert own is not None
    stem = name.partition(".")[0]
    for alias in aliases:
        assert extract(Content(DOCUMENTS[name]), f"{stem}.{alias}") == own, alias


def test_a_workbook_within_a_word_document_does_not_make_it_one() -> None:
    sheet = made_of.xlsx({"A": [["inner"]]})
    document = made_of.with_part(DOCUMENTS["manual.docx"], "word/embeddings/a.xlsx", sheet)
    assert document_format(document) is BY_SUFFIX["docx"]
    assert document_format(made_of.zipped({"old/word/document.xml": "", "a.xlsx": sheet})) is None


BOOK = made_of.epub(["<h1>One</h1><p>herons</p>", "<h1>Two</h1><p>bitterns</p>"])
PARTS = ["OEBPS/book.opf", "OEBPS/text/c 1.xhtml"]


def part_of_book(name: str) -> str:
    with zipfile.ZipFile(io.BytesIO(BOOK)) as archive:
        return archive.read(name).decode()


@pytest.mark.parametrize("spine", ["", "<spine/>"])
def test_a_book_without_a_spine_is_read_in_the_order_of_its_list(spine: str) -> None:
    opf = part_of_book(PARTS[0])
    begin, end = opf.index("<spine>"), opf.index("</spine>") + len("</spine>")
    navigation = '<item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
    broken = (opf[:begin] + spine + opf[end:]).replace("<manifest>", f"<manifest>{navigation}")
    extracted = extract(Content(made_of.with_part(BOOK, PARTS[0], broken)), "book.epub")
    assert extracted is not None
    assert extracted.body == "# One\n\nherons\n\n# Two\n\nbitterns"
    assert extracted.note is None


def test_a_chapter_that_a_book_lists_in_other_capitals_is_read() -> None:
    opf = part_of_book(PARTS[0]).replace("text/c%201", "Text/C%201")
    extracted = extract(Content(made_of.with_part(BOOK, PARTS[0], opf)), "book.epub")
    assert extracted is not None
    assert "bitterns" in extracted.body


@pytest.mark.parametrize("old", ['href="text/c%201.xhtml"', 'idref="c1"'])
def test_a_chapter_that_a_book_does_not_hold_is_told_of(old: str) -> None:
    opf = part_of_book(PARTS[0])
    assert old in opf
    broken = opf.replace(old, old.partition("=")[0] + '="gone"')
    extracted = extract(Content(made_of.with_part(BOOK, PARTS[0], broken)), "book.epub")
    assert extracted is not None
    assert extracted.body == "# One\n\nherons"
    assert extracted.note == "1 of 2 chapters that this e-book lists are not in it: the file is damaged"


OWNER = b"\x03Ann" + b" " * 50


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("~$report.docx", OWNER + b"\x03\0A\0n\0n\0" + b" \0" * 50),
        ("~$report.docx", OWNER),
        ("._report.docx", b"\0\x05\x16\x07\0\2\0\0Mac OS X        " + bytes(90)),
        ("._mail.eml", b"\0\x05\x16\x07\0\2\0\0Mac OS X        " + bytes(90)),
    ],
)
def test_what_programs_keep_beside_a_document_is_no_document(name: str, data: bytes) -> None:
    assert extract(Content(data), name) is None


def test_a_document_whose_name_begins_like_such_a_file_is_read() -> None:
    for name in ("~$manual.docx", "._manual.docx"):
        extracted = extract(Content(DOCUMENTS["manual.docx"]), name)
        assert extracted is not None
        assert "turn" in extracted.body
