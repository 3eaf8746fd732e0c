"""What one call of a tool writes, and that it is taken back if the call fails."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctx.errors import ToolError
from ctx.memory.bank import MemoryBank
from ctx.memory.ops import BankCall
from ctx.memory.store import MemoryStore


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[MemoryBank]:
    with MemoryStore(str(tmp_path / "ctx.db"), None) as store:
        yield store.bank("alice")


@pytest.fixture
def context(bank: MemoryBank) -> BankCall:
    return BankCall(bank)


def test_a_call_that_fails_takes_back_what_it_wrote_and_nothing_else(
    bank: MemoryBank, context: BankCall
) -> None:
    bank.put("the lighthouse is white")
    context.put(text="the harbour is closed")
    context.put_many(items=[{"text": "one"}, {"text": "two"}])
    context.take_back()
    assert [record["text"] for record in bank.browse()["items"]] == ["the lighthouse is white"]


def test_a_container_and_a_change_of_its_content_are_taken_back(bank: MemoryBank, context: BankCall) -> None:
    items = [{"text": "one"}, {"text": "two"}]
    stored = context.put_many(items=items, container={"label": "talk"})
    context.update(id=stored["ids"][0], patch={"text": "three"})
    context.take_back()
    assert bank.browse()["items"] == []


def test_what_comes_after_the_end_of_a_call_writes_nothing(bank: MemoryBank, context: BankCall) -> None:
    context.take_back()
    with pytest.raises(ToolError, match="the call has ended"):
        context.put(text="too late")
    assert bank.count() == 0
    assert context.count() == 0


def test_a_call_that_fails_leaves_what_another_wrote_for_the_same_request(
    bank: MemoryBank, context: BankCall
) -> None:
    request = {"text": "the lighthouse is white", "idempotency_key": "k"}
    first = context.put(**request)
    later = BankCall(bank)
    assert later.put(**request)["id"] == first["id"]
    later.take_back()
    assert bank.count() == 1
    context.take_back()
    assert bank.count() == 0
    assert context.count() == 0
    assert bank.put(**request)["created"], "what was taken back is stored when it is asked for again"
    assert bank.count() == 1


def test_all_that_a_call_wrote_is_taken_back_in_one_operation(bank: MemoryBank, context: BankCall) -> None:
    id = bank.put("the lighthouse is white")["id"]
    before = bank.get(id)
    for text in ("the lighthouse is red", "the lighthouse is green"):
        context.update(id=id, patch={"text": text})
    made = context.put(text="the harbour is closed")["id"]
    context.update(id=made, patch={"text": "the harbour is open"})
    context.delete(id=id)
    context.take_back()
    assert [line["op"] for line in bank.journal()[-2:]] == ["delete", "undo"]
    [record] = bank.browse()["items"]
    assert before is not None
    assert {name: record[name] for name in ("id", "text", "content_hash")} == {
        name: before[name] for name in ("id", "text", "content_hash")
    }
    assert bank.search("green", mode="keyword")["total"] == 0
