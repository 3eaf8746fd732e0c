"""Two servers that share memories in one database."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from memory_kit import Clock, WordEmbedder

from ctx.memory.ops import call
from ctx.memory.store import MemoryStore

pytestmark = pytest.mark.cluster


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
