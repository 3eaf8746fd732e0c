"""The order of embedding: breadth first, what is asked for and what is new ahead, and nothing starves."""

import random

from ctx.indexing.order import ASKED_AT_MOST, Asked, EmbeddingOrder
from ctx.store.rows import PendingChunk


def chunks_of(*documents: tuple[int, int, int]) -> list[PendingChunk]:
    """The chunks of documents given as (number of the first, how many, when it changed)."""
    return [
        PendingChunk(first + ordinal, ordinal, updated_ms)
        for first, count, updated_ms in documents
        for ordinal in range(count)
    ]


def order_of(chunks: list[PendingChunk], asked: Asked | None = None) -> EmbeddingOrder:
    order = EmbeddingOrder(Asked() if asked is None else asked)
    order.add(iter(chunks))
    return order


def test_every_opening_comes_before_any_second_chunk_and_what_changed_last_comes_first() -> None:
    order = order_of(chunks_of((1, 3, 100), (4, 1, 300), (5, 4, 200)))
    assert order.take(100) == [4, 5, 1, 6, 2, 7, 8, 3]
    assert len(order) == 0


def test_the_order_does_not_depend_on_the_order_in_which_chunks_are_told() -> None:
    chunks = chunks_of((1, 40, 7), (41, 2, 7), (43, 9, 8))
    shuffled = random.Random(3).sample(chunks, len(chunks))
    assert order_of(chunks).take(100) == order_of(shuffled).take(100)


def test_a_restart_goes_on_where_the_order_was() -> None:
    chunks = chunks_of((1, 6, 3), (7, 2, 9), (9, 5, 1))
    order = order_of(chunks)
    first = order.take(5)
    remainder = order_of([chunk for chunk in chunks if chunk.chunk_no not in first])
    assert remainder.take(100) == order.take(100)


def test_what_was_asked_for_comes_first_the_last_question_before_the_others() -> None:
    questions = Asked()
    order = order_of(chunks_of(*((number, 1, 0) for number in range(1, 21))), questions)
    questions.note([15, 12])
    questions.note([19])
    assert order.take(6) == [19, 15, 12, 1, 2, 3]
    assert order.take(2) == [4, 5]


def test_what_is_new_comes_first_and_leaves_a_quarter_to_what_stands() -> None:
    order = order_of(chunks_of(*((number, 1, 0) for number in range(1, 101))))
    order.add(iter(chunks_of(*((number, 1, 0) for number in range(200, 300)))))
    assert order.take(8) == [200, 201, 202, 203, 204, 205, 1, 2]
    assert order.take(1) == [3]
    assert order.newest == 299


def test_nothing_starves_while_more_is_written_and_asked_for_than_is_embedded() -> None:
    questions = Asked()
    order = order_of(chunks_of(*((number, 1, 0) for number in range(1, 41))), questions)
    numbers: list[int] = []
    for turn in range(20):
        order.add(iter(chunks_of((1000 + 100 * turn, 100, turn))))
        questions.note(list(range(5000 + 50 * turn, 5050 + 50 * turn)))
        numbers += order.take(8)
    assert set(range(1, 41)) <= set(numbers)


def test_questions_leave_no_more_behind_than_a_minute_of_work() -> None:
    questions = Asked()
    for start in range(0, 10 * ASKED_AT_MOST, 100):
        questions.note(list(range(start, start + 100)))
    assert len(questions.take(10 * ASKED_AT_MOST)) == ASKED_AT_MOST


def test_backwards_is_the_same_from_the_other_end() -> None:
    chunks = chunks_of((1, 3, 100), (4, 1, 300), (5, 4, 200))
    backwards = EmbeddingOrder(Asked(), backwards=True)
    backwards.add(iter(chunks))
    assert backwards.take(100) == order_of(chunks).take(100)[::-1]
