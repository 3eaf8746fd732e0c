"""The queue of chunks that wait for an embedding."""

from collections.abc import Iterator

from ctx.indexing.order import EmbeddingQueue
from ctx.store.rows import PendingChunk


def pending(*numbers: int) -> Iterator[PendingChunk]:
    return (PendingChunk(number, 0, 0) for number in numbers)


def test_chunks_are_embedded_in_document_order() -> None:
    queue = EmbeddingQueue()
    queue.add(pending(3, 1, 2, 5, 4))
    assert (len(queue), queue.newest) == (5, 5)
    assert [queue.take(2), queue.take(2), queue.take(2), queue.take(2)] == [[1, 2], [3, 4], [5], []]


def test_what_is_new_comes_before_the_backlog() -> None:
    queue = EmbeddingQueue()
    queue.add(pending(1, 2, 3, 4))
    assert queue.take(1) == [1]
    queue.add(pending(5, 6))
    queue.add(pending())
    assert queue.take(9) == [5, 6, 2, 3, 4]


def test_backwards_is_the_same_from_the_other_end() -> None:
    queue = EmbeddingQueue(backwards=True)
    queue.add(pending(1, 2, 3))
    queue.add(pending(4, 5))
    assert queue.take(9) == [5, 4, 3, 2, 1]
