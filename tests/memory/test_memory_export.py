"""Export and import of a bank, byte for byte."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_kit import START_MS, Clock, WordEmbedder, texts

from ctx.errors import BadRequest
from ctx.memory.bank import MemoryBank
from ctx.memory.records import Provenance
from ctx.memory.store import MemoryStore

_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(str.strip)
_json = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        _text,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_text, inner, max_size=3)),
    max_leaves=6,
)
_fields = st.fixed_dictionaries(
    {"text": _text},
    optional={
        "context": _text,
        "label": _text,
        "type": _text,
        "role": st.sampled_from(["user", "assistant"]),
        "folder": st.sampled_from(["/", "/a b/ü", "/x"]),
        "importance": st.one_of(st.integers(0, 10), st.floats(0, 10)),
        "metadata": st.dictionaries(_text, _json, max_size=3),
        "tags": st.lists(_text, max_size=3),
        "event_date": st.integers(-(10**12), 10**13),
        "expires_at": st.integers(START_MS + 10_000, 10**13),
        "status": st.sampled_from(["active", "archived"]),
    },
)


def filled(bank: MemoryBank, clock: Clock) -> None:
    first = bank.put("User lives in Berlin", alias="memory_1_old", metadata={"n": 1.0, "m": 1})
    clock.pass_ms(5)
    bank.put("User lives in Munich", supersedes=[first["id"]])
    reply = bank.put_many(
        [{"text": "a\u2028b", "role": "user"}, {"text": "ok"}], {"label": "talk", "folder": "/w"}
    )
    bank.touch([reply["id"]])
    bank.delete(bank.put("gone")["id"])
    bank.update(reply["ids"][1], {"text": "changed"})


def test_a_bank_moved_to_another_file_is_exported_as_the_same_bytes(tmp_path: Path) -> None:
    clock = Clock()
    with (
        MemoryStore(str(tmp_path / "a.db"), None, clock) as first_store,
        MemoryStore(str(tmp_path / "b.db"), WordEmbedder(), clock) as second,
    ):
        bank = first_store.bank("alice", Provenance(session="s1", pack="sekha"))
        filled(bank, clock)
        lines = list(bank.export(include_deleted=True))
        moved = second.bank("bob")
        clock.pass_ms(1_000_000)
        assert moved.import_(line + "\n" for line in lines) == {"imported": 6, "skipped": 0, "conflicts": []}
        assert list(moved.export(include_deleted=True)) == lines
        assert moved.import_(lines) == {"imported": 0, "skipped": 6, "conflicts": []}
        assert texts(moved, "where does the user live", mode="keyword") == ["User lives in Munich"]
        assert moved.search("Munich", mode="semantic")["total"] > 0
        older = moved.get("memory_1_old")
        assert older is not None
        assert (older["bank"], older["session"]) == ("bob", "s1")
        assert second.check(deep=True) == []


@settings(max_examples=30, deadline=None)
@given(st.lists(_fields, min_size=1, max_size=6))
def test_any_memories_survive_the_round_trip(
    tmp_path_factory: pytest.TempPathFactory, drafts: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("trip")
    clock = Clock()
    with MemoryStore(str(folder / "ctx.db"), None, clock) as store:
        bank, twin = store.bank("a"), store.bank("b")
        for fields in drafts:
            bank.put(dedupe="off", **fields)
        lines = list(bank.export())
        assert len(lines) == len(drafts)
        assert all("\n" not in line for line in lines)
        twin.import_(lines)
        assert list(twin.export()) == lines
        records = {record["id"]: record for record in bank.browse(limit=100)["items"]}
        for record in twin.browse(limit=100)["items"]:
            assert {**record, "bank": "a"} == records[record["id"]]
        assert store.check(deep=True) == []


def test_a_memory_that_differs_under_the_same_id_is_named_and_left_alone(tmp_path: Path) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), None, Clock()) as store:
        bank = store.bank("a")
        reply = bank.put("mine")
        lines = list(bank.export())
        bank.update(reply["id"], {"text": "mine, corrected"})
        assert bank.import_(lines) == {"imported": 0, "skipped": 0, "conflicts": [reply["id"]]}
        record = bank.get(reply["id"])
        assert record is not None
        assert record["text"] == "mine, corrected"


@pytest.mark.parametrize(
    "broken",
    [
        lambda line: line[:-1],
        lambda line: "[]",
        lambda line: json.dumps({**json.loads(line), "text": "forged"}),
        lambda line: json.dumps({**json.loads(line), "colour": 1}),
        lambda line: json.dumps({**json.loads(line), "id": "../x"}),
        lambda line: json.dumps({**json.loads(line), "version": "1"}),
        lambda line: json.dumps({**json.loads(line), "created": None}),
        lambda line: json.dumps({**json.loads(line), "metadata": 3}),
        lambda line: "[" * 100_000,
        lambda line: line.replace('"text":"two"', '"text":"\\ud800"'),
    ],
)
def test_a_line_that_is_not_of_an_export_is_named_and_nothing_of_its_batch_is_stored(
    tmp_path: Path, broken: Any
) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), None, Clock()) as store:
        bank = store.bank("a")
        bank.put("one")
        bank.put("two")
        lines = sorted(bank.export(), key=lambda line: '"text":"two"' in line)
        target = store.bank("b")
        with pytest.raises(BadRequest, match="line 2"):
            target.import_([lines[0], broken(lines[1])])
        assert target.count() == 0


@pytest.mark.parametrize("since", ["read", "forgotten", "replaced"])
def test_import_skips_existing_memories(tmp_path: Path, since: str) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), None, Clock()) as store:
        bank = store.bank("a")
        id = bank.put("I live in Berlin")["id"]
        lines = list(bank.export())
        if since == "read":
            bank.touch([id])
        elif since == "forgotten":
            bank.delete(id)
        else:
            bank.put("I live in Paris", supersedes=[id])
        state = list(bank.export(include_deleted=True))
        assert bank.import_(lines) == {"imported": 0, "skipped": 1, "conflicts": []}
        assert list(bank.export(include_deleted=True)) == state
