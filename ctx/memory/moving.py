"""Copies memories between SQLite and PostgreSQL: all banks with words, vectors, history and journal, and the
sessions of clients.

All numbers stay the same. The copy is one transaction: a move that is interrupted changes nothing, and can be
run again.
"""

import hashlib
from collections.abc import Callable, Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple

from ctx.errors import BadRequest, StoreError
from ctx.memory.columns import plain_number
from ctx.memory.engine import Engine
from ctx.memory.reader import COLUMN_NAMES, BankRow
from ctx.memory.rows import MemoryRows
from ctx.memory.writer import empty
from ctx.models import JSON

BATCH = 500  # rows per statement
Progress = Callable[[str, int, int], None]
"""`progress(step, count, total)` is called after each batch."""

# The columns to copy of each table, without those that the word index sets. The first columns, up to the one
# given, identify a row.
_TABLES = {
    "memory_models": (("model_no", "model"), 1),
    "memory_banks": (BankRow._fields, 1),
    "memories": (("no", "bank_no", *COLUMN_NAMES[1:]), 1),
    "memory_vectors": (("model_no", "memory_no", "ordinal", "bank_no", "vector"), 3),
    "memory_aliases": (("bank_no", "alias", "memory_no"), 2),
    "memory_replies": (("bank_no", "key", "request", "reply"), 2),
    "memory_journal": (("no", "bank_no", "op_id", "op", "at_ms", "actor", "detail", "hash"), 1),
    "memory_sessions": (("memory_no", "session"), 2),
    "memory_history": (("memory_no", "version", "op_no", "before"), 2),
}
_SESSIONS = ("pack", "id", "place", "started_ms", "active_ms")


class MovedMemories(NamedTuple):
    """The result of a move. `digest` covers all rows of all banks."""

    banks: int
    memories: int
    sessions: int
    digest: str


def check_target(origin: MemoryRows, target: MemoryRows) -> None:
    """Raises `BadRequest` if the target has banks that the origin lacks, or that changed after a move."""
    with origin.view() as source, target.view() as goal:
        banks = {bank.bank_no: bank for bank in _banks(source)}
        changed = [bank.bank for bank in _banks(goal) if not _behind(source, bank, banks.get(bank.bank_no))]
    if changed:
        raise BadRequest(
            f"the target has memories that the origin lacks, in {len(changed):,} banks "
            f"({', '.join(changed[:5])}); name an empty store, or drop them with --replace"
        )


def move_memories(origin: MemoryRows, target: MemoryRows, *, progress: Progress) -> MovedMemories:
    """Copies all banks of `origin` to `target`, unless they are equal, and compares the two.

    Banks that only the target has are removed.

    Neither store may be written meanwhile. Raises `StoreError` if they are not equal afterwards.
    """
    # PostgreSQL ends a transaction that is idle for two minutes: none is open while the other store is read.
    with origin.view() as source:
        digest = _digest(source)
        banks = sum(not bank.bank.startswith("/") for bank in _banks(source))
        total = _count(source)
    with target.change() as goal:
        if _digest(goal) != digest:
            with origin.view() as source:
                _copy(source, goal, progress)
            if _digest(goal) != digest:
                raise StoreError(
                    "the copied memories differ: was one of the stores written meanwhile? Run it again"
                )
        goal.connection.execute("DELETE FROM client_sessions")
        with origin.view() as source:
            sessions = sum(_copy_rows(source, goal, "client_sessions", _SESSIONS))
        return MovedMemories(banks, total, sessions, digest)


def _copy(source: Engine, goal: Engine, progress: Progress) -> None:
    for bank in _banks(goal):
        empty(goal, bank.bank_no)
    for table in ("memory_journal", "memory_banks", "memory_models"):
        goal.connection.execute(f"DELETE FROM {table}")
    count, total = 0, _count(source)
    for table, (columns, _) in _TABLES.items():
        for batch_size in _copy_rows(source, goal, table, columns):
            if table == "memories":
                count += batch_size
                progress("memories", count, total)
    for bank_no, no, parts in _words(source):
        goal.put_words(bank_no, no, parts)
    goal.continue_numbers()


def _copy_rows(source: Engine, goal: Engine, table: str, columns: tuple[str, ...]) -> Iterator[int]:
    """Copies the rows of a table in batches, and yields the size of each."""
    rows = source.stream(f"SELECT {', '.join(columns)} FROM {table}")
    marks = ", ".join("?" * len(columns))
    while batch := [tuple(map(plain_number, row)) for row in islice(rows, BATCH)]:
        goal.connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", batch)
        yield len(batch)


def _banks(engine: Engine) -> list[BankRow]:
    """All banks. `config` is the stored JSON text."""
    return list(map(BankRow._make, _rows(engine, "memory_banks")))


def _count(engine: Engine) -> int:
    return int(engine.connection.execute("SELECT count(*) FROM memories").fetchone()[0])


def _behind(origin: Engine, bank: BankRow, other: BankRow | None) -> bool:
    """Whether the journal of the origin's bank `other` has all operations of the target's `bank`."""
    if other is None or bank.created_ms != other.created_ms:
        return False
    if bank.bank.startswith("/"):  # removed in the target: a copy would restore it
        return other.bank.startswith("/")
    select = "SELECT 1 FROM memory_journal WHERE bank_no = ? AND hash = ?"
    return not bank.head or bool(origin.connection.execute(select, (bank.bank_no, bank.head)).fetchone())


def _rows(engine: Engine, table: str) -> Iterator[tuple[JSON, ...]]:
    """The rows of a table, ordered by key. Values are the same for both databases."""
    columns, keys = _TABLES[table]
    rows = engine.stream(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {', '.join(columns[:keys])}")
    return (tuple(map(plain_number, row)) for row in rows)


def _words(engine: Engine) -> Iterator[tuple[int, int, list[list[str]]]]:
    """The bank, the number and the indexed terms of each memory."""
    rows = engine.stream("SELECT bank_no, no FROM memories ORDER BY bank_no, no")
    for bank_no, group in groupby(rows, itemgetter(0)):
        while nos := [row[1] for row in islice(group, BATCH)]:
            for no, parts in sorted(engine.words(bank_no, nos).items()):
                yield bank_no, no, parts


def _digest(engine: Engine) -> str:
    """A digest of all memories. It is the same for both databases."""
    total = hashlib.sha256()
    for table in _TABLES:
        for row in _rows(engine, table):
            total.update(repr(row).encode("utf-8", "surrogatepass"))
    for entry in _words(engine):
        total.update(repr(entry).encode())
    return total.hexdigest()
