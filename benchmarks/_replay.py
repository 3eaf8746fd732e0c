"""What writers send to a database, recorded, and sent again by psycopg alone: what the machine and the server
allow whoever speaks with them.
"""

import multiprocessing
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, NamedTuple

START_S = 60.0
_NUMBER = b"DELETE FROM writing"  # takes the number back that was given beside the transaction


class Statement(NamedTuple):
    query: bytes
    values: Sequence[Any] | None
    raw: bool  # with `$1` for a value
    aside: bool  # on the connection that gives numbers


@contextmanager
def recording(statements: list[Statement]) -> Iterator[None]:
    """A block whose statements are noted, in the order in which they are sent."""
    import psycopg

    execute = psycopg.Cursor.execute
    began: list[object] = []

    def noting(cursor: Any, text: str | bytes, values: Sequence[Any] | None = None, **named: Any) -> Any:
        query = text.encode() if isinstance(text, str) else text
        if query.startswith(b"BEGIN"):
            began[:] = [cursor.connection]
        raw, aside = isinstance(cursor, psycopg.RawCursor), began != [cursor.connection]
        statements.append(Statement(query, values, raw, aside))
        return execute(cursor, query, values, **named)

    psycopg.Cursor.execute = noting  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]


def record(puts: Sequence[Callable[[int], object]], counts: Sequence[int]) -> list[list[list[Statement]]]:
    """The transactions of each writer, of which one put is one."""
    writers = []
    for put, count in zip(puts, counts, strict=True):
        transactions = []
        for number in range(count):
            statements: list[Statement] = []
            with recording(statements):
                put(number)
            transactions.append(statements)
        writers.append(transactions)
    return writers


def send(url: str, transactions: list[list[Statement]], start: Barrier) -> tuple[float, float]:
    """Transactions a second, and processor seconds of each; to a database as it was before the record."""
    import psycopg
    from psycopg.types.numeric import Int8Dumper

    with ExitStack() as opened:
        connection, aside = (opened.enter_context(psycopg.connect(url, autocommit=True)) for _ in range(2))
        aside.execute("SET synchronous_commit = off")
        numbered = psycopg.RawCursor(connection)
        numbered.adapters.register_dumper(int, Int8Dumper)
        start.wait(START_S)
        began_s, spent_s = time.monotonic(), time.process_time()
        for statements in transactions:
            _send_one(connection, aside, numbered, statements)
        took_s = time.monotonic() - began_s
        return len(transactions) / took_s, (time.process_time() - spent_s) / len(transactions)


def _send_one(connection: Any, aside: Any, numbered: Any, statements: list[Statement]) -> None:
    """A transaction: each statement whose reply the next one needs alone, the rest with the commit."""
    # Documents: what comes behind the number. Memories: what comes behind the bank's row.
    last = next((place for place, statement in enumerate(statements) if statement.aside), 1)
    number = recorded = None
    for statement in statements[: last + 1]:
        cursor = aside if statement.aside else numbered if statement.raw else connection
        row = cursor.execute(statement.query, statement.values)
        number = row.fetchone()[0] if statement.aside else None
    with connection.pipeline():
        for statement in statements[last + 1 :]:
            values = statement.values
            if values and _NUMBER in statement.query:
                recorded = values[0]
            if values and number is not None and values[0] == recorded:
                values = [number, *values[1:]]
            (numbered if statement.raw else connection).execute(statement.query, values)


def _work(url: str, path: str, writer: int, start: Barrier, results: Any) -> None:
    with open(path, "rb") as file:
        results.put(send(url, pickle.load(file)[writer], start))


def rate(url: str, path: Path, writers: int) -> tuple[float, float]:
    """Transactions a second of so many processes, and the processor milliseconds that one takes of them."""
    context = multiprocessing.get_context("spawn")
    results, start = context.Queue(), context.Barrier(writers)
    processes = [
        context.Process(target=_work, args=(url, str(path), writer, start, results))
        for writer in range(writers)
    ]
    for process in processes:
        process.start()
    figures = [results.get(timeout=2 * START_S) for _ in processes]
    for process in processes:
        process.join()
    return sum(per_s for per_s, _ in figures), 1000 * sum(spent_s for _, spent_s in figures) / writers
