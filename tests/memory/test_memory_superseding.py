"""`similar` in a reply, `supersedes`, and their effect on recall."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_kit import DAY_MS, Clock, WordEmbedder, texts

from ctx.errors import BadRequest, Conflict
from ctx.memory.bank import MemoryBank
from ctx.memory.records import Provenance
from ctx.memory.store import MemoryStore

WHERE = "Where does the user live?"
BERLIN, PARIS = "User lives in Berlin near the river", "User lives in Paris near the river"


@pytest.fixture(params=["words", "vectors", "model"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[MemoryStore]:
    embedders = {"words": lambda: None, "vectors": WordEmbedder}
    chosen = embedders.get(request.param, lambda: request.getfixturevalue("minilm"))()
    with MemoryStore(str(tmp_path / "ctx.db"), chosen, clock) as opened:
        yield opened


@pytest.fixture
def bank(store: MemoryStore) -> MemoryBank:
    return store.bank("alice", Provenance(session="s1"))


def test_a_write_lists_what_is_close_and_the_caller_replaces_it(bank: MemoryBank, clock: Clock) -> None:
    older = bank.put(BERLIN)
    assert older["similar"] == []
    bank.put("The printer on floor two is broken")
    clock.pass_ms(DAY_MS)
    newer = bank.put(PARIS)
    [close] = newer["similar"]
    assert (close["id"], close["text"], close["said"]) == (older["id"], BERLIN, "2025-10-09T08:53:20Z")
    assert 0 < close["score"] <= 1
    assert set(texts(bank, WHERE, limit=2)) == {BERLIN, PARIS}

    linked = bank.put(PARIS, supersedes=[older["id"]])
    assert (linked["id"], linked["created"]) == (newer["id"], False), "nothing is stored twice"
    assert [entry["text"] for entry in linked["superseded"]] == [BERLIN]
    assert linked["similar"] == []
    assert BERLIN not in texts(bank, WHERE)
    both = bank.search(WHERE, include_superseded=True, limit=2)["results"]
    assert {result["record"]["text"] for result in both} == {BERLIN, PARIS}
    [old] = [result for result in both if result["record"]["text"] == BERLIN]
    assert old["newer"][0] == newer["id"]

    bank.undo(linked["op_id"])
    assert set(texts(bank, WHERE, limit=2)) == {BERLIN, PARIS}


def test_an_existing_memory_replaces_another_by_itself(bank: MemoryBank, clock: Clock) -> None:
    older, newer = bank.put(BERLIN)["id"], bank.put(PARIS)["id"]
    reply = bank.supersede([older], newer)
    assert reply["superseded"] == [{"id": older, "text": BERLIN, "said": "2025-10-09T08:53:20Z"}]
    assert bank.count() == 1
    assert bank.supersede([older], newer) == {"superseded": [], "op_id": None}
    with pytest.raises(BadRequest, match=f"'{newer}' replaced this memory"):
        bank.supersede([newer], older)
    with pytest.raises(BadRequest, match=f"'{newer}' is the memory itself"):
        bank.supersede([newer], newer)
    bank.undo(reply["op_id"])
    assert bank.count() == 2


def test_an_id_that_cannot_be_replaced_is_named_and_nothing_is_stored(
    store: MemoryStore, bank: MemoryBank
) -> None:
    own = bank.put(BERLIN)["id"]
    foreign = store.bank("bob").put("Bob's secret")["id"]
    talk = bank.put_many([{"text": "hello", "role": "user"}], {"label": "talk"})["id"]
    gone = bank.put("Forgotten")["id"]
    bank.delete(gone)
    lines = list(bank.export(include_deleted=True))
    for id in ("fact_000000000000", foreign, talk, gone, "x" * 40):
        with pytest.raises(BadRequest, match=id):
            bank.put("User lives in Oslo", supersedes=[own, id])
        with pytest.raises(BadRequest, match=id):
            bank.supersede([id], own)
    with pytest.raises(BadRequest, match=own):
        bank.put(BERLIN, supersedes=[own])
    with pytest.raises(BadRequest, match=own):
        bank.put_many([{"text": "hi", "role": "user"}], {"label": "b"}, supersedes=[own])
    for broken in ("text", [1], {"a": 1}):
        with pytest.raises(BadRequest, match="a list of ids"):
            bank.put("User lives in Oslo", supersedes=broken)  # type: ignore[arg-type]
    assert list(bank.export(include_deleted=True)) == lines
    taken = bank.put(PARIS, supersedes=[own])["id"]
    with pytest.raises(Conflict, match=taken):
        bank.put("User lives in Oslo", supersedes=[own])


def test_superseding_in_a_circle_is_refused(bank: MemoryBank) -> None:
    first = bank.put(BERLIN)["id"]
    second = bank.put(PARIS, supersedes=[first])["id"]
    third = bank.put("User lives in Oslo near the river", supersedes=[second])["id"]
    with pytest.raises(BadRequest, match=third):
        bank.supersede([third], first)
    assert texts(bank, "lives in Berlin") == ["User lives in Oslo near the river"]


def test_at_most_three_live_memories_are_similar_closest_first(bank: MemoryBank, clock: Clock) -> None:
    for city in ("Berlin", "Oslo", "Rome", "Lima", "Bern"):
        clock.pass_ms(1)
        bank.put(f"User lives in {city} near the river and the old bridge")
    bank.delete(bank.browse(order="created", limit=1)["items"][0]["id"])
    similar = bank.put("User lives in Paris near the river and the old bridge")["similar"]
    scores = [entry["score"] for entry in similar]
    assert len(similar) == 3
    assert scores == sorted(scores, reverse=True)
    assert all("Berlin" not in entry["text"] for entry in similar)


def test_a_conversation_replaces_another_with_its_messages(bank: MemoryBank, clock: Clock) -> None:
    def stored(answer: str, **options: object) -> dict[str, object]:
        items = [
            {"text": "Where is the team offsite held this year?", "role": "user"},
            {"text": f"The team offsite is held in {answer} this year", "role": "assistant"},
        ]
        reply: dict[str, object] = bank.put_many(items, {"label": "offsite"}, **options)  # type: ignore[arg-type]
        return reply

    older = stored("Porto")
    clock.pass_ms(DAY_MS)
    newer = stored("Ghent")
    assert [entry["id"] for entry in newer["similar"]] == [older["id"]]  # type: ignore[attr-defined]
    linked = stored("Ghent", supersedes=[older["id"]])
    assert (linked["id"], linked["ids"], linked["created"]) == (newer["id"], newer["ids"], 0)
    question = "Where is the team offsite?"
    messages = {"kind": "message"}
    assert not any("Porto" in text for text in texts(bank, question, filter=messages))
    both = texts(bank, question, filter=messages, include_superseded=True)
    assert any("Porto" in text for text in both)
    assert any("Ghent" in text for text in both)
    bank.undo(str(linked["op_id"]))
    assert any("Porto" in text for text in texts(bank, question, filter=messages))


def test_a_newer_similar_memory_is_named(tmp_path: Path, clock: Clock, minilm: WordEmbedder) -> None:
    with MemoryStore(str(tmp_path / "twins.db"), minilm, clock) as store:
        bank = store.bank("alice")
        earlier = bank.put("The standup is at 9:30 every day")["id"]
        clock.pass_ms(DAY_MS)
        later = bank.put("The standup is at 10:15 every day")["id"]
        bank.put("The canteen closes at two")
        newer = {
            result["record"]["id"]: result.get("newer") for result in bank.search("standup time")["results"]
        }
    assert newer[earlier] == [later]
    assert newer[later] is None
