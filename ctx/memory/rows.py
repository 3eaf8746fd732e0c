"""The rows of memory: SQL alone, in the catalog's file.

One write is one transaction: the row, its words (FTS5 over ready-made terms), its vectors, what it replaced (`memory_history`)
and a line of the bank's journal, whose hash covers the line before it. It is on the disk (`synchronous=FULL`) and visible when
`writing()` ends. Every statement binds the number of its bank, and the words of a bank are terms of their own (`7:oauth`), so
neither a row nor a document frequency crosses from one bank into another.

`seq` of a row is the number of the journal line that last changed it: what a projection in memory has yet to apply.
"""

import hashlib
import json
import re
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ctx.analyze import terms
from ctx.errors import Busy, Conflict, StoreError
from ctx.identity import embedding_text
from ctx.memory.filters import Condition
from ctx.memory.passages import passages
from ctx.store.schema import Connection, attached, connect, migrate, transaction
from ctx.types import JSON

MAX_POSTINGS = 10_000  # entries of the word index read for one query: 2 us each in FTS5's bm25
WRITE_WAIT_S = 15.0  # for another writer of this process; SQLite's own wait for other processes is connect's
_PARTING = "|"  # between the terms of two passages; the tokenizer drops it
ABOUT_WEIGHT = 2  # of a word in label, heading, context or tags: +0.01 NDCG@10 on cacm and cranfield, where a title is the heading
_HEADING = re.compile(r"\s*(?:#{1,6}[ \t]+([^\n]{1,200})|([^\n]{1,120})\n[ \t]*\n)")
_NO_CONTEXT = ("general",)  # categories that say nothing: not words to be found by

_MIGRATIONS = (
    """
    CREATE TABLE memory_banks (
      bank_no INTEGER PRIMARY KEY,
      bank TEXT NOT NULL UNIQUE,
      created_ms INTEGER NOT NULL,
      config TEXT NOT NULL DEFAULT '{}',
      live INTEGER NOT NULL DEFAULT 0,
      live_terms INTEGER NOT NULL DEFAULT 0,
      purges INTEGER NOT NULL DEFAULT 0,
      seq INTEGER NOT NULL DEFAULT 0,
      head TEXT NOT NULL DEFAULT ''
    );
    CREATE TABLE memories (
      no INTEGER PRIMARY KEY AUTOINCREMENT,
      bank_no INTEGER NOT NULL REFERENCES memory_banks (bank_no),
      seq INTEGER NOT NULL,
      id TEXT NOT NULL,
      kind TEXT NOT NULL,
      parent TEXT,
      ordinal INTEGER,
      role TEXT,
      text TEXT NOT NULL,
      type TEXT,
      context TEXT,
      folder TEXT,
      label TEXT,
      status TEXT NOT NULL,
      importance,
      metadata TEXT NOT NULL,
      tags TEXT NOT NULL,
      session TEXT,
      source TEXT NOT NULL,
      flags TEXT NOT NULL,
      event_ms INTEGER,
      created_ms INTEGER NOT NULL,
      updated_ms INTEGER NOT NULL,
      accessed_ms INTEGER NOT NULL,
      access_count INTEGER NOT NULL,
      valid_from_ms INTEGER NOT NULL,
      valid_to_ms INTEGER,
      superseded_by TEXT,
      expires_ms INTEGER,
      deleted_ms INTEGER,
      content_hash TEXT NOT NULL,
      version INTEGER NOT NULL,
      term_count INTEGER NOT NULL,
      UNIQUE (bank_no, id)
    );
    CREATE INDEX memories_by_seq ON memories (bank_no, seq);
    CREATE INDEX memories_by_hash ON memories (bank_no, content_hash) WHERE deleted_ms IS NULL;
    CREATE INDEX memories_by_parent ON memories (bank_no, parent, ordinal) WHERE parent IS NOT NULL;
    CREATE INDEX memories_by_created ON memories (bank_no, created_ms, no);
    CREATE INDEX memories_by_session ON memories (bank_no, session) WHERE session IS NOT NULL;
    CREATE INDEX memories_withdrawn ON memories (bank_no, no) WHERE deleted_ms IS NOT NULL OR valid_to_ms IS NOT NULL;
    CREATE VIRTUAL TABLE memory_words USING fts5 (terms, tokenize = "ascii tokenchars ':'");
    CREATE VIRTUAL TABLE memory_vocabulary USING fts5vocab (memory_words, row);
    CREATE TABLE memory_models (model_no INTEGER PRIMARY KEY, model TEXT NOT NULL UNIQUE);
    CREATE TABLE memory_vectors (
      bank_no INTEGER NOT NULL, model_no INTEGER NOT NULL, memory_no INTEGER NOT NULL, ordinal INTEGER NOT NULL,
      vector BLOB NOT NULL,
      PRIMARY KEY (bank_no, model_no, memory_no, ordinal)
    ) WITHOUT ROWID;
    CREATE TABLE memory_aliases (
      bank_no INTEGER NOT NULL, alias TEXT NOT NULL, memory_no INTEGER NOT NULL,
      PRIMARY KEY (bank_no, alias)
    ) WITHOUT ROWID;
    CREATE INDEX memory_aliases_by_memory ON memory_aliases (memory_no);
    CREATE TABLE memory_links (
      memory_no INTEGER NOT NULL, other_no INTEGER NOT NULL, kind TEXT NOT NULL, score REAL NOT NULL,
      PRIMARY KEY (memory_no, other_no, kind)
    ) WITHOUT ROWID;
    CREATE INDEX memory_links_by_other ON memory_links (other_no);
    CREATE TABLE memory_sessions (
      memory_no INTEGER NOT NULL, session TEXT NOT NULL,
      PRIMARY KEY (memory_no, session)
    ) WITHOUT ROWID;
    CREATE TABLE memory_replies (
      bank_no INTEGER NOT NULL, key TEXT NOT NULL, request TEXT NOT NULL, reply TEXT NOT NULL,
      PRIMARY KEY (bank_no, key)
    ) WITHOUT ROWID;
    CREATE TABLE memory_journal (
      no INTEGER PRIMARY KEY,
      bank_no INTEGER NOT NULL,
      op_id TEXT NOT NULL,
      op TEXT NOT NULL,
      at_ms INTEGER NOT NULL,
      actor TEXT NOT NULL,
      detail TEXT NOT NULL,
      hash TEXT NOT NULL,
      UNIQUE (bank_no, op_id)
    );
    CREATE INDEX memory_journal_by_bank ON memory_journal (bank_no, no);
    CREATE TABLE memory_history (
      memory_no INTEGER NOT NULL, version INTEGER NOT NULL, op_no INTEGER NOT NULL, before TEXT,
      PRIMARY KEY (memory_no, version)
    ) WITHOUT ROWID;
    CREATE INDEX memory_history_by_op ON memory_history (op_no);
    """,
)


class Memory(NamedTuple):
    """A memory as it is kept; the fields are the columns, in order. Times are milliseconds since the epoch, UTC.

    `valid_to_ms` is when another took its place (`superseded_by`); `deleted_ms` when it was forgotten, which can be undone;
    `expires_ms` when it stops being found. `version` counts from 1 and grows with every change but reading.
    """

    no: int
    seq: int
    id: str
    kind: str
    parent: str | None
    ordinal: int | None
    role: str | None
    text: str
    type: str | None
    context: str | None
    folder: str | None
    label: str | None
    status: str
    importance: float | None
    metadata: JSON
    tags: list[str]
    session: str | None
    source: JSON
    flags: list[str]
    event_ms: int | None
    created_ms: int
    updated_ms: int
    accessed_ms: int
    access_count: int
    valid_from_ms: int
    valid_to_ms: int | None
    superseded_by: str | None
    expires_ms: int | None
    deleted_ms: int | None
    content_hash: str
    version: int
    term_count: int


COLUMNS = Memory._fields
_JSON_COLUMNS = ("metadata", "tags", "source", "flags")
_JSON_PLACES = tuple(COLUMNS.index(name) for name in _JSON_COLUMNS)
_SELECT = "SELECT " + ", ".join(f"m.{name}" for name in COLUMNS) + " FROM memories m"
_INSERT = f"INSERT INTO memories (bank_no, {', '.join(COLUMNS[1:])}) VALUES (?, {', '.join('?' * (len(COLUMNS) - 1))})"


class Candidate(NamedTuple):
    """As much of a memory as ranking needs: a search reads hundreds, and answers with ten."""

    no: int
    id: str
    kind: str
    text: str
    event_ms: int | None
    created_ms: int

    @property
    def when_ms(self) -> int:
        return self.created_ms if self.event_ms is None else self.event_ms


class BankRow(NamedTuple):
    """A bank's own row. `live` counts memories that are not deleted, `live_terms` their terms (for BM25's mean length)."""

    bank_no: int
    bank: str
    created_ms: int
    config: JSON
    live: int
    live_terms: int
    purges: int
    seq: int
    head: str


class Change(NamedTuple):
    """One line of a memory's history. `before` holds the columns it changed with the values they had; None: it was made."""

    memory_no: int
    version: int
    op_id: str
    op: str
    at_ms: int
    actor: JSON
    before: dict[str, JSON] | None


def canonical(value: JSON) -> str:
    """JSON with sorted keys and no spaces: the same value is the same text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def segments(memory: Memory) -> list[list[str]]:
    """The terms a memory is found by: first those of its label, heading, context and tags, then those of each passage."""
    about = [
        memory.label or "",
        memory.context or "" if memory.context not in _NO_CONTEXT else "",
        *memory.tags,
    ]
    if memory.label == memory.text:
        about[0] = ""
    about.append(heading(memory.text))
    return [terms(" ".join(about)), *(terms(passage) for passage in passages(memory.text))]


def weighed_length(parts: Sequence[Sequence[str]]) -> int:
    """How many terms a memory counts for in BM25: what it is about weighs `ABOUT_WEIGHT` times."""
    return sum(map(len, parts)) + (ABOUT_WEIGHT - 1) * len(parts[0]) if parts else 0


def embedding_texts(text: str) -> list[str]:
    """What the embedder reads of a memory: its passages, those after the first under its heading."""
    first, *rest = passages(text)
    head = heading(text)
    return [first, *(embedding_text(head, "", passage) for passage in rest)]


def heading(text: str) -> str:
    """The first line, where it is marked as a heading or stands apart and is short; else ""."""
    match = _HEADING.match(text)
    return (match[1] or match[2]) if match else ""


def visible(now_ms: int, *, as_of_ms: int | None = None, superseded: bool = False) -> Condition:
    """What a reader is shown: neither deleted nor expired nor superseded; as of a moment: what held then."""
    if as_of_ms is not None:
        return Condition(
            "m.deleted_ms IS NULL AND m.valid_from_ms <= ? AND (m.valid_to_ms IS NULL OR m.valid_to_ms > ?)"
            " AND (m.expires_ms IS NULL OR m.expires_ms > ?)",
            (as_of_ms, as_of_ms, as_of_ms),
        )
    current = "" if superseded else " AND m.valid_to_ms IS NULL"
    return Condition(
        f"m.deleted_ms IS NULL AND (m.expires_ms IS NULL OR m.expires_ms > ?){current}", (now_ms,)
    )


class MemoryRows:
    """The memory tables of one catalog file. Safe from several threads and beside other processes.

    Raises `StoreError` where SQLite fails and `Busy` where another writer holds the file too long.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._lock_of_idle = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False
        self._writer = connect(path, synchronous="FULL")
        migrate(self._writer, "memories", _MIGRATIONS)

    def close(self) -> None:
        with self._lock, self._lock_of_idle:
            self._closed = True
            self._writer.close()
            self._close_idle()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the memory store is closed")

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    # -- transactions --------------------------------------------------------------------------------------------
    def _attach(self) -> None:
        """Takes up the file at the path where the one in use was deleted (it is laid there anew) or replaced."""
        if self._writer.lost():
            self._writer = attached(self._writer)
            migrate(self._writer, "memories", _MIGRATIONS)

    def _attach_soon(self) -> None:
        if self._writer.lost() and self._lock.acquire(timeout=WRITE_WAIT_S):
            try:
                self._attach()
            finally:
                self._lock.release()

    def _reattached(self, connection: Connection) -> Connection:
        """A reader of the file at the path; the one given where it cannot be brought back: what is open still answers."""
        try:
            self._attach_soon()
            successor = connect(self.path, read_only=True)
        except StoreError:
            return connection
        connection.close()
        return successor

    @contextmanager
    def reading(self) -> Iterator["Reader"]:
        """One snapshot of the file."""
        self._check_open()
        try:
            connection = self._idle.pop()
        except IndexError:
            self._attach_soon()
            connection = connect(self.path, read_only=True)
        if connection.lost():
            connection = self._reattached(connection)
        try:
            with transaction(connection, write=False):
                yield Reader(connection)
        finally:
            with self._lock_of_idle:
                self._idle.append(connection)
                if self._closed:
                    self._close_idle()

    @contextmanager
    def writing(
        self, bank: str, op: str, at_ms: int, actor: JSON, *, durable: bool = True
    ) -> Iterator["Writer"]:
        """One transaction on one bank, which is made if it is not there. It leaves no trace if the block raises.

        Not `durable`: the death of the process loses nothing, the power's may (for counting who read what).
        """
        if not self._lock.acquire(timeout=WRITE_WAIT_S):
            raise Busy("the memory store is busy with other writes; try again")
        try:
            self._check_open()
            self._attach()
            if not durable:
                self._writer.execute("PRAGMA synchronous = NORMAL")
            try:
                with transaction(self._writer):
                    writer = Writer(self._writer, bank, op, at_ms, actor)
                    yield writer
                    writer.finish()
            finally:
                if not durable:
                    self._writer.execute("PRAGMA synchronous = FULL")
        finally:
            self._lock.release()


class Reader:
    """Questions to one snapshot."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def bank(self, bank: str) -> BankRow | None:
        row = self._connection.execute(
            "SELECT bank_no, bank, created_ms, config, live, live_terms, purges, seq, head FROM memory_banks WHERE bank = ?",
            (bank,),
        ).fetchone()
        return BankRow._make([*row[:3], json.loads(row[3]), *row[4:]]) if row else None

    def banks(self) -> list[str]:
        return [row[0] for row in self._connection.execute("SELECT bank FROM memory_banks ORDER BY bank")]

    # -- rows ----------------------------------------------------------------------------------------------------
    # `+bank_no` where numbers are given: without the sign SQLite would rather walk an index over the whole bank.
    def rows(self, bank_no: int, nos: Iterable[int]) -> dict[int, Memory]:
        found = self._connection.execute(
            f"{_SELECT} WHERE +m.bank_no = ? AND m.no IN (SELECT value FROM json_each(?))",
            (bank_no, json.dumps(list(nos))),
        )
        return {row[0]: _memory(row) for row in found}

    def candidates(self, bank_no: int, nos: Iterable[int]) -> dict[int, Candidate]:
        found = self._connection.execute(
            "SELECT no, id, kind, text, event_ms, created_ms FROM memories WHERE +bank_no = ? AND no IN (SELECT value FROM json_each(?))",
            (bank_no, json.dumps(list(nos))),
        )
        return {row[0]: Candidate._make(row) for row in found}

    def row(self, bank_no: int, id: str) -> Memory | None:
        row = self._connection.execute(
            f"{_SELECT} WHERE m.bank_no = ? AND m.id = ?", (bank_no, id)
        ).fetchone()
        return _memory(row) if row else None

    def row_by_alias(self, bank_no: int, alias: str) -> Memory | None:
        row = self._connection.execute(
            f"{_SELECT} JOIN memory_aliases a ON a.memory_no = m.no WHERE a.bank_no = ? AND a.alias = ? AND m.bank_no = ?",
            (bank_no, alias, bank_no),
        ).fetchone()
        return _memory(row) if row else None

    def rows_with_prefix(self, bank_no: int, prefix: str) -> list[Memory]:
        """Those whose id begins so; at most two, which is enough to know that a prefix does not name one."""
        found = self._connection.execute(
            f"{_SELECT} WHERE m.bank_no = ? AND m.id >= ? AND m.id < ? LIMIT 2",
            (bank_no, prefix, prefix + "\x7f"),
        )
        return [_memory(row) for row in found]

    def rows_created(self, bank_no: int, created_ms: int) -> list[Memory]:
        found = self._connection.execute(
            f"{_SELECT} WHERE m.bank_no = ? AND m.created_ms = ?", (bank_no, created_ms)
        )
        return [_memory(row) for row in found]

    def twin(self, bank_no: int, content_hash: str, now_ms: int) -> Memory | None:
        """The memory that already says this: the oldest visible one of the same content."""
        shown = visible(now_ms)
        row = self._connection.execute(
            f"{_SELECT} WHERE m.bank_no = ? AND m.content_hash = ? AND {shown.sql} ORDER BY m.no LIMIT 1",
            (bank_no, content_hash, *shown.values),
        ).fetchone()
        return _memory(row) if row else None

    def select(
        self, bank_no: int, conditions: Sequence[Condition], order: str = "m.no", limit: int = -1
    ) -> Iterator[Memory]:
        """Rows under all conditions. `order` is the caller's constant, never a user's text."""
        where, values = _where(bank_no, conditions)
        for row in self._connection.execute(
            f"{_SELECT} WHERE {where} ORDER BY {order} LIMIT ?", (*values, limit)
        ):
            yield _memory(row)

    def numbers(
        self, bank_no: int, conditions: Sequence[Condition], among: Sequence[int] | None = None
    ) -> list[int]:
        """The numbers of the rows under all conditions, of those given if any are."""
        where, values = _where(bank_no, conditions)
        if among is not None:
            where = f"+{where} AND m.no IN (SELECT value FROM json_each(?))"
            values = (*values, json.dumps(list(among)))
        return [
            row[0] for row in self._connection.execute(f"SELECT m.no FROM memories m WHERE {where}", values)
        ]

    def count(self, bank_no: int, conditions: Sequence[Condition]) -> int:
        where, values = _where(bank_no, conditions)
        found: int = self._connection.execute(
            f"SELECT count(*) FROM memories m WHERE {where}", values
        ).fetchone()[0]
        return found

    def summary(
        self,
        bank_no: int,
        conditions: Sequence[Condition],
        group: str | None,
        group_values: Sequence[JSON] = (),
    ) -> list[JSON]:
        """`(value, count, mean importance, first created, last created, characters)` of each group, largest group first."""
        where, values = _where(bank_no, conditions)
        return self._connection.execute(
            f"SELECT {group or 'NULL'} AS value, count(*), avg(m.importance), min(m.created_ms), max(m.created_ms), sum(length(m.text))"
            f" FROM memories m WHERE {where} GROUP BY value ORDER BY count(*) DESC, value",
            (*group_values, *values),
        ).fetchall()

    def aliases(self, bank_no: int, nos: Iterable[int]) -> dict[int, list[str]]:
        """The names that memories were given, by number; those without are left out."""
        found: dict[int, list[str]] = {}
        for no, alias in self._connection.execute(
            "SELECT memory_no, alias FROM memory_aliases INDEXED BY memory_aliases_by_memory"
            " WHERE memory_no IN (SELECT value FROM json_each(?)) AND bank_no = ? ORDER BY alias",
            (json.dumps(list(nos)), bank_no),
        ):
            found.setdefault(no, []).append(alias)
        return found

    def links(self, bank_no: int, memory_no: int) -> list[tuple[str, float]]:
        """(id, likeness) of near duplicates, both ways, most alike first."""
        found = self._connection.execute(
            "SELECT m.id, l.score FROM (SELECT other_no AS no, score FROM memory_links WHERE memory_no = ?1"
            " UNION SELECT memory_no, score FROM memory_links WHERE other_no = ?1) l"
            " JOIN memories m ON m.no = l.no WHERE m.bank_no = ?2 AND m.deleted_ms IS NULL ORDER BY l.score DESC, m.id",
            (memory_no, bank_no),
        )
        return [(row[0], row[1]) for row in found]

    def sessions(self, memory_no: int) -> list[str]:
        found = self._connection.execute(
            "SELECT session FROM memory_sessions WHERE memory_no = ? ORDER BY session", (memory_no,)
        )
        return [row[0] for row in found]

    def reply(self, bank_no: int, key: str) -> tuple[str, JSON] | None:
        """(hash of the request, reply) kept under an idempotency key."""
        row = self._connection.execute(
            "SELECT request, reply FROM memory_replies WHERE bank_no = ? AND key = ?", (bank_no, key)
        ).fetchone()
        return (row[0], json.loads(row[1])) if row else None

    # -- words ---------------------------------------------------------------------------------------------------
    def frequencies(self, bank_no: int, words: Sequence[str]) -> dict[str, int]:
        """How many memories of the bank hold each term; terms of none are left out."""
        found = {}
        for word in words:
            row = self._connection.execute(
                "SELECT doc FROM memory_vocabulary WHERE term = ?", (f"{bank_no}:{word}",)
            ).fetchone()
            if row:
                found[word] = row[0]
        return found

    def by_words(
        self, bank_no: int, frequencies: dict[str, int], conditions: Sequence[Condition], k: int
    ) -> list[int]:
        """Numbers of up to k memories that hold any of the terms, the likeliest first by FTS5's BM25.

        Reads at most about `MAX_POSTINGS` entries of the index: the commonest terms are passed over, and where even the rarest
        is commoner than that, only the newest memories are looked at.
        """
        chosen: list[str] = []
        read = 0
        for word in sorted(frequencies, key=lambda word: (frequencies[word], word)):
            if chosen and read + frequencies[word] > MAX_POSTINGS:
                break
            chosen.append(word)
            read += frequencies[word]
        if not chosen:
            return []
        match = " OR ".join('"{}:{}"'.format(bank_no, word.replace('"', "")) for word in chosen)
        first = 0
        if read > MAX_POSTINGS:
            newest = self._connection.execute(
                "SELECT no FROM memories WHERE bank_no = ? ORDER BY created_ms DESC, no DESC LIMIT 1 OFFSET ?",
                (bank_no, MAX_POSTINGS),
            ).fetchone()
            first = newest[0] if newest else 0
        likeliest = [
            row[0]
            for row in self._connection.execute(
                "SELECT rowid FROM memory_words WHERE memory_words MATCH ? AND rowid >= ? ORDER BY rank LIMIT ?",
                (match, first, k),
            )
        ]
        shown = set(self.numbers(bank_no, conditions, likeliest))
        if len(shown) == len(likeliest) or len(likeliest) < k:
            return [no for no in likeliest if no in shown]
        # The conditions took some: ask again with them inside, which looks up a row for every entry read.
        where, values = _where(bank_no, conditions)
        narrowed = self._connection.execute(
            f"SELECT m.no FROM memory_words w CROSS JOIN memories m ON m.no = w.rowid WHERE w.memory_words MATCH ? AND w.rowid >= ? AND {where}"
            " ORDER BY w.rank LIMIT ?",
            (match, first, *values, k),
        )
        return [row[0] for row in narrowed]

    def words(self, bank_no: int, nos: Sequence[int]) -> dict[int, list[list[str]]]:
        """The terms stored for these memories, as `segments` gave them."""
        found = self._connection.execute(
            "SELECT rowid, terms FROM memory_words WHERE rowid IN (SELECT value FROM json_each(?))",
            (json.dumps(list(nos)),),
        )
        cut = len(f"{bank_no}:")
        return {
            no: [[word[cut:] for word in part.split()] for part in stored.split(_PARTING)]
            for no, stored in found
        }

    # -- vectors -------------------------------------------------------------------------------------------------
    def model_no(self, model: str) -> int | None:
        row = self._connection.execute(
            "SELECT model_no FROM memory_models WHERE model = ?", (model,)
        ).fetchone()
        return row[0] if row else None

    def vectors(
        self, bank_no: int, model_no: int, nos: Sequence[int] | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """(memory number, vector) of every passage of the bank, or of these memories, in order of both."""
        narrowed = "" if nos is None else " AND memory_no IN (SELECT value FROM json_each(?))"
        values = () if nos is None else (json.dumps(list(nos)),)
        yield from self._connection.execute(
            f"SELECT memory_no, vector FROM memory_vectors WHERE bank_no = ? AND model_no = ?{narrowed} ORDER BY memory_no, ordinal",
            (bank_no, model_no, *values),
        )

    def withdrawn(self, bank_no: int) -> list[tuple[int, bool]]:
        """(number, deleted?) of memories that were deleted or superseded."""
        found = self._connection.execute(
            "SELECT no, deleted_ms IS NOT NULL FROM memories INDEXED BY memories_withdrawn"
            " WHERE bank_no = ? AND (deleted_ms IS NOT NULL OR valid_to_ms IS NOT NULL)",
            (bank_no,),
        )
        return [(row[0], bool(row[1])) for row in found]

    def changed_since(self, bank_no: int, seq: int) -> list[tuple[int, bool, bool]]:
        """(number, deleted?, superseded?) of memories changed after `seq`."""
        found = self._connection.execute(
            "SELECT no, deleted_ms IS NOT NULL, valid_to_ms IS NOT NULL FROM memories INDEXED BY memories_by_seq WHERE bank_no = ? AND seq > ?",
            (bank_no, seq),
        )
        return [(row[0], bool(row[1]), bool(row[2])) for row in found]

    def without_vectors(self, model: str, limit: int, bank_no: int | None = None) -> list[tuple[int, Memory]]:
        """(bank_no, memory) of memories that the model has not embedded, oldest first."""
        model_no = self.model_no(model) or -1
        one_bank = "" if bank_no is None else " AND m.bank_no = ?"
        found = self._connection.execute(
            f"SELECT m.bank_no, {', '.join('m.' + name for name in COLUMNS)} FROM memories m WHERE m.deleted_ms IS NULL{one_bank} AND NOT EXISTS"
            " (SELECT 1 FROM memory_vectors v WHERE v.bank_no = m.bank_no AND v.model_no = ? AND v.memory_no = m.no) ORDER BY m.no LIMIT ?",
            (*(() if bank_no is None else (bank_no,)), model_no, limit),
        )
        return [(row[0], _memory(row[1:])) for row in found]

    # -- history -------------------------------------------------------------------------------------------------
    def operation(self, bank_no: int, op_id: str) -> tuple[int, str, int] | None:
        """(number, op, at_ms) of a journal line of this bank."""
        row = self._connection.execute(
            "SELECT no, op, at_ms FROM memory_journal WHERE bank_no = ? AND op_id = ?", (bank_no, op_id)
        ).fetchone()
        return (row[0], row[1], row[2]) if row else None

    def changes_of(self, bank_no: int, op_no: int) -> list[tuple[int, int, dict[str, JSON] | None]]:
        """(memory number, version it made, what was before) of every change an operation made."""
        found = self._connection.execute(
            "SELECT h.memory_no, h.version, h.before FROM memory_history h JOIN memories m ON m.no = h.memory_no"
            " WHERE h.op_no = ? AND m.bank_no = ? ORDER BY h.memory_no, h.version DESC",
            (op_no, bank_no),
        )
        return [(row[0], row[1], None if row[2] is None else json.loads(row[2])) for row in found]

    def history(self, bank_no: int, memory_no: int) -> list[Change]:
        """Every change of one memory, oldest first."""
        found = self._connection.execute(
            "SELECT h.memory_no, h.version, j.op_id, j.op, j.at_ms, j.actor, h.before FROM memory_history h"
            " JOIN memory_journal j ON j.no = h.op_no WHERE h.memory_no = ? AND j.bank_no = ? ORDER BY h.version",
            (memory_no, bank_no),
        )
        return [
            Change._make([*row[:5], json.loads(row[5]), None if row[6] is None else json.loads(row[6])])
            for row in found
        ]

    def journal(
        self, bank_no: int, after: int = 0, limit: int = -1
    ) -> Iterator[tuple[int, str, str, int, str, str, str]]:
        """(no, op_id, op, at_ms, actor, detail, hash) of the bank's journal, in order."""
        yield from self._connection.execute(
            "SELECT no, op_id, op, at_ms, actor, detail, hash FROM memory_journal WHERE bank_no = ? AND no > ? ORDER BY no LIMIT ?",
            (bank_no, after, limit),
        )

    # -- health --------------------------------------------------------------------------------------------------
    def problems(self, *, deep: bool = False) -> list[str]:
        """What does not agree: words without a memory, memories without words, wrong counts, a broken journal; `deep` also reads
        every memory's text and compares its terms with those stored."""
        found = []
        ask = self._connection.execute
        row = ask("PRAGMA quick_check(1)").fetchone()
        if row[0] != "ok":
            found.append(f"the catalog file is damaged: {row[0]}")
        lost = ask(
            "SELECT count(*) FROM memory_words_content w LEFT JOIN memories m ON m.no = w.id WHERE m.no IS NULL OR m.deleted_ms IS NOT NULL"
        )
        if count := lost.fetchone()[0]:
            found.append(f"{count} entries of the word index belong to no memory")
        bare = ask(
            "SELECT count(*) FROM memories m LEFT JOIN memory_words_content w ON w.id = m.no WHERE m.deleted_ms IS NULL AND w.id IS NULL"
        )
        if count := bare.fetchone()[0]:
            found.append(f"{count} memories are missing from the word index")
        stray = ask(
            "SELECT count(*) FROM memory_vectors v LEFT JOIN memories m ON m.no = v.memory_no AND m.bank_no = v.bank_no WHERE m.no IS NULL"
        )
        if count := stray.fetchone()[0]:
            found.append(f"{count} vectors belong to no memory")
        unwritten = ask(
            "SELECT count(*) FROM memories m LEFT JOIN memory_history h ON h.memory_no = m.no AND h.version = m.version WHERE h.memory_no IS NULL"
        )
        if count := unwritten.fetchone()[0]:
            found.append(f"{count} memories have no history of their version")
        for name in self.banks():
            bank = self.bank(name)
            assert bank is not None
            live, live_terms = ask(
                "SELECT count(*), ifnull(sum(term_count), 0) FROM memories WHERE bank_no = ? AND deleted_ms IS NULL",
                (bank.bank_no,),
            ).fetchone()
            if (live, live_terms) != (bank.live, bank.live_terms):
                found.append(f"bank '{name}' counts {bank.live} memories and holds {live}")
            if (broken := self._broken_link(bank)) is not None:
                found.append(f"the journal of bank '{name}' is broken at line {broken}")
            if deep:
                wrong = sum(
                    self.words(bank.bank_no, [one.no]).get(one.no) != segments(one)
                    for one in self.select(bank.bank_no, [_UNDELETED])
                )
                if wrong:
                    found.append(f"bank '{name}': the words of {wrong} memories are not those of their text")
        return found

    def _broken_link(self, bank: BankRow) -> int | None:
        head = ""
        last = 0
        for no, op_id, op, at_ms, actor, detail, hash in self.journal(bank.bank_no):
            if hash != _link(head, op_id, op, at_ms, actor, detail):
                return no
            head, last = hash, no
        return None if head == bank.head else last


class Writer(Reader):
    """Changes to one bank within one transaction."""

    def __init__(self, connection: sqlite3.Connection, bank: str, op: str, at_ms: int, actor: JSON) -> None:
        super().__init__(connection)
        self.op = op
        self.op_id = str(uuid.uuid4())
        self.at_ms = at_ms
        self._actor = actor
        self._ids: list[str] = []
        self._count = 0
        self._detail: dict[str, JSON] = {}
        self.row_of_bank = self.bank(bank) or self._make_bank(bank)
        self.bank_no = self.row_of_bank.bank_no
        self.op_no: int = connection.execute("SELECT ifnull(max(no), 0) + 1 FROM memory_journal").fetchone()[
            0
        ]

    def _make_bank(self, bank: str) -> BankRow:
        self._connection.execute(
            "INSERT INTO memory_banks (bank, created_ms) VALUES (?, ?)", (bank, self.at_ms)
        )
        made = self.bank(bank)
        assert made is not None
        return made

    # -- rows ----------------------------------------------------------------------------------------------------
    def insert(self, memory: Memory, model: str | None = None, vectors: Sequence[bytes] = ()) -> Memory:
        """Stores a new memory with its words and vectors; `no`, `seq` and `term_count` are set here."""
        parts = segments(memory)
        memory = memory._replace(seq=self.op_no, term_count=weighed_length(parts))
        try:
            no = self._connection.execute(_INSERT, (self.bank_no, *_stored(memory)[1:])).lastrowid
        except sqlite3.IntegrityError as error:
            raise Conflict(f"a memory with the id {memory.id} is there already") from error
        assert no is not None
        memory = memory._replace(no=no)
        if memory.deleted_ms is None:
            self._put_words(memory, parts)
        self.put_vectors(memory, model, vectors)
        self._note(memory, None)
        if memory.session:
            self.join_session(memory.no, memory.session)
        return memory

    def patch(self, memory: Memory, changes: dict[str, JSON]) -> Memory:
        """Writes columns (by their names, JSON columns as values) as the next version; the words follow."""
        changes = {name: value for name, value in changes.items() if getattr(memory, name) != value}
        if not changes:
            return memory
        before = {name: getattr(memory, name) for name in changes}
        old = memory
        memory = memory._replace(**changes, seq=self.op_no, version=memory.version + 1)
        parts = segments(memory)
        memory = memory._replace(term_count=weighed_length(parts))
        names = (*changes, "seq", "version", "term_count")
        values = [
            canonical(getattr(memory, name)) if name in _JSON_COLUMNS else getattr(memory, name)
            for name in names
        ]
        self._connection.execute(
            f"UPDATE memories SET {', '.join(f'{name} = ?' for name in names)} WHERE no = ? AND bank_no = ?",
            (*values, memory.no, self.bank_no),
        )
        if old.deleted_ms is None:
            self._drop_words(old)
        if memory.deleted_ms is None:
            self._put_words(memory, parts)
        self._note(memory, before)
        return memory

    def delete_under(self, conditions: Sequence[Condition], deleted_ms: int) -> int:
        """Soft-deletes every undeleted row under the conditions with all that it contains; how many."""
        where, values = _where(self.bank_no, [_UNDELETED, *conditions])
        run = self._connection.execute
        run("CREATE TEMP TABLE IF NOT EXISTS doomed (no INTEGER PRIMARY KEY)")
        run("DELETE FROM doomed")
        run(f"INSERT INTO doomed SELECT m.no FROM memories m WHERE {where}", values)
        grown = -1
        while grown:  # what is inside goes too, however deep
            grown = run(
                "INSERT OR IGNORE INTO doomed SELECT c.no FROM doomed d JOIN memories m ON m.no = d.no"
                " JOIN memories c ON c.bank_no = m.bank_no AND c.parent = m.id WHERE c.bank_no = ? AND c.deleted_ms IS NULL",
                (self.bank_no,),
            ).rowcount
        count, lost_terms = run(
            "SELECT count(*), ifnull(sum(term_count), 0) FROM memories WHERE no IN (SELECT no FROM doomed)"
        ).fetchone()
        if count:
            ids = [
                row[0]
                for row in run("SELECT id FROM memories WHERE no IN (SELECT no FROM doomed) ORDER BY no")
            ]
            run(
                "INSERT INTO memory_history SELECT no, version + 1, ?, '{\"deleted_ms\":null}' FROM memories WHERE no IN (SELECT no FROM doomed)",
                (self.op_no,),
            )
            run(
                "UPDATE memories SET deleted_ms = ?, version = version + 1, seq = ? WHERE no IN (SELECT no FROM doomed)",
                (deleted_ms, self.op_no),
            )
            run("DELETE FROM memory_words WHERE rowid IN (SELECT no FROM doomed)")
            run(
                "UPDATE memory_banks SET live = live - ?, live_terms = live_terms - ? WHERE bank_no = ?",
                (count, lost_terms, self.bank_no),
            )
            self._ids += ids
            self._count += count
        run("DELETE FROM doomed")
        return int(count)

    def purge(self, memory: Memory) -> None:
        """Removes a memory for good, with its history: only its id stays, in the journal."""
        if memory.deleted_ms is None:
            self._drop_words(memory)
        run = self._connection.execute
        for table, column in (
            ("memory_vectors", "memory_no"),
            ("memory_aliases", "memory_no"),
            ("memory_links", "memory_no"),
            ("memory_links", "other_no"),
            ("memory_sessions", "memory_no"),
            ("memory_history", "memory_no"),
        ):
            bound = " AND bank_no = ?" if table in ("memory_vectors", "memory_aliases") else ""
            run(
                f"DELETE FROM {table} WHERE {column} = ?{bound}",
                (memory.no, self.bank_no) if bound else (memory.no,),
            )
        run("DELETE FROM memories WHERE no = ? AND bank_no = ?", (memory.no, self.bank_no))
        run("UPDATE memory_banks SET purges = purges + 1 WHERE bank_no = ?", (self.bank_no,))
        self._ids.append(memory.id)
        self._count += 1

    def touch(self, nos: Sequence[int], session: str | None) -> None:
        """Counts a reading: not a new version."""
        self._connection.execute(
            "UPDATE memories SET accessed_ms = max(accessed_ms, ?), access_count = access_count + 1"
            " WHERE +bank_no = ? AND no IN (SELECT value FROM json_each(?))",
            (self.at_ms, self.bank_no, json.dumps(list(nos))),
        )
        if session:
            for no in nos:
                self.join_session(no, session)

    def join_session(self, memory_no: int, session: str) -> None:
        self._connection.execute("INSERT OR IGNORE INTO memory_sessions VALUES (?, ?)", (memory_no, session))

    def next_ordinal(self, parent: str) -> int:
        found: int = self._connection.execute(
            "SELECT ifnull(max(ordinal) + 1, 0) FROM memories WHERE bank_no = ? AND parent = ?",
            (self.bank_no, parent),
        ).fetchone()[0]
        return found

    def alias(self, memory: Memory, alias: str) -> None:
        """Gives a memory another name. Raises `Conflict` where another has it."""
        try:
            self._connection.execute(
                "INSERT INTO memory_aliases VALUES (?, ?, ?)", (self.bank_no, alias, memory.no)
            )
        except sqlite3.IntegrityError as error:
            raise Conflict(f"another memory is called '{alias[:80]}'") from error

    def link(self, memory: Memory, other_no: int, score: float) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO memory_links VALUES (?, ?, 'near', ?)", (memory.no, other_no, score)
        )

    def keep_reply(self, key: str, request: str, reply: JSON) -> None:
        self._connection.execute(
            "INSERT INTO memory_replies VALUES (?, ?, ?, ?)", (self.bank_no, key, request, canonical(reply))
        )

    def configure(self, config: JSON) -> None:
        self._connection.execute(
            "UPDATE memory_banks SET config = ? WHERE bank_no = ?", (canonical(config), self.bank_no)
        )
        self._detail["config"] = config
        self._count += 1

    # -- words and vectors ---------------------------------------------------------------------------------------
    def _put_words(self, memory: Memory, parts: list[list[str]]) -> None:
        stored = f" {_PARTING} ".join(" ".join(f"{self.bank_no}:{word}" for word in part) for part in parts)
        self._connection.execute("INSERT INTO memory_words (rowid, terms) VALUES (?, ?)", (memory.no, stored))
        self._connection.execute(
            "UPDATE memory_banks SET live = live + 1, live_terms = live_terms + ? WHERE bank_no = ?",
            (memory.term_count, self.bank_no),
        )

    def _drop_words(self, memory: Memory) -> None:
        self._connection.execute("DELETE FROM memory_words WHERE rowid = ?", (memory.no,))
        self._connection.execute(
            "UPDATE memory_banks SET live = live - 1, live_terms = live_terms - ? WHERE bank_no = ?",
            (memory.term_count, self.bank_no),
        )

    def put_vectors(self, memory: Memory, model: str | None, vectors: Sequence[bytes]) -> None:
        """Replaces the vectors of a memory; none: it is found by its words until it is embedded."""
        self._connection.execute(
            "DELETE FROM memory_vectors WHERE bank_no = ? AND memory_no = ? AND model_no IN (SELECT model_no FROM memory_models)",
            (self.bank_no, memory.no),
        )
        if model is None or not vectors:
            return
        model_no = self.model_no(model)
        if model_no is None:
            model_no = self._connection.execute(
                "INSERT INTO memory_models (model) VALUES (?)", (model,)
            ).lastrowid
        self._connection.executemany(
            "INSERT INTO memory_vectors VALUES (?, ?, ?, ?, ?)",
            [(self.bank_no, model_no, memory.no, ordinal, vector) for ordinal, vector in enumerate(vectors)],
        )

    def embed(self, memory: Memory, model: str, vectors: Sequence[bytes]) -> None:
        """Adds the vectors a memory was stored without; it counts as a change for projections, not as a version."""
        self.put_vectors(memory, model, vectors)
        self._connection.execute(
            "UPDATE memories SET seq = ? WHERE no = ? AND bank_no = ?", (self.op_no, memory.no, self.bank_no)
        )
        self._count += 1

    # -- the journal ---------------------------------------------------------------------------------------------
    def detail(self, **entries: JSON) -> None:
        """Adds to what the journal says of this operation: names and numbers, never a memory's text."""
        self._detail.update(entries)

    def _note(self, memory: Memory, before: dict[str, JSON] | None) -> None:
        self._connection.execute(
            "INSERT INTO memory_history VALUES (?, ?, ?, ?)",
            (memory.no, memory.version, self.op_no, None if before is None else canonical(before)),
        )
        self._ids.append(memory.id)
        self._count += 1

    @property
    def changed(self) -> bool:
        return self._count > 0

    def finish(self) -> None:
        """Writes the journal line, if anything changed."""
        if not self._count:
            return
        detail: dict[str, JSON] = {"count": self._count, **self._detail}
        if self._ids:
            # A few by name; all of them by digest, so that a line of a great deletion stays a line.
            detail["ids"] = self._ids[:20]
            detail["digest"] = hashlib.sha256("\n".join(self._ids).encode()).hexdigest()
        actor = canonical(self._actor)
        said = canonical(detail)
        # Read again: a second journal line within the transaction is impossible, a first one by `ensure` is not.
        head = self._connection.execute(
            "SELECT head FROM memory_banks WHERE bank_no = ?", (self.bank_no,)
        ).fetchone()[0]
        link = _link(head, self.op_id, self.op, self.at_ms, actor, said)
        self._connection.execute(
            "INSERT INTO memory_journal VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (self.op_no, self.bank_no, self.op_id, self.op, self.at_ms, actor, said, link),
        )
        self._connection.execute(
            "UPDATE memory_banks SET head = ?, seq = ? WHERE bank_no = ?", (link, self.op_no, self.bank_no)
        )


_UNDELETED = Condition("m.deleted_ms IS NULL", ())


def _link(head: str, op_id: str, op: str, at_ms: int, actor: str, detail: str) -> str:
    return hashlib.sha256("\n".join((head, op_id, op, str(at_ms), actor, detail)).encode()).hexdigest()


def _where(bank_no: int, conditions: Sequence[Condition]) -> tuple[str, tuple[JSON, ...]]:
    sql = " AND ".join(("m.bank_no = ?", *(f"({one.sql})" for one in conditions)))
    return sql, (bank_no, *(value for one in conditions for value in one.values))


def _memory(row: Sequence[JSON]) -> Memory:
    fields = list(row)
    for place in _JSON_PLACES:
        stored = fields[place]
        fields[place] = {} if stored == "{}" else [] if stored == "[]" else json.loads(stored)
    return Memory(*fields)


def _stored(memory: Memory) -> list[JSON]:
    fields: list[JSON] = list(memory)
    for place in _JSON_PLACES:
        fields[place] = canonical(fields[place])
    return fields
