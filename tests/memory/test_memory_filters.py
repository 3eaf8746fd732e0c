"""The filter language of memory: what each operator admits, and which mistakes are named."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from memory_kit import Clock

from ctx.errors import BadRequest
from ctx.memory.bank import MemoryBank
from ctx.memory.store import MemoryStore


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.cluster)])
def bank(request: pytest.FixtureRequest) -> Iterator[MemoryBank]:
    """Four notes, a to d; `a` is in a container with a label."""
    if request.param == "sqlite":
        address = str(request.getfixturevalue("tmp_path_factory").mktemp("filters") / "ctx.db")
    else:
        address = request.getfixturevalue("postgres_server").database()
    with MemoryStore(address, None, Clock()) as store:
        bank = store.bank("alice")
        talk = bank.put_many([], {"label": "talk", "folder": "/work"})["id"]
        notes: dict[str, dict[str, Any]] = {
            "a": {"context": "50%", "folder": "/work/api", "importance": 1, "tags": ["x"], "parent": talk},
            "b": {"context": "a_b", "folder": "/workshop", "importance": 2.5, "tags": ["x", "y"]},
            "c": {"context": "it's", "folder": "/work", "metadata": {"v": 1, "deep": {"k": "1"}}},
            "d": {"metadata": {"v": "1"}, "tags": ["z z"]},
        }
        for text, fields in notes.items():
            bank.put(text, kind="note", **fields)
        yield bank


@pytest.mark.parametrize(
    ("filter", "texts"),
    [
        ({"context": "50%"}, "a"),
        ({"context": ["50%", "a_b"]}, "ab"),
        ({"context": {"contains": "%"}}, "a"),
        ({"context": {"contains": "'"}}, "c"),
        ({"context": None}, "d"),
        ({"importance": {"gt": 1, "lte": 2.5}}, "b"),
        ({"folder": {"under": "/work"}}, "ac"),
        ({"folder": {"under": "/"}}, "abc"),
        ({"tags": "x"}, "ab"),
        ({"tags": {"has_all": ["x", "y"]}}, "b"),
        ({"tags": {"has_any": ["y", "z z"]}}, "bd"),
        ({"tags": {"has_only": ["x"]}}, "ac"),
        ({"tags": {"exists": False}}, "c"),
        ({"metadata.v": 1}, "c"),
        ({"metadata.v": "1"}, "d"),
        ({"metadata.v": {"exists": False}}, "ab"),
        ({"metadata.v": {"gte": 1}}, "c"),
        ({"metadata.deep.k": "1"}, "c"),
        ({"parent.label": "talk"}, "a"),
        ({"any": [{"context": "50%"}, {"tags": "y"}]}, "ab"),
        ({"all": [{"tags": "x"}, {"none": [{"tags": "y"}]}]}, "a"),
        ({"any": []}, ""),
    ],
)
def test_a_filter_admits_what_it_describes(bank: MemoryBank, filter: dict[str, Any], texts: str) -> None:
    notes = {"all": [{"kind": "note"}, filter]}
    records = bank.browse(notes, limit=100)["items"]
    assert "".join(sorted(record["text"] for record in records)) == texts
    assert bank.count(notes) == len(texts)


@pytest.mark.parametrize(
    ("filter", "named"),
    [
        ({"importence": 5}, "importence.*importance"),
        ({"importance": {"gt": 5, "let": 3}}, "importance.*let"),
        ({"importance": "high"}, "importance"),
        ({"importance": {}}, "importance"),
        ({"importance": float("inf")}, "importance"),
        ({"importance": 2**70}, "importance"),
        ({"importance": True}, "importance"),
        ({"folder": {"under": 3}}, "folder"),
        ({"folder": {"exists": 1}}, "folder"),
        ({"created": {"gte": "tomorrow-ish"}}, "created"),
        ({"tags": {"contains": "x"}}, "tags"),
        ({"tags": {"has_any": "x"}}, "tags"),
        ({"tags": {"has": 3}}, "tags"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata.": 1}, "metadata"),
        ({'metadata.a" OR 1=1 --': 1}, "metadata"),
        ({"parent.parent.label": "x"}, "parent.parent"),
        ({"deleted_at": {"exists": True}}, "deleted_at"),
        ({"bank": "bob"}, "bank"),
        ({"bank_no": 2}, "bank_no"),
        ({"1=1; --": "x"}, "1=1"),
        ({"any": {"a": 1}}, "any"),
        ({"any": ["x"]}, "any"),
        (["x"], "object"),
        ({"context": {"in": ["x"] * 1001}}, "context"),
        ({"context": {"in": [None]}}, "context"),
        ({"context": {"lt": None}}, "context"),
        ({"context": "\ud800"}, "context"),
    ],
)
def test_a_mistake_in_a_filter_is_named(bank: MemoryBank, filter: Any, named: str) -> None:
    with pytest.raises(BadRequest, match=named):
        bank.browse(filter)


def test_a_filter_is_bounded_in_depth_and_size(bank: MemoryBank) -> None:
    deep: Any = {"kind": "note"}
    for _ in range(20):
        deep = {"all": [deep]}
    with pytest.raises(BadRequest, match="deep"):
        bank.count(deep)
    with pytest.raises(BadRequest, match="conditions"):
        bank.count({"any": [{"kind": "note"}] * 100})


def test_a_bare_date_means_the_whole_day(tmp_path: Path) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), None, Clock()) as store:
        bank = store.bank("a")
        for hour in ("2025-03-01T00:00:00Z", "2025-03-01T23:59:59Z", "2025-03-02T00:00:00Z"):
            bank.put(hour, event_date=hour)
        assert bank.count({"event_date": {"lte": "2025-03-01"}}) == 2
        assert bank.count({"event_date": {"gt": "2025-03-01"}}) == 1
        assert bank.count({"event_date": {"gte": "2025-03-01"}}) == 3
        assert bank.count({"event_date": {"lt": "2025-03-02"}}) == 2
