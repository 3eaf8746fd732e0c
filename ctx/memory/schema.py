"""The memory tables, their migrations, and the SQL in which SQLite and PostgreSQL differ.

Version 2 of the tables adds columns, such as when a memory was said, and changes the encoding of vectors;
stored vectors are converted without an embedder. Version 3 adds the sessions of clients.

SQLite and PostgreSQL store and rank words, lock a bank and number operations in different ways (`Engine`).
All other SQL is shared. In a statement, `?` stands for a value; a list of numbers or ids is passed as one
JSON text (`IN_NUMBERS`, `IN_TEXTS`). The PostgreSQL schema defines the SQLite functions that PostgreSQL lacks
(`json_each`, `json_extract`, `json_type`, `instr`).
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from ctx.errors import StoreError
from ctx.memory.columns import added_sql, table_sql
from ctx.memory.language import gist
from ctx.models import JSON
from ctx.store.record import Statements
from ctx.store.schema import Connection, migrate, schema_version

# The tables and indexes that SQLite and PostgreSQL share. For PostgreSQL, the column types are replaced.
COMMON = """
    CREATE TABLE memory_banks (
      bank_no INTEGER PRIMARY KEY, bank TEXT NOT NULL UNIQUE, created_ms INTEGER NOT NULL,
      config TEXT NOT NULL DEFAULT '{}',
      live INTEGER NOT NULL DEFAULT 0, live_terms INTEGER NOT NULL DEFAULT 0,
      purges INTEGER NOT NULL DEFAULT 0, seq INTEGER NOT NULL DEFAULT 0, head TEXT NOT NULL DEFAULT ''
    );
    CREATE TABLE memory_models (model_no INTEGER PRIMARY KEY, model TEXT NOT NULL UNIQUE);
    CREATE TABLE memory_vectors (
      bank_no INTEGER NOT NULL, model_no INTEGER NOT NULL, memory_no INTEGER NOT NULL,
      ordinal INTEGER NOT NULL, vector BLOB NOT NULL,
      PRIMARY KEY (bank_no, model_no, memory_no, ordinal)
    ) WITHOUT ROWID;
    CREATE TABLE memory_aliases (
      bank_no INTEGER NOT NULL, alias TEXT NOT NULL, memory_no INTEGER NOT NULL,
      PRIMARY KEY (bank_no, alias)
    ) WITHOUT ROWID;
    CREATE INDEX memory_aliases_by_memory ON memory_aliases (memory_no);
    CREATE TABLE memory_sessions (
      memory_no INTEGER NOT NULL, session TEXT NOT NULL,
      PRIMARY KEY (memory_no, session)
    ) WITHOUT ROWID;
    CREATE TABLE memory_replies (
      bank_no INTEGER NOT NULL, key TEXT NOT NULL, request TEXT NOT NULL, reply TEXT NOT NULL,
      PRIMARY KEY (bank_no, key)
    ) WITHOUT ROWID;
    CREATE TABLE memory_journal (
      no INTEGER PRIMARY KEY, bank_no INTEGER NOT NULL, op_id TEXT NOT NULL, op TEXT NOT NULL,
      at_ms INTEGER NOT NULL, actor TEXT NOT NULL, detail TEXT NOT NULL, hash TEXT NOT NULL,
      UNIQUE (bank_no, op_id)
    );
    CREATE INDEX memory_journal_by_bank ON memory_journal (bank_no, no);
    CREATE TABLE memory_history (
      memory_no INTEGER NOT NULL, version INTEGER NOT NULL, op_no INTEGER NOT NULL, before TEXT,
      PRIMARY KEY (memory_no, version)
    ) WITHOUT ROWID;
    CREATE INDEX memory_history_by_op ON memory_history (op_no);
    """
INDEXES = """
    CREATE INDEX memories_by_seq ON memories (bank_no, seq);
    CREATE INDEX memories_by_parent ON memories (bank_no, parent, ordinal) WHERE parent IS NOT NULL;
    CREATE INDEX memories_by_created ON memories (bank_no, created_ms, no);
    CREATE INDEX memories_by_session ON memories (bank_no, session) WHERE session IS NOT NULL;
    CREATE INDEX memories_withdrawn ON memories (bank_no, no)
      WHERE deleted_ms IS NOT NULL OR valid_to_ms IS NOT NULL;
    """
_VERSION_1 = f"""
    {COMMON}
    CREATE TABLE memories (
      {table_sql(1)}
    );
    {INDEXES}
    CREATE INDEX memories_by_hash ON memories (bank_no, content_hash) WHERE deleted_ms IS NULL;
    CREATE VIRTUAL TABLE memory_words USING fts5 (terms, tokenize = "ascii tokenchars ':'");
    CREATE VIRTUAL TABLE memory_vocabulary USING fts5vocab (memory_words, row);
    """
LATER_INDEXES = """
    CREATE INDEX memories_by_gist ON memories (bank_no, gist) WHERE deleted_ms IS NULL;
    CREATE INDEX memories_by_event ON memories (bank_no, event_ms) WHERE event_ms IS NOT NULL;
    CREATE INDEX memories_by_document ON memories (bank_no, document_id) WHERE document_id IS NOT NULL;
    CREATE INDEX memories_by_successor ON memories (bank_no, superseded_by) WHERE superseded_by IS NOT NULL;
    """

_VERSION_2 = f"""
    {added_sql(2)}
    UPDATE memories SET gist = gist_of(text);
    UPDATE memory_vectors SET vector = recoded(vector);
    DROP INDEX memories_by_hash;
    {LATER_INDEXES}
    """

SESSIONS = """
    CREATE TABLE client_sessions (
      pack TEXT NOT NULL, id TEXT NOT NULL, place TEXT,
      started_ms INTEGER NOT NULL, active_ms INTEGER NOT NULL,
      PRIMARY KEY (pack, id)
    );
    CREATE INDEX client_sessions_by_place ON client_sessions (pack, place, active_ms) WHERE place IS NOT NULL;
    CREATE INDEX client_sessions_by_age ON client_sessions (pack, active_ms);
    """

COMPONENT = "memories"
MIGRATIONS = (_VERSION_1, _VERSION_2, SESSIONS)


def bring_up_to_date(connection: Connection) -> None:
    """Creates the tables, or migrates older ones. Raises `StoreError`."""
    connection.create_function("gist_of", 1, gist, deterministic=True)
    # Version 1 had signed codes after the step, which takes 4 bytes (ctx/memory/vectors.py).
    signs = bytes(code ^ 0x80 for code in range(256))
    connection.create_function("recoded", 1, lambda packed: packed[:4] + packed[4:].translate(signs))
    migrate(connection, COMPONENT, MIGRATIONS)


def check_version(connection: Connection) -> None:
    """Raises `StoreError` if the tables do not have the current version."""
    version = schema_version(connection, COMPONENT)
    if version != len(MIGRATIONS):
        state = "have the format of another version of ctx" if version else "do not exist yet"
        hint = "Run `ctx memory banks` as a user who can write it"
        raise StoreError(f"the memories {state}, and their file is read-only here. {hint}")


# -- the differences of the databases ------------------------------------------------------------------------

UNSHREDDED = "memory.unshredded"  # a key in `meta` while the file or its log may contain erased data
PARTING = "|"  # separates the terms of two passages; no term contains it
IN_NUMBERS = "IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"
IN_TEXTS = "IN (SELECT value FROM json_each(?))"


_STORED_WORDS = f"SELECT rowid, terms FROM memory_words WHERE rowid {IN_NUMBERS}"


def listed(values: Iterable[JSON]) -> str:
    """Encodes values as a JSON list, the single SQL parameter of `IN_NUMBERS` and `IN_TEXTS`."""
    return json.dumps(list(values))


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
    """(query that counts an inconsistency of the word index, message that reports the count) pairs."""

    def __init__(self, connection: Statements) -> None:
        self.connection = connection

    def stream(self, sql: str, values: Sequence[JSON] = ()) -> Iterator[JSON]:
        """Yields rows without loading all of them."""
        return self.connection.stream(sql, values)

    def indexed_by(self, index: str) -> str:
        """The SQL hint that makes the planner use an index. It is written after the table's name."""
        return f"INDEXED BY {index}"

    def damage(self) -> list[str]:
        """Messages about damage to the database file; [] if there is none."""
        [verdict] = self.connection.execute("PRAGMA quick_check(1)").fetchone()
        return [] if verdict == "ok" else [f"the catalog file is damaged: {verdict}"]

    # -- writing ---------------------------------------------------------------------------------------------
    def holding(self, select: str) -> str:
        """Extends a SELECT of a bank's row, so that it also locks the row until the transaction ends.

        The result has an extra last column: the number for the next operation, higher than all earlier ones.
        """
        return f"SELECT *, (SELECT coalesce(max(no), 0) + 1 FROM memory_journal) FROM ({select})"

    def note_erasure(self) -> None:
        """Records that deleted content still has to be overwritten (`MemoryRows.shred`).

        If this process dies first, the next one overwrites the content.
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
        nos = "SELECT no FROM memories WHERE bank_no = ?"
        self.connection.execute(f"DELETE FROM memory_words WHERE rowid IN ({nos})", (bank_no,))

    def move_words(self, nos: Sequence[int], origin_no: int, home_no: int) -> None:
        """Moves the words of memories to another bank."""
        prefix, successor = re.compile(rf"(?<!\S){origin_no}:"), f"{home_no}:"
        rows = self.connection.execute(_STORED_WORDS, (listed(nos),)).fetchall()
        moved = [(prefix.sub(successor, terms), no) for no, terms in rows]
        self.connection.executemany("UPDATE memory_words SET terms = ? WHERE rowid = ?", moved)

    def words(self, bank_no: int, nos: Iterable[int]) -> dict[int, list[list[str]]]:
        """Memory number -> its stored terms, as `ctx.memory.scores.segments` returned them."""
        rows = self.connection.execute(_STORED_WORDS, (listed(nos),))
        prefix = f" {bank_no}:"  # no term has a space
        return {no: parted(f" {terms}".replace(prefix, " ")) for no, terms in rows}

    def frequencies(self, bank_no: int, words: Iterable[str]) -> dict[str, int]:
        """Term -> number of memories in the bank that contain it. Terms in no memory are left out."""
        select = "SELECT doc FROM memory_vocabulary WHERE term = ?"
        rows = {word: self.connection.execute(select, (f"{bank_no}:{word}",)).fetchone() for word in words}
        return {word: row[0] for word, row in rows.items() if row}

    def likeliest(
        self,
        bank_no: int,
        frequencies: dict[str, int],
        first_no: int,
        k: int,
        clause: str = "",
        values: Sequence[JSON] = (),
    ) -> list[int]:
        """Numbers of up to k memories from `first_no` on that contain any of the terms, best first by FTS5's
        BM25. `frequencies` has the number of memories that contain each term.

        `clause` is an SQL condition on the memory `m`. It makes the query slower, since the row of each
        memory is looked up.
        """
        match = " OR ".join('"{}:{}"'.format(bank_no, word.replace('"', "")) for word in frequencies)
        joined_memory = " CROSS JOIN memories m ON m.no = w.rowid" if clause else ""
        condition = f" AND {clause}" if clause else ""
        select = (
            f"SELECT w.rowid FROM memory_words w{joined_memory} WHERE w.memory_words MATCH ? AND w.rowid >= ?"
            f"{condition} ORDER BY w.rank LIMIT ?"
        )
        rows = self.connection.execute(select, (match, first_no, *values, k))
        return [row[0] for row in rows]


def joined(parts: Iterable[Iterable[str]]) -> str:
    """The terms of passages as one text, with `PARTING` between passages."""
    return f" {PARTING} ".join(" ".join(part) for part in parts)


def parted(stored: str) -> list[list[str]]:
    """The inverse of `joined`."""
    return [part.split() for part in stored.split(PARTING)]
