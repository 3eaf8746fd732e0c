"""What the commands share in reading values and printing tables and progress."""

import time
from pathlib import Path

import pytest
from kit import project, workspace

from ctx.cli import output
from ctx.cli.extensions import read_values
from ctx.connectors.walk import may_still_change
from ctx.errors import BadRequest
from ctx.indexing.status import Change
from ctx.text.strings import counted, first_few

SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "mode": {"enum": ["keyword", "hybrid"]},
        "limit": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "id": {"type": ["string", "integer"]},
        "source": {"anyOf": [{"type": "string"}, {"type": "array"}]},
        "filters": {
            "type": "object",
            "properties": {
                "since": {"type": "string"},
                "place": {"type": "object", "properties": {"zip": {"type": "string"}}},
            },
        },
    },
}


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("query=42", "42"),
        ("query=true", "true"),
        ("query=null", "null"),
        ('query="quoted"', '"quoted"'),
        ("query=", ""),
        ("query=a=b", "a=b"),
        ("mode=hybrid", "hybrid"),
        ("limit=3", 3),
        ("limit=three", "three"),
        ('tags=["a", "b"]', ["a", "b"]),
        ("id=7", 7),
        ("source=2024", "2024"),
        ('source=["a"]', ["a"]),
        ("filters.since=2026", {"since": "2026"}),
        ('filters={"since": "x"}', {"since": "x"}),
        ("filters.place.zip=01234", {"place": {"zip": "01234"}}),
        ("filters.place.of.old=1", {"place": {"of.old": 1}}),  # nothing says that `of` is an object
        ("unheard=7", 7),
        ("unheard=of", "of"),
        ("unheard=1e400", "1e400"),
        ("unheard=NaN", "NaN"),
        ("tags=[1e999]", "[1e999]"),
    ],
)
def test_the_schema_decides_what_a_value_is(pair: str, value: object) -> None:
    assert list(read_values([pair], SCHEMA).values()) == [value]


def test_a_value_that_is_nested_too_deeply_is_a_text() -> None:
    deep = "[" * 100_000
    assert read_values([f"unheard={deep}"], SCHEMA) == {"unheard": deep}


def test_what_is_no_pair_is_refused() -> None:
    for pair in ("query", "=x", ""):
        with pytest.raises(BadRequest, match="is not KEY=VALUE"):
            read_values([pair], SCHEMA)
    with pytest.raises(BadRequest, match="as a whole and in parts"):
        read_values(["filters=2", "filters.since=2026"], SCHEMA)


ROWS = [("filesystem:docs", "1,234", "a note that is rather long for a narrow terminal"), ("git", "5", "")]
HEADERS = ("SOURCE", "DOCUMENTS", "NOTE")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_table_fits_the_terminal_and_loses_nothing(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: width)
    text = output.table(ROWS, HEADERS)
    assert all(len(line) <= width for line in text.splitlines())
    assert all(word in text for word in ("1,234", *ROWS[0][2].split()))


def test_a_table_in_a_pipe_is_as_wide_as_it_needs_and_numbers_are_on_the_right() -> None:
    assert output.table(ROWS, HEADERS).splitlines() == [
        "SOURCE           DOCUMENTS  NOTE",
        "filesystem:docs      1,234  a note that is rather long for a narrow terminal",
        "git                      5",
    ]


def test_counts_are_words() -> None:
    assert (counted(1, "chunk"), counted(1200, "chunk")) == ("1 chunk", "1,200 chunks")


def test_a_long_run_knows_its_total_and_a_short_one_is_not_counted_first(tmp_path: Path) -> None:
    config = project(tmp_path, {f"{number}.md": f"# {number}\n\nwords\n" for number in range(600)})
    stats = [path.stat() for path in (tmp_path / "docs").iterdir()]
    while any(may_still_change(st, time.time_ns()) for st in stats):
        pass  # what was written this very moment is read again by the next run
    reports: list[tuple[str, int, int | None]] = []
    with workspace(config) as space:
        space.indexer.run(progress=lambda *report: reports.append(report))
        assert reports == [("filesystem:docs", 256, 600), ("filesystem:docs", 512, 600)]
        reports.clear()
        (tmp_path / "docs" / "new.md").write_text("# New\n")
        (report,) = space.indexer.run(progress=lambda *report: reports.append(report))
        assert (report.added, reports) == (1, [])
        assert report.changes == (Change("added", "new.md"),)


def test_long_lists_of_names_are_cut() -> None:
    assert first_few(["a.md"]) == "a.md"
    assert first_few([f"{n}.md" for n in range(3)]) == "0.md, 1.md, 2.md"
    assert first_few([f"{n}.md" for n in range(1203)]) == "0.md, 1.md, 2.md and 1,200 more"
