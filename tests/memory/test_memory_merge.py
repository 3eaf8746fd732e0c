"""Merging two banks keeps the history of both."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_kit import SECOND_MS, Clock, WordEmbedder, texts

from ctx.errors import Conflict, NotFound
from ctx.memory.store import MemoryStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    clock = Clock()
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder(), clock) as store:
        clock.pass_ms(SECOND_MS)
        yield store


def test_the_history_of_merged_memories_is_seen_and_taken_back(store: MemoryStore) -> None:
    bob, alice = store.bank("bob"), store.bank("alice")
    tea = bob.put("Tea is served at four", alias="memory_1_tea", idempotency_key="k")
    changed = bob.update(tea["id"], {"text": "Tea is served at five"})
    coffee = bob.put("Coffee is in the cellar")
    forgotten = bob.delete(coffee["id"])
    before = bob.history(tea["id"])
    alice.put("The harbour freezes over")
    texts(alice, "harbour")  # its vectors are in memory now
    counts = store.merge("bob", "alice")
    assert counts == {"imported": 2, "skipped": 0, "conflicts": []}
    assert store.banks() == ["alice"]
    assert alice.history(tea["id"]) == before
    assert texts(alice, "tea served")[0] == "Tea is served at five"
    assert texts(alice, "tea served", mode="keyword")[0] == "Tea is served at five"
    assert alice.get("memory_1_tea") is not None
    assert [line["op"] for line in alice.journal()] == ["put", "update", "put", "delete", "put", "merge"]
    assert alice.undo(changed["op_id"])["count"] == 1
    assert alice.undo(forgotten["op_id"])["count"] == 1
    assert texts(alice, "tea served")[0] == "Tea is served at four"
    assert texts(alice, "coffee cellar")[0] == "Coffee is in the cellar"
    assert alice.put("Tea is served at four", alias="memory_1_tea", idempotency_key="k")["id"] == tea["id"]
    assert store.check(deep=True) == []


def test_no_bank_takes_back_what_was_merged_into_another(store: MemoryStore) -> None:
    operation = store.bank("bob").put("Tea is served at four")
    store.bank("eve").put("Eve listens")
    store.merge("bob", "alice")
    with pytest.raises(NotFound):
        store.bank("eve").undo(operation["op_id"])


def test_where_one_id_says_two_things_nothing_is_merged(store: MemoryStore) -> None:
    bob = store.bank("bob")
    twin, differing = bob.put("Tea is served at four"), bob.put("Coffee is in the cellar")
    store.bank("alice").import_(list(bob.export()))
    dry = store.merge("bob", "alice", dry_run=True)
    assert dry == {"imported": 0, "skipped": 2, "conflicts": []}
    bob.update(differing["id"], {"text": "Coffee is in the attic"})
    bob.put("Milk is in the fridge")
    counts = store.merge("bob", "alice")
    assert counts["conflicts"] == [differing["id"]]
    assert (bob.count(), store.bank("alice").count()) == (3, 2)
    assert bob.get(twin["id"]) is not None
    with pytest.raises(Conflict):
        bob.update(differing["id"], {"text": "Coffee is gone"}, expect_version=1)
