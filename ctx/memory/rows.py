"""Transactions on the memory tables, and their SQLite implementation.

A write stores the memory's row, its words, its vectors, its old values (`memory_history`) and a line of the
bank's journal; the hash of a journal line covers the line before it. When `writing()` ends, the write is on
disk and visible to other connections. The `seq` of a row is the number of the operation that last changed the
row, so that caches know which rows to read again.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from ctx import files
from ctx.errors import Busy, StoreError
from ctx.memory import copies
from ctx.memory.copies import Count, Ledger, counts_of
from ctx.memory.reader import Reader
from ctx.memory.schema import UNSHREDDED, Engine, bring_up_to_date, check_version
from ctx.memory.writer import Writer
from ctx.models import JSON
from ctx.store.record import Closeable, is_unfinished, set_unfinished
from ctx.store.schema import (
    Connection,
    check_present,
    connect,
    is_locked,
    transaction,
    translating,
)

logger = logging.getLogger(__name__)


class MemoryRows(Closeable):
    """The memory tables of a store, an abstract class. Safe across threads and processes.

    Methods raise `StoreError` if the database fails and `Busy` if another writer holds the lock for too long.
    """

    _closed = False

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the memory store is closed")

    def view(self) -> AbstractContextManager[Engine]:
        """A read-only transaction with one snapshot of the tables."""
        raise NotImplementedError

    def change(self, *, durable: bool = True) -> AbstractContextManager[Engine]:
        """A write transaction. It is rolled back if the block raises."""
        raise NotImplementedError

    def shred(self) -> None:
        """Overwrites deleted data, if the database supports it."""
        raise NotImplementedError

    def missing(self) -> Count:
        """The number of stored memories, and how many were lost."""
        return Count()

    def unfinished(self) -> bool:
        """Whether a move of another store's memories into this one was started but not finished."""
        with self.view() as engine:
            return is_unfinished(engine.connection)

    def mark_unfinished(self, unfinished: bool) -> None:
        """Records that a move into this store has started (`unfinished`), or that it is finished."""
        with self.change() as engine:
            set_unfinished(engine.connection, unfinished)

    @contextmanager
    def reading(self, bank: str = "") -> Iterator[Reader]:
        """A reader on one snapshot of a bank. Use "" to read only tables that belong to no bank."""
        with self.view() as engine:
            yield Reader(engine, bank)

    @contextmanager
    def writing(
        self, bank: str, op: str, at_ms: int, actor: JSON, *, durable: bool = True
    ) -> Iterator[Writer]:
        """A writer for one operation on a bank. Creates the bank if it does not exist.

        The operation is rolled back if the block raises. If not `durable`, a power failure may lose it, but a
        crash of the process does not. That is enough for counting reads.
        """
        with self.change(durable=durable) as engine:
            writer = Writer(engine, bank, op, at_ms, actor)
            yield writer
            writer.finish()


class SqliteRows(MemoryRows):
    """The memory tables of one SQLite file. A read-only file can be searched, but not written.

    `leftovers`: other files that may contain memories, such as old copies. They are deleted when memories are
    erased.
    """

    def __init__(self, path: str, leftovers: Sequence[str] = ()) -> None:
        self.path = path
        self._leftovers = tuple(leftovers)
        self._ledger = Ledger(path)
        self._lock = threading.Lock()
        self._idle: list[Connection] = []  # open read connections for reuse
        self._log_holds_erased = False
        if is_locked(path):
            self._writer = connect(path, read_only=True)  # SQLite refuses writes
            check_version(self._writer)
            return
        self._writer = connect(path, synchronous="FULL")
        bring_up_to_date(self._writer)
        self._finish_shredding()
        self._compare()

    def missing(self) -> Count:
        return self._ledger.read() or Count()

    def tally(self) -> tuple[int, int]:
        """`counts_of` for this file. Raises `StoreError`."""
        with translating():
            return counts_of(self._writer)

    def _compare(self) -> None:
        """Compares the stored memories with the count file (`Ledger`), and logs new losses."""
        try:
            with self._ledger.held() as page:
                before = page.count
                count = page.compare(*self.tally())
        except (OSError, StoreError) as error:
            logger.warning("memory=count outcome=%s path=%s", error, self.path)
            return
        lost = (count.lost, count.lost_changes)
        if lost != (before.lost, before.lost_changes):
            missing = "memories missing=%d changes=%d path=%s mend='ctx doctor --fix'"
            logger.error(missing, *lost, self.path)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._writer.close()
        while self._idle:
            self._idle.pop().close()

    def _reader(self) -> Connection:
        with suppress(IndexError):
            return self._idle.pop()  # atomic, so two threads cannot get the same connection
        check_present(self._writer)
        return connect(self.path, read_only=True)

    @contextmanager
    def view(self) -> Iterator[Engine]:
        self._check_open()
        connection = self._reader()
        try:
            check_present(connection)
            with transaction(connection, write=False):
                yield Engine(connection)
        finally:
            if self._closed or connection.lost():
                connection.close()
            else:
                self._idle.append(connection)

    @contextmanager
    def change(self, *, durable: bool = True) -> Iterator[Engine]:
        # This lock is for threads. How long to wait for other processes is set by `connect`.
        if not self._lock.acquire(timeout=15.0):
            raise Busy("the memory store is busy with other writes; try again")
        try:
            self._check_open()
            check_present(self._writer)
            self._writer.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            with ExitStack() as counting:
                with transaction(self._writer):
                    yield Engine(self._writer)
                    if durable:
                        tally = self.tally()
                        with files.writing("the count of memories", StoreError):
                            page = counting.enter_context(self._ledger.held())
                        page.lower(*tally)
                if durable:
                    page.raise_to(*tally)
            if self._log_holds_erased:
                self._cut_log_if_free()
        finally:
            self._lock.release()

    def shred(self) -> None:
        """Overwrites deleted data in the file, in the word index and in the write-ahead log.

        If another process is reading the log, the log is overwritten at the next change or the next start.
        """
        with self._lock:
            self._check_open()
            self._shred()

    def _shred(self) -> None:
        self._writer.execute("INSERT INTO memory_words (memory_words) VALUES ('optimize')")
        self._writer.execute("VACUUM")
        self._cut_log()
        copies.renew(self.path)
        for path in self._leftovers:
            Path(path).unlink(missing_ok=True)
        if self._log_holds_erased:
            logger.warning("memory=shred outcome=log_in_use path=%s", self.path)

    def _cut_log(self) -> None:
        [(busy, *_)] = self._writer.execute("PRAGMA wal_checkpoint (TRUNCATE)").fetchall()
        self._log_holds_erased = bool(busy)
        if not busy:
            self._writer.execute(f"DELETE FROM meta WHERE key = '{UNSHREDDED}'")

    def _cut_log_if_free(self) -> None:
        """As `_cut_log`, but does not wait for readers."""
        self._writer.execute("PRAGMA busy_timeout = 0")
        try:
            self._cut_log()
        finally:
            self._writer.execute(f"PRAGMA busy_timeout = {int(self._writer.timeout_s * 1000)}")

    def _finish_shredding(self) -> None:
        """Overwrites data that another process erased, if it died before it could do so."""
        if self._writer.execute(f"SELECT 1 FROM meta WHERE key = '{UNSHREDDED}'").fetchone():
            try:
                self._shred()
            except StoreError as error:
                logger.warning("memory=shred outcome=%s path=%s", error.word, self.path)
