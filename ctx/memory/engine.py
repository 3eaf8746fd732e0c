"""The interface of a database with memory tables. SQLite and PostgreSQL differ in how words are stored and
ranked, how a bank is locked while it is written, and how operations are numbered; all other SQL is shared.

A statement has `?` for a value; lists of numbers or ids are JSON (`IN_NUMBERS`, `IN_TEXTS`). Where PostgreSQL
lacks a function of SQLite's (`json_each`, `json_extract`, `json_type`, `instr`), its schema defines one of
that name.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ctx.models import JSON
from ctx.store.record import Statements

PARTING = "|"  # separates passages; no term contains it
IN_NUMBERS = "IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"
IN_TEXTS = "IN (SELECT value FROM json_each(?))"


def listed(values: Iterable[JSON]) -> str:
    """The value to bind to `IN_NUMBERS` or `IN_TEXTS`."""
    return json.dumps(list(values))


class Posting(NamedTuple):
    """What to read from the word index: terms, each with the number of memories that contain it, and the
    number of the first memory to look at.
    """

    frequencies: dict[str, int]
    first_no: int


class Engine:
    """One connection to the memory tables, within a transaction."""

    strays: tuple[tuple[str, str], ...]
    """Queries that count inconsistencies of the word index, each with its message."""

    def __init__(self, connection: Statements) -> None:
        self.connection = connection

    def stream(self, sql: str, values: Sequence[JSON]) -> Iterator[JSON]:
        """Yields rows without loading all of them."""
        raise NotImplementedError

    def indexed_by(self, index: str) -> str:
        """The hint, after a table's name, for an index that the planner might not choose."""
        raise NotImplementedError

    def damage(self) -> list[str]:
        """Damage of the file, a sentence each."""
        return []

    # -- writing ---------------------------------------------------------------------------------------------
    def holding(self, select: str) -> str:
        """A statement that reads the row of a bank and locks it until the transaction ends. It adds a column:
        the number of the next operation, higher than all before.
        """
        raise NotImplementedError

    def note_erasure(self) -> None:
        """Records that deleted content still has to be overwritten (`MemoryRows.shred`), in case the process
        dies before.
        """

    def continue_numbers(self) -> None:
        """Continues numbering after rows were inserted with their own numbers."""

    # -- words -----------------------------------------------------------------------------------------------
    def put_words(self, bank_no: int, no: int, parts: Sequence[Sequence[str]]) -> None:
        raise NotImplementedError

    def drop_words(self, bank_no: int, nos: Sequence[int]) -> None:
        raise NotImplementedError

    def empty_words(self, bank_no: int) -> None:
        """Drops the words of all memories of a bank, before the memories themselves."""
        raise NotImplementedError

    def move_words(self, nos: Sequence[int], origin_no: int, home_no: int) -> None:
        """Moves the words of memories to another bank."""
        raise NotImplementedError

    def words(self, bank_no: int, nos: Iterable[int]) -> dict[int, list[list[str]]]:
        """The terms stored for these memories, as `segments` gave them."""
        raise NotImplementedError

    def frequencies(self, bank_no: int, words: Iterable[str]) -> dict[str, int]:
        """How many memories of the bank contain each term; terms in none are left out."""
        raise NotImplementedError

    def likeliest(
        self, bank_no: int, posting: Posting, k: int, clause: str = "", values: Sequence[JSON] = ()
    ) -> list[int]:
        """Numbers of up to k memories that contain any of the terms, best first by FTS5's BM25.

        `clause`: a condition on the memory `m`, which is then looked up for every entry.
        """
        raise NotImplementedError


def joined(parts: Iterable[Iterable[str]]) -> str:
    """The terms of passages as one text."""
    return f" {PARTING} ".join(" ".join(part) for part in parts)


def parted(stored: str) -> list[list[str]]:
    """The inverse of `joined`."""
    return [part.split() for part in stored.split(PARTING)]
