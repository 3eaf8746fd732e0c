"""The memory tables in SQLite: FTS5 over ready-made terms, each behind its bank's number (`7:oauth`), so that
neither a row nor a document frequency crosses from one bank into another.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from ctx.memory.engine import IN_NUMBERS, Engine, Posting, joined, listed, parted
from ctx.types import JSON


class SqliteEngine(Engine):
    """The memory tables of a catalog file."""

    strays = (
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

    def stream(self, sql: str, values: Sequence[JSON]) -> Iterator[JSON]:
        return iter(self.connection.execute(sql, values))

    def indexed_by(self, index: str) -> str:
        return f"INDEXED BY {index}"

    def damage(self) -> list[str]:
        [verdict] = self.connection.execute("PRAGMA quick_check(1)").fetchone()
        return [] if verdict == "ok" else [f"the catalog file is damaged: {verdict}"]

    def holding(self, select: str) -> str:
        return f"SELECT *, (SELECT coalesce(max(no), 0) + 1 FROM memory_journal) FROM ({select})"

    # -- words -----------------------------------------------------------------------------------------------
    def put_words(self, bank_no: int, no: int, parts: Sequence[Sequence[str]]) -> None:
        stored = joined([f"{bank_no}:{word}" for word in part] for part in parts)
        self.connection.execute("INSERT INTO memory_words (rowid, terms) VALUES (?, ?)", (no, stored))

    def drop_words(self, bank_no: int, nos: Sequence[int]) -> None:
        self.connection.executemany("DELETE FROM memory_words WHERE rowid = ?", [(no,) for no in nos])

    def empty_words(self, bank_no: int) -> None:
        self.connection.execute(
            "DELETE FROM memory_words WHERE rowid IN (SELECT no FROM memories WHERE bank_no = ?)", (bank_no,)
        )

    def move_words(self, nos: Sequence[int], origin_no: int, home_no: int) -> None:
        prefix, successor = re.compile(rf"(?<!\S){origin_no}:"), f"{home_no}:"
        rows = self.connection.execute(
            f"SELECT rowid, terms FROM memory_words WHERE rowid {IN_NUMBERS}", (listed(nos),)
        )
        self.connection.executemany(
            "UPDATE memory_words SET terms = ? WHERE rowid = ?",
            [(prefix.sub(successor, terms), no) for no, terms in rows.fetchall()],
        )

    def words(self, bank_no: int, nos: Iterable[int]) -> dict[int, list[list[str]]]:
        cursor = self.connection.execute(
            f"SELECT rowid, terms FROM memory_words WHERE rowid {IN_NUMBERS}", (listed(nos),)
        )
        prefix = f" {bank_no}:"  # no term has a space
        return {no: parted(f" {terms}".replace(prefix, " ")) for no, terms in cursor}

    def frequencies(self, bank_no: int, words: Iterable[str]) -> dict[str, int]:
        frequencies = {}
        for word in words:
            row = self.connection.execute(
                "SELECT doc FROM memory_vocabulary WHERE term = ?", (f"{bank_no}:{word}",)
            ).fetchone()
            if row:
                frequencies[word] = row[0]
        return frequencies

    def likeliest(
        self, bank_no: int, posting: Posting, k: int, clause: str = "", values: Sequence[JSON] = ()
    ) -> list[int]:
        match = " OR ".join('"{}:{}"'.format(bank_no, word.replace('"', "")) for word in posting.frequencies)
        if clause:
            sql = (
                "SELECT m.no FROM memory_words w CROSS JOIN memories m ON m.no = w.rowid"
                f" WHERE w.memory_words MATCH ? AND w.rowid >= ? AND {clause} ORDER BY w.rank LIMIT ?"
            )
        else:
            sql = (
                "SELECT rowid FROM memory_words WHERE memory_words MATCH ? AND rowid >= ? ORDER BY rank "
                "LIMIT ?"
            )
        cursor = self.connection.execute(sql, (match, posting.first_no, *values, k))
        return [row[0] for row in cursor]
