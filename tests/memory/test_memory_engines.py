"""Memories answer the same whichever engine keeps them, and two servers on one database work on the same
ones.
"""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from memory_kit import WORDS, Clock, WordEmbedder

from ctx.errors import CtxError, StoreError
from ctx.memory import MemoryBank, MemoryStore, call
from ctx.types import MODES

pytestmark = pytest.mark.cluster

# What no two stores have in common: names drawn by lot, and numbers of rows.
OWN = ("op_id", "hash", "undone", "no", "of", "bank_no", "cursor")


class Pair:
    """Two banks that are told the same, one in a file and one in a database."""

    def __init__(self, stores: list[MemoryStore], clock: Clock) -> None:
        self.stores = stores
        self.clock = clock

    def banks(self, name: str) -> list[MemoryBank]:
        return [store.bank(name) for store in self.stores]

    def ask(self, name: str, op: str, *, undoing: Sequence[str] = (), **arguments: Any) -> list[Any]:
        """The replies of both, which are the same. `undoing`: the operation of each that is to be undone."""
        replies = []
        for index, bank in enumerate(self.banks(name)):
            request = {**arguments, **({"op_id": undoing[index]} if undoing else {})}
            try:
                replies.append(call(bank, op, request))
            except CtxError as error:
                replies.append((type(error).__name__, str(error)))
        assert _shared(replies[0]) == _shared(replies[1]), (name, op, arguments)
        return replies


def _shared(reply: Any) -> Any:
    """A reply without what no two stores have in common."""
    if isinstance(reply, dict):
        return {key: _shared(value) for key, value in reply.items() if key not in OWN}
    return [_shared(entry) for entry in reply] if isinstance(reply, list | tuple) else reply


@pytest.fixture(params=[False, True], ids=["words", "hybrid"])
def pair(request: pytest.FixtureRequest, path: str, memory_url: str, clock: Clock) -> Iterator[Pair]:
    stores = []
    for address in (path, memory_url):
        numbers = count(1)
        ids = (f"00000000-0000-4000-8000-{number:012d}" for number in numbers)
        embedder = WordEmbedder() if request.param else None
        stores.append(MemoryStore(address, embedder, clock, new_id=ids.__next__))
    yield Pair(stores, clock)
    for store in stores:
        assert store.check(deep=True) == []
        store.close()


def _sentence(lots: random.Random) -> str:
    return " ".join(lots.choices(WORDS, k=lots.randint(2, 12)))


def _fields(lots: random.Random) -> dict[str, Any]:
    return {
        "text": _sentence(lots),
        "context": lots.choice([None, "work", "über 'quoted' 100% \\ \0 \x1a"]),
        "label": lots.choice([None, "a", "b"]),
        "folder": lots.choice([None, "/work", "/work/api"]),
        "importance": lots.choice([None, 0, 2.5, 5, 7.0, 10]),
        "tags": lots.sample(["x", "y", "ünï", "ends \x1a in it"], k=lots.randint(0, 3)),
        "metadata": lots.choice(
            [
                {},
                {"v": True},
                {"v": 1},
                {"v": 1.5},
                {"v": "1"},
                {"v": None},
                {"v": ["a"]},
                {"v": "zero \\u0000", "nul": "\0\0"},
            ]
        ),
        "session": lots.choice([None, "s1", "s2"]),
    }


def _ids(bank: MemoryBank) -> list[str]:
    return [record["id"] for record in bank.browse(limit=1000, include_superseded=True)["items"]]


def _step(pair: Pair, lots: random.Random, name: str, op_ids: list[list[str]]) -> None:
    """One write to both."""
    ids = _ids(pair.banks(name)[0]) or ["none"]
    id, fields = lots.choice(ids), _fields(lots)
    writes: list[tuple[str, dict[str, Any]]] = [
        ("put", {**fields, "idempotency_key": lots.choice([None, f"key {lots.randrange(5)}"])}),
        ("put_many", {"items": [_fields(lots) for _ in range(3)], "container": {"label": "talk"}}),
        ("put", {**fields, "dedupe": "near", "supersedes": [id]}),
        ("update", {"id": id, "patch": {"text": _sentence(lots), "importance": lots.randint(0, 10)}}),
        ("delete", {"id": id, "reason": "why not"}),
        ("delete", {"id": id, "hard": True}),
        ("delete_where", {"filter": {"metadata.v": fields["metadata"].get("v")}}),
        ("touch", {"ids": [id, lots.choice(ids)]}),
        ("configure", {"config": {"mission": _sentence(lots)}}),
        ("undo", {}),
    ]
    op, arguments = lots.choices(writes, weights=(12, 2, 3, 3, 2, 1, 1, 2, 1, 3))[0]
    undoing = lots.choice(op_ids) if op_ids and op == "undo" else ["none", "none"]
    replies = pair.ask(name, op, undoing=undoing if op == "undo" else (), **arguments)
    if all(isinstance(reply, dict) and reply.get("op_id") for reply in replies):
        op_ids.append([reply["op_id"] for reply in replies])


FILTERS: list[dict[str, Any]] = [
    {"metadata.v": True},
    {"metadata.v": {"gte": 1}},
    {"metadata.v": {"in": ["1", 1.5]}},
    {"metadata.v": {"exists": False}},
    {"metadata.v": {"contains": "u0000"}},
    {"tags": {"has_any": ["x", "ends \x1a in it"]}},
    {"tags": {"has_only": ["x", "y"]}},
    {"context": {"contains": "100%"}},
    {"folder": {"under": "/work"}, "importance": {"gt": 2, "lte": 7}},
    {"label": {"ne": "a"}, "none": [{"session": "s1"}]},
    {"parent.label": "talk"},
    {"created": {"lt": "2025-10-09T08:55:00Z"}},
]


def _questions(pair: Pair, name: str, lots: random.Random) -> None:
    """Every way of reading, of both."""
    for _ in range(12):
        query, filter = _sentence(lots), lots.choice([None, *FILTERS])
        for mode in MODES if pair.stores[0].embedding.model else ("keyword",):
            pair.ask(name, "search", query=query, mode=mode, filter=filter, explain=True)
    for filter in FILTERS:
        for op in ("list", "count", "stats"):
            pair.ask(name, op, filter=filter)
    for order in ("-created", "importance", "-label", "timestamp", "event_date"):
        pair.ask(name, "list", order=order, limit=7)
    for group in ("kind", "label", "tags", "metadata.v", "session"):
        pair.ask(name, "stats", group_by=group)
    pair.ask(name, "export", include_deleted=True)
    pair.ask(name, "journal", limit=1000)
    ids = _ids(pair.banks(name)[0])
    pair.ask(name, "contents", ids=ids)
    pair.ask(name, "stale", idle_days=0, importance=9.5)
    for id in lots.sample(ids, k=min(12, len(ids))):
        for op in ("get", "history", "links", "sessions", "children"):
            pair.ask(name, op, id=id)
    pair.ask(name, "synthesize", query="who drinks tea in Berlin")


@pytest.mark.parametrize("seed", [1, 2])
def test_both_engines_reply_the_same_to_everything(pair: Pair, seed: int) -> None:
    lots = random.Random(seed)
    op_ids: list[list[str]] = []
    for _ in range(60):
        pair.clock.pass_ms(lots.choice([0, 1, 60_000]))
        _step(pair, lots, lots.choice(["alice", "alice", "bruno"]), op_ids)
    for name in ("alice", "bruno"):
        _questions(pair, name, lots)
    replies = [store.merge("bruno", "alice") for store in pair.stores]
    assert replies[0] == replies[1]
    _questions(pair, "alice", lots)


def test_the_likeliest_by_words_are_the_same_ones_in_the_same_order(
    path: str, memory_url: str, clock: Clock
) -> None:
    lots = random.Random(7)
    vocabulary = [f"word{number}" for number in range(60)]
    weights = [1 / (number + 1) for number in range(60)]
    with MemoryStore(path, None, clock) as files, MemoryStore(memory_url, None, clock) as shared:
        for name in ("a", "b"):
            items = [
                {"text": " ".join(lots.choices(vocabulary, weights, k=lots.randint(1, 40)))}
                for _ in range(300)
            ]
            for store in (files, shared):
                store.bank(name).put_many(items)
        queries = [lots.sample(vocabulary, k=lots.randint(1, 6)) for _ in range(60)]
        for query in queries:
            for k in (3, 10, 50, 1000):
                assert _likeliest(files, query, k) == _likeliest(shared, query, k), (query, k)


def _likeliest(store: MemoryStore, words: list[str], k: int) -> list[str]:
    with store.rows.reading("a") as reader:
        nos = reader.by_words(reader.frequencies(words), [], k)
        return [reader.rows([no])[no].text for no in nos]


@pytest.fixture
def servers(memory_url: str, clock: Clock) -> Iterator[list[MemoryStore]]:
    """Two servers on one database."""
    with (
        MemoryStore(memory_url, WordEmbedder(), clock) as first,
        MemoryStore(memory_url, WordEmbedder(), clock) as second,
    ):
        yield [first, second]
        assert first.check(deep=True) == []


def test_what_one_server_stores_the_other_finds_with_its_next_search(servers: list[MemoryStore]) -> None:
    first, second = (store.bank("alice") for store in servers)
    for number, word in enumerate(("tea", "coffee", "water")):
        stored = first.put(f"Anna drinks {word}", kind="note")
        results = second.search(f"{word} for Anna", order="score")["results"]
        assert results[0]["record"]["id"] == stored["id"]
        assert results[0]["record"]["text"] == f"Anna drinks {word}"
        assert len(second.search("Anna drinks", mode="semantic")["results"]) == number + 1
        first, second = second, first
    second.delete(stored["id"])
    assert stored["id"] not in {
        result["record"]["id"] for result in first.search("Anna drinks", mode="semantic")["results"]
    }


def _at_once(acts: list[Callable[[], Any]]) -> list[Any]:
    """What each gives, all begun at the same moment; what one raises is its outcome."""
    start, outcomes = threading.Barrier(len(acts)), [None] * len(acts)

    def run(index: int, act: Callable[[], Any]) -> None:
        start.wait()
        try:
            outcomes[index] = act()
        except Exception as error:
            outcomes[index] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=entry) for entry in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_a_request_that_two_servers_have_at_once_is_stored_once(servers: list[MemoryStore]) -> None:
    def put(store: MemoryStore) -> Callable[[], Any]:
        return lambda: store.bank("alice").put("Anna drinks tea", idempotency_key="k", dedupe="off")

    replies = _at_once([put(servers[number % 2]) for number in range(8)])
    assert len({reply["id"] for reply in replies}) == 1
    assert servers[0].bank("alice").count() == 1


def test_writers_of_one_bank_take_turns_and_its_journal_stays_a_chain(servers: list[MemoryStore]) -> None:
    def write(store: MemoryStore, writer: int) -> Callable[[], Any]:
        return lambda: [
            store.bank("alice").put(f"note {writer} {number}", kind="note") for number in range(6)
        ]

    outcomes = _at_once([write(servers[writer % 2], writer) for writer in range(6)])
    assert [len(outcome) for outcome in outcomes] == [6] * 6
    assert servers[1].bank("alice").count() == 36
    numbers = [line["no"] for line in servers[0].bank("alice").journal(limit=1000)]
    assert numbers == sorted(numbers)
    assert len(numbers) == 36
    assert servers[0].check(deep=True) == []


def test_what_is_written_to_a_bank_while_it_is_merged_stays_in_one_of_the_two(
    servers: list[MemoryStore],
) -> None:
    for number in range(10):
        servers[0].bank("anna").put(f"note {number} of Anna", kind="note")
    servers[0].bank("alice").put("the one of Alice", kind="note")

    def write() -> int:
        for number in range(10):
            servers[1].bank("anna").put(f"later note {number} of Anna", kind="note")
        return 10

    outcomes = _at_once([write, lambda: servers[0].merge("anna", "alice")])
    assert outcomes[0] == 10, outcomes
    total = sum(store.count() for store in (servers[1].bank("alice"), servers[1].bank("anna")))
    assert total == 21


def test_a_bank_that_two_servers_merge_into_each_other_loses_nothing(servers: list[MemoryStore]) -> None:
    for name in ("a", "b"):
        servers[0].bank(name).put(f"what {name} knows", kind="note")
    outcomes = _at_once([lambda: servers[0].merge("a", "b"), lambda: servers[1].merge("b", "a")])
    assert any(not isinstance(outcome, StoreError) for outcome in outcomes)
    assert sum(servers[0].bank(name).count() for name in servers[0].banks()) == 2


def test_a_failure_in_mid_write_leaves_no_trace(
    servers: list[MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = servers[0].bank("alice")
    bank.put("Anna drinks tea")

    def fail(*_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr("ctx.memory.writer.Writer.put_vectors", fail)
    with pytest.raises(StoreError):
        bank.put("Bruno drinks coffee")
    monkeypatch.undo()
    assert servers[1].bank("alice").search("coffee", mode="keyword")["results"] == []
    with servers[1].rows.reading("alice") as reader:
        assert reader.bank.live == 1


def test_a_read_goes_on_where_the_server_ended_its_connection(
    servers: list[MemoryStore], memory_url: str
) -> None:
    import psycopg

    bank = servers[0].bank("alice")
    bank.put("Anna drinks tea")
    with psycopg.connect(memory_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
    assert call(bank, "count", {}) == 1
    assert bank.put("Bruno drinks coffee")["created"]


def test_a_store_says_that_it_is_closed(memory_url: str, tmp_path: Path) -> None:
    store = MemoryStore(memory_url)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.bank("alice").count()
