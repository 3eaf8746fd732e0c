"""The tables of `memory.db` in PostgreSQL: memories, API keys, script values and the activity log.

Several processes on several machines write at once. A writer of memories locks the row of its bank until the
end of the transaction, so that the bank's numbers, journal and counts are written in order. Different banks
are written in parallel. The word index is a table of postings, ranked by the formula of FTS5's `bm25`, so
that the ranking is the same as in a SQLite file.
"""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from ctx.cluster.postgres import Connection, Database, native_tables
from ctx.errors import Busy, StoreError
from ctx.memory import activity, schema
from ctx.memory.activity import Activity
from ctx.memory.columns import COLUMNS
from ctx.memory.rows import MemoryRows
from ctx.memory.schema import IN_NUMBERS, Engine, joined, listed, parted
from ctx.models import JSON
from ctx.scripts import store as scripts
from ctx.scripts.store import ScriptStore
from ctx.server import keys
from ctx.server.keys import Keys, records_in
from ctx.store.record import Statements

logger = logging.getLogger(__name__)

T = TypeVar("T")

FRESH_S = 1.0  # the keys in memory are read again after this time
_WAIT_S = 2.0  # the longest wait for a connection; meanwhile the keys that were read last are used
_K1, _B = 1.2, 0.75  # the BM25 parameters of FTS5
_LEAST_WEIGHT = 1e-6  # the weight that FTS5 gives to a term that most rows contain
_DIGITS = 9  # scores are rounded, so that sums of the same weights in another order are equal
_VACUUMED = ("memories", "memory_words", "memory_postings", "memory_vectors", "memory_history")


_COLUMNS = ",\n        ".join(
    f"{name} {native_tables(column.sql) or 'DOUBLE PRECISION'}" for name, column in COLUMNS.items()
)

MIGRATIONS = (
    native_tables(schema.COMMON)
    + f"""
    ALTER TABLE memory_banks ADD COLUMN words BIGINT NOT NULL DEFAULT 0;  -- in the word index
    ALTER TABLE memory_journal ALTER COLUMN no DROP IDENTITY;  -- the sequence below numbers it
    CREATE TABLE memories (
        {_COLUMNS},
        bank_no BIGINT NOT NULL,
        UNIQUE (bank_no, id)
    );
    {schema.INDEXES}
    {schema.LATER_INDEXES}
    CREATE TABLE memory_words (memory_no BIGINT PRIMARY KEY, bank_no BIGINT NOT NULL, terms TEXT NOT NULL);
    CREATE INDEX memory_words_by_bank ON memory_words (bank_no);
    CREATE TABLE memory_postings (
        bank_no BIGINT NOT NULL,
        term TEXT NOT NULL,
        memory_no BIGINT NOT NULL,
        frequency INTEGER NOT NULL,  -- of the term in the memory
        length INTEGER NOT NULL,  -- of the memory, in terms
        PRIMARY KEY (bank_no, term, memory_no)
    );
    CREATE SEQUENCE memory_op_no;
    """
    + r"""
    -- What SQLite calls by these names. U+0000, which no jsonb holds, is as ctx escapes it in texts
    -- (ctx/cluster/postgres.py).
    CREATE FUNCTION memory_json(document text) RETURNS jsonb LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
        SELECT CASE WHEN strpos(document, '\u00') = 0 THEN document::jsonb ELSE regexp_replace(regexp_replace(
            document, '(?<!\\)((?:\\\\)*)\\u001a', '\1\\u001as', 'g'),
            '(?<!\\)((?:\\\\)*)\\u0000', '\1\\u001a0', 'g')::jsonb END
    $$;
    CREATE FUNCTION memory_json(document text, path text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
        SELECT jsonb_path_query_first(memory_json(document), ('strict ' || path)::jsonpath, '{}', true)
    $$;
    CREATE FUNCTION json_each(document text) RETURNS TABLE (value text)
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE ROWS 20 AS $$
        SELECT jsonb_array_elements_text(memory_json(document))
    $$;
    CREATE FUNCTION json_type(document text, path text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
        SELECT CASE jsonb_typeof(entry.value)
            WHEN 'string' THEN 'text'
            WHEN 'boolean' THEN entry.value::text
            WHEN 'number' THEN CASE WHEN entry.value::text ~ '[.eE]' THEN 'real' ELSE 'integer' END
            ELSE jsonb_typeof(entry.value)
        END FROM (SELECT memory_json(document, path) AS value) entry
    $$;
    CREATE FUNCTION json_extract(document text, path text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
        SELECT memory_json(document, path) #>> '{}'
    $$;
    CREATE FUNCTION instr(whole text, part text) RETURNS integer
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
        SELECT strpos(whole, part)
    $$;
    """,
    native_tables(schema.SESSIONS),
)


class PostgresRows(MemoryRows):
    """The memory tables in a PostgreSQL database. Opening creates missing tables and migrates old tables."""

    def __init__(self, database: Database, *, own: bool = False) -> None:
        """`own`: `close` also closes the database."""
        self._database = database
        self._own = own
        try:
            database.migrate(schema.COMPONENT, MIGRATIONS)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._closed = True
        if self._own:
            self._database.close()

    @contextmanager
    def view(self) -> Iterator[Engine]:
        self._check_open()
        with self._database.transaction() as connection:
            yield PostgresEngine(connection)

    @contextmanager
    def change(self, *, durable: bool = True) -> Iterator[Engine]:
        self._check_open()
        with self._database.transaction(write=True) as connection:
            if not durable:
                connection.execute("SET LOCAL synchronous_commit = off")
            yield PostgresEngine(connection)

    def shred(self) -> None:
        """Frees the space of deleted rows. Copies in the server's log and in backups remain until those are
        deleted.
        """
        self._database.vacuum(_VACUUMED)


class PostgresEngine(Engine):
    """The memory tables inside a transaction."""

    connection: Connection
    strays = ()  # a transaction writes a memory and its words together

    def indexed_by(self, index: str) -> str:
        return ""

    def holding(self, select: str) -> str:
        # The number must be taken while the bank's row is locked, or the numbers of a bank would not be in
        # order. In the same SELECT as FOR UPDATE, the number would be taken before the lock.
        return f"SELECT *, nextval('memory_op_no') FROM ({select} FOR UPDATE) bank"

    def damage(self) -> list[str]:
        return []

    def note_erasure(self) -> None:
        pass

    def continue_numbers(self) -> None:
        for table, column in (("memory_banks", "bank_no"), ("memories", "no"), ("memory_models", "model_no")):
            self.connection.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), max({column})) FROM {table}"
            )
        self.connection.execute(
            "SELECT setval('memory_op_no', greatest((SELECT max(no) FROM memory_journal), (SELECT max(seq) "
            "FROM memories)))"
        )

    # -- words -----------------------------------------------------------------------------------------------
    def put_words(self, bank_no: int, no: int, parts: Sequence[Sequence[str]]) -> None:
        counts = Counter(word for part in parts for word in part)
        self.connection.execute(
            "WITH stored AS (INSERT INTO memory_words VALUES (?, ?, ?)),"
            " counted AS (UPDATE memory_banks SET words = words + ? WHERE bank_no = ?)"
            " INSERT INTO memory_postings SELECT ?, p.term, ?, p.frequency, ?"
            " FROM unnest(?::text[], ?::integer[]) AS p (term, frequency)",
            (
                *(no, bank_no, joined(parts), counts.total(), bank_no),
                *(bank_no, no, counts.total(), list(counts), list(counts.values())),
            ),
        )

    def drop_words(self, bank_no: int, nos: Sequence[int]) -> None:
        words = self.words(bank_no, nos)
        terms = {no: sorted({word for part in parts for word in part}) for no, parts in words.items()}
        self.connection.executemany(
            "DELETE FROM memory_postings WHERE bank_no = ? AND memory_no = ? AND term = ANY(?::text[])",
            [(bank_no, no, entries) for no, entries in terms.items()],
        )
        self.connection.execute(f"DELETE FROM memory_words WHERE memory_no {IN_NUMBERS}", (listed(nos),))
        count = sum(len(part) for parts in words.values() for part in parts)
        self.connection.execute(
            "UPDATE memory_banks SET words = words - ? WHERE bank_no = ?", (count, bank_no)
        )

    def empty_words(self, bank_no: int) -> None:
        self.connection.execute("DELETE FROM memory_postings WHERE bank_no = ?", (bank_no,))
        self.connection.execute("DELETE FROM memory_words WHERE bank_no = ?", (bank_no,))
        self.connection.execute("UPDATE memory_banks SET words = 0 WHERE bank_no = ?", (bank_no,))

    def move_words(self, nos: Sequence[int], origin_no: int, home_no: int) -> None:
        words = self.words(origin_no, nos)
        self.drop_words(origin_no, nos)
        for no, parts in words.items():
            self.put_words(home_no, no, parts)

    def words(self, bank_no: int, nos: Iterable[int]) -> dict[int, list[list[str]]]:
        cursor = self.connection.execute(
            f"SELECT memory_no, terms FROM memory_words WHERE memory_no {IN_NUMBERS} AND bank_no = ?",
            (listed(nos), bank_no),
        )
        return {no: parted(terms) for no, terms in cursor}

    def frequencies(self, bank_no: int, words: Iterable[str]) -> dict[str, int]:
        ordered = list(words)
        rows = self.connection.execute(
            "SELECT term, count(*) FROM memory_postings WHERE bank_no = ? AND term = ANY(?::text[]) GROUP "
            "BY term",
            (bank_no, ordered),
        )
        counts = {str(term): int(count) for term, count in rows}
        return {word: counts[word] for word in ordered if word in counts}

    def likeliest(
        self,
        bank_no: int,
        frequencies: dict[str, int],
        first_no: int,
        k: int,
        clause: str = "",
        values: Sequence[JSON] = (),
    ) -> list[int]:
        # Like FTS5, the weights use the row count and the word count of all banks together.
        rows, words = self.connection.execute(
            "SELECT CAST(sum(live) AS BIGINT), CAST(sum(words) AS BIGINT) FROM memory_banks"
        ).fetchone() or (0, 0)
        weights = [
            max(math.log((rows - count + 0.5) / (count + 0.5)), _LEAST_WEIGHT)
            for count in frequencies.values()
        ]
        joined_memory = f"JOIN memories m ON m.no = p.memory_no AND {clause} " if clause else ""
        cursor = self.connection.execute(
            "SELECT p.memory_no FROM unnest(?::text[], ?::float8[]) AS q (term, weight)"
            " JOIN memory_postings p ON p.bank_no = ? AND p.term = q.term AND p.memory_no >= ? "
            f"{joined_memory}GROUP BY p.memory_no ORDER BY round(CAST(sum(q.weight * p.frequency * {_K1 + 1}"
            f" / (p.frequency + {_K1} * (1 - {_B} + {_B} * p.length / ?))) AS NUMERIC), {_DIGITS}) DESC,"
            " p.memory_no LIMIT ?",
            (
                *(list(frequencies), weights, bank_no, first_no),
                *(*values, words / (rows or 1) or 1.0, k),
            ),
        )
        return [row[0] for row in cursor]


# -- keys, script values and the activity log ----------------------------------------------------------------


class SharedKeyRing(Keys):
    """The API keys in a shared database. A key that one machine creates or revokes takes effect on all
    machines within a second.
    """

    def __init__(self, database: Database) -> None:
        """`close` also closes the database. Raises `StoreError`, `Busy`."""
        super().__init__()
        self._database = database
        self._ending = threading.Event()
        self._following: threading.Thread | None = None
        self._read_s = 0.0
        try:
            database.migrate(keys.COMPONENT, keys.MIGRATIONS)
            self._read()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._ending.set()
        if self._following is not None:
            self._following.join()
        self._database.close()

    def follow(self) -> None:
        # Reads the keys in a separate thread, so that no request waits for an unreachable database.
        if self._following is None:
            self._following = threading.Thread(target=self._follow, name="ctx-keys", daemon=True)
            self._following.start()

    def _follow(self) -> None:
        reached = True
        while not self._ending.wait(FRESH_S):
            try:
                self._read()
                reached = True
            except StoreError as error:
                if reached:
                    logger.error("keys database=away kept=%d reason=%s", len(self._records), error.message)
                reached = False

    def _refresh(self) -> None:
        if self._following is None and time.monotonic() - self._read_s > FRESH_S:
            self._read()

    def _read(self) -> None:
        with self._database.transaction(timeout_s=_WAIT_S) as connection:
            self._take(records_in(connection))
        self._read_s = time.monotonic()

    @contextmanager
    def _writing(self) -> Iterator[Statements]:
        with self._database.transaction(write=True) as connection:
            connection.execute("LOCK TABLE api_key IN SHARE ROW EXCLUSIVE MODE")
            yield connection
        self._read()


def shared_activity(database: Database) -> Activity:
    """The activity log in a shared database, which the caller must close. Raises `StoreError`."""
    table = activity.TABLE.format(key="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
    database.migrate(activity.COMPONENT, (table,))
    return Activity(lambda: database.transaction(write=True))


class SharedScriptStore(ScriptStore):
    """The script values in a shared database, which the caller must close. Raises `StoreError`, `Busy`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.migrate(scripts.COMPONENT, [native_tables(sql) for sql in scripts.MIGRATIONS])

    def _within(self, script: str, deadline_s: float, act: Callable[[Statements], T], *, write: bool) -> T:
        timeout_s = deadline_s - time.monotonic()
        with self._database.transaction(write=write, timeout_s=timeout_s) as connection:
            timeout_ms = max(1, round((deadline_s - time.monotonic()) * 1000))
            connection.execute(f"SET LOCAL lock_timeout = {timeout_ms}")
            connection.execute(f"SET LOCAL statement_timeout = {timeout_ms}")
            if write:
                connection.execute("SELECT pg_advisory_xact_lock(8, hashtext(?))", (script,))
            result = act(connection)
            if time.monotonic() > deadline_s:
                raise Busy("context.store: the database takes too long; try again")
            return result
