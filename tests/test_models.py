"""Ids, hashes and times that stay the same across versions, and the JSON of a record."""

import hashlib
import random
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx.clock import iso_utc, parse_ms
from ctx.models import (
    Copy,
    Passage,
    SearchResult,
    Symbol,
    document_id,
    embedding_text,
    outline,
    record_json,
    record_schema,
    text_hash,
)
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


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_a_document_id_is_a_version_5_uuid_of_its_place(source: str, source_id: str) -> None:
    assert document_id(source, source_id) == str(uuid.uuid5(uuid.NAMESPACE_OID, f"{source}\0{source_id}"))


def test_the_embedded_text_leads_with_title_and_heading_once() -> None:
    assert embedding_text("Guide", "Setup > Linux", "apt install") == "Guide > Setup > Linux\napt install"
    assert embedding_text("Guide", "Guide", "text") == "Guide\ntext"
    assert embedding_text("", "", "text") == "text"
    assert len(text_hash("x")) == 16


def test_what_configurations_are_told_apart_by_is_the_same_in_every_version() -> None:
    value = ("docs", ("**/*.md",), True, "a name that is not UTF-8: \udc80")
    assert outline(value) == hashlib.sha256(repr(value).encode()).hexdigest()[:16]
    assert outline(value, 12) == outline(value)[:12]


def test_times_are_those_of_the_calendar_in_utc() -> None:
    chance = random.Random(4)
    first, last = parse_ms("0001-01-01"), parse_ms("9999-12-31", end_of_day=True)
    for ms in [first, last, 0, -1, 999, *(chance.randint(first, last) for _ in range(2_000))]:
        text = iso_utc(ms)
        told = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
        assert datetime.fromisoformat(text) == told
        assert text.endswith("Z")
        assert ("." in text) == bool(ms % 1000)
        assert parse_ms(text) == ms
    for beyond in (first - 1, last + 1, 10**18):
        with pytest.raises(OverflowError):
            iso_utc(beyond)
