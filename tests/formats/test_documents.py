"""Office documents, PDF and e-mail: a phrase deep in a document finds it and the page, sheet or section is
named.
"""

import io
import json
import zipfile
from pathlib import Path

import document_kit as made_of
import pytest
from kit import ctx, project

from ctx.formats.extract import extract
from ctx.models import Content

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


@pytest.mark.parametrize(
    ("kind", "name"), [("", "North"), ('w:val="continue"', "North"), ('w:val="restart"', "")]
)
def test_a_merged_cell_of_a_word_table_is_repeated_in_each_row(kind: str, name: str) -> None:
    rows = [["Region", "City", "People"], ["North", "Oslo", "7"], ["MERGED", "Bergen", "3"]]
    cell = f"<w:tc>{made_of.word_paragraph('MERGED')}</w:tc>"
    merged = f"<w:tc><w:tcPr><w:vMerge {kind}/></w:tcPr><w:p/></w:tc>"
    document = made_of.docx(made_of.word_table(rows).replace(cell, merged))
    extracted = extract(Content(document), "merged.docx")
    assert extracted is not None
    region = f"Region: {name}; " if name else ""
    assert extracted.body.split("\n")[-1] == f"- {region}City: Bergen; People: 3"


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


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ("A long para-\ngraph stands here", "paragraph"),
        ("It is read at run-\ntime, as run-time libraries are", "run-time,"),
        ("Text in UTF-\n8 is read", "UTF-8"),
        ("Known as Trace-\nMonkey, TraceMonkey is fast", "TraceMonkey,"),
    ],
)
def test_a_word_broken_at_the_end_of_a_pdf_line_is_joined(lines: str, word: str) -> None:
    extracted = extract(Content(made_of.pdf([lines])), "broken.pdf")
    assert extracted is not None
    assert word in extracted.body.split()


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


@pytest.mark.parametrize("place", ["XFD1048576", "AZ1048576", "E1048576", "XFD3"])
def test_cells_far_from_the_others_lose_nothing_of_the_workbook(place: str) -> None:
    extracted = extract(Content(made_of.far_workbook(place)), "far.xlsx")
    assert extracted is not None
    assert "Item: quince; Price: dear" in extracted.body
    assert extracted.body.rstrip().endswith("7")


@pytest.mark.parametrize("state", ["hidden", "veryHidden"])
def test_a_hidden_sheet_is_read_and_marked_as_hidden(state: str) -> None:
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
            ["Fruit,Colour", "Quince,yellow", "", "Fruit,Colour", "Sloe,blue"],
            [
                "Fruit | Colour",
                "- Fruit: Quince; Colour: yellow",
                "Fruit | Colour",
                "- Fruit: Sloe; Colour: blue",
            ],
        ),
        (
            ["Sheet of Ada", "Name,Ada", "Born,1815", "City,London", "Phone,555 12"],
            ["Sheet of Ada", "- Name: Ada", "- Born: 1815", "- City: London", "- Phone: 555 12"],
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
)
def test_a_table_of_words_has_the_names_of_its_own_columns(rows: list[str], lines: list[str]) -> None:
    sheet = made_of.xlsx({"Words": [row.split(",") if row else [] for row in rows]})
    extracted = extract(Content(sheet), "words.xlsx")
    assert extracted is not None
    assert extracted.body.split("\n\n", 1)[1].split("\n") == lines
