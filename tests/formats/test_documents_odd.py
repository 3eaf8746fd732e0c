"""Documents under a wrong file ending, and files that only look like documents."""

import document_kit as made_of
import pytest

from ctx.formats.extract import extract
from ctx.models import Content

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
def test_lock_and_resource_files_of_office_programs_are_skipped(name: str, data: bytes) -> None:
    assert extract(Content(data), name) is None
