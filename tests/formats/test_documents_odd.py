"""Documents under a wrong file ending, files that only look like documents, and unusual content."""

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


def body_of(data: bytes, name: str) -> str:
    extracted = extract(Content(data), name)
    assert extracted is not None
    return extracted.body


CELL = '<table:table-cell office:value-type="string"{}><text:p>{}</text:p></table:table-cell>'
BLANK_ROWS = (
    '<table:table-row table:number-rows-repeated="{}">'
    '<table:table-cell table:number-columns-repeated="16384"/></table:table-row>'
)


def test_cells_far_apart_in_a_calc_sheet_are_read() -> None:
    gap = '<table:table-cell table:number-columns-repeated="16000"/>'
    rows = (
        f"<table:table-row>{CELL.format('', 'near')}{gap}{CELL.format('', 'right')}</table:table-row>"
        f"{BLANK_ROWS.format(1_048_000)}"
        f"<table:table-row>{CELL.format('', 'below')}</table:table-row>{BLANK_ROWS.format(570)}"
    )
    body = body_of(made_of.odf("spreadsheet", f'<table:table table:name="A">{rows}</table:table>'), "far.ods")
    assert body == "# Sheet A\n\nnear | right\n- near: below"


def test_a_row_repeated_a_million_times_is_read_some_times() -> None:
    head = f"<table:table-row>{CELL.format('', 'Name')}{CELL.format('', 'Size')}</table:table-row>"
    same = '<table:table-row table:number-rows-repeated="1000000">{}{}</table:table-row>'
    rows = head + same.format(CELL.format("", "oak"), CELL.format("", "tall"))
    body = body_of(made_of.odf("spreadsheet", f'<table:table table:name="A">{rows}</table:table>'), "a.ods")
    assert body.startswith("# Sheet A\n\nName | Size\n- Name: oak; Size: tall\n")
    assert body.count("oak") == 100


def test_a_merged_cell_below_a_gap_in_a_calc_sheet_keeps_its_rows() -> None:
    tall = CELL.format(' table:number-rows-spanned="2"', "tall")
    rows = (
        f"<table:table-row>{CELL.format('', 'K')}{CELL.format('', 'V')}</table:table-row>"
        f"{BLANK_ROWS.format(1_000_000)}"
        f"<table:table-row>{tall}{CELL.format('', 'one')}</table:table-row>"
        f"<table:table-row><table:covered-table-cell/>{CELL.format('', 'two')}</table:table-row>"
    )
    body = body_of(made_of.odf("spreadsheet", f'<table:table table:name="A">{rows}</table:table>'), "m.ods")
    assert body.endswith("- K: tall; V: one\n- K: tall; V: two")


@pytest.mark.parametrize("far", [(1_048_575, 16_383), (1_048_575, 1), (2, 16_383)])
def test_cells_far_apart_in_a_binary_workbook_are_read(far: tuple[int, int]) -> None:
    cells = {(0, 0): "Name", (0, 1): "Size", (1, 0): "oak", (1, 1): "tall", far: "distant"}
    body = body_of(made_of.xlsb(cells), "far.xlsb")
    assert body.startswith("# Sheet Sheet\n\nName | Size\n- Name: oak; Size: tall\n")
    assert "distant" in body


def test_times_in_a_workbook_keep_their_seconds_and_hours_above_a_day() -> None:
    styles = (
        f'<styleSheet xmlns="{made_of.S}"><cellXfs count="3"><xf numFmtId="0"/><xf numFmtId="22"/>'
        '<xf numFmtId="46"/></cellXfs></styleSheet>'
    )
    cell = '<c r="{}" s="{}"><v>{}</v></c>'.format
    row = (
        f'<row r="1">{cell("A1", 1, 45000.25)}{cell("B1", 1, 45000.250081018516)}{cell("C1", 2, 1.25)}'
        f"{cell('D1', 1, 45000)}</row>"
    )
    sheet = f'<worksheet xmlns="{made_of.S}"><sheetData>{row}</sheetData></worksheet>'
    book = made_of.with_part(made_of.xlsx({"a": [["b"]]}), "xl/worksheets/sheet1.xml", sheet)
    book = made_of.with_part(book, "xl/styles.xml", styles)
    assert "2023-03-15 06:00 | 2023-03-15 06:00:07 | 30:00:00 | 2023-03-15" in body_of(book, "t.xlsx")


def test_a_block_with_a_fallback_in_a_word_document_is_read_once() -> None:
    block = (
        '<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
        f'<mc:Choice Requires="wps">{made_of.word_paragraph("Sails turn")}</mc:Choice>'
        f"<mc:Fallback>{made_of.word_paragraph('Sails turn')}</mc:Fallback></mc:AlternateContent>"
    )
    body = body_of(made_of.docx(made_of.word_paragraph("First") + block), "a.docx")
    assert body == "First\n\nSails turn"


def test_footnotes_of_rtf_are_part_of_the_paragraph() -> None:
    data = rb"{\rtf1\ansi The mill{\super 1}{\footnote {\super 1} Built in 1790.} turns.\par \\footnote is a word}"
    assert (
        " ".join(body_of(data, "a.rtf").split()) == r"The mill1 1 Built in 1790. turns. \footnote is a word"
    )


@pytest.mark.parametrize(("mark", "encoding"), [("mac", "mac_roman"), ("pc", "cp437"), ("pca", "cp850")])
def test_rtf_of_mac_and_dos_is_read_in_its_character_set(mark: str, encoding: str) -> None:
    escaped = "".join(f"\\'{byte:02x}" for byte in "Größe".encode(encoding))
    assert body_of(f"{{\\rtf1\\{mark} {escaped}\\par}}".encode(), "a.rtf").strip() == "Größe"
