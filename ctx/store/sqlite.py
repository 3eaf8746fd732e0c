"""The catalog in a SQLite file: its tables, its readers and its single writer.

If the file is deleted or replaced while it is open, every call raises an error that asks for a restart.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from ctx.errors import Busy, StoreError
from ctx.store.base import Catalog
from ctx.store.record import Statements, StoredDocument, current_seq
from ctx.store.schema import (
    BUSY_TIMEOUT_S,
    READ_ONLY,
    Connection,
    check_present,
    connect,
    is_locked,
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
    INSERT INTO meta VALUES ('seq', 0), ('deletions_known_from', 0);
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

    def __init__(
        self,
        path: str,
        *,
        read_only: bool = False,
        timeout_s: float = BUSY_TIMEOUT_S,
    ) -> None:
        self._path = path
        self._read_only = read_only
        self._timeout_s = timeout_s
        self._writing_lock = Lock()
        self._writer: Connection | None = None
        self._epoch_begun = False
        self._latest: list[StoredDocument] = []  # the documents of the last write, until an index takes them
        self._idle: list[Connection] = []
        self._closed = False
        first = connect(path, read_only=read_only, timeout_s=timeout_s)
        try:
            if not read_only:
                migrate(first, COMPONENT, MIGRATIONS)
            elif schema_version(first, COMPONENT) != len(MIGRATIONS):
                self._upgrade()
        except BaseException:
            first.close()
            raise
        if read_only:
            self._idle.append(first)
        else:
            self._writer = first

    def _upgrade(self) -> None:
        """Migrates the file through a second, writable connection, so that this read-only catalog can read
        it.
        """
        connection = connect(self._path, timeout_s=self._timeout_s)
        try:
            migrate(connection, COMPONENT, MIGRATIONS)
        finally:
            connection.close()

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
    def _reading(self, *, steady: bool = True) -> Iterator[Connection]:
        """A connection for reading. `steady`: it is in a transaction, so all queries see the same state."""
        if self._closed:
            raise StoreError("the catalog is closed")
        connection = self._reader()
        try:
            with transaction(connection, write=False) if steady else translating():
                yield connection
        except BaseException:
            connection.close()
            raise
        if self._closed or len(self._idle) >= _IDLE_READERS:
            connection.close()
        else:
            self._idle.append(connection)

    def _glance(self) -> AbstractContextManager[Connection]:
        return self._reading(steady=False)

    def seq(self) -> int:
        with self._glance() as connection:
            return current_seq(connection)

    @contextmanager
    def _writing(self) -> Iterator["SqliteWrite"]:
        """A write transaction; only one can run at a time. Raises `Busy` if another one runs for longer than
        the timeout.
        """
        if self._read_only:
            raise StoreError(READ_ONLY)
        if not self._writing_lock.acquire(timeout=self._timeout_s):
            raise Busy("the catalog is being written by another thread: try again")
        try:
            if self._writer is None:
                raise StoreError("the catalog is closed")
            with transaction(self._writer):
                write = SqliteWrite(self._writer, self._epoch_begun)
                yield write
            self._epoch_begun = self._epoch_begun or write.numbered
        finally:
            self._writing_lock.release()

    def _stream(self, statements: Statements, sql: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        return iter(statements.execute(sql, values))

    def _size_bytes(self, statements: Statements) -> int:
        size = int(
            statements.execute(
                "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
            ).fetchone()[0]
        )
        try:
            size += os.stat(self._path + "-wal").st_size
        except FileNotFoundError:
            pass  # there is no log while nobody writes
        return size

    def vacuum(self) -> None:
        if not self._writing_lock.acquire(timeout=self._timeout_s):
            raise Busy("the catalog is being written by another thread: try again")
        try:
            if self._writer is None or self._read_only:
                raise StoreError("the catalog is closed, or was opened read-only")
            with translating():
                self._writer.execute("VACUUM")
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self._writing_lock.release()

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


def file_catalog(path: str, *, reading: bool) -> SqliteCatalog:
    """Opens the catalog in a file: read-only if `reading` is true or the file is not writable."""
    return SqliteCatalog(path, read_only=reading or is_locked(path))


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
