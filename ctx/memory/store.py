"""The memory banks of one store, which is a file, or a database that several machines share.

`move_memories` copies one store to another: all banks with words, vectors, history and journal, and the
sessions of clients.
"""

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple

from ctx.clock import now_ms
from ctx.embed import Embedder
from ctx.errors import BadRequest, Conflict, CtxError, NotFound, StoreError
from ctx.memory.bank import MemoryBank
from ctx.memory.columns import Memory, plain_number
from ctx.memory.language import POLICIES
from ctx.memory.reader import COLUMN_NAMES, UNDELETED, BankRow, Reader, visible
from ctx.memory.records import UNKNOWN, Provenance, check_bank_id, check_nameable, no_bank
from ctx.memory.reflect import ChatCompletion
from ctx.memory.rows import MemoryRows, SqliteRows
from ctx.memory.schema import Engine
from ctx.memory.scores import segments
from ctx.memory.vectors import Embedding
from ctx.memory.writer import LIVE, empty, retire
from ctx.models import JSON, OWN_BANK
from ctx.store.record import Closeable

logger = logging.getLogger(__name__)

_ALL = 1_000_000_000
# (query that counts an inconsistency, message that reports the count) pairs.
_STRAYS = (
    (
        "SELECT count(*) FROM memory_vectors v LEFT JOIN memories m"
        " ON m.no = v.memory_no AND m.bank_no = v.bank_no WHERE m.no IS NULL",
        "{} vectors belong to no memory",
    ),
    (
        "SELECT count(*) FROM memories m LEFT JOIN memory_history h"
        " ON h.memory_no = m.no AND h.version = m.version WHERE h.memory_no IS NULL",
        "{} memories have no history of their version",
    ),
)


def open_rows(place: str, leftovers: Sequence[str] = ()) -> MemoryRows:
    """Opens the memory tables in a file, or at the URL of a database.

    `leftovers` is described in `SqliteRows`. Raises `StoreError`, `Busy`.
    """
    if "://" not in place:
        return SqliteRows(place, leftovers)
    from ctx.cluster import open_database

    database = open_database(place)
    from ctx.cluster.memory_db import PostgresRows  # imports psycopg, which is installed only with an extra

    return PostgresRows(database, own=True)


class MemoryStore(Closeable):
    """All banks of one store. Safe across threads and processes. A context manager.

    `place` is a file, the URL of a database, or open tables. `clock` returns milliseconds since the epoch.
    `secrets` is the policy for texts that look like a secret: flag, redact, refuse or off. With
    `consolidate`, the language model decides for each new fact which similar memories it replaces.
    """

    def __init__(
        self,
        place: str | MemoryRows,
        embedder: Embedder | None = None,
        clock: Callable[[], int] = now_ms,
        *,
        secrets: str = "flag",
        language_model: ChatCompletion | None = None,
        consolidate: bool = False,
        leftovers: Sequence[str] = (),
    ) -> None:
        if secrets not in POLICIES:
            raise BadRequest(f"secrets: one of {', '.join(POLICIES)}")
        self.rows = open_rows(place, leftovers) if isinstance(place, str) else place
        self.embedding = Embedding(embedder, self._embed_soon)
        self._closing = threading.Event()
        self._worker: threading.Thread | None = None
        self._worker_lock = threading.Lock()
        self._asked = threading.Event()
        self.clock, self.secrets = clock, secrets
        self.language_model, self.consolidate = language_model, consolidate

    def close(self) -> None:
        self._closing.set()
        self._asked.set()
        if self._worker is not None:
            self._worker.join()
        self.rows.close()
        self.embedding.close()

    def bank(self, id: str, source: Provenance = UNKNOWN) -> MemoryBank:
        """The bank with this id. Its first write creates it. Raises `BadRequest` for an invalid id."""
        try:
            check_bank_id(id)
        except BadRequest:
            # Accept an invalid id that exists: earlier versions allowed letters of any script.
            if id not in self.banks():
                raise
        return MemoryBank(self, id, source)

    def banks(self) -> list[str]:
        with self.rows.reading() as reader:
            return reader.banks()

    def bank_counts(self) -> dict[str, int]:
        """The number of visible memories of each bank, sorted by name."""
        with self.rows.reading() as reader:
            return reader.bank_counts(visible(self.clock()))

    def rename(self, id: str, name: str) -> None:
        """Renames a bank. Raises `NotFound`, and `Conflict` if the name is taken."""
        with self.rows.change() as engine:
            names = self._existing(Reader(engine, id)).banks()
            if id.startswith(OWN_BANK):
                private = f"'{id}' is a pack's private bank"
                raise BadRequest(f"{private} and cannot be renamed; merge it into another bank")
            if check_nameable(name) in names:
                raise Conflict(f"a bank called '{name}' already exists; merge the two instead")
            engine.connection.execute("UPDATE memory_banks SET bank = ? WHERE bank = ?", (name, id))

    def _existing(self, reader: Reader) -> Reader:
        """The reader itself. Raises `NotFound` if its bank does not exist."""
        # Only the name of a removed bank begins with a slash.
        if not reader.exists or reader.bank.bank.startswith("/"):
            raise NotFound(no_bank(reader.bank.bank))
        return reader

    def merge(self, id: str, into: str, source: Provenance = UNKNOWN, *, dry_run: bool = False) -> JSON:
        """Moves the memories of a bank into another, with their history, and removes the empty bank:
        `{"imported", "skipped", "conflicts"}`. See `MemoryBank.absorb`. Raises `NotFound`, `BadRequest`.
        """
        with self.rows.reading(id) as reader:
            self._existing(reader)
        if id == into:
            raise BadRequest("a bank cannot be merged into itself")
        counts = self.bank(into, source).absorb(id, dry_run=dry_run)
        if not dry_run and not counts["conflicts"]:
            self.embedding.close()
        return counts

    def delete(self, id: str) -> int:
        """Erases a bank with its history and journal. Returns how many memories it had. Raises `NotFound`."""
        with self.rows.change() as engine:
            reader = self._existing(Reader(engine, id, locked=True))
            count = reader.count([visible(self.clock(), superseded=True)])
            engine.note_erasure()
            empty(engine, reader.bank_no)
            engine.connection.execute("DELETE FROM memory_journal WHERE bank_no = ?", (reader.bank_no,))
            retire(engine, reader.bank_no)
        self.rows.shred()
        self.embedding.close()
        return count

    def check(self, *, deep: bool = False) -> list[str]:
        """Messages about damage to the store and inconsistencies in it; [] if there are none.

        `deep` also compares the indexed terms of each memory with its text.
        """
        with self.rows.reading() as reader:
            sentences = reader.engine.damage()
            for sql, sentence in (*reader.engine.strays, *_STRAYS):
                if count := reader.scalar(sql):
                    sentences.append(sentence.format(count))
            banks = reader.banks()
        for bank in banks:
            with self.rows.reading(bank) as reader:
                sentences += _of_bank(reader, deep=deep)
        return sentences

    def pending(self) -> int:
        """The number of memories that are not embedded yet; 0 without an embedder."""
        return len(self._unread(_ALL))

    def embed_pending(self, limit: int = _ALL) -> int:
        """Embeds memories that the current model has not embedded yet. Returns how many."""
        count = 0
        while count < limit and (batch := self._unread(min(64, limit - count))):
            texts = [memory.text for _, memory in batch]
            packed = self.embedding.packed(texts, patient=True, stop=self._closing)
            if not all(packed):
                break
            pairs = sorted(zip(batch, packed, strict=True), key=lambda pair: pair[0][0])
            for bank, group in groupby(pairs, lambda pair: pair[0][0]):
                with self.rows.writing(bank, "embed", self.clock(), {"tool": "embed_pending"}) as writer:
                    for (_, memory), vectors in group:
                        stored = writer.row(memory.id)
                        if stored is not None and stored.text == memory.text and self.embedding.model:
                            writer.embed(stored, self.embedding.model, vectors)
            count += len(batch)
        return count

    def _embed_soon(self) -> None:
        """Starts embedding memories without vectors, in the background."""
        self._asked.set()
        with self._worker_lock:
            if self._worker is None and not self._closing.is_set():
                self._worker = threading.Thread(target=self._work, name="ctx-memories-long", daemon=True)
                self._worker.start()

    def _work(self) -> None:
        while self._asked.wait() and not self._closing.is_set():
            self._asked.clear()
            try:
                while not self._closing.is_set() and self.embed_pending(1):
                    pass
            except CtxError as error:
                logger.warning("memory=embed outcome=%s", error.word)

    def _unread(self, limit: int) -> list[tuple[str, Memory]]:
        """(bank, memory) of memories without vectors of the current model."""
        with self.rows.reading() as reader:
            return reader.without_vectors(self.embedding.model, limit) if self.embedding.model else []


def _of_bank(reader: Reader, *, deep: bool) -> list[str]:
    bank, sentences = reader.bank, []
    live, live_terms = reader.run(f"{LIVE} bank_no = ?", bank.bank_no).fetchone()
    if (live, live_terms) != (bank.live, bank.live_terms):
        sentences.append(f"bank '{bank.bank}' counts {bank.live} memories but has {live}")
    memories = reader.select([UNDELETED]) if deep else ()
    differing = sum(reader.words([row.no]).get(row.no) != segments(row) for row in memories)
    if differing:
        counted_words = f"the indexed words of {differing} memories do not match their text"
        sentences.append(f"bank '{bank.bank}': {counted_words}")
    return sentences


# -- moving to another database ------------------------------------------------------------------------------

# Rows keep their numbers in the other database. The copy is one transaction: a move that is interrupted
# changes nothing, and can be run again.

BATCH = 500  # rows per statement
Progress = Callable[[str, int, int], None]
"""`progress(step, count, total)` is called after each batch of rows."""

# Table -> the columns to copy, and how many of them, from the first on, identify a row. Columns that the word
# index sets are not copied.
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


class MovedMemories(NamedTuple):
    """The result of a move. `digest` covers all rows of all banks."""

    banks: int
    memories: int
    sessions: int
    digest: str


def check_target(origin: MemoryRows, target: MemoryRows) -> None:
    """Raises `BadRequest` if the target has banks that the origin lacks, or that changed since a move."""
    with origin.view() as source, target.view() as goal:
        banks = {bank.bank_no: bank for bank in _banks(source)}
        changed = [bank.bank for bank in _banks(goal) if not _behind(source, bank, banks.get(bank.bank_no))]
    if changed:
        raise BadRequest(
            f"the target has memories that the origin lacks, in {len(changed):,} banks "
            f"({', '.join(changed[:5])}); name an empty store, or drop them with --replace"
        )


def move_memories(origin: MemoryRows, target: MemoryRows, *, progress: Progress) -> MovedMemories:
    """Copies all banks of `origin` to `target`, unless the two are equal, and compares them afterwards.

    Banks that only the target has are removed. During the move, nothing may write to either store. Raises
    `StoreError` if the two are not equal afterwards.
    """
    # PostgreSQL ends a transaction that is idle for two minutes, so none is open on one store while the other
    # is read.
    with origin.view() as source:
        digest = _digest(source)
        banks = sum(not bank.bank.startswith("/") for bank in _banks(source))
        [total] = source.connection.execute("SELECT count(*) FROM memories").fetchone()
    with target.change() as goal:
        if _digest(goal) != digest:
            with origin.view() as source:
                _copy(source, goal, progress, total)
            if _digest(goal) != digest:
                cause = "was one of the stores written meanwhile?"
                raise StoreError(f"the copied memories differ: {cause} Run it again")
        goal.connection.execute("DELETE FROM client_sessions")
        with origin.view() as source:
            columns = ("pack", "id", "place", "started_ms", "active_ms")
            sessions = sum(_copy_rows(source, goal, "client_sessions", columns))
        return MovedMemories(banks, total, sessions, digest)


def _copy(source: Engine, goal: Engine, progress: Progress, total: int) -> None:
    for bank in _banks(goal):
        empty(goal, bank.bank_no)
    for table in ("memory_journal", "memory_banks", "memory_models"):
        goal.connection.execute(f"DELETE FROM {table}")
    count = 0
    for table, (columns, _) in _TABLES.items():
        for batch_size in _copy_rows(source, goal, table, columns):
            if table == "memories":
                count += batch_size
                progress("memories", count, total)
    for bank_no, no, parts in _words(source):
        goal.put_words(bank_no, no, parts)
    goal.continue_numbers()


def _copy_rows(source: Engine, goal: Engine, table: str, columns: tuple[str, ...]) -> Iterator[int]:
    """Copies the rows of a table in batches, and yields the size of each batch."""
    rows = source.stream(f"SELECT {', '.join(columns)} FROM {table}")
    marks = ", ".join("?" * len(columns))
    while batch := [tuple(map(plain_number, row)) for row in islice(rows, BATCH)]:
        goal.connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", batch)
        yield len(batch)


def _banks(engine: Engine) -> list[BankRow]:
    """All banks. `config` is the stored JSON text."""
    return list(map(BankRow._make, _rows(engine, "memory_banks")))


def _behind(origin: Engine, bank: BankRow, other: BankRow | None) -> bool:
    """Whether the journal of the origin's bank `other` has all operations of the target's `bank`."""
    if other is None or bank.created_ms != other.created_ms:
        return False
    if bank.bank.startswith("/"):  # removed in the target: a copy would restore it
        return other.bank.startswith("/")
    # Look in the journals of all banks: the bank may have been merged into another one since.
    select = "SELECT 1 FROM memory_journal WHERE hash = ?"
    return not bank.head or bool(origin.connection.execute(select, (bank.head,)).fetchone())


def _rows(engine: Engine, table: str) -> Iterator[tuple[JSON, ...]]:
    """The rows of a table, ordered by key. Both databases give the same values."""
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
    """A digest of all memories. Both databases give the same digest."""
    total = hashlib.sha256()
    for table in _TABLES:
        for row in _rows(engine, table):
            total.update(repr(row).encode("utf-8", "surrogatepass"))
    for entry in _words(engine):
        total.update(repr(entry).encode())
    return total.hexdigest()
