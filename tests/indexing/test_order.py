"""The queue of chunks that wait for an embedding."""

from collections.abc import Iterator

from ctx.indexing.embedding import EmbeddingQueue
from ctx.store.record import PendingChunk


def pending(*numbers: int) -> Iterator[PendingChunk]:
    return (PendingChunk(number, 0, 0) for number in numbers)


def test_every_opening_comes_before_any_second_chunk_and_what_changed_last_comes_first() -> None:
    queue = EmbeddingQueue()
    chunks = [PendingChunk(10 * n + ordinal, ordinal, n) for n in (1, 2) for ordinal in range(5)]
    queue.add(iter(chunks))
    assert queue.take(99) == [20, 10, 21, 11, 22, 23, 12, 13, 24, 14]


def test_tests_examples_and_change_logs_come_last() -> None:
    queue = EmbeddingQueue()
    chunks = [PendingChunk(n, ordinal=n // 3, updated_ms=n, secondary=n % 2 == 0) for n in range(1, 7)]
    queue.add(iter(chunks))
    assert queue.take(99) == [1, 5, 3, 2, 4, 6]


def test_what_is_new_comes_before_the_backlog() -> None:
    queue = EmbeddingQueue()
    queue.add(pending(1, 2, 3, 4))
    assert queue.take(1) == [1]
    queue.add(pending(5, 6))
    queue.add(pending())
    assert queue.take(9) == [5, 6, 2, 3, 4]
