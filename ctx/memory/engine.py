"""The interface to a database with memory tables.

SQLite and PostgreSQL differ in how words are stored and ranked, how a bank is locked for writing, and how
operations are numbered. All other SQL is shared. In a statement, `?` stands for a value; lists of numbers or
ids are passed as JSON (`IN_NUMBERS`, `IN_TEXTS`). The PostgreSQL schema defines the SQLite functions that
PostgreSQL lacks (`json_each`, `json_extract`, `json_type`, `instr`).
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
    """Encodes values as a JSON list, the single SQL parameter of `IN_NUMBERS` and `IN_TEXTS`."""
    return json.dumps(list(values))


class Posting(NamedTuple):
    """The part of the word index to search: terms with the number of memories that contain each, and the
    lowest memory number to consider.
    """

    frequencies: dict[str, int]
    first_no: int


class Engine:
    """One connection to the memory tables, within a transaction."""

    strays: tuple[tuple[str, str], ...]
    """Queries that count inconsistencies of the word index, each with a message to report the count."""

    def __init__(self, connection: Statements) -> None:
        self.connection = connection

    def stream(self, sql: str, values: Sequence[JSON]) -> Iterator[JSON]:
        """Yields rows without loading all of them."""
        raise NotImplementedError

    def indexed_by(self, index: str) -> str:
        """The SQL hint, after a table's name, that makes the planner use an index."""
        raise NotImplementedError

    def damage(self) -> list[str]:
        """Messages about damage of the file."""
        return []

    # -- writing ---------------------------------------------------------------------------------------------
    def holding(self, select: str) -> str:
        """Extends a SELECT of a bank's row: it also locks the row until the transaction ends.

        The result has an extra last column: the number of the next operation, higher than all earlier ones.
        """
        raise NotImplementedError

    def note_erasure(self) -> None:
        """Records that deleted content still has to be overwritten (`MemoryRows.shred`).

        So that the next process does it if this one dies before.
        """

    def continue_numbers(self) -> None:
        """Sets the next automatic number after rows were inserted with explicit numbers."""

    # -- words -----------------------------------------------------------------------------------------------
    def put_words(self, bank_no: int, no: int, parts: Sequence[Sequence[str]]) -> None:
        raise NotImplementedError

    def drop_words(self, bank_no: int, nos: Sequence[int]) -> None:
        raise NotImplementedError

    def empty_words(self, bank_no: int) -> None:
        """Drops the words of all memories of a bank. Call it before the memories are deleted."""
        raise NotImplementedError

    def move_words(self, nos: Sequence[int], origin_no: int, home_no: int) -> None:
        """Moves the words of memories to another bank."""
        raise NotImplementedError

    def words(self, bank_no: int, nos: Iterable[int]) -> dict[int, list[list[str]]]:
        """The stored terms of these memories by number, as returned by `segments`."""
        raise NotImplementedError

    def frequencies(self, bank_no: int, words: Iterable[str]) -> dict[str, int]:
        """How many memories of the bank contain each term; terms in none are left out."""
        raise NotImplementedError

    def likeliest(
        self, bank_no: int, posting: Posting, k: int, clause: str = "", values: Sequence[JSON] = ()
    ) -> list[int]:
        """Numbers of up to k memories that contain any of the terms, best first by FTS5's BM25.

        `clause` is a condition on the memory `m`; it makes the query slower, since each memory is looked up.
        """
        raise NotImplementedError


def joined(parts: Iterable[Iterable[str]]) -> str:
    """The terms of passages as one text, with `PARTING` between passages."""
    return f" {PARTING} ".join(" ".join(part) for part in parts)


def parted(stored: str) -> list[list[str]]:
    """The inverse of `joined`."""
    return [part.split() for part in stored.split(PARTING)]
