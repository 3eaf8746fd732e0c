"""Memories that are corrected, undone, superseded, expired, forgotten or purged."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from memory_kit import DAY_MS, SECOND_MS, START_MS, Clock, texts

from ctx.clock import parse_ms
from ctx.errors import BadRequest, Conflict, CtxError, NotFound
from ctx.memory.bank import MemoryBank
from ctx.memory.records import Provenance
from ctx.memory.rows import SqliteRows
from ctx.memory.store import MemoryStore

# -- changing ------------------------------------------------------------------------------------------------


def test_an_update_is_written_searched_and_remembered(bank: MemoryBank, clock: Clock) -> None:
    stored = bank.put("User prefers Python", importance=3)
    clock.pass_ms(SECOND_MS)
    reply = bank.update(stored["id"], {"text": "User prefers Haskell", "importance": 8})
    assert (reply["changed"], reply["record"]["version"], reply["record"]["updated"]) == (
        ["importance", "text"],
        2,
        START_MS + SECOND_MS,
    )
    assert bank.search("Python", mode="keyword")["total"] == 0
    assert texts(bank, "Haskell") == ["User prefers Haskell"]
    steps = bank.history(stored["id"])
    assert [(step["version"], step["op"]) for step in steps] == [(1, "put"), (2, "update")]
    assert steps[1]["changed"]["text"] == {"from": "User prefers Python", "to": "User prefers Haskell"}


def test_correcting_a_text_updates_its_date(bank: MemoryBank, clock: Clock) -> None:
    id = bank.put("Lunch with Ana tomorrow", timestamp="2020-02-28T22:30:00Z")["id"]
    days = [bank.get(id)["event_date"]]
    for text in ("Lunch with Ana yesterday", "Lunch with Ana", "Lunch with Ana on 3 February"):
        record = bank.update(id, {"text": text})["record"]
        days.append(record["event_date"])
    assert days == [parse_ms("2020-02-29"), parse_ms("2020-02-27"), None, parse_ms("2020-02-03")]
    record = bank.update(id, {"timestamp": "2019-01-15"})["record"]
    assert record["event_date"] == parse_ms("2019-02-03")  # the nearest one, seen from then
    record = bank.update(id, {"event_date": "2020-02-10"})["record"]
    assert (record["event_date"], record["event_end"]) == (parse_ms("2020-02-10"), None)
    record = bank.update(id, {"text": "Lunch with Ana last Friday"})["record"]
    assert record["event_date"] == parse_ms("2020-02-10"), "a day that was given stays"


def test_an_update_of_a_version_that_is_gone_is_a_conflict(bank: MemoryBank) -> None:
    stored = bank.put("v1")
    bank.update(stored["id"], {"text": "v2"}, expect_version=1)
    with pytest.raises(Conflict) as caught:
        bank.update(stored["id"], {"text": "v3"}, expect_version=1)
    assert caught.value.data == {"version": 2}
    record = bank.get(stored["id"])
    assert record is not None
    assert record["text"] == "v2"


def test_undo_leaves_alone_what_was_changed_since_and_says_so(bank: MemoryBank) -> None:
    ids = [bank.put(f"note number {number}", context="n")["id"] for number in range(3)]
    deletion = bank.delete_where({"context": "n"})
    bank.undo(deletion["op_id"])
    bank.update(ids[0], {"text": "changed"})
    with pytest.raises(Conflict):
        bank.undo(deletion["op_id"])
    stored = bank.put_many([{"text": "a b"}, {"text": "c d"}])
    bank.update(stored["ids"][0], {"text": "e f"})
    reply = bank.undo(stored["op_id"])
    assert (reply["count"], reply["skipped"]) == (1, [stored["ids"][0]])


# -- taking another's place ----------------------------------------------------------------------------------


def test_what_was_superseded_is_kept_hidden_and_found_as_of_its_time(bank: MemoryBank, clock: Clock) -> None:
    older = bank.put("User lives in Berlin")
    clock.pass_ms(DAY_MS)
    newer = bank.put("User lives in Munich", supersedes=[older["id"]])
    assert [entry["id"] for entry in newer["superseded"]] == [older["id"]]
    clock.pass_ms(DAY_MS)
    assert texts(bank, "where does the user live") == ["User lives in Munich"]
    assert texts(bank, "where does the user live", as_of=START_MS + 1) == ["User lives in Berlin"]
    assert set(texts(bank, "where does the user live", include_superseded=True)) == {
        "User lives in Berlin",
        "User lives in Munich",
    }
    record = bank.get(older["id"])
    assert record is not None
    assert (record["superseded_by"], record["valid_to"]) == (newer["id"], START_MS + DAY_MS)
    assert bank.count() == 1
    assert bank.count(as_of=START_MS + 1) == 1


# -- leaving -------------------------------------------------------------------------------------------------


def test_an_expired_memory_is_not_found_but_not_deleted(bank: MemoryBank, clock: Clock) -> None:
    stored = bank.put("The build is red", expires_at=START_MS + DAY_MS)
    clock.pass_ms(DAY_MS - 1)
    assert texts(bank, "build") == ["The build is red"]
    clock.pass_ms(1)
    assert (texts(bank, "build"), bank.get(stored["id"]), bank.count()) == ([], None, 0)
    assert len(list(bank.export())) == 1


def test_deleting_a_session_leaves_others_and_can_be_undone(store: MemoryStore) -> None:
    """A9: the store's part."""
    mine = store.bank("p", Provenance(session="mine"))
    theirs = store.bank("p", Provenance(session="theirs"))
    mine.put("mine one")
    mine.put("mine two")
    theirs.put("theirs one")
    deletion = mine.delete_where({"session": "mine"})
    assert deletion["count"] == 2
    assert [item["text"] for item in theirs.browse()["items"]] == ["theirs one"]
    assert mine.undo(deletion["op_id"])["count"] == 2
    assert mine.count() == 3


def test_an_empty_filter_deletes_nothing(bank: MemoryBank) -> None:
    bank.put("x")
    empty: list[Any] = [{}, None, {"all": []}]
    for empty_reply in empty:
        with pytest.raises(BadRequest):
            bank.delete_where(empty_reply)
    assert bank.count() == 1


def test_a_purge_leaves_no_word_of_the_text_in_any_table(store: MemoryStore, bank: MemoryBank) -> None:
    stored = bank.put("xylophone quartz", metadata={"note": "xylophone"}, alias="memory_1_x")
    bank.update(stored["id"], {"text": "xylophone zebra"})
    bank.delete(stored["id"], hard=True)
    assert bank.get(stored["id"], include_deleted=True) is None
    assert bank.search("xylophone")["results"] == []
    with store.rows.reading() as reader:
        names = (
            "SELECT name FROM sqlite_master WHERE type = 'table'"
            if isinstance(store.rows, SqliteRows)
            else "SELECT tablename FROM pg_tables WHERE tablename LIKE 'memor%'"
        )
        tables = [row[0] for row in reader.connection.execute(names).fetchall()]
        assert "memory_history" in tables
        for table in tables:
            if table.startswith("memory_words_") and table != "memory_words_content":
                continue  # the index of words names terms until it merges; the terms lead nowhere
            for row in reader.connection.execute(f"SELECT * FROM {table}"):
                assert not any(isinstance(value, str) and "xylophone" in value for value in row), table


def test_purging_a_successor_revives_the_memory(bank: MemoryBank, clock: Clock) -> None:
    first = bank.put("I live in Berlin")
    clock.pass_ms(DAY_MS)
    later = bank.put("I live in Paris now", supersedes=[first["id"]])
    assert texts(bank, "Where do I live?") == ["I live in Paris now"]
    bank.delete(later["id"], hard=True)
    assert texts(bank, "Where do I live?") == ["I live in Berlin"]


# -- what cannot be done -------------------------------------------------------------------------------------


def test_a_refusal_says_what_to_give_instead(bank: MemoryBank) -> None:
    bank.put("The desk is oak")
    attempts: list[tuple[Callable[[], object], type[CtxError], str]] = [
        (lambda: bank.update("nobody", {"text": "x"}), NotFound, "'nobody' in this bank .* to see ids"),
        (lambda: bank.undo("no-such-op"), NotFound, "no such operation .* has its op_id"),
        (lambda: bank.browse(cursor="???"), BadRequest, "leave it out for the first page"),
        (lambda: bank.put("x", event_date="2026-02-31"), BadRequest, "'2026-02-31'.*write 2026-05-03"),
        (
            lambda: bank.search("x", filter={"created": {"lt": "soon"}}),
            BadRequest,
            "'soon'.*write 2026-05-03",
        ),
    ]
    for attempt, error, message in attempts:
        with pytest.raises(error, match=message):
            attempt()
    assert (bank.count(), len(bank.journal())) == (1, 1)


def test_edits_at_once_of_one_memory_are_steps_of_one_history(bank: MemoryBank) -> None:
    id = bank.put("The desk is number 0")["id"]
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda n: bank.update(id, {"text": f"The desk is number {n}"}), range(1, 9)))
    assert sorted(reply["record"]["version"] for reply in replies) == list(range(2, 10))
    steps = [step["changed"]["text"] for step in bank.history(id)[1:]]
    assert [step["from"] for step in steps] == ["The desk is number 0", *(step["to"] for step in steps[:-1])]
    record = bank.get(id)
    assert record is not None
    assert record["text"] == steps[-1]["to"]
    assert texts(bank, "desk") == [record["text"]]


def test_a_statement_of_two_documents_survives_one_of_them(store: MemoryStore) -> None:
    bank = store.bank("alice")
    for document in ("one", "two", None):
        assert bank.put("The tulips are red", document_id=document)["created"]
    assert not bank.put("The tulips are red.", document_id="two")["created"]
    bank.delete_where({"document_id": "one"})
    assert [record["document_id"] for record in bank.browse()["items"]] == [None, "two"]


def test_what_is_dated_in_the_future_is_not_the_latest_word_for_good(
    store: MemoryStore, clock: Clock
) -> None:
    bank = store.bank("alice")
    planned = bank.put("I live in Ulm", timestamp="9999-01-01")
    record = bank.get(planned["id"])
    assert (record["timestamp"], record["event_date"]) == (START_MS, 253_370_764_800_000)
    clock.pass_ms(SECOND_MS)
    bank.put("I live in Bonn", supersedes=[planned["id"]])
    assert texts(bank, "Where do I live?")[0] == "I live in Bonn"


def test_several_are_forgotten_in_one_operation_or_none_is(bank: MemoryBank) -> None:
    tea, coffee, cocoa = (
        bank.put(f"There is {drink} in the cupboard")["id"] for drink in ("tea", "coffee", "cocoa")
    )
    with pytest.raises(NotFound, match="no memory with the id 'nobody'"):
        bank.delete_all([tea, "nobody"])
    assert bank.count() == 3
    assert bank.delete_all([tea, tea, coffee], dry_run=True) == {"count": 2, "op_id": None}
    reply = bank.delete_all([tea, tea, coffee])
    assert (reply["count"], bank.count()) == (2, 1)
    assert bank.undo(reply["op_id"])["count"] == 2
    assert [bank.get(id) is not None for id in (tea, coffee, cocoa)] == [True, True, True]


def test_correcting_when_it_was_said_moves_its_validity(bank: MemoryBank, clock: Clock) -> None:
    older = bank.put("I live in Rome")["id"]
    clock.pass_ms(10 * DAY_MS)
    newer = bank.put("I moved from Rome to Oslo", supersedes=[older])["id"]
    said_ms = START_MS - 30 * DAY_MS
    corrected = bank.update(older, {"timestamp": said_ms})
    assert [record["id"] for record in bank.every(as_of=said_ms + DAY_MS)] == [older]
    bank.update(newer, {"timestamp": START_MS - 20 * DAY_MS})
    assert [record["id"] for record in bank.every(as_of=START_MS - 21 * DAY_MS)] == [older]
    assert [record["id"] for record in bank.every(as_of=START_MS - 19 * DAY_MS)] == [newer]
    assert bank.update(older, {"timestamp": START_MS})["record"]["valid_to"] == START_MS
    with pytest.raises(Conflict):
        bank.undo(corrected["op_id"])


def test_as_of_a_day_is_as_of_its_end(bank: MemoryBank) -> None:
    older = bank.put("I live in Rome", timestamp="2024-05-03T10:00:00Z")["id"]
    newer = bank.put("I live in Oslo", timestamp="2024-05-05T10:00:00Z", supersedes=[older])["id"]
    days = {"2024-05-02": [], "2024-05-03": [older], "2024-05-04": [older], "2024-05-05": [newer]}
    assert {day: [record["id"] for record in bank.every(as_of=day)] for day in days} == days
    assert [record["id"] for record in bank.every(as_of="2024-05-05T00:00:00Z")] == [older]
