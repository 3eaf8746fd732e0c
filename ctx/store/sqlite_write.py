"""The one writing transaction on a catalog's file."""

import os
import sqlite3
from typing import TYPE_CHECKING

from ctx.errors import Busy, StoreError
from ctx.store.schema import READ_ONLY, transaction
from ctx.store.write import Write

if TYPE_CHECKING:
    from ctx.store.sqlite import SqliteRecord


class Writing:
    """The one writing transaction. Raises `Busy` when the last one takes longer than the timeout."""

    __slots__ = ("_catalog", "_transaction", "_write")

    def __init__(self, catalog: "SqliteRecord") -> None:
        self._catalog = catalog

    def __enter__(self) -> "SqliteWrite":
        catalog = self._catalog
        if catalog._read_only:
            raise StoreError(READ_ONLY)
        if not catalog._writing_lock.acquire(timeout=catalog._timeout_s):
            raise Busy("the catalog is being written by another thread: try again")
        try:
            if catalog._writer is None:
                raise StoreError("the catalog is closed")
            catalog._attach()
            self._transaction = transaction(catalog._writer)
            self._transaction.__enter__()
        except BaseException:
            catalog._writing_lock.release()
            raise
        self._write = SqliteWrite(catalog._writer, catalog._epoch_begun)
        return self._write

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        catalog = self._catalog
        try:
            self._transaction.__exit__(kind, error, trace)
            if error is None:
                catalog._epoch_begun = catalog._epoch_begun or self._write.numbered
        finally:
            catalog._writing_lock.release()


class SqliteWrite(Write):
    """A writing transaction on the file, which has one writer at a time."""

    def __init__(self, connection: sqlite3.Connection, epoch_begun: bool) -> None:
        super().__init__(connection)
        self.numbered = False
        self._epoch_begun = epoch_begun

    def next_seq(self) -> int:
        self.connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'seq'")
        seq = self.seq()
        self.numbered = True
        if not self._epoch_begun:
            self._epoch_begun = True
            self.connection.execute("INSERT INTO epoch VALUES (?, ?)", (seq, os.urandom(8).hex()))
            self._drop_epochs()
        return seq

    def numbers(self, documents: int, chunks: int) -> tuple[int, int]:
        last = dict(self.connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
        return last.get("document", 0) + 1, last.get("chunk", 0) + 1
