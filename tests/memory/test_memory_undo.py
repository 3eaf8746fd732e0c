"""Undo and restore."""

from collections.abc import Callable

import pytest
from memory_kit import DAY_MS, Clock

from ctx.errors import Conflict, NotFound
from ctx.memory.bank import MemoryBank
from ctx.memory.imports import import_from
from ctx.memory.imports.replies import Source


def _forget(bank: MemoryBank, id: str) -> object:
    return bank.delete(id)


def _purge(bank: MemoryBank, id: str) -> object:
    return bank.delete(id, hard=True)


@pytest.mark.parametrize("lose", [_forget, _purge])
def test_what_comes_back_holds_where_its_successor_is_gone(
    bank: MemoryBank, clock: Clock, lose: Callable[[MemoryBank, str], object]
) -> None:
    older = bank.put("I live in Berlin")["id"]
    clock.pass_ms(DAY_MS)
    newer = bank.put("I moved from Berlin to Paris", supersedes=[older])["id"]
    forgotten = bank.delete(older)
    lose(bank, newer)
    undone = bank.undo(forgotten["op_id"])
    assert [record["text"] for record in bank.every()] == ["I live in Berlin"]
    bank.undo(undone["op_id"])
    assert bank.count() == 0


def test_a_clock_that_was_set_back_keeps_the_order(bank: MemoryBank, clock: Clock) -> None:
    bank.put("first")
    clock.pass_ms(-3_600_000)
    bank.put("second")
    assert [record["text"] for record in bank.browse(order="-created")["items"]] == ["second", "first"]


def test_undo_restores_both_of_a_superseded_pair(bank: MemoryBank) -> None:
    older = bank.put("I live in Berlin")["id"]
    newer = bank.put("I moved from Berlin to Paris", supersedes=[older])["id"]
    bank.undo(bank.delete_all([older, newer])["op_id"])
    assert [record["id"] for record in bank.every()] == [newer]
    record = bank.get(older)
    assert record is not None
    assert record["superseded_by"] == newer


def test_no_request_that_comes_again_brings_back_what_was_erased(bank: MemoryBank) -> None:
    stored = bank.put("The vault code is 4711", idempotency_key="k")
    bank.delete(stored["id"], hard=True)
    with pytest.raises(Conflict, match="erased"):
        bank.put("The vault code is 4711", idempotency_key="k")
    export = Source(None, b'{"results": [{"id": "1", "memory": "The vault code is 4711"}]}')
    assert import_from(bank, "mem0", export)["imported"] == 1
    for record in list(bank.every()):
        bank.delete(record["id"], hard=True)
    assert import_from(bank, "mem0", export) == {"imported": 0, "skipped": 1, "unread": []}
    assert bank.count(include_superseded=True) == 0


def test_one_memory_is_brought_back_whatever_was_forgotten_with_it(bank: MemoryBank) -> None:
    ids = [bank.put(f"note number {number}")["id"] for number in range(3)]
    bank.delete_all(ids)
    restored = bank.restore(ids[1])
    assert restored["count"] == 1
    assert [record["id"] for record in bank.every()] == [ids[1]]
    assert bank.search("note number 1", mode="keyword")["results"][0]["record"]["id"] == ids[1]
    assert bank.restore(ids[1]) == {"count": 0, "op_id": None}
    bank.undo(restored["op_id"])
    assert bank.count() == 0
    with pytest.raises(NotFound):
        bank.restore("fact_000000000000")


def test_a_conversation_is_brought_back_with_what_was_forgotten_with_it(bank: MemoryBank) -> None:
    talk = bank.put_many([{"text": "one"}, {"text": "two"}, {"text": "three"}], {"label": "talk"})
    bank.delete(talk["ids"][0])
    bank.delete(talk["id"])
    with pytest.raises(Conflict, match=talk["id"]):
        bank.restore(talk["ids"][1])
    assert bank.restore(talk["id"])["count"] == 3
    assert [record["text"] for record in bank.children(talk["id"])["items"]] == ["two", "three"]
