"""Documents in a folder are found by what their second page, sheet, slide or message says, and the hit names
it.
"""

import io
import json
import zipfile
from pathlib import Path

import document_kit as made_of
import pytest
from kit import ctx, project

from ctx.formats.extract import extract
from ctx.indexing.chunk import chunk
from ctx.items import Content

DOCUMENTS: dict[str, bytes] = {
    "report.pdf": made_of.pdf(
        ["A cover", "Herons nest near Marken", "An end"], info="/Title (Birds of the dike)"
    ),
    "manual.docx": made_of.docx(
        made_of.word_paragraph("The mill", "Title")
        + made_of.word_paragraph("Grinding", "heading1")
        + made_of.word_paragraph("Grain goes in. " * 60)
        + made_of.word_paragraph("Sails", "heading1")
        + made_of.word_paragraph("Zephyrs turn them")
        + made_of.word_table([("Part", "Weight"), ("Millstone", "nine hundred")])
    ),
    "deck.pptx": made_of.pptx(
        [("Opening", "Welcome"), ("Numbers", "Revenue rose in Frisia"), ("Thanks", "Goodbye")],
        notes={2: "breathe slowly"},
    ),
    "prices.xlsx": made_of.xlsx(
        {"Intro": [["About these prices"]], "Fruit": [["Name", "Price"], ["Quince", 3.5], ["Medlar", 4]]}
    ),
    "stock.xls": made_of.xls({"Süd": [["Name", "Price"], ["Cloudberry", 3.5]], "Nord": [["nothing"]]}),
    "letter.rtf": rb"{\rtf1\ansi\ansicpg1250{\info{\title Minutes of May}}The gorse was cut \'e9\u337?\par}",
    "letter.odt": made_of.odf(
        "text",
        '<text:h text:outline-level="1">Greeting</text:h>'
        + "<text:p>Dear reader, how are you. </text:p>" * 40
        + '<text:h text:outline-level="1">Matter</text:h><text:p>Wooden<text:s text:c="2"/>clogs are late '
        "again, as the cart waits for a new axle</text:p>",
    ),
    "talk.odp": made_of.odf(
        "presentation",
        "<draw:page><draw:frame><text:p>Hello</text:p></draw:frame></draw:page>"
        '<draw:page><draw:frame presentation:class="title"><text:p>Polders</text:p></draw:frame>'
        "<draw:frame><text:p>Pumping never ends</text:p></draw:frame></draw:page>",
    ),
    "count.ods": made_of.odf(
        "spreadsheet",
        "".join(
            f'<table:table table:name="{name}">'
            + "".join(
                "<table:table-row>"
                + "".join(
                    f'<table:table-cell office:value-type="string"><text:p>{cell}</text:p></table:table-cell>'
                    for cell in row
                )
                + "</table:table-row>"
                for row in rows
            )
            + "</table:table>"
            for name, rows in (("Alpha", [("Bird",)]), ("Beta", [("Bird", "Count"), ("Bittern", "four")]))
        ),
    ),
    "novel.epub": made_of.epub(
        [
            "<h1>Morning</h1>" + "<p>It rained all day.</p>" * 60,
            "<h1>Evening</h1><p>The ferryman sang softly while he rowed across the darkening river</p>",
        ]
    ),
    "note.eml": made_of.message("Delivery on Friday", "The barge brings gravel").encode(),
    "archive.mbox": (
        "From ada Mon Nov  2 10:00:00 2026\n"
        + made_of.message("First", "nothing here")
        + "\nFrom bob Tue Nov  3 10:00:00 2026\n"
        + made_of.message("Second thoughts", "<p>Lock the <b>sluice</b> gates</p>", "text/html")
    ).encode(),
    "paper.tex": b"\\title{On Water}\n\\section{Start}\n"
    + b"Some words. " * 80
    + b"\n\\section{Result}\nEbb follows flood\n",
}
QUESTIONS = {
    "herons nest marken": ("report.pdf", "Birds of the dike", "Page 2"),
    "zephyrs turn": ("manual.docx", "The mill", "Sails"),
    "millstone weight nine hundred": ("manual.docx", "The mill", "Sails"),
    "revenue rose frisia": ("deck.pptx", "Opening", "Slide 2: Numbers"),
    "breathe slowly": ("deck.pptx", "Opening", "Slide 2: Numbers"),
    "cloudberry price": ("stock.xls", "stock", "Sheet Süd"),
    "gorse": ("letter.rtf", "Minutes of May", ""),
    "quince price": ("prices.xlsx", "prices", "Sheet Fruit"),
    "clogs are late": ("letter.odt", "Greeting", "Matter"),
    "pumping never ends": ("talk.odp", "Polders", "Slide 2: Polders"),
    "bittern count": ("count.ods", "count", "Sheet Beta"),
    "ferryman sang": ("novel.epub", "The Book", "Evening"),
    "barge brings gravel": ("note.eml", "Delivery on Friday", ""),
    "sluice gates": ("archive.mbox", "archive", "Second thoughts"),
    "ebb follows flood": ("paper.tex", "On Water", "Result"),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    project(folder)
    for name, content in DOCUMENTS.items():
        (folder / "docs" / name).write_bytes(content)
    run = ctx("index", cwd=folder)
    assert run.returncode == 0, run.stderr
    assert f"{len(DOCUMENTS)} added" in run.stdout + run.stderr
    return folder


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_phrase_of_a_second_page_finds_the_document_and_names_the_page(
    library: Path, question: str
) -> None:
    source_id, title, heading = QUESTIONS[question]
    reply = ctx("search", question, "--json", cwd=library)
    hit = json.loads(reply.stdout)["results"][0]
    assert (hit["source_id"], hit["title"], hit["heading"]) == (source_id, title, heading)


def test_no_chunk_reaches_over_two_pages_however_short_they_are() -> None:
    for name, content, page in (
        ("a.pdf", made_of.pdf(["one", "two", "three"]), "Page"),
        ("a.pptx", made_of.pptx([("", "one"), ("", "two"), ("", "")]), "Slide"),
        ("a.xlsx", made_of.xlsx({"1": [["one"]], "2": [["two"]], "3": [["three"]]}), "Sheet"),
    ):
        extracted = extract(Content(content), name)
        assert extracted is not None
        headings = [piece.heading for piece in chunk(extracted, extracted.title)]
        assert headings == [f"{page} {number}" for number in (1, 2, 3)]


def test_documents_that_did_not_change_are_not_read_again(library: Path) -> None:
    run = ctx("index", "--json", cwd=library)
    report = json.loads(run.stdout)
    assert f'"unchanged": {len(DOCUMENTS)}' in json.dumps(report)


def test_a_merged_cell_of_a_word_table_leaves_the_others_below_their_columns() -> None:
    merged = made_of.word_paragraph("absent")
    row = (
        f"<w:tr><w:tc>{made_of.word_paragraph('Alice')}</w:tc>"
        f'<w:tc><w:tcPr><w:gridSpan w:val="2"/></w:tcPr>{merged}</w:tc>'
        f"<w:tc>{made_of.word_paragraph('700')}</w:tc></w:tr>"
    )
    table = made_of.word_table([["Who", "First", "Second", "Bonus"], ["Bob", "1", "2", "3"]])
    extracted = extract(Content(made_of.docx(table.replace("</w:tbl>", f"{row}</w:tbl>"))), "merged.docx")
    assert extracted is not None
    assert extracted.body.split("\n")[-1] == "- Who: Alice; First: absent; Bonus: 700"


@pytest.mark.parametrize(
    ("kind", "name"), [("", "North"), ('w:val="continue"', "North"), ('w:val="restart"', "")]
)
def test_a_name_that_rows_of_a_word_table_share_is_in_each(kind: str, name: str) -> None:
    rows = [["Region", "City", "People"], ["North", "Oslo", "7"], ["MERGED", "Bergen", "3"]]
    cell = f"<w:tc>{made_of.word_paragraph('MERGED')}</w:tc>"
    merged = f"<w:tc><w:tcPr><w:vMerge {kind}/></w:tcPr><w:p/></w:tc>"
    document = made_of.docx(made_of.word_table(rows).replace(cell, merged))
    extracted = extract(Content(document), "merged.docx")
    assert extracted is not None
    region = f"Region: {name}; " if name else ""
    assert extracted.body.split("\n")[-1] == f"- {region}City: Bergen; People: 3"


def test_a_style_that_stands_on_a_heading_is_one_unless_it_says_that_it_is_none() -> None:
    styles = (
        made_of.word_style("Company Head", "heading2")
        + made_of.word_style("Deep", "CompanyHead")
        + made_of.word_style("Contents", "heading1", '<w:outlineLvl w:val="9"/>')
        + made_of.word_style("Under", "Title")
        + made_of.word_style("Round", "Turn")
        + made_of.word_style("Turn", "Round")
    )
    names = ("heading1", "CompanyHead", "Deep", "Contents", "Under", "Round", "absent")
    extracted = extract(
        Content(made_of.docx("".join(made_of.word_paragraph(name, name) for name in names), styles)), "a.docx"
    )
    assert extracted is not None
    assert [(heading.title, heading.level) for heading in extracted.headings] == [
        ("heading1", 1),
        ("CompanyHead", 2),
        ("Deep", 2),
    ]


def test_hidden_text_of_a_word_document_is_not_read() -> None:
    runs = (
        ("shown ", ""),
        ("secret", "<w:rPr><w:b/><w:vanish/></w:rPr>"),
        ("too", '<w:rPr><w:vanish w:val="0"/></w:rPr>'),
    )
    body = "".join(f"<w:r>{looks}<w:t>{text}</w:t></w:r>" for text, looks in runs)
    extracted = extract(Content(made_of.docx(f"<w:p>{body}</w:p>")), "hidden.docx")
    assert extracted is not None
    assert extracted.body == "shown too"


def test_what_is_filled_into_a_form_of_a_pdf_is_read_on_its_page() -> None:
    field = (
        "<< /Type /Annot /Subtype /Widget /FT /Tx /T (name) /V (Ada of Delft) /F 4 /Rect [72 600 272 620] /P 7 0 R "
        "/DA (/F1 12 Tf 0 g) /AP << /N 10 0 R >> >>"
    )
    look = "BT /F1 12 Tf 2 5 Td (Ada of Delft) Tj ET"
    appearance = (
        f"<< /Type /XObject /Subtype /Form /BBox [0 0 200 20] /Length {len(look)} "
        f"/Resources << /Font << /F1 3 0 R >> >> >>\nstream\n{look}\nendstream"
    )
    document = made_of.pdf(["Berths", "Applicant"], extra=[field, appearance])
    document = document.replace(b"/Type /Catalog", b"/Type /Catalog /AcroForm << /Fields [9 0 R] >>")
    second = b"/Contents 8 0 R"
    document = document.replace(second, second + b" /Annots [9 0 R]")
    extracted = extract(Content(document), "form.pdf")
    assert extracted is not None
    assert "Ada of Delft" in extracted.body.partition("# Page 2")[2]


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ("A long para-\ngraph stands here", "paragraph"),
        ("It is read at run-\ntime, as run-time libraries are", "run-time,"),
        ("It is over-\nlaid, not over-laid, and overlaid", "overlaid,"),
        ("Text in UTF-\n8 is read", "UTF-8"),
        ("The SSH-\nserver listens", "SSH-server"),
        ("Das Debian-\nPaket fehlt", "Debian-Paket"),
        ("Known as Trace-\nMonkey, TraceMonkey is fast", "TraceMonkey,"),
    ],
)
def test_a_word_that_a_line_of_a_pdf_breaks_is_whole_with_the_hyphen_that_is_its_own(
    lines: str, word: str
) -> None:
    extracted = extract(Content(made_of.pdf([lines])), "broken.pdf")
    assert extracted is not None
    assert word in extracted.body.split()


def test_comments_of_an_open_document_stand_at_its_end_and_break_no_phrase() -> None:
    note = "<office:annotation><dc:creator xmlns:dc='x'>Ada</dc:creator><text:p>Is it?</text:p></office:annotation>"
    item = f"<text:list><text:list-item><text:p>An{note} item</text:p></text:list-item></text:list>"
    body = f"<text:p>The lock{note} is wide</text:p>{item}"
    extracted = extract(Content(made_of.odf("text", body)), "noted.odt")
    assert extracted is not None
    assert extracted.body == "The lock is wide\n\n- An item\n\n# Comments\n\nIs it?\n\nIs it?"


STYLED = [  # (the run's style, its own formatting, the paragraph's style) -> whether it is shown
    ("", "", "", True),
    ("Note", "", "", False),
    ("Aside", "", "", False),  # stands on Note
    ("Spoken", "", "", True),  # stands on Note, and says that it is shown
    ("Note", '<w:vanish w:val="0"/>', "", True),
    ("", "", "Draft", False),
    ("Note", "", "Draft", True),  # hidden within what is hidden: each turns the other round
    ("", "<w:vanish/>", "Draft", False),
]


@pytest.mark.parametrize(("run", "own", "paragraph", "shown"), STYLED)
def test_text_that_a_style_hides_is_not_read(run: str, own: str, paragraph: str, shown: bool) -> None:
    def style(name: str, base: str, looks: str) -> str:
        based = f'<w:basedOn w:val="{base}"/>' if base else ""
        return f'<w:style w:styleId="{name}">{based}<w:rPr>{looks}</w:rPr></w:style>'

    styles = style("Note", "", "<w:vanish/>") + style("Draft", "", "<w:vanish/>")
    styles += style("Aside", "Note", "<w:b/>") + style("Spoken", "Note", '<w:vanish w:val="0"/>')
    looks = f'<w:rStyle w:val="{run}"/>{own}' if run else own
    body = (
        f'<w:p><w:pPr><w:pStyle w:val="{paragraph}"/></w:pPr>'
        f"<w:r><w:rPr>{looks}</w:rPr><w:t>a word</w:t></w:r></w:p>" + made_of.word_paragraph("the end")
    )
    extracted = extract(Content(made_of.docx(body, styles)), "styled.docx")
    assert extracted is not None
    assert ("a word" in extracted.body) is shown


def test_a_text_box_is_apart_from_the_words_around_it_and_a_reading_aid_is_left_out() -> None:
    box = (
        "<w:r><w:pict><w:txbxContent>"
        + made_of.word_paragraph("in a box")
        + "</w:txbxContent></w:pict></w:r>"
    )
    ruby = "<w:r><w:ruby><w:rt><w:r><w:t>toukyou</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>Tokyo</w:t></w:r></w:rubyBase></w:ruby></w:r>"
    body = f"<w:p>{box}<w:r><w:t>Beside it</w:t></w:r></w:p><w:p>{ruby}</w:p>"
    extracted = extract(Content(made_of.docx(body)), "boxed.docx")
    assert extracted is not None
    assert extracted.body == "in a box\nBeside it\n\nTokyo"


def test_a_chapter_is_named_by_its_title_where_it_has_no_heading_and_never_by_its_file() -> None:
    book = made_of.epub(["<p>One.</p>", "<h1>Two</h1><p>Two.</p>"])
    titled = made_of.with_part(book, "OEBPS/text/c 0.xhtml", "<html><title>Dawn</title><p>One.</p></html>")
    named = "<html><title>c 1.xhtml</title><h1>Two</h1><p>Two.</p></html>"
    extracted = extract(Content(made_of.with_part(titled, "OEBPS/text/c 1.xhtml", named)), "book.epub")
    assert extracted is not None
    assert extracted.body == "# Dawn\n\nOne.\n\n# Two\n\nTwo."


SHEET: list[list[object]] = [
    ["Region", "Amount", "Amount"],
    ["North", 12, 13],
    ["South", 14, 15],
    [],
    ["West", 16, 17],
    [],
    ["Person", "Age"],
    ["Ada", 36],
    [],
    ["Note", "Reason"],
    ["late", "snow"],
]


def test_a_sheet_with_two_columns_of_one_name_and_two_tables_keeps_every_name() -> None:
    extracted = extract(Content(made_of.xlsx({"Sales": SHEET})), "sales.xlsx")
    assert extracted is not None
    assert extracted.body.split("\n\n")[1].split("\n") == [
        "Region | Amount | Amount",
        "- Region: North; Amount: 12; Amount: 13",
        "- Region: South; Amount: 14; Amount: 15",
        "- Region: West; Amount: 16; Amount: 17",
        "Person | Age",
        "- Person: Ada; Age: 36",
        "Note | Reason",  # words, where ages were
        "- Note: late; Reason: snow",
    ]


def test_a_name_that_rows_of_an_open_document_share_is_in_each() -> None:
    def row(*cells: str) -> str:
        return f"<table:table-row>{''.join(cells)}</table:table-row>"

    def cell(text: str, attribute: str = "") -> str:
        return f"<table:table-cell {attribute}><text:p>{text}</text:p></table:table-cell>"

    covered = "<table:covered-table-cell/>"
    high, wide = 'table:number-rows-spanned="2"', 'table:number-columns-spanned="2"'
    rows = [
        row(cell("Region"), cell("City"), cell("People")),
        row(cell("North", high), cell("Oslo"), cell("7")),
        row(covered, cell("unknown", wide), covered),
        row(cell("South"), cell("Rome"), cell("9")),
    ]
    table = f"<table:table>{''.join(rows)}</table:table>"
    extracted = extract(Content(made_of.odf("text", table)), "merged.odt")
    assert extracted is not None
    assert extracted.body.split("\n")[2:] == [
        "- Region: North; City: unknown",
        "- Region: South; City: Rome; People: 9",
    ]


@pytest.mark.parametrize("state", ["hidden", "veryHidden"])
def test_a_hidden_sheet_is_read_and_called_hidden(state: str) -> None:
    document = made_of.xlsx({"Prices": [["quince"]], "Rates": [["percent"]]})
    with zipfile.ZipFile(io.BytesIO(document)) as archive:
        workbook = archive.read("xl/workbook.xml").decode()
    hidden = workbook.replace('name="Rates"', f'name="Rates" state="{state}"')
    assert hidden != workbook
    extracted = extract(Content(made_of.with_part(document, "xl/workbook.xml", hidden)), "prices.xlsx")
    assert extracted is not None
    assert extracted.body.split("\n") == [
        "# Sheet Prices",
        "",
        "quince",
        "",
        "# Sheet Rates (hidden)",
        "",
        "percent",
    ]


def test_a_name_that_rows_of_an_open_sheet_share_is_in_each() -> None:
    def row(*cells: str, repeated: int = 1) -> str:
        return f'<table:table-row table:number-rows-repeated="{repeated}">{"".join(cells)}</table:table-row>'

    def cell(text: str, attributes: str = "") -> str:
        return (
            f'<table:table-cell office:value-type="string" {attributes}><text:p>{text}</text:p>'
            "</table:table-cell>"
        )

    covered = "<table:covered-table-cell/>"
    beside = '<table:table-cell table:number-columns-repeated="2"/>'  # the table begins at C4
    rows = [
        row(beside, repeated=3),
        row(beside, cell("Region"), cell("City"), cell("People")),
        row(beside, cell("North", 'table:number-rows-spanned="4"'), cell("Oslo"), cell("7")),
        row(beside, covered, cell("Bergen"), cell("3")),
        row(beside, covered, cell("Harbour", 'table:number-columns-spanned="2"'), covered, repeated=2),
        row(beside, cell("South"), cell("Rome"), cell("9")),
    ]
    inner = "<table:table><table:table-row/></table:table>"  # of a chart: no sheet
    ports = [
        row(cell("Ship"), cell("Port" + inner)),
        row(cell("Marijke", 'table:number-rows-spanned="2"'), cell("Urk")),
        row(covered, cell("Edam")),
    ]
    sheets = f'<table:table table:name="Cities">{"".join(rows)}</table:table>'
    sheets += f'<table:table table:name="Ships">{"".join(ports)}</table:table>'
    extracted = extract(Content(made_of.odf("spreadsheet", sheets)), "cities.ods")
    assert extracted is not None
    assert extracted.body.split("\n")[2:] == [
        "Region | City | People",
        "- Region: North; City: Oslo; People: 7",
        "- Region: North; City: Bergen; People: 3",
        "- Region: North; City: Harbour",
        "- Region: North; City: Harbour",
        "- Region: South; City: Rome; People: 9",
        "",
        "# Sheet Ships",
        "",
        "Ship | Port",
        "- Ship: Marijke; Port: Urk",
        "- Ship: Marijke; Port: Edam",
    ]


def test_a_name_that_rows_of_a_slide_share_is_in_each() -> None:
    def row(*cells: str) -> str:
        return f"<a:tr>{''.join(cells)}</a:tr>"

    def cell(text: str, attribute: str = "") -> str:
        return f"<a:tc {attribute}><a:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></a:txBody></a:tc>"

    rows = [
        row(cell("Region"), cell("City")),
        row(cell("North", 'rowSpan="2"'), cell("Oslo")),
        row(cell("", 'vMerge="1"'), cell("Bergen")),
    ]
    document = made_of.pptx([("Cities", "below")])
    slide = "ppt/slides/slide89.xml"
    with zipfile.ZipFile(io.BytesIO(document)) as archive:
        text = archive.read(slide).decode()
    table = f"<a:tbl>{''.join(rows)}</a:tbl></p:spTree>"
    assert "</p:spTree>" in text
    document = made_of.with_part(document, slide, text.replace("</p:spTree>", table))
    extracted = extract(Content(document), "merged.pptx")
    assert extracted is not None
    assert extracted.body.split("\n")[-1] == "- Region: North; City: Bergen"


def test_a_name_that_rows_of_a_sheet_share_is_in_each_and_a_long_note_is_not() -> None:
    rows: list[list[str | float]] = [
        ["Region", "City", "People", "Note"],
        ["North", "Oslo", "7", "words " * 40],
        ["", "Bergen", "3", ""],
    ]
    document = made_of.xlsx({"Cities": rows}, ["A2:A3", "D2:D3"])
    extracted = extract(Content(document), "cities.xlsx")
    assert extracted is not None
    assert extracted.body.split("\n")[-1] == "- Region: North; City: Bergen; People: 3"


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        (
            ["Name,Phone,Phone", "Ada,home one,office two"],
            ["Name | Phone | Phone", "- Name: Ada; Phone: home one; Phone: office two"],
        ),
        (["yes,no,yes", "no,yes,yes"], ["- yes | no | yes", "- no | yes | yes"]),
        (
            ["Fruit,Colour,Taste", "Quince,yellow,tart", "", "Ship,Port", "Marijke,Urk"],
            [
                "Fruit | Colour | Taste",
                "- Fruit: Quince; Colour: yellow; Taste: tart",
                "Ship | Port",
                "- Ship: Marijke; Port: Urk",
            ],
        ),
        (
            ["Fruit,Colour", "Quince,yellow", "", "Medlar,brown", "Sloe,blue"],
            [
                "Fruit | Colour",
                "- Fruit: Quince; Colour: yellow",
                "- Fruit: Medlar; Colour: brown",
                "- Fruit: Sloe; Colour: blue",
            ],
        ),
        (
            ["Fruit,Colour", "Quince,yellow", "", "Fruit,Colour", "Sloe,blue"],
            [
                "Fruit | Colour",
                "- Fruit: Quince; Colour: yellow",
                "Fruit | Colour",
                "- Fruit: Sloe; Colour: blue",
            ],
        ),
        (
            ["Fruit,Colour", "", "Quince,yellow", "Sloe,blue"],
            ["Fruit | Colour", "- Fruit: Quince; Colour: yellow", "- Fruit: Sloe; Colour: blue"],
        ),
        (
            ["Name:,Ada", "City:,Paris", "Team:,Engines", "Desk:,"],
            ["- Name: Ada", "- City: Paris", "- Team: Engines", "Desk:"],
        ),
        (
            ["Sheet of Ada", "Name,Ada", "Born,1815", "City,London", "Phone,555 12"],
            ["Sheet of Ada", "- Name: Ada", "- Born: 1815", "- City: London", "- Phone: 555 12"],
        ),
        (
            ["Town,Count", "Urk,12", "", "Edam,unknown", "Hoorn,unknown"],
            [
                "Town | Count",
                "- Town: Urk; Count: 12",
                "- Town: Edam; Count: unknown",
                "- Town: Hoorn; Count: unknown",
            ],
        ),
        (
            ["Company,Acme", "E-mail,ana@acme.example", "Contact,Ana", "Web,https://acme.example"],
            [
                "- Company: Acme",
                "- E-mail: ana@acme.example",
                "- Contact: Ana",
                "- Web: https://acme.example",
            ],
        ),
        (
            ["Who,E-mail", "Ana,ana@acme.example", "Bob,bob@acme.example", "Cy,cy@acme.example"],
            [
                "Who | E-mail",
                "- Who: Ana; E-mail: ana@acme.example",
                "- Who: Bob; E-mail: bob@acme.example",
                "- Who: Cy; E-mail: cy@acme.example",
            ],
        ),
    ],
    ids=[
        "one name twice",
        "no names",
        "other columns",
        "next rows",
        "the same names again",
        "a blank row below the names",
        "names with colons",
        "a form",
        "words for want of numbers",
        "a form with addresses",
        "a column of addresses",
    ],
)
def test_a_table_of_words_has_the_names_of_its_own_columns(rows: list[str], lines: list[str]) -> None:
    sheet = made_of.xlsx({"Words": [row.split(",") if row else [] for row in rows]})
    extracted = extract(Content(sheet), "words.xlsx")
    assert extracted is not None
    assert extracted.body.split("\n\n", 1)[1].split("\n") == lines


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (4111111111111110.0, "4111111111111110"),
        (0.1234567890123, "0.1234567890123"),
        (0.1 + 0.2, "0.3"),
        (-7.5, "-7.5"),
        (1e300, "1e+300"),
    ],
)
def test_a_number_of_a_sheet_is_shown_with_the_digits_that_it_has(number: float, shown: str) -> None:
    extracted = extract(Content(made_of.xlsx({"Cards": [["name", "sum"], ["Ada", number]]})), "cards.xlsx")
    assert extracted is not None
    assert extracted.body.split("\n")[-1].endswith(f"sum: {shown}")
