"""The SQL in which SQLite and PostgreSQL differ.

They store and rank words, lock a bank, and number operations in different ways. All other SQL is shared. In a
statement, `?` stands for a value; lists of numbers or ids are passed as JSON (`IN_NUMBERS`, `IN_TEXTS`). The
PostgreSQL schema defines the SQLite functions that PostgreSQL lacks (`json_each`, `json_extract`,
`json_type`, `instr`).
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ctx.models import JSON
from ctx.store.record import Statements

UNSHREDDED = "memory.unshredded"  # a key in `meta` while the file or its log may contain erased data
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
    """One connection to the memory tables of a SQLite file, within a transaction. `PostgresEngine`
    (ctx/cluster/memory_db.py) overrides what differs.

    FTS5 indexes terms with the bank's number in front (`7:oauth`), so that banks share neither rows nor
    document frequencies.
    """

    strays: tuple[tuple[str, str], ...] = (
        (
            "SELECT count(*) FROM memory_words_content w LEFT JOIN memories m ON m.no = w.id"
            " WHERE m.no IS NULL OR m.deleted_ms IS NOT NULL",
            "{} entries of the word index belong to no memory",
        ),
        (
            "SELECT count(*) FROM memories m LEFT JOIN memory_words_content w ON w.id = m.no"
            " WHERE m.deleted_ms IS NULL AND w.id IS NULL",
            "{} memories are missing from the word index",
        ),
    )
    """Queries that count inconsistencies of the word index, each with a message to report the count."""

    def __init__(self, connection: Statements) -> None:
        self.connection = connection

    def stream(self, sql: str, values: Sequence[JSON] = ()) -> Iterator[JSON]:
        """Yields rows without loading all of them."""
        return iter(self.connection.execute(sql, values))

    def indexed_by(self, index: str) -> str:
        """The SQL hint, after a table's name, that makes the planner use an index."""
        return f"INDEXED BY {index}"

    def damage(self) -> list[str]:
        """Messages about damage of the file."""
        [verdict] = self.connection.execute("PRAGMA quick_check(1)").fetchone()
        return [] if verdict == "ok" else [f"the catalog file is damaged: {verdict}"]

    # -- writing ---------------------------------------------------------------------------------------------
    def holding(self, select: str) -> str:
        """Extends a SELECT of a bank's row: it also locks the row until the transaction ends.

        The result has an extra last column: the number of the next operation, higher than all earlier ones.
        """
        return f"SELECT *, (SELECT coalesce(max(no), 0) + 1 FROM memory_journal) FROM ({select})"

    def note_erasure(self) -> None:
        """Records that deleted content still has to be overwritten (`MemoryRows.shred`).

        So that the next process does it if this one dies before.
        """
        self.connection.execute(f"INSERT INTO meta VALUES ('{UNSHREDDED}', 1) ON CONFLICT (key) DO NOTHING")

    def continue_numbers(self) -> None:
        """Sets the next automatic number after rows were inserted with explicit numbers."""

    # -- words -----------------------------------------------------------------------------------------------
    def put_words(self, bank_no: int, no: int, parts: Sequence[Sequence[str]]) -> None:
        stored = joined([f"{bank_no}:{word}" for word in part] for part in parts)
        self.connection.execute("INSERT INTO memory_words (rowid, terms) VALUES (?, ?)", (no, stored))

    def drop_words(self, bank_no: int, nos: Sequence[int]) -> None:
        self.connection.executemany("DELETE FROM memory_words WHERE rowid = ?", [(no,) for no in nos])

    def empty_words(self, bank_no: int) -> None:
        """Drops the words of all memories of a bank. Call it before the memories are deleted."""
        self.connection.execute(
            "DELETE FROM memory_words WHERE rowid IN (SELECT no FROM memories WHERE bank_no = ?)", (bank_no,)
        )

    def move_words(self, nos: Sequence[int], origin_no: int, home_no: int) -> None:
        """Moves the words of memories to another bank."""
        prefix, successor = re.compile(rf"(?<!\S){origin_no}:"), f"{home_no}:"
        rows = self.connection.execute(
            f"SELECT rowid, terms FROM memory_words WHERE rowid {IN_NUMBERS}", (listed(nos),)
        )
        self.connection.executemany(
            "UPDATE memory_words SET terms = ? WHERE rowid = ?",
            [(prefix.sub(successor, terms), no) for no, terms in rows.fetchall()],
        )

    def words(self, bank_no: int, nos: Iterable[int]) -> dict[int, list[list[str]]]:
        """The stored terms of these memories by number, as returned by `segments`."""
        cursor = self.connection.execute(
            f"SELECT rowid, terms FROM memory_words WHERE rowid {IN_NUMBERS}", (listed(nos),)
        )
        prefix = f" {bank_no}:"  # no term has a space
        return {no: parted(f" {terms}".replace(prefix, " ")) for no, terms in cursor}

    def frequencies(self, bank_no: int, words: Iterable[str]) -> dict[str, int]:
        """How many memories of the bank contain each term; terms in none are left out."""
        select = "SELECT doc FROM memory_vocabulary WHERE term = ?"
        rows = {word: self.connection.execute(select, (f"{bank_no}:{word}",)).fetchone() for word in words}
        return {word: row[0] for word, row in rows.items() if row}

    def likeliest(
        self, bank_no: int, posting: Posting, k: int, clause: str = "", values: Sequence[JSON] = ()
    ) -> list[int]:
        """Numbers of up to k memories that contain any of the terms, best first by FTS5's BM25.

        `clause` is a condition on the memory `m`; it makes the query slower, since each memory is looked up.
        """
        match = " OR ".join('"{}:{}"'.format(bank_no, word.replace('"', "")) for word in posting.frequencies)
        joined_memory = " CROSS JOIN memories m ON m.no = w.rowid" if clause else ""
        cursor = self.connection.execute(
            f"SELECT w.rowid FROM memory_words w{joined_memory} WHERE w.memory_words MATCH ? AND w.rowid >= ?"
            f"{' AND ' + clause if clause else ''} ORDER BY w.rank LIMIT ?",
            (match, posting.first_no, *values, k),
        )
        return [row[0] for row in cursor]


def joined(parts: Iterable[Iterable[str]]) -> str:
    """The terms of passages as one text, with `PARTING` between passages."""
    return f" {PARTING} ".join(" ".join(part) for part in parts)


def parted(stored: str) -> list[list[str]]:
    """The inverse of `joined`."""
    return [part.split() for part in stored.split(PARTING)]
