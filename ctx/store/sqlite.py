"""The catalog in a SQLite file: its tables, its readers and its single writer.

If the file is deleted or replaced while it is open, every call raises an error that asks for a restart.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from ctx.errors import Busy, StoreError
from ctx.store.base import Catalog
from ctx.store.record import Statements
from ctx.store.schema import (
    BUSY_TIMEOUT_S,
    READ_ONLY,
    Connection,
    check_present,
    connect,
    migrate,
    schema_version,
    transaction,
    translating,
)
from ctx.store.write import Write

if TYPE_CHECKING:
    from ctx.cluster.catalog import PostgresCatalog

COMPONENT = "catalog"

# The first version of the tables. PostgreSQL replaces the types (`ctx.cluster.postgres.native_tables`).
TABLES = """
    CREATE TABLE source (
        no INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        finished_ms INTEGER, ok INTEGER, note TEXT, revision TEXT, signature TEXT,  -- of the last run
        succeeded_ms INTEGER  -- of the last run that was ok
    );
    CREATE TABLE document (
        no INTEGER PRIMARY KEY AUTOINCREMENT,
        seq INTEGER NOT NULL,
        id TEXT NOT NULL UNIQUE,
        source_no INTEGER NOT NULL REFERENCES source (no),
        source_id TEXT NOT NULL,
        title TEXT NOT NULL,
        media_type TEXT NOT NULL,
        updated_ms INTEGER NOT NULL,
        fingerprint TEXT NOT NULL,
        content_hash BLOB NOT NULL,
        source_url TEXT,
        author TEXT,
        created_ms INTEGER,
        metadata TEXT,  -- JSON; NULL where there is none
        stored_ms INTEGER NOT NULL,  -- when its chunks were written
        chunk_first INTEGER NOT NULL,
        chunk_count INTEGER NOT NULL
    );
    CREATE UNIQUE INDEX document_place ON document (source_no, source_id);
    CREATE INDEX document_seq ON document (seq, no);
    CREATE INDEX document_size ON document (source_no, chunk_count, stored_ms);  -- all that `statuses` reads
    -- Apart, so that a walk over documents is short.
    CREATE TABLE body (document_no INTEGER PRIMARY KEY, text TEXT NOT NULL);
    CREATE TABLE chunk (
        no INTEGER PRIMARY KEY AUTOINCREMENT,
        document_no INTEGER NOT NULL,
        start INTEGER NOT NULL,
        "end" INTEGER NOT NULL,
        start_line INTEGER NOT NULL,
        end_line INTEGER NOT NULL,
        heading TEXT NOT NULL,
        text_hash BLOB NOT NULL
    );
    CREATE INDEX chunk_text ON chunk (text_hash);
    CREATE TABLE model (
        no INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, dim INTEGER NOT NULL
    );
    CREATE TABLE embedding (
        no INTEGER PRIMARY KEY AUTOINCREMENT,
        model_no INTEGER NOT NULL REFERENCES model (no),
        seq INTEGER NOT NULL,
        text_hash BLOB NOT NULL,
        vector BLOB NOT NULL  -- little-endian float16
    );
    CREATE UNIQUE INDEX embedding_text ON embedding (model_no, text_hash);
    CREATE INDEX embedding_seq ON embedding (model_no, seq, no);
    CREATE TABLE pending (
        model_no INTEGER NOT NULL,
        chunk_no INTEGER NOT NULL,
        source_no INTEGER NOT NULL,
        stored_ms INTEGER NOT NULL,
        PRIMARY KEY (model_no, chunk_no)
    ) WITHOUT ROWID;
    CREATE INDEX pending_age ON pending (model_no, source_no, stored_ms);
    CREATE TABLE deletion (
        no INTEGER PRIMARY KEY AUTOINCREMENT, seq INTEGER NOT NULL, document_no INTEGER NOT NULL
    );
    CREATE INDEX deletion_seq ON deletion (seq, no);
    CREATE TABLE epoch (start INTEGER PRIMARY KEY, token TEXT NOT NULL);  -- who wrote from this seq on
    INSERT INTO meta VALUES ('seq', 0);
    """

MIGRATIONS = (
    TABLES + "INSERT INTO epoch VALUES (0, lower(hex(randomblob(8))));",
    "ALTER TABLE source ADD COLUMN configuration TEXT;",  # the configuration file that the last run used
    """
    CREATE TABLE definition (  -- of source code; lines count from 1
        document_no INTEGER NOT NULL, ordinal INTEGER NOT NULL,
        name TEXT NOT NULL, qualified TEXT NOT NULL, kind TEXT NOT NULL, signature TEXT NOT NULL,
        start_line INTEGER NOT NULL, name_line INTEGER NOT NULL, end_line INTEGER NOT NULL,
        PRIMARY KEY (document_no, ordinal)
    ) WITHOUT ROWID;
    CREATE INDEX definition_name ON definition (name);
    """,
)

_IDLE_READERS = 8  # the largest number of open connections kept for later reads


class SqliteCatalog(Catalog):
    """The `Catalog` in a SQLite file. Only one thread writes at a time; readers have their own connections
    and never wait.

    Opening creates a missing file (unless `read_only`) and migrates an older one. Raises `StoreError`, and
    `Busy` if another process writes for longer than `timeout_s`.
    """

    def __init__(self, path: str, *, read_only: bool = False, timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self._path = path
        self._read_only = read_only
        self._timeout_s = timeout_s
        self._writing_lock = Lock()
        self._writer: Connection | None = None
        self._epoch_begun = False
        self._idle: list[Connection] = []
        self._closed = False
        first = connect(path, read_only=read_only, timeout_s=timeout_s)
        try:
            if not read_only:
                migrate(first, COMPONENT, MIGRATIONS)
            elif schema_version(first, COMPONENT) != len(MIGRATIONS):
                SqliteCatalog(path, timeout_s=timeout_s).close()  # migrates the file
        except BaseException:
            first.close()
            raise
        if read_only:
            self._idle.append(first)
        else:
            self._writer = first

    def close(self) -> None:
        with self._writing_lock:
            self._closed = True
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        while self._idle:
            self._idle.pop().close()

    # -- transactions ----------------------------------------------------------------------------------------
    def _reader(self) -> Connection:
        while True:
            try:
                connection = self._idle.pop()  # atomic: two threads cannot get the same one
            except IndexError:
                if self._writer is not None:
                    check_present(self._writer)
                return connect(self._path, read_only=True, timeout_s=self._timeout_s)
            if not connection.lost():
                return connection
            connection.close()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        if self._closed:
            raise StoreError("the catalog is closed")
        connection = self._reader()
        try:
            with transaction(connection, write=False):
                yield connection
        except BaseException:
            connection.close()
            raise
        if self._closed or len(self._idle) >= _IDLE_READERS:
            connection.close()
        else:
            self._idle.append(connection)

    @contextmanager
    def _writing(self) -> Iterator["SqliteWrite"]:
        """A write transaction; only one can run at a time. Raises `Busy` if another one runs for longer than
        the timeout.
        """
        with self._exclusive() as writer:
            with transaction(writer):
                write = SqliteWrite(writer, self._epoch_begun)
                yield write
            self._epoch_begun = write.epoch_begun

    @contextmanager
    def _exclusive(self) -> Iterator[Connection]:
        """The connection for writing, which no other thread uses meanwhile."""
        if self._read_only:
            raise StoreError(READ_ONLY)
        if not self._writing_lock.acquire(timeout=self._timeout_s):
            raise Busy("the catalog is being written by another thread: try again")
        try:
            if self._writer is None:
                raise StoreError("the catalog is closed")
            yield self._writer
        finally:
            self._writing_lock.release()

    def _size_bytes(self, statements: Statements) -> int:
        logs = [self._path, f"{self._path}-wal"]  # there is no log while nobody writes
        return sum(os.path.getsize(path) for path in logs if os.path.exists(path))

    def vacuum(self) -> None:
        with self._exclusive() as writer, translating():
            writer.execute("VACUUM")
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def check(self) -> list[str]:
        """Reads the whole file and returns one line for each problem. Takes seconds for a million chunks."""
        try:
            with self._reading() as connection:
                problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(20)")]
        except Busy:
            raise
        except StoreError as error:
            return [error.message]
        return [] if problems == ["ok"] else problems


class SqliteWrite(Write):
    """A write transaction on the SQLite file. `epoch_begun`: this process has already recorded its epoch."""

    def __init__(self, connection: Connection, epoch_begun: bool) -> None:
        super().__init__(connection)
        self.epoch_begun = epoch_begun

    def next_seq(self) -> int:
        self.connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'seq'")
        seq = self.seq()
        if not self.epoch_begun:
            self.epoch_begun = True
            self.connection.execute("INSERT INTO epoch VALUES (?, ?)", (seq, os.urandom(8).hex()))
        return seq

    def numbers(self, documents: int, chunks: int) -> tuple[int, int]:
        last = dict(self.connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
        return last.get("document", 0) + 1, last.get("chunk", 0) + 1


def open_catalog(place: str, path: str) -> "SqliteCatalog | PostgresCatalog":
    """Opens the catalog at `place`, which is the URL of a database or the path of a file. The folder of
    `path` holds the data derived from a database. Raises `ConfigError`, `StoreError`.
    """
    if "://" in place:
        from ctx import cluster

        return cluster.open_catalog(place, path)
    return SqliteCatalog(place)


def check_whole(*, unfinished: bool, shared: bool) -> None:
    """Raises `StoreError` if a migration into this store was interrupted (`unfinished`). `shared`: the store
    is a PostgreSQL database, not a file.
    """
    if unfinished:
        raise StoreError(
            "the migration into this store was interrupted, so only part of the data is here: "
            f"run `ctx migrate --from {'FILE' if shared else 'postgresql://...'}` again to finish it"
        )
