"""The filter language, held to a reading of it in plain Python."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_kit import START_MS, Clock

from ctx.errors import BadRequest
from ctx.memory import MemoryBank, MemoryStore

FOLDERS = ["/", "/work", "/work/api", "/workshop", "/a%b", "/a%b/c_d"]
WORDS = ["alpha", "beta", "Alpha", "", "50%", "a_b", "ünï", "it's"]
NUMBERS = [0, 1, 2.5, 5, 10]
METADATA_VALUES = [None, True, False, 0, 1, 2.5, "1", "alpha", "true", ["a"], {"b": "alpha"}]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.cluster)])
def bank(request: pytest.FixtureRequest) -> Iterator[MemoryBank]:
    clock = Clock()
    if request.param == "sqlite":
        address = str(request.getfixturevalue("tmp_path_factory").mktemp("filters") / "ctx.db")
    else:
        address = request.getfixturevalue("postgres_server").database()
    with MemoryStore(address, None, clock) as store:
        reply = store.bank("a")
        containers = [
            reply.put_many([], {"label": word, "folder": folder})["id"]
            for word, folder in (("alpha", "/work"), ("beta", "/a%b"))
        ]
        number = 0
        for folder in [None, *FOLDERS]:
            for value in METADATA_VALUES:
                number += 1
                clock.pass_ms(500)
                word = WORDS[number % len(WORDS)]
                reply.put(
                    f"text {number} {word}",
                    kind="note",
                    folder=folder,
                    context=word if number % 3 else None,
                    importance=NUMBERS[number % 5] if number % 4 else None,
                    tags=[tag for tag in ("x", "y", "z z") if number % (len(tag) + 1)],
                    metadata={} if number % 7 == 0 else {"v": value, "deep": {"k": value}},
                    event_date=None if number % 2 else START_MS + number * 86_400_000,
                    parent=None if number % 3 else containers[number % 2],
                )
        yield reply


def same(vectors: Any, expected: Any) -> bool:
    if isinstance(vectors, bool) != isinstance(expected, bool) or isinstance(vectors, str) != isinstance(
        expected, str
    ):
        return False
    equal: bool = vectors == expected
    return equal


def compare(operator: str, vectors: Any, expected: Any) -> bool:
    if operator == "exists":
        return (vectors is not None) is bool(expected)
    if operator in ("eq", "ne"):
        equal = (
            vectors is None
            if expected is None
            else vectors is not None and not isinstance(vectors, list | dict) and same(vectors, expected)
        )
        return equal == (operator == "eq")
    if operator in ("in", "not_in"):
        return any(compare("eq", vectors, first_store) for first_store in expected) == (operator == "in")
    if operator in ("contains", "starts", "under"):
        if not isinstance(vectors, str):
            return False
        if operator == "under":
            folder = expected.rstrip("/")
            return vectors == (folder or "/") or vectors.startswith(folder + "/")
        return expected in vectors if operator == "contains" else vectors.startswith(expected)
    comparable = (
        isinstance(vectors, str) == isinstance(expected, str)
        and not isinstance(vectors, bool | list | dict)
        and vectors is not None
    )
    if not comparable:
        return False
    if isinstance(vectors, str):  # SQLite compares bytes
        vectors, expected = vectors.encode(), expected.encode()
    return bool(
        {
            "lt": vectors < expected,
            "lte": vectors <= expected,
            "gt": vectors > expected,
            "gte": vectors >= expected,
        }[operator]
    )


def holds(filter: Any, record: Any, by_id: dict[str, Any]) -> bool:
    for key, value in filter.items():
        if key in ("all", "any", "none"):
            each = [holds(first_store, record, by_id) for first_store in value]
            if not {"all": all(each), "any": any(each), "none": not any(each)}[key]:
                return False
            continue
        owner = record
        if key.startswith("parent."):
            key, owner = key.removeprefix("parent."), by_id.get(record["parent"])
            if owner is None:
                return False
        if key in ("tags", "flags"):
            vectors = owner[key]
            operators = value if isinstance(value, dict) else {"has": value}
            expected: dict[str, Any] = {
                "has": lambda first_store, vectors=vectors: first_store in vectors,
                "has_all": lambda many, vectors=vectors: all(first_store in vectors for first_store in many),
                "has_any": lambda many, vectors=vectors: any(first_store in vectors for first_store in many),
                "has_only": lambda many, vectors=vectors: set(vectors) <= set(many),
                "exists": lambda first_store, vectors=vectors: bool(vectors) == first_store,
            }
            if not all(expected[operator](operand) for operator, operand in operators.items()):
                return False
            continue
        vectors = owner
        for part in key.split(".") if key.startswith(("metadata.", "source.")) else [key]:
            vectors = vectors.get(part) if isinstance(vectors, dict) else None
        operators = (
            value if isinstance(value, dict) else {"in": value} if isinstance(value, list) else {"eq": value}
        )
        if not all(compare(operator, vectors, operand) for operator, operand in operators.items()):
            return False
    return True


_words = st.sampled_from(WORDS)
_text = st.one_of(
    _words,
    st.fixed_dictionaries(
        {},
        optional={
            "ne": st.one_of(_words, st.none()),
            "in": st.lists(_words, max_size=3),
            "contains": _words,
            "lt": _words,
        },
    ).filter(bool),
    st.fixed_dictionaries({"exists": st.booleans()}),
    st.fixed_dictionaries({"starts": _words, "not_in": st.lists(_words, max_size=2)}),
    st.none(),
)
_number = st.one_of(
    st.sampled_from(NUMBERS),
    st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(NUMBERS) for name in ("lt", "lte", "gt", "gte", "ne", "eq")}
    ).filter(bool),
    st.none(),
)
_plain = st.sampled_from([value for value in METADATA_VALUES if not isinstance(value, list | dict)])
_sized = st.sampled_from([0, 1, 2.5, "1", "alpha", "b"])
_any_value = st.one_of(
    _plain,
    st.fixed_dictionaries(
        {},
        optional={"ne": _plain, "in": st.lists(_plain, max_size=3), "not_in": st.lists(_plain, max_size=3)},
    ).filter(bool),
    st.fixed_dictionaries({}, optional={"lt": _sized, "lte": _sized, "gt": _sized, "gte": _sized}).filter(
        bool
    ),
    st.fixed_dictionaries(
        {}, optional={"exists": st.booleans(), "contains": _words, "starts": _words}
    ).filter(bool),
)
_leaf = st.one_of(
    st.builds(
        lambda key, value: {key: value}, st.sampled_from(["context", "parent.label", "session"]), _text
    ),
    st.builds(
        lambda key, value: {key: value},
        st.sampled_from(["importance", "access_count", "parent.importance", "event_date"]),
        _number,
    ),
    st.builds(lambda value: {"folder": {"under": value}}, st.sampled_from([*FOLDERS, "/work/"])),
    st.builds(lambda value: {"parent.folder": {"under": value}}, st.sampled_from(FOLDERS)),
    st.builds(
        lambda key, value: {key: value},
        st.sampled_from(
            ["metadata.v", "metadata.deep.k", "metadata.deep", "metadata.none", "parent.metadata.v"]
        ),
        _any_value,
    ),
    st.builds(
        lambda value: {"tags": value},
        st.one_of(
            st.sampled_from(["x", "z z", "w"]),
            st.fixed_dictionaries(
                {},
                optional={
                    "has_all": st.lists(st.sampled_from("xyw"), max_size=2),
                    "has_any": st.lists(st.sampled_from("xyw"), max_size=2),
                    "has_only": st.lists(st.sampled_from("xyw"), max_size=2),
                    "exists": st.booleans(),
                },
            ).filter(bool),
        ),
    ),
)
_filters = st.recursive(
    _leaf,
    lambda inner: st.one_of(
        st.builds(
            lambda group, parts: {group: parts},
            st.sampled_from(["all", "any", "none"]),
            st.lists(inner, max_size=3),
        ),
        st.builds(lambda first_store, other: {**first_store, **other}, inner, inner),
    ),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_filters)
def test_a_filter_admits_what_python_says_it_does(bank: MemoryBank, filter: Any) -> None:
    records = bank.browse(limit=1000)["items"]
    by_id = {record["id"]: record for record in records}
    expected = {record["id"] for record in records if holds(filter, record, by_id)}
    assert {record["id"] for record in bank.browse(filter, limit=1000)["items"]} == expected
    assert bank.count(filter) == len(expected)


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
