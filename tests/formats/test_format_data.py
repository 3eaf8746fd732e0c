"""CSV, TSV and JSON as searchable lines."""

import json

import pytest

from ctx.formats.extract import extract
from ctx.models import Content, Extracted


def read(text: str, name: str) -> Extracted:
    extracted = extract(Content(text), name)
    assert extracted is not None
    return extracted


def test_a_row_of_csv_names_its_columns_on_the_line_that_it_has_in_the_file() -> None:
    extracted = read("city,height,note\nMarken,1,\nUrk,7,old island\n", "places.csv")
    assert (
        extracted.body
        == "city | height | note\ncity: Marken; height: 1\ncity: Urk; height: 7; note: old island"
    )
    assert (extracted.title, extracted.media_type) == ("places", "text/csv")


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ";"), ("a.tsv", "\t"), ("a.csv", "|"), ("a.csv", ",")])
def test_the_separator_is_the_one_that_every_line_has(name: str, mark: str) -> None:
    text = "\n".join(mark.join(row) for row in (("name", "sum"), ("Ada", "3.5"), ("Bob", "4.5")))
    assert read(text, name).body.split("\n")[1] == "name: Ada; sum: 3.5"


def test_the_separator_that_excel_names_is_no_row() -> None:
    assert read("sep=;\r\nname;sum\r\nAda;3,5\r\n", "a.csv").body == "\nname | sum\nname: Ada; sum: 3,5"


@pytest.mark.parametrize("mark", [",", ";", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_quoted_cell_may_hold_separators_and_lines_and_every_row_keeps_its_line(
    mark: str, end: str
) -> None:
    rows = ("name@note", 'Ada@"one@ two', "three", "", 'four"', "", " @ ", 'Bob@"so; and, so|"', "", "")
    lines = read(end.join(rows).replace("@", mark), "a.csv").body.split("\n")
    assert lines == [
        "name | note",
        f"name: Ada; note: one{mark} two three four",
        *("", "", "", "", ""),
        "name: Bob; note: so; and, so|",
    ]


@pytest.mark.parametrize("text", ["one column\nof words\n", 'a,b\n"open' + "x" * 200_000, "word"])
def test_a_file_without_a_table_is_read_as_text(text: str) -> None:
    assert read(text, "a.csv").body == text


def test_records_are_apart_and_their_names_are_headings() -> None:
    records = [
        {
            "name": f"Ship {number}",
            "port": "Harlingen",
            "crew": [{"role": "cook", "age": 40}],
            "tags": ["a", "b"],
        }
        for number in (1, 2)
    ]
    extracted = read(json.dumps(records), "ships.json")
    block = "name: Ship {}\nport: Harlingen\ncrew:\n  - role: cook\n    age: 40\ntags: a, b"
    assert extracted.body == block.format(1) + "\n\n" + block.format(2)
    assert [heading.title for heading in extracted.headings] == ["Ship 1", "Ship 2"]
    lines = "\n".join(json.dumps(record) for record in records)
    assert read(lines, "ships.jsonl").body == extracted.body


def test_escapes_become_the_characters_they_mean() -> None:
    assert read('{"title": "Caf\\u00e9", "text": "one\\ntwo \\ud83d"}', "a.json").body == (
        "title: Café\ntext: one\n  two \ufffd"
    )


@pytest.mark.parametrize(
    "text",
    ["// a comment\n{}", "[" * 100_000, '{"a": 1}}', "{", "[1, 2", "[" * 900 + "1,2" + "]" * 900 + " "],
)
def test_invalid_json_is_read_as_text(text: str) -> None:
    assert "1" in read(text, "a.json").body or read(text, "a.json").body == text


def test_numbers_keep_their_spelling() -> None:
    text = '{"price": 7.50, "many": 1e3, "more": 1e400, "tiny": -0.1e-7, "ids": [123456789012345678901, 2.0]}'
    assert [line for line in read(text, "prices.json").body.split("\n") if line] == [
        "price: 7.50",
        "many: 1e3",
        "more: 1e400",
        "tiny: -0.1e-7",
        "ids: 123456789012345678901, 2.0",
    ]


def test_blanks_after_a_separator_are_dropped() -> None:
    text = 'name, place, note\nfoo, "Bonn, Germany", "x"\nbar, Urk, y\n'
    assert read(text, "places.csv").body.split("\n")[1:] == [
        "name: foo; place: Bonn, Germany; note: x",
        "name: bar; place: Urk; note: y",
    ]


def test_an_unfinished_last_record_does_not_lose_the_others() -> None:
    records = ['{"name": "Caf\\u00e9"}', '{"name": "Dike"}', '{"name": "Slu']
    assert read("\n".join(records), "log.jsonl").body.split() == [
        "name:",
        "Café",
        "name:",
        "Dike",
        *records[2].split(),
    ]
    assert read("\n".join(reversed(records)), "log.jsonl").body.startswith('{"name": "Slu\n')
