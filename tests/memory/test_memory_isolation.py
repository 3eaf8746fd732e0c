"""Eight banks in one file: no operation on one sees, counts or changes another."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from memory_kit import Clock, WordEmbedder

from ctx.errors import CtxError, NotFound
from ctx.memory.bank import MemoryBank
from ctx.memory.ops import OPS, call
from ctx.memory.records import Provenance
from ctx.memory.store import MemoryStore

BANKS = [f"bank-{number}" for number in range(8)]


def canary(name: str) -> str:
    return f"secretof{name.replace('-', '')}"


def fill(bank: MemoryBank) -> dict[str, str]:
    """Puts the same kinds of memories into a bank, each with the bank's own word; the ids and op_ids to try
    elsewhere.
    """
    word = canary(bank.id)
    first = bank.put(
        f"User likes apples {word}", context="shared context", tags=["t"], alias=f"memory_1_{word}"
    )
    second = bank.put(f"User likes pears {word}", context="shared context", supersedes=[first["id"]])
    talk = bank.put_many([{"text": f"hello apples {word}"}], {"label": f"talk {word}", "folder": "/work"})
    deletion = bank.delete(bank.put(f"gone apples {word}")["id"])
    bank.configure({"mission": word})
    record = bank.get(first["id"])
    assert record is not None
    return {
        "id": first["id"],
        "newer": second["id"],
        "container": talk["id"],
        "deleted": deletion["op_id"],
        "made": talk["op_id"],
        "alias": f"memory_1_{word}",
        "hindsight": record["aliases"]["hindsight"],
    }


def attempts_on(foreign: list[str], exported: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Operation -> what is tried with it from bank 0: every id, alias and operation of the others, and what
    one exported.
    """
    return {
        "put": [{"text": f"x {number}", "supersedes": [id]} for number, id in enumerate(foreign)]
        + [{"text": "y", "parent": id, "kind": "message"} for id in foreign],
        "put_many": [{"items": [{"text": "z", "parent": id}]} for id in foreign],
        "get": [{"id": id, "include_deleted": True} for id in foreign],
        "get_many": [{"ids": foreign, "include_deleted": True}],
        "children": [{"id": id} for id in foreign],
        "update": [{"id": id, "patch": {"text": "taken over"}} for id in foreign],
        "delete": [{"id": id, "hard": hard} for id in foreign for hard in (False, True)],
        "delete_where": [{"filter": {"text": {"contains": canary(name)}}} for name in BANKS[1:]]
        + [{"filter": {"id": {"in": foreign}}}, {"filter": {"parent": {"in": foreign}}}],
        "undo": [{"op_id": id} for id in foreign],
        "restore": [{"id": id} for id in foreign],
        "touch": [{"ids": foreign}],
        "list": [{"filter": {"context": "shared context"}, "include_superseded": True, "limit": 1000}],
        "count": [
            {
                "filter": {"any": [{"text": {"contains": canary(name)}} for name in BANKS[1:]]},
                "include_superseded": True,
            }
        ],
        "stats": [{"group_by": "session"}, {"group_by": "label"}],
        "search": [
            {
                "query": f"{canary(name)} apples likes talk",
                "limit": 1000,
                "budget": "high",
                "include_superseded": True,
                "mode": mode,
            }
            for name in BANKS[1:]
            for mode in ("hybrid", "keyword", "semantic")
        ],
        "synthesize": [{"query": f"what of {canary(name)} apples", "budget": "high"} for name in BANKS[1:3]],
        "briefing": [{"topic": f"{canary(name)} apples"} for name in BANKS[1:3]],
        "history": [{"id": id} for id in foreign],
        "contents": [{"ids": foreign}],
        "journal": [{"limit": 1000}],
        "supersede": [{"ids": [id], "by": id} for id in foreign],
        "sessions": [{"id": id} for id in foreign],
        "export": [{"include_deleted": True}],
        "import": [{"content": "\n".join(exported)}],
        "exists": [{}],
        "config": [{}],
        "configure": [{"config": {}}],
    }


def check_attempt(mine: MemoryBank, op: str, argument: dict[str, Any]) -> None:
    """Tries one; of the other banks nothing may come back."""
    strangers = [canary(name) for name in BANKS[1:]]
    try:
        reply = json.dumps(call(mine, op, argument))
    except NotFound:
        return
    except CtxError as error:
        if op in ("put", "supersede") and "no memory with the id" in error.message:
            return
        raise AssertionError(f"{op}: {error.message}") from error
    refused = ("children", "update", "delete", "undo", "restore", "history", "sessions")
    assert op not in refused, (op, argument)
    # A question's own words come back in the gaps of an answer; no record of another bank does.
    answer = (
        json.dumps(json.loads(reply)["based_on"])
        if op == "synthesize"
        else reply.replace(json.dumps(argument)[1:-1], "")
    )
    assert not [word for word in strangers if word in answer], (op, argument)


def test_no_operation_of_one_bank_reaches_another(tmp_path: Path) -> None:
    """Each operation is tried from bank 0 with every id, alias and operation of the others; a new operation
    must join this test.
    """
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder(), Clock()) as store:
        names = {name: fill(store.bank(name, Provenance(session=f"s-{name}"))) for name in BANKS}
        before = {name: list(store.bank(name).export(include_deleted=True)) for name in BANKS[1:]}
        journals = {name: store.bank(name).journal(limit=1000) for name in BANKS[1:]}
        mine = store.bank(BANKS[0])
        foreign = [value for name in BANKS[1:] for value in names[name].values()]
        attempts = attempts_on(foreign, before[BANKS[1]])
        assert set(attempts) == set(OPS)
        for op, arguments in attempts.items():
            if op != "import":
                for argument in arguments:
                    check_attempt(mine, op, argument)
        assert {name: list(store.bank(name).export(include_deleted=True)) for name in BANKS[1:]} == before
        # What bank 1 exported may be brought into bank 0 by whoever holds it; the other bank's records stay
        # their own.
        imported = call(mine, "import", attempts["import"][0])
        assert imported["imported"] == len(before[BANKS[1]])
        call(mine, "delete", {"id": names[BANKS[1]]["container"], "hard": True})
        assert list(store.bank(BANKS[1]).export(include_deleted=True)) == before[BANKS[1]]
        assert {name: store.bank(name).journal(limit=1000) for name in BANKS[1:]} == journals
        assert store.check(deep=True) == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda bank: bank.search("apples"),
        lambda bank: bank.browse(),
        lambda bank: bank.stats(group_by="context"),
    ],
)
def test_what_one_bank_answers_does_not_change_when_another_writes(
    tmp_path: Path, ask: Callable[[MemoryBank], object]
) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder(), Clock()) as store:
        bank = store.bank("a")
        for number in range(20):
            bank.put(f"apples and pears {number}")
        before = ask(bank)
        for number in range(60):
            store.bank("b").put(f"apples apples {number}")
        assert ask(bank) == before
