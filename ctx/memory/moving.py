"""Copies memories between SQLite and PostgreSQL: all banks with words, vectors, history and journal.

All numbers stay the same. A move can be interrupted and run again: banks that are equal in the target are
skipped, and the others are copied again.
"""

import hashlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from ctx.errors import BadRequest, StoreError
from ctx.memory.columns import plain_number
from ctx.memory.engine import Engine
from ctx.memory.reader import COLUMN_NAMES, BankRow
from ctx.memory.rows import MemoryRows
from ctx.memory.writer import empty
from ctx.models import JSON

BATCH = 500  # rows per transaction
Progress = Callable[[str, int, int], None]
"""`progress(step, count, total)` is called after each batch."""


class _Table(NamedTuple):
    """A table to copy: its columns, and those that identify a row within a bank."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    of_memory: bool = False  # rows have the memory's number (the first key), not the bank's number

    @property
    def condition(self) -> str:
        return (
            f"{self.key[0]} IN (SELECT no FROM memories WHERE bank_no = ?)"
            if self.of_memory
            else "bank_no = ?"
        )


_MEMORIES = _Table("memories", (*COLUMN_NAMES, "bank_no"), ("no",))
_TABLES = (
    _MEMORIES,
    _Table(
        "memory_vectors",
        ("bank_no", "model_no", "memory_no", "ordinal", "vector"),
        ("model_no", "memory_no", "ordinal"),
    ),
    _Table("memory_aliases", ("bank_no", "alias", "memory_no"), ("alias",)),
    _Table("memory_replies", ("bank_no", "key", "request", "reply"), ("key",)),
    _Table("memory_journal", ("no", "bank_no", "op_id", "op", "at_ms", "actor", "detail", "hash"), ("no",)),
    _Table("memory_sessions", ("memory_no", "session"), ("memory_no", "session"), of_memory=True),
    _Table(
        "memory_history",
        ("memory_no", "version", "op_no", "before"),
        ("memory_no", "version"),
        of_memory=True,
    ),
)
_BANKS = f"SELECT {', '.join(BankRow._fields)} FROM memory_banks"


class MovedMemories(NamedTuple):
    """The result of a move. `passed_over` counts skipped banks; `digest` covers all rows of all banks."""

    banks: int
    memories: int
    passed_over: int
    digest: str


def check_target(origin: MemoryRows, target: MemoryRows) -> None:
    """Raises `BadRequest` if the target has banks that the origin lacks, or that changed after a move."""
    banks = _banks(origin)
    with origin.view() as engine:
        own = [
            bank.bank
            for bank in _banks(target).values()
            if not _behind(engine, bank, banks.get(bank.bank_no))
        ]
    if own:
        raise BadRequest(
            f"the target has memories that the origin lacks, in {len(own):,} banks "
            f"({', '.join(own[:5])}); name an empty store, or drop them with --replace"
        )


def move_memories(origin: MemoryRows, target: MemoryRows, *, progress: Progress) -> MovedMemories:
    """Copies all banks of `origin` to `target`, removes all others there, and compares the two.

    Neither store may be written meanwhile. Raises `StoreError` if they are not equal afterwards.
    """
    banks = _banks(origin)
    for bank in _banks(target).values():
        if not _same(bank, banks.get(bank.bank_no)):
            with target.change() as engine:
                _drop(engine, bank.bank_no)
    _move_models(origin, target)
    passed_over = 0
    digests = hashlib.sha256()
    total = _count(origin)
    count = 0
    for bank in banks.values():
        expected = _digest(origin, bank.bank_no)
        if _digest(target, bank.bank_no) == expected:
            passed_over += 1
        else:
            for batch_size in _move_bank(origin, target, bank):
                count += batch_size
                progress("memories", count, total)
            if _digest(target, bank.bank_no) != expected:
                raise StoreError(
                    f"the copied memories of '{bank.bank}' differ: was one of the stores written "
                    "meanwhile? Run it again"
                )
        digests.update(expected.encode())
    with target.change() as engine:
        engine.continue_numbers()
    return MovedMemories(
        sum(not bank.bank.startswith("/") for bank in banks.values()), total, passed_over, digests.hexdigest()
    )


def _banks(rows: MemoryRows) -> dict[int, BankRow]:
    """All banks by number. `config` is the stored JSON text."""
    with rows.view() as engine:
        cursor = engine.connection.execute(f"{_BANKS} ORDER BY bank_no")
        return {row[0]: BankRow._make(row) for row in cursor.fetchall()}


def _count(rows: MemoryRows) -> int:
    with rows.view() as engine:
        return int(engine.connection.execute("SELECT count(*) FROM memories").fetchone()[0])


def _same(bank: BankRow, other: BankRow | None) -> bool:
    """Whether two rows belong to the same bank, which may have changed."""
    return other is not None and bank.created_ms == other.created_ms


def _behind(origin: Engine, bank: BankRow, other: BankRow | None) -> bool:
    """Whether the journal of the origin's bank `other` has all operations of the target's `bank`."""
    if other is None or not _same(bank, other):
        return False
    if bank.bank.startswith("/"):  # removed in the target: a copy would restore it
        return other.bank.startswith("/")
    select = "SELECT 1 FROM memory_journal WHERE bank_no = ? AND hash = ?"
    # A bank without a head was not moved completely.
    return not bank.head or bool(origin.connection.execute(select, (bank.bank_no, bank.head)).fetchone())


def _drop(engine: Engine, bank_no: int) -> None:
    """Removes a bank with all its rows."""
    empty(engine, bank_no)
    for table in ("memory_journal", "memory_banks"):
        engine.connection.execute(f"DELETE FROM {table} WHERE bank_no = ?", (bank_no,))


def _move_models(origin: MemoryRows, target: MemoryRows) -> None:
    """Gives the models the same numbers in both stores, because vectors refer to them."""
    select = "SELECT model_no, model FROM memory_models ORDER BY model_no"
    with origin.view() as engine:
        models = engine.connection.execute(select).fetchall()
    with target.change() as engine:
        present = engine.connection.execute(select).fetchall()
        if present != models:
            for statement in ("DELETE FROM memory_vectors", "DELETE FROM memory_models"):
                engine.connection.execute(statement)
            engine.connection.executemany("INSERT INTO memory_models (model_no, model) VALUES (?, ?)", models)


def _move_bank(origin: MemoryRows, target: MemoryRows, bank: BankRow) -> Iterator[int]:
    """Copies a bank in batches, and yields the size of each batch of memories.

    The head of the journal is written last, so that an interrupted move can be recognized.
    """
    with target.change() as engine:
        _drop(engine, bank.bank_no)
        _insert(engine, "memory_banks", BankRow._fields, [bank._replace(seq=0, head="")])
    with origin.view() as source:
        for table in _TABLES:
            rows = _rows(source, table, bank.bank_no)
            while batch := list(islice(rows, BATCH)):
                with target.change() as engine:
                    _insert(engine, table.name, table.columns, batch)
                    if table is _MEMORIES:
                        words = source.words(bank.bank_no, [row[0] for row in batch])
                        for no, parts in words.items():
                            engine.put_words(bank.bank_no, no, parts)
                if table is _MEMORIES:
                    yield len(batch)
    with target.change() as engine:
        engine.connection.execute(
            "UPDATE memory_banks SET seq = ?, head = ? WHERE bank_no = ?", (bank.seq, bank.head, bank.bank_no)
        )


def _insert(engine: Engine, table: str, columns: tuple[str, ...], rows: list[JSON]) -> None:
    marks = ", ".join("?" * len(columns))
    engine.connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)


def _rows(engine: Engine, table: _Table, bank_no: int) -> Iterator[tuple[JSON, ...]]:
    """The rows of a bank in a table, ordered by key. Values are the same for both databases."""
    rows = engine.stream(
        f"SELECT {', '.join(table.columns)} FROM {table.name} WHERE {table.condition} ORDER BY "
        f"{', '.join(table.key)}",
        (bank_no,),
    )
    return (tuple(map(plain_number, row)) for row in rows)


def _digest(rows: MemoryRows, bank_no: int) -> str:
    """A digest of all data of a bank. It is the same for both databases."""
    total = hashlib.sha256()
    with rows.view() as engine:
        bank = engine.connection.execute(f"{_BANKS} WHERE bank_no = ?", (bank_no,)).fetchone()
        total.update(repr(None if bank is None else tuple(bank)).encode())
        for table in _TABLES:
            for row in _rows(engine, table, bank_no):
                total.update(repr(row).encode("utf-8", "surrogatepass"))
        nos = (
            row[0]
            for row in engine.stream("SELECT no FROM memories WHERE bank_no = ? ORDER BY no", (bank_no,))
        )
        while batch := list(islice(nos, BATCH)):
            total.update(repr(sorted(engine.words(bank_no, batch).items())).encode())
    return total.hexdigest()
