"""The memory banks of one store: a file, or a database that machines share."""

import logging
import threading
from collections.abc import Callable, Sequence
from itertools import groupby

from ctx.clock import now_ms
from ctx.embed import Embedder
from ctx.errors import BadRequest, Conflict, CtxError, NotFound
from ctx.memory.bank import MemoryBank
from ctx.memory.columns import Memory
from ctx.memory.reader import LINEAGE, UNDELETED, Reader, visible
from ctx.memory.records import UNKNOWN, Provenance, check_bank_id, check_nameable, no_bank
from ctx.memory.reflect import ChatCompletion
from ctx.memory.rows import MemoryRows, SqliteRows
from ctx.memory.scores import segments
from ctx.memory.screen import POLICIES
from ctx.memory.vectors import Embedding
from ctx.memory.writer import empty, journal_hash
from ctx.models import JSON, OWN_BANK

logger = logging.getLogger(__name__)

_EMBED_BATCH = 64
_ALL = 1_000_000_000
# Queries that count inconsistencies, each with a message to report the count.
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
_LIVE = "SELECT {} FROM memories WHERE bank_no = ? AND deleted_ms IS NULL"


def open_rows(place: str, leftovers: Sequence[str] = ()) -> MemoryRows:
    """Opens the memory tables in a file, or at the URL of a database.

    `leftovers` is for `SqliteRows`. Raises `StoreError`, `Busy`.
    """
    if "://" not in place:
        return SqliteRows(place, leftovers)
    from ctx.cluster import open_database

    database = open_database(place)
    from ctx.cluster.memory_db import PostgresRows  # imports psycopg, which comes with an extra

    return PostgresRows(database, own=True)


class MemoryStore:
    """All banks of one store. Safe across threads and processes. A context manager.

    `place` is a file, the URL of a database, or open tables. `clock` returns milliseconds since the epoch.
    `secrets` is the policy for texts with a secret: flag, redact, refuse or off. With `consolidate`, the
    language model decides for each new fact which similar memories it replaces.
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

    def __enter__(self) -> "MemoryStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
            if id not in self.banks():  # earlier versions allowed letters of any script
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
                raise BadRequest(
                    f"'{id}' is a pack's private bank and cannot be renamed; merge it into another bank"
                )
            if check_nameable(name) in names:
                raise Conflict(f"a bank called '{name}' already exists; merge the two instead")
            engine.connection.execute("UPDATE memory_banks SET bank = ? WHERE bank = ?", (name, id))

    def _existing(self, reader: Reader) -> Reader:
        """The reader itself. Raises `NotFound` if its bank does not exist."""
        if not reader.exists or reader.bank.bank.startswith("/"):  # the name of a removed bank
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
        """Erases a bank with its history and journal. Returns how many memories it had. Raises `NotFound`.

        The bank's number is not used again, because caches may refer to it.
        """
        with self.rows.change() as engine:
            reader = self._existing(Reader(engine, id, locked=True))
            count = reader.count([visible(self.clock(), superseded=True)])
            engine.note_erasure()
            empty(engine, reader.bank_no)
            engine.connection.execute(
                f"DELETE FROM memory_journal WHERE bank_no IN {LINEAGE}", (reader.bank_no,)
            )
            # The rows of the bank and of those merged into it stay, so that the numbers are not used again.
            engine.connection.execute(
                "UPDATE memory_banks SET bank = '/' || bank_no, config = '{}', live = 0, live_terms = 0, "
                f"purges = purges + 1, head = '' WHERE bank_no IN {LINEAGE}",
                (reader.bank_no,),
            )
        self.rows.shred()
        self.embedding.close()
        return count

    def check(self, *, deep: bool = False) -> list[str]:
        """Messages about damage and inconsistencies of the store; [] if there are none.

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
        while count < limit and (batch := self._unread(min(_EMBED_BATCH, limit - count))):
            packed = self.embedding.packed(
                [memory.text for _, memory in batch], patient=True, stop=self._closing
            )
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
        if self.embedding.model is None:
            return []
        with self.rows.reading() as reader:
            return reader.without_vectors(self.embedding.model, limit)


def _of_bank(reader: Reader, *, deep: bool) -> list[str]:
    bank, sentences = reader.bank, []
    live = reader.scalar(_LIVE.format("count(*)"), bank.bank_no)
    live_terms = reader.scalar(_LIVE.format("CAST(coalesce(sum(term_count), 0) AS BIGINT)"), bank.bank_no)
    if (live, live_terms) != (bank.live, bank.live_terms):
        sentences.append(f"bank '{bank.bank}' counts {bank.live} memories but has {live}")
    if (line := _broken_line(reader)) is not None:
        sentences.append(f"the journal of bank '{bank.bank}' is broken at line {line}")
    if deep:
        differing = sum(
            reader.words([memory.no]).get(memory.no) != segments(memory)
            for memory in reader.select([UNDELETED])
        )
        if differing:
            sentences.append(
                f"bank '{bank.bank}': the indexed words of {differing} memories do not match their text"
            )
    return sentences


def _broken_line(reader: Reader) -> int | None:
    """The number of the first journal line with a wrong hash; None if all lines are right."""
    for last_hash, lines in reader.chains():
        head, last = "", 0
        for line in lines:
            if line.hash != journal_hash(head, line.op_id, line.op, line.at, line.by, line.detail):
                return line.no
            head, last = line.hash, line.no
        if head != last_hash:
            return last
    return None
