"""Moving memories between stores of any engine."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from memory_kit import SECOND_MS, WORDS, Clock, WordEmbedder

from ctx.errors import BadRequest
from ctx.memory.activity import Sessions
from ctx.memory.ops import call
from ctx.memory.store import MemoryStore, MovedMemories, check_target, move_memories
from ctx.models import JSON


def quiet(step: str, count: int, total: int) -> None:
    pass


def moved(origin: MemoryStore, target: MemoryStore, *, replace: bool = False) -> MovedMemories:
    if not replace:
        check_target(origin.rows, target.rows)
    return move_memories(origin.rows, target.rows, progress=quiet)


def fill(store: MemoryStore, clock: Clock, count: int = 60) -> list[str]:
    """Memories of two banks, of all kinds and states; the ids of operations."""
    lots = random.Random(5)
    op_ids = []
    for name in ("alice", "bruno"):
        bank = store.bank(name)
        bank.configure({"mission": "tea"})
        for number in range(count):
            clock.pass_ms(SECOND_MS)
            reply = bank.put(
                " ".join(lots.choices(WORDS, k=lots.randint(3, 12))),
                importance=lots.choice([None, 1, 2.5, 7.0]),
                tags=lots.sample(["x", "ü", "nul \0"], k=2),
                metadata={"n": number, "text": "zero \0 and \x1a"},
                alias=f"name {number}",
                idempotency_key=f"key {number}",
                session=lots.choice([None, "s1"]),
            )
            op_ids.append(reply["op_id"])
        bank.put_many([{"text": "User: hello"}, {"text": "Anna: good morning"}], {"label": "talk"})
        ids = [record["id"] for record in bank.browse(limit=10)["items"]]
        bank.update(ids[0], {"text": "something else"})
        bank.put("another one in its place", supersedes=[ids[1]], dedupe="off")
        bank.delete(ids[2], reason="not any more")
        bank.delete(ids[3], hard=True)
        bank.search("tea", touch=True)
    store.bank("carla").put("what Carla knows of boats")
    store.merge("carla", "bruno")
    store.bank("doomed").put("what nobody needs")
    store.delete("doomed")
    return op_ids


def answers(store: MemoryStore) -> list[JSON]:
    """What every bank replies to every way of reading."""
    replies: list[JSON] = [store.banks()]
    for name in store.banks():
        bank = store.bank(name)
        for query in (*WORDS, "who drinks tea in Berlin", "boats of Anna"):
            replies.append(call(bank, "search", {"query": query, "limit": 100}))
        replies += [
            list(bank.export(include_deleted=True)),
            bank.journal(limit=1000),
            bank.stats(),
            bank.config(),
        ]
        for record in bank.browse(limit=1000, include_superseded=True)["items"]:
            replies.append([bank.history(record["id"]), bank.sessions(record["id"])])
    return replies


@pytest.fixture
def stores(tmp_path: Path, place: str, clock: Clock) -> Iterator[list[MemoryStore]]:
    """One in a file, one in a file or a database, and another one in a file."""
    opened = [
        MemoryStore(address, WordEmbedder(), clock)
        for address in (str(tmp_path / "a.db"), place, str(tmp_path / "b.db"))
    ]
    yield opened
    for store in opened:
        assert store.check(deep=True) == []
        store.close()


@pytest.mark.slow
def test_memories_move_there_and_back_with_their_history_and_give_the_same_answers(
    stores: list[MemoryStore], clock: Clock
) -> None:
    origin, middle, end = stores
    fill(origin, clock)
    expected = answers(origin)
    sessions = [Sessions(lambda store=store: store.rows, "sekha", clock=clock) for store in stores]  # type: ignore[misc]
    session = sessions[0].open(place="/project")
    first, second = moved(origin, middle), moved(middle, end)
    assert sessions[2].open(place="/project") == session
    assert first.digest == second.digest
    assert (first.banks, first.memories) == (2, second.memories)
    assert answers(middle) == expected
    assert answers(end) == expected


def test_what_was_moved_goes_on_as_it_would_have(stores: list[MemoryStore], clock: Clock) -> None:
    origin, middle, _ = stores
    op_ids = fill(origin, clock, 10)
    moved(origin, middle)
    bank = middle.bank("alice")
    before = bank.count()
    repeated: dict[str, Any] = {"tags": ["x"], "idempotency_key": "key 0"}
    with pytest.raises(Exception, match="another request"):
        bank.put("something else under a key that was used", **repeated)
    assert bank.undo(op_ids[4])["count"] == 1
    for number in range(3):
        assert bank.put(f"a new one, {number}", kind="note")["created"]
    assert bank.count() == before + 2
    assert middle.bank("dora").put("a bank of its own")["created"]
    numbers = [line["no"] for name in middle.banks() for line in middle.bank(name).journal(limit=1000)]
    assert len(numbers) == len(set(numbers))


def test_a_move_that_was_broken_off_changes_nothing_and_is_run_again(
    stores: list[MemoryStore], clock: Clock
) -> None:
    origin, middle, _ = stores
    fill(origin, clock, 10)

    class BrokenOff(Exception):
        pass

    def break_off(step: str, count: int, total: int) -> None:
        raise BrokenOff

    with pytest.raises(BrokenOff):
        move_memories(origin.rows, middle.rows, progress=break_off)
    assert middle.banks() == []
    first = moved(origin, middle)
    assert answers(middle) == answers(origin)
    assert move_memories(origin.rows, middle.rows, progress=break_off) == first, "nothing is left to copy"


def test_banks_of_its_own_are_dropped_only_where_that_is_asked_for(
    stores: list[MemoryStore], clock: Clock
) -> None:
    origin, middle, _ = stores
    middle.bank("zoe").put("what only Zoe knows")
    clock.pass_ms(SECOND_MS)
    fill(origin, clock, 3)
    with pytest.raises(BadRequest, match="zoe"):
        moved(origin, middle)
    assert moved(origin, middle, replace=True).banks == 2
    assert middle.banks() == ["alice", "bruno"]


def test_what_was_written_since_it_was_moved_is_not_moved_over_unless_that_is_asked_for(
    stores: list[MemoryStore], clock: Clock
) -> None:
    origin, middle, _ = stores
    fill(origin, clock, 5)
    moved(origin, middle)
    origin.bank("alice").put("what came later, where it was")
    moved(origin, middle)
    assert middle.bank("alice").count() == origin.bank("alice").count(), "all that is there came from here"
    middle.bank("alice").put("what came later, where it is")
    middle.delete("bruno")
    with pytest.raises(BadRequest, match="alice, /2"):
        moved(origin, middle)
    assert middle.bank("alice").search("came later where it is", mode="keyword")["results"]
    assert moved(origin, middle, replace=True).banks == 2
