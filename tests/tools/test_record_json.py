"""The JSON of a record."""

from ctx.models import Copy, Passage, SearchResult, Symbol, record_json, record_schema
from ctx.tools.schema import compile_check

SWIM = Symbol("swim", "method", 5, 6)
RESULT = SearchResult(
    id="7f8a",
    source="filesystem",
    source_id="notes/otter.md",
    title="Otters",
    score=0.12345678,
    snippet="An otter swims.",
    source_url=None,
    updated_ms=1_769_999_999_123,
    heading="Rivers",
    start_line=3,
    end_line=7,
    highlights=((3, 8), (9, 14)),
    symbol=Symbol("Otter", "class", 3, 7),
    passages=(Passage("Further down", highlights=((0, 7),), symbol=SWIM), Passage("And last", symbol=SWIM)),
    also_in=(Copy("8c1d", "filesystem", "v1/otter.md"),),
)


def test_a_result_is_told_field_by_field() -> None:
    shown = record_json(RESULT)
    assert list(shown.items()) == [
        ("id", "7f8a"),
        ("source", "filesystem"),
        ("source_id", "notes/otter.md"),
        ("title", "Otters"),
        ("score", 0.123457),
        ("snippet", "An otter swims."),
        ("source_url", None),
        ("updated_at", "2026-02-02T02:39:59.123Z"),
        ("heading", "Rivers"),
        ("start_line", 3),
        ("end_line", 7),
        ("highlights", [[3, 8], [9, 14]]),
        ("symbol", {"name": "Otter", "kind": "class", "start_line": 3, "end_line": 7}),
        (
            "passages",
            [
                {
                    "snippet": "Further down",
                    "heading": "",
                    "start_line": 1,
                    "end_line": 1,
                    "highlights": [[0, 7]],
                    "symbol": {"name": "swim", "kind": "method", "start_line": 5, "end_line": 6},
                },
                {
                    "snippet": "And last",
                    "heading": "",
                    "start_line": 1,
                    "end_line": 1,
                    "highlights": [],
                    "symbol": {"name": "swim", "kind": "method", "start_line": 5, "end_line": 6},
                },
            ],
        ),
        ("also_in", [{"id": "8c1d", "source": "filesystem", "source_id": "v1/otter.md"}]),
    ]
    fits = compile_check(record_schema(SearchResult))
    assert fits(shown) == shown
