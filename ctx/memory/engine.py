"""What the two engines of the memory tables do each in its own way; the rest of the SQL is common to both.

A statement has `?` for a value, and lists of numbers or ids travel as JSON (`IN_NUMBERS`, `IN_TEXTS`). Where
PostgreSQL lacks a function of SQLite's (`json_each`, `json_extract`, `json_type`, `instr`), its schema makes
one of that name. What remains is here: how the words are kept and ranked, who holds a bank while it is
written, and the numbers of operations.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ctx.models import JSON
from ctx.store.record import Statements

PARTING = "|"  # between the terms of two passages; no term holds it
IN_NUMBERS = "IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"
IN_TEXTS = "IN (SELECT value FROM json_each(?))"


def listed(values: Iterable[JSON]) -> str:
    """What is bound to `IN_NUMBERS` and `IN_TEXTS`."""
    return json.dumps(list(values))


class Posting(NamedTuple):
    """Which terms of a query are read from the word index, each with the number of the bank's memories that
    hold it, and from which memory on.
    """

    frequencies: dict[str, int]
    first_no: int


class Engine:
    """One connection to the memory tables, within a transaction."""

    strays: tuple[tuple[str, str], ...]
    """What must count nothing in the word index, and what is said of it."""

    def __init__(self, connection: Statements) -> None:
        self.connection = connection

    def stream(self, sql: str, values: Sequence[JSON]) -> Iterator[JSON]:
        """Rows one after the other, however many there are."""
        raise NotImplementedError

    def indexed_by(self, index: str) -> str:
        """What names, behind a table, the index that this engine's planner would not choose."""
        raise NotImplementedError

    def damage(self) -> list[str]:
        """What is wrong with the tables as a file, a sentence each."""
        return []

    # -- writing ---------------------------------------------------------------------------------------------
    def holding(self, select: str) -> str:
        """The statement that reads the row of a bank, for one that is to be written: nobody else writes it
        until this transaction ends, and the number of the next operation, above all that it has seen, comes
        behind it.
        """
        raise NotImplementedError

    def note_erasure(self) -> None:
        """Notes that what is deleted has yet to be overwritten (`MemoryRows.shred`), should the process die
        before it is.
        """

    def continue_numbers(self) -> None:
        """Sees to it that what is numbered next comes behind all numbers that were given from outside."""

    # -- words -----------------------------------------------------------------------------------------------
    def put_words(self, bank_no: int, no: int, parts: Sequence[Sequence[str]]) -> None:
        raise NotImplementedError

    def drop_words(self, bank_no: int, nos: Sequence[int]) -> None:
        raise NotImplementedError

    def empty_words(self, bank_no: int) -> None:
        """Drops the words of all memories of a bank, which are still there."""
        raise NotImplementedError

    def move_words(self, nos: Sequence[int], origin_no: int, home_no: int) -> None:
        """Gives the words of memories to another bank."""
        raise NotImplementedError

    def words(self, bank_no: int, nos: Iterable[int]) -> dict[int, list[list[str]]]:
        """The terms stored for these memories, as `segments` gave them."""
        raise NotImplementedError

    def frequencies(self, bank_no: int, words: Iterable[str]) -> dict[str, int]:
        """How many memories of the bank hold each term; terms of none are left out."""
        raise NotImplementedError

    def likeliest(
        self, bank_no: int, posting: Posting, k: int, clause: str = "", values: Sequence[JSON] = ()
    ) -> list[int]:
        """Numbers of up to k memories that hold any of the terms, the likeliest first by FTS5's BM25.

        `clause`: a condition on the memory `m`, which is looked up for every entry read.
        """
        raise NotImplementedError


def joined(parts: Iterable[Iterable[str]]) -> str:
    """The terms of passages as one text."""
    return f" {PARTING} ".join(" ".join(part) for part in parts)


def parted(stored: str) -> list[list[str]]:
    """What `joined` was given."""
    return [part.split() for part in stored.split(PARTING)]
