"""Two banks become one, and nothing of what happened in either is lost."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from memory_kit import SECOND_MS, Clock, WordEmbedder, texts

from ctx.errors import Conflict, NotFound
from ctx.memory import MemoryStore, Provenance


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


def test_banks_are_merged_again_and_again(store: MemoryStore) -> None:
    first = store.bank("a").put("Ada keeps bees")
    store.merge("a", "b")
    store.bank("c").put("Carl keeps hens")
    store.merge("b", "c")
    assert store.bank("c").undo(first["op_id"])["count"] == 1
    assert store.bank("c").count() == 1
    assert store.check(deep=True) == []
    store.bank("a").put("Another bank of the old name")
    assert len(store.bank("a").journal()) == 1
    with pytest.raises(NotFound):
        store.bank("a").undo(first["op_id"])
    store.delete("c")
    assert store.check(deep=True) == []
    with store.rows.reading() as reader:
        assert reader.scalar("SELECT count(*) FROM memory_journal") == 1


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


def test_banks_are_merged_whoever_read_what_both_hold(store: MemoryStore) -> None:
    bank, copy = store.bank("alice"), store.bank("bob")
    id = bank.put("Tea is served at four")["id"]
    copy.import_(list(bank.export()))
    store.bank("bob", Provenance(session="s")).touch([id])
    bank.put("The harbour is closed")
    expected = {"imported": 1, "skipped": 1, "conflicts": []}
    assert store.merge("alice", "bob", dry_run=True) == expected
    assert store.merge("alice", "bob") == expected
    assert copy.count() == 2


def test_of_banks_that_are_renamed_at_once_one_has_the_name(store: MemoryStore) -> None:
    for number in range(12):
        store.bank(f"b{number}").put(f"the number is {number}")

    def rename(bank: str, name: str) -> str | None:
        try:
            store.rename(bank, name)
        except (Conflict, NotFound):
            return None
        return name

    with ThreadPoolExecutor(12) as pool:
        taken = list(pool.map(rename, [f"b{number}" for number in range(12)], ["x"] * 12))
        again = list(pool.map(rename, ["x"] * 12, [f"y{number}" for number in range(12)]))
    assert taken.count("x") == 1
    [name] = filter(None, again)
    assert sorted(store.banks()) == sorted([name, *(f"b{n}" for n in range(12) if taken[n] is None)])
