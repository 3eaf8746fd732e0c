"""The catalog in one SQLite file: documents, chunks, embeddings, and how the sources went.

A chunk's text is a slice of its document's body and is not stored twice. The chunks of a document are written together and are
numbered without a gap, so that a document row names them by the first and their count; a number is never used again, nor is a
document's. Embeddings are kept by the hash of the text they stand for: what was embedded once is not embedded again, wherever
the text moves. They are kept as float16: half the file, and the cosine moves by less than 0.001 (tests/store), a tenth of what
the quantised model itself is off by.

What awaits an embedding is kept as a table (`pending`) for every model that has any, since asking a million chunks takes a second.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ctx.clock import now_ms
from ctx.errors import Busy, StoreError
from ctx.identity import embedding_text
from ctx.lean import TYPE_CHECKING, Any
from ctx.store.base import ChunkRow, Listing, Run, StoredDocument, VectorBatch
from ctx.store.schema import BUSY_TIMEOUT_S, connect, migrate, schema_version, transaction
from ctx.types import NO_METADATA, Chunk, Document, SourceStatus

if TYPE_CHECKING:  # numpy costs 70 ms; only embeddings need it
    import numpy as np

COMPONENT = "catalog"

MIGRATIONS = (
    """
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
    CREATE INDEX document_seq ON document (seq);
    CREATE INDEX document_size ON document (source_no, chunk_count, stored_ms);  -- all that `statuses` reads
    CREATE TABLE body (document_no INTEGER PRIMARY KEY, text TEXT NOT NULL);  -- apart, so that a walk over documents is short
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
    CREATE TABLE model (no INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, dim INTEGER NOT NULL);
    CREATE TABLE embedding (
        no INTEGER PRIMARY KEY AUTOINCREMENT,
        model_no INTEGER NOT NULL REFERENCES model (no),
        seq INTEGER NOT NULL,
        text_hash BLOB NOT NULL,
        vector BLOB NOT NULL  -- little-endian float16
    );
    CREATE UNIQUE INDEX embedding_text ON embedding (model_no, text_hash);
    CREATE INDEX embedding_seq ON embedding (model_no, seq);
    CREATE TABLE pending (
        model_no INTEGER NOT NULL,
        chunk_no INTEGER NOT NULL,
        source_no INTEGER NOT NULL,
        stored_ms INTEGER NOT NULL,
        PRIMARY KEY (model_no, chunk_no)
    ) WITHOUT ROWID;
    CREATE INDEX pending_age ON pending (model_no, source_no, stored_ms);
    CREATE TABLE deletion (no INTEGER PRIMARY KEY AUTOINCREMENT, seq INTEGER NOT NULL, document_no INTEGER NOT NULL);
    CREATE INDEX deletion_seq ON deletion (seq);
    CREATE TABLE epoch (start INTEGER PRIMARY KEY, token TEXT NOT NULL);  -- who wrote from this seq on
    INSERT INTO epoch VALUES (0, lower(hex(randomblob(8))));
    INSERT INTO meta VALUES ('seq', 0), ('deletions_known_from', 0);
    """,
)

DELETIONS_KEPT = (
    100_000  # a projection further behind is rebuilt, which then costs about as much as catching up
)
EPOCHS_KEPT = 1_000  # writing processes, the last ones
_IDLE_READERS = 8  # open connections kept for the next reader
_PAGE = (
    200  # documents read at once: short transactions, or the log could not be cut while a projection is built
)
_BOUND = 500  # values bound to one statement
_VECTORS = 4096  # rows of a VectorBatch: 6 MB at 384 dimensions

_DOCUMENT = (
    "d.no, d.seq, d.chunk_first, d.chunk_count, d.id, s.name, d.source_id, d.title, b.text, d.media_type, d.updated_ms, "
    "d.fingerprint, d.content_hash, d.source_url, d.author, d.created_ms, d.metadata "
    "FROM document d JOIN source s ON s.no = d.source_no JOIN body b ON b.document_no = d.no"
)


class SqliteCatalog:
    """The `Catalog` in a SQLite file. Readers never wait: each call has a connection of its own, and one writes.

    Opening makes the file (unless `read_only`) and brings it up to date. Raises `StoreError`, and `Busy` where another process
    writes for longer than `timeout_s`.
    """

    def __init__(
        self,
        path: str,
        *,
        read_only: bool = False,
        timeout_s: float = BUSY_TIMEOUT_S,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._path = path
        self._read_only = read_only
        self._timeout_s = timeout_s
        self._clock_ms = clock_ms
        self._writing_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._epoch_begun = False
        self._latest: list[StoredDocument] = []  # of the last write, until a projection has asked for it
        self._idle: list[sqlite3.Connection] = []
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
        """Migrates a file that was opened to be read: an old one answers nothing until then."""
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

    def __enter__(self) -> "SqliteCatalog":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- transactions --------------------------------------------------------------------------------------------
    def _reading(self) -> "_Reading":
        return _Reading(self)

    def _writing(self) -> "_Writing":
        return _Writing(self)

    def seq(self) -> int:
        with self._reading() as connection:
            return _seq(connection)

    def history(self, seq: int) -> str | None:
        with self._reading() as connection:
            known_from = connection.execute(
                "SELECT value FROM meta WHERE key = 'deletions_known_from'"
            ).fetchone()[0]
            if not known_from <= seq <= _seq(connection):
                return None
            row = connection.execute(
                "SELECT token FROM epoch WHERE start <= ? ORDER BY start DESC LIMIT 1", (seq,)
            ).fetchone()
        return str(row[0]) if row else None

    # -- documents -----------------------------------------------------------------------------------------------
    def fingerprints(self, source: str, below: Sequence[str] | None = None) -> dict[str, str]:
        columns = "SELECT source_id, fingerprint FROM document WHERE source_no = ?"
        with self._reading() as connection:
            source_no = _source_no(connection, source)
            if below is None:
                return dict(connection.execute(columns, (source_no,)))
            found: dict[str, str] = {}
            for top in below:
                # "0" is the character after "/". Two ranges of the index; an OR of them would read all of the source.
                found.update(connection.execute(f"{columns} AND source_id = ?", (source_no, top)))
                found.update(
                    connection.execute(
                        f"{columns} AND source_id > ? AND source_id < ?", (source_no, top + "/", top + "0")
                    )
                )
        return found

    def content_hashes(self, source: str, source_ids: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        with self._reading() as connection:
            source_no = _source_no(connection, source)
            for ids in _slices(source_ids):
                found.update(
                    connection.execute(
                        f"SELECT source_id, content_hash FROM document WHERE source_no = ? AND source_id IN ({_marks(ids)})",
                        (source_no, *ids),
                    )
                )
        return found

    def put_documents(self, batch: Sequence[tuple[Document, Sequence[Chunk]]]) -> int:
        """As the protocol has it. Chunks that are the same as before keep their numbers, if all of a document are.

        `Chunk.ordinal` must count from 0. A document that comes twice counts as it comes last. Raises `StoreError` also for
        text that is not Unicode (lone surrogates), and stores nothing of the batch then.
        """
        if not batch:
            return self.seq()
        latest = {document.id: (document, chunks) for document, chunks in batch}
        with self._writing() as write:
            connection, seq, stored_now_ms = write.connection, write.next_seq(), self._clock_ms()
            sources = {
                name: write.ensure_source(name)
                for name in {document.source for document, _ in latest.values()}
            }
            next_document = _last_no(connection, "document") + 1
            next_chunk = first_new_chunk = _last_no(connection, "chunk") + 1
            inserts: list[tuple[object, ...]] = []
            updates: list[tuple[object, ...]] = []
            bodies: list[tuple[int, str]] = []
            chunk_values: list[tuple[object, ...]] = []
            stale: list[tuple[int, int]] = []
            stored: list[StoredDocument] = []
            for document, chunks in latest.values():
                known = connection.execute(
                    "SELECT no, chunk_first, chunk_count, stored_ms FROM document WHERE id = ?",
                    (document.id,),
                ).fetchone()
                if known is not None and _same_chunks(connection, known[1], known[2], chunks):
                    no, chunk_first, _, stored_ms = known
                else:
                    if known is None:
                        no, next_document = next_document, next_document + 1
                    else:
                        no = known[0]
                        stale.append((known[1], known[1] + known[2]))
                    stored_ms, chunk_first = stored_now_ms, next_chunk
                    next_chunk += len(chunks)
                    chunk_values.extend(
                        (chunk_first + ordinal, no, start, end, start_line, end_line, heading, text_hash)
                        for ordinal, (_, start, end, start_line, end_line, heading, text_hash) in enumerate(
                            chunks
                        )
                    )
                metadata = _json_of(document.metadata)
                values = (
                    seq,
                    document.id,
                    sources[document.source],
                    document.source_id,
                    document.title,
                    document.media_type,
                    document.updated_ms,
                    document.fingerprint,
                    document.content_hash,
                    document.source_url,
                    document.author,
                    document.created_ms,
                    metadata,
                    stored_ms,
                    chunk_first,
                    len(chunks),
                    no,
                )
                (inserts if known is None else updates).append(values)
                bodies.append((no, document.body))
                if metadata is not None:
                    document = document._replace(metadata=_json(metadata))
                numbers = tuple(range(chunk_first, chunk_first + len(chunks)))
                stored.append(StoredDocument(no, seq, document, tuple(chunks), numbers))
            columns = (
                "seq, id, source_no, source_id, title, media_type, updated_ms, fingerprint, content_hash, source_url, author, "
                "created_ms, metadata, stored_ms, chunk_first, chunk_count"
            )
            write.drop_chunks(stale)
            connection.executemany(
                f"INSERT INTO document ({columns}, no) VALUES ({_marks(range(17))})", inserts
            )
            connection.executemany(
                f"UPDATE document SET ({columns}) = ({_marks(range(16))}) WHERE no = ?", updates
            )
            connection.executemany("INSERT OR REPLACE INTO body (document_no, text) VALUES (?, ?)", bodies)
            connection.executemany("INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?, ?)", chunk_values)
            connection.execute(
                "INSERT INTO pending (model_no, chunk_no, source_no, stored_ms) "
                "SELECT m.no, c.no, d.source_no, d.stored_ms FROM chunk c JOIN document d ON d.no = c.document_no, model m "
                "WHERE c.no >= ? AND NOT EXISTS "
                "(SELECT 1 FROM embedding e WHERE e.model_no = m.no AND e.text_hash = c.text_hash)",
                (first_new_chunk,),
            )
        self._latest = sorted(stored)  # by number, of which no two are the same
        return seq

    def touch_documents(self, batch: Sequence[tuple[str, str, str, int]]) -> int:
        """As the protocol has it. Only another `updated_ms` is a write that a projection has to apply."""
        if not batch:
            return self.seq()
        with self._writing() as write:
            connection = write.connection
            sources = {name: _source_no(connection, name) for name in {entry[0] for entry in batch}}
            moved = []
            for source, source_id, _, updated_ms in batch:
                known = connection.execute(
                    "SELECT no, updated_ms FROM document WHERE source_no = ? AND source_id = ?",
                    (sources[source], source_id),
                ).fetchone()
                if known is not None and known[1] != updated_ms:
                    moved.append((updated_ms, known[0]))
            connection.executemany(
                "UPDATE document SET fingerprint = ? WHERE source_no = ? AND source_id = ?",
                [(fingerprint, sources[source], source_id) for source, source_id, fingerprint, _ in batch],
            )
            if not moved:
                return _seq(connection)
            seq = write.next_seq()
            connection.executemany(
                f"UPDATE document SET seq = {seq}, updated_ms = ? WHERE no = ?",
                moved,
            )
        return seq

    def delete_documents(self, source: str, source_ids: Sequence[str]) -> int:
        with self._writing() as write:
            source_no = _source_no(write.connection, source)
            found: list[tuple[int, int, int]] = []
            for ids in _slices(source_ids):
                found += write.connection.execute(
                    f"SELECT no, chunk_first, chunk_count FROM document WHERE source_no = ? AND source_id IN ({_marks(ids)})",
                    (source_no, *ids),
                )
            return write.drop_documents(found)

    def delete_source(self, source: str) -> int:
        with self._writing() as write:
            source_no = _source_no(write.connection, source)
            seq = write.drop_documents(
                write.connection.execute(
                    "SELECT no, chunk_first, chunk_count FROM document WHERE source_no = ?", (source_no,)
                ).fetchall()
            )
            write.connection.execute("DELETE FROM source WHERE no = ?", (source_no,))
        return seq

    def document(self, id: str) -> StoredDocument | None:
        with self._reading() as connection:
            row = connection.execute(f"SELECT {_DOCUMENT} WHERE d.id = ?", (id,)).fetchone()
            return None if row is None else _stored(connection, row)

    def chunk_rows(self, chunk_nos: Sequence[int]) -> dict[int, ChunkRow]:
        found: dict[int, ChunkRow] = {}
        bodies: dict[int, str] = {}
        with self._reading() as connection:
            for nos in _slices(chunk_nos):
                rows = connection.execute(
                    "SELECT c.no, d.no, c.no - d.chunk_first, c.start_line, c.end_line, c.heading, c.start, c.end, "
                    "d.id, s.name, d.source_id, d.title, d.source_url, d.updated_ms, d.media_type "
                    "FROM chunk c JOIN document d ON d.no = c.document_no JOIN source s ON s.no = d.source_no "
                    f"WHERE c.no IN ({_marks(nos)})",
                    nos,
                ).fetchall()
                for row in rows:
                    body = bodies.get(row[1])
                    if body is None:
                        body = bodies[row[1]] = _body(connection, row[1])
                    found[row[0]] = ChunkRow._make((*row[:6], body[row[6] : row[7]], *row[8:]))
        return found

    def listings(self, document_nos: Sequence[int]) -> dict[int, Listing]:
        listings: dict[int, Listing] = {}
        with self._reading() as connection:
            for nos in _slices(document_nos):
                rows = connection.execute(
                    "SELECT d.no, d.id, s.name, d.source_id, d.title, d.media_type "
                    f"FROM document d JOIN source s ON s.no = d.source_no WHERE d.no IN ({_marks(nos)})",
                    nos,
                )
                listings.update((row[0], Listing._make(row[1:])) for row in rows)
        return listings

    def matching(self, media_type: Callable[[str], bool], path: Callable[[str], bool]) -> frozenset[int]:
        with self._reading() as connection:
            types = [row[0] for row in connection.execute("SELECT DISTINCT media_type FROM document")]
            taken = [name for name in types if media_type(name)]
            rows = connection.execute(
                f"SELECT no, source_id FROM document WHERE media_type IN ({_marks(taken)})", taken
            )
            return frozenset(no for no, source_id in rows if path(source_id))

    def list_documents(self, after: tuple[str, str] | None, limit: int) -> list[Listing]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT d.id, s.name, d.source_id, d.title, d.media_type FROM source s JOIN document d ON d.source_no = s.no "
                "WHERE (s.name, d.source_id) > (?, ?) ORDER BY s.name, d.source_id LIMIT ?",
                (*(after or ("", "")), limit),
            )
            return [Listing._make(row) for row in rows]

    def complete(self, field: str, begun: str, source: str | None, limit: int) -> list[str]:
        columns = {"source": "s.name", "path": "d.source_id", "id": "d.id"}
        column = columns[field]
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT DISTINCT {column} FROM source s JOIN document d ON d.source_no = s.no "
                f"WHERE {column} >= ? AND {column} < ? AND (? IS NULL OR s.name = ?) ORDER BY {column} LIMIT ?",
                (begun, begun + "\U0010ffff", source, source, limit),
            )
            return [value for (value,) in rows]

    def chunks_of(self, document_no: int) -> Sequence[int]:
        with self._reading() as connection:
            row = connection.execute(
                "SELECT chunk_first, chunk_count FROM document WHERE no = ?", (document_no,)
            ).fetchone()
            return range(row[0], row[0] + row[1]) if row else ()

    def documents_since(self, seq: int) -> Iterator[StoredDocument]:
        """As the protocol has it. Pages are read one by one: a document written meanwhile comes as it is then, or later.

        What the last write stored is given from memory, once: a projection follows each batch of a long run.
        """
        seen = (seq, _EVERY)
        latest, self._latest = self._latest, []
        while latest and latest[0].seq == seq + 1 == self.seq():
            page, latest = latest[:_PAGE], latest[_PAGE:]
            yield from page
            seen = (page[-1].seq, page[-1].document_no)
        while True:
            with self._reading() as connection:
                page = [
                    _stored(
                        connection, connection.execute(f"SELECT {_DOCUMENT} WHERE d.no = ?", (no,)).fetchone()
                    )
                    for _, no, _, _ in _documents_after(connection, seen, _PAGE)
                ]
            if not page:
                return
            yield from page
            seen = (page[-1].seq, page[-1].document_no)

    def chunks_since(self, seq: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        seen = (seq, _EVERY)
        while True:
            with self._reading() as connection:
                page = _documents_after(connection, seen, 100 * _PAGE)
            if not page:
                return
            for written, no, first, count in page:
                yield written, no, tuple(range(first, first + count))
            seen = page[-1][:2]

    def deletions_since(self, seq: int) -> Iterator[tuple[int, int]]:
        with self._reading() as connection:
            return iter(
                connection.execute(
                    "SELECT seq, document_no FROM deletion WHERE seq > ? ORDER BY seq, no", (seq,)
                ).fetchall()
            )

    def export(self) -> Iterator[StoredDocument]:
        """As the protocol has it, from one steady view: the file's log grows while it is read."""
        with self._reading() as connection:
            for (source_no,) in connection.execute("SELECT no FROM source ORDER BY name").fetchall():
                rows = connection.execute(
                    f"SELECT {_DOCUMENT} WHERE d.source_no = ? ORDER BY d.source_id", (source_no,)
                )
                for row in rows:
                    yield _stored(connection, row)

    # -- embeddings ----------------------------------------------------------------------------------------------
    def pending_texts(self, model: str, limit: int) -> list[tuple[bytes, str]]:
        texts: dict[bytes, str] = {}
        last: tuple[int, str, str] | None = None  # the document of the row before: its chunks come together
        with self._reading() as connection:
            model_no = _model_no(connection, model)
            columns = "c.document_no, c.start, c.end, c.heading, c.text_hash"
            rows = (
                connection.execute(f"SELECT {columns} FROM chunk c ORDER BY c.no")
                if model_no is None
                else connection.execute(
                    f"SELECT {columns} FROM pending p CROSS JOIN chunk c ON c.no = p.chunk_no "
                    "WHERE p.model_no = ? ORDER BY p.chunk_no",
                    (model_no,),
                )
            )
            for document_no, start, end, heading, text_hash in rows:
                if len(texts) >= limit:
                    break
                if text_hash in texts:
                    continue
                if last is None or last[0] != document_no:
                    title = connection.execute(
                        "SELECT title FROM document WHERE no = ?", (document_no,)
                    ).fetchone()[0]
                    last = (document_no, title, _body(connection, document_no))
                texts[text_hash] = embedding_text(last[1], heading, last[2][start:end])
            rows.close()
        return list(texts.items())

    def pending_count(self, model: str) -> int:
        with self._reading() as connection:
            model_no = _model_no(connection, model)
            if model_no is None:
                return _chunk_count(connection)
            return int(
                connection.execute("SELECT count(*) FROM pending WHERE model_no = ?", (model_no,)).fetchone()[
                    0
                ]
            )

    def put_embeddings(self, model: str, batch: "Sequence[tuple[bytes, np.ndarray]]") -> int:
        """As the protocol has it. Raises `StoreError` for a vector that is not finite, not of unit length or of another size."""
        if not batch:
            return self.seq()
        blobs, dim = _blobs(model, batch)
        with self._writing() as write:
            connection = write.connection
            model_no = write.ensure_model(model, dim)
            fresh = [
                (text_hash, blob)
                for text_hash, blob in blobs.items()
                if connection.execute(
                    "SELECT 1 FROM embedding WHERE model_no = ? AND text_hash = ?", (model_no, text_hash)
                ).fetchone()
                is None
            ]
            if not fresh:
                return _seq(connection)
            seq = write.next_seq()
            connection.executemany(
                f"INSERT INTO embedding (model_no, seq, text_hash, vector) VALUES ({model_no}, {seq}, ?, ?)",
                fresh,
            )
            connection.executemany(
                f"DELETE FROM pending WHERE model_no = {model_no} AND chunk_no IN (SELECT no FROM chunk WHERE text_hash = ?)",
                [(text_hash,) for text_hash, _ in fresh],
            )
        return seq

    def vectors_since(self, model: str, seq: int) -> Iterator[VectorBatch]:
        """As the protocol has it, first what belongs to documents written after `seq`, then what was embedded after it."""
        with self._reading() as connection:
            row = connection.execute("SELECT no, dim FROM model WHERE name = ?", (model,)).fetchone()
        if row is None:
            return
        model_no, dim = row
        waiting: list[tuple[int, int, str, int, bytes]] = []
        for rows in self._vector_rows(model_no, seq):
            waiting += rows
            while len(waiting) >= _VECTORS:
                yield _vector_batch(waiting[:_VECTORS], dim)
                del waiting[:_VECTORS]
        if waiting:
            yield _vector_batch(waiting, dim)

    def _vector_rows(self, model_no: int, seq: int) -> Iterator[list[tuple[int, int, str, int, bytes]]]:
        columns = "c.no, d.no, s.name, d.updated_ms, e.vector"
        seen = (seq, _EVERY)
        while True:
            with self._reading() as connection:
                page = _documents_after(connection, seen, _PAGE)
                for _, no, first, count in page:
                    yield connection.execute(
                        f"SELECT {columns} FROM document d CROSS JOIN source s ON s.no = d.source_no CROSS JOIN chunk c "
                        "CROSS JOIN embedding e ON e.model_no = ? AND e.text_hash = c.text_hash "
                        "WHERE d.no = ? AND c.no BETWEEN ? AND ?",
                        (model_no, no, first, first + count - 1),
                    ).fetchall()
            if not page:
                break
            seen = page[-1][:2]
        embedded = (seq, _EVERY)
        while True:
            with self._reading() as connection:
                found = _after(
                    connection,
                    "SELECT seq, no FROM embedding WHERE model_no = ? AND ",
                    (model_no,),
                    embedded,
                    1000,
                )
                if not found:
                    return
                for nos in _slices([no for _, no in found]):
                    yield connection.execute(
                        f"SELECT {columns} FROM embedding e CROSS JOIN chunk c ON c.text_hash = e.text_hash "
                        "CROSS JOIN document d ON d.no = c.document_no CROSS JOIN source s ON s.no = d.source_no "
                        f"WHERE e.no IN ({_marks(nos)}) AND d.seq <= ?",  # the others came above
                        (*nos, seq),
                    ).fetchall()
            embedded = (found[-1][0], found[-1][1])

    def forget_embeddings(self, model: str) -> int:
        with self._writing() as write:
            model_no = _model_no(write.connection, model)
            if model_no is None:
                return 0
            write.next_seq()
            count = write.connection.execute("DELETE FROM embedding WHERE model_no = ?", (model_no,)).rowcount
            write.connection.execute("DELETE FROM pending WHERE model_no = ?", (model_no,))
            write.connection.execute("DELETE FROM model WHERE no = ?", (model_no,))
        return count

    def drop_unused_embeddings(self) -> int:
        """Deletes the embeddings of texts that no chunk holds any more, of all models; how many.

        They are kept until then because texts come back: a branch is switched, a folder is mounted again.
        """
        with self._writing() as write:
            return write.connection.execute(
                "DELETE FROM embedding WHERE NOT EXISTS (SELECT 1 FROM chunk c WHERE c.text_hash = embedding.text_hash)"
            ).rowcount

    # -- sources -------------------------------------------------------------------------------------------------
    def record_run(self, source: str, run: Run) -> None:
        with self._writing() as write:
            write.connection.execute(
                "UPDATE source SET (finished_ms, ok, note, revision, signature, succeeded_ms) = "
                "(?, ?, ?, ?, ?, CASE WHEN ? THEN ? ELSE succeeded_ms END) WHERE no = ?",
                (*run, run.ok, run.finished_ms, write.ensure_source(source)),
            )

    def last_run(self, source: str) -> Run | None:
        with self._reading() as connection:
            row = connection.execute(
                "SELECT finished_ms, ok, note, revision, signature FROM source WHERE name = ? AND finished_ms IS NOT NULL",
                (source,),
            ).fetchone()
        return None if row is None else Run(row[0], bool(row[1]), *row[2:])

    def statuses(self, model: str | None, configured: Iterable[str]) -> list[SourceStatus]:
        """As the protocol has it. A source whose last run failed is not healthy; `last_indexed_ms` is of the last that did not.

        A `model` of None (embeddings are off) leaves nothing pending.
        """
        names = set(configured)
        with self._reading() as connection:
            runs = {
                row[0]: row[1:]
                for row in connection.execute(
                    "SELECT no, name, finished_ms, ok, note, revision, succeeded_ms FROM source"
                )
            }
            sizes = {
                row[0]: row[1:]
                for row in connection.execute(
                    "SELECT source_no, count(*), sum(chunk_count), min(CASE WHEN chunk_count THEN stored_ms END) "
                    "FROM document GROUP BY source_no"
                )
            }
            model_no = None if model is None else _model_no(connection, model)
            pending = {
                row[0]: row[1:]
                for row in connection.execute(
                    "SELECT source_no, count(*), min(stored_ms) FROM pending WHERE model_no = ? GROUP BY source_no",
                    (model_no,),
                )
            }
        found: dict[str, SourceStatus] = {}
        for no, (name, finished_ms, ok, note, revision, succeeded_ms) in runs.items():
            documents, chunks, oldest_ms = sizes.get(no, (0, 0, None))
            if name not in names and not documents:
                continue
            waiting: tuple[int, int | None] = (0, None)
            if model is not None:
                waiting = (chunks, oldest_ms) if model_no is None else pending.get(no, waiting)
            found[name] = SourceStatus(
                name=name,
                configured=name in names,
                healthy=finished_ms is None or bool(ok),
                doc_count=documents,
                chunk_count=chunks,
                pending=waiting[0],
                last_indexed_ms=succeeded_ms,
                note=note if finished_ms is not None else NEVER_INDEXED,
                revision=revision,
                oldest_pending_ms=waiting[1],
            )
        for name in names - found.keys():
            found[name] = SourceStatus(name, True, True, 0, 0, 0, None, NEVER_INDEXED)
        return sorted(found.values(), key=lambda status: (not status.configured, status.name))

    def stats(self) -> Mapping[str, int]:
        with self._reading() as connection:
            size = connection.execute(
                "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
            ).fetchone()[0]
            counts = {
                "documents": int(connection.execute("SELECT count(*) FROM document").fetchone()[0]),
                "chunks": _chunk_count(connection),
                "embeddings": int(connection.execute("SELECT count(*) FROM embedding").fetchone()[0]),
                "size_bytes": int(size),
            }
        try:
            counts["size_bytes"] += os.stat(self._path + "-wal").st_size
        except FileNotFoundError:
            pass  # nobody writes
        return counts

    def check(self) -> list[str]:
        """What is wrong with the file, a line each, after reading all of it: seconds for a million chunks. [] when it is whole."""
        try:
            with self._reading() as connection:
                problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(20)")]
        except Busy:
            raise
        except StoreError as error:
            return [error.message]
        return [] if problems == ["ok"] else problems


NEVER_INDEXED = "not indexed yet"
_EVERY = 1 << 62  # above any number: together with a seq, "after all that was written at it"


class _Reading:
    """A connection with a steady view of the file, for one call alone."""

    __slots__ = ("_catalog", "_view")

    def __init__(self, catalog: SqliteCatalog) -> None:
        self._catalog = catalog

    def __enter__(self) -> sqlite3.Connection:
        catalog = self._catalog
        if catalog._closed:
            raise StoreError("the catalog is closed")
        try:
            connection = catalog._idle.pop()  # atomic: two threads cannot get the same one
        except IndexError:
            connection = connect(catalog._path, read_only=True, timeout_s=catalog._timeout_s)
        self._view = transaction(connection, write=False)
        try:
            self._view.__enter__()
        except BaseException:
            connection.close()
            raise
        return connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        catalog, connection = self._catalog, self._view.connection
        sound = False
        try:
            self._view.__exit__(kind, error, trace)
            sound = error is None
        finally:
            if sound and not catalog._closed and len(catalog._idle) < _IDLE_READERS:
                catalog._idle.append(connection)
            else:
                connection.close()


class _Writing:
    """The one writing transaction. Raises `Busy` when the last one takes longer than the timeout."""

    __slots__ = ("_catalog", "_transaction", "_write")

    def __init__(self, catalog: SqliteCatalog) -> None:
        self._catalog = catalog

    def __enter__(self) -> "_Write":
        catalog = self._catalog
        if catalog._read_only:
            raise StoreError("the catalog was opened to be read only")
        if not catalog._writing_lock.acquire(timeout=catalog._timeout_s):
            raise Busy("the catalog is being written by another thread: try again")
        try:
            if catalog._writer is None:
                raise StoreError("the catalog is closed")
            self._transaction = transaction(catalog._writer)
            self._transaction.__enter__()
        except BaseException:
            catalog._writing_lock.release()
            raise
        self._write = _Write(catalog._writer, catalog._epoch_begun)
        return self._write

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        catalog = self._catalog
        try:
            self._transaction.__exit__(kind, error, trace)
            if error is None:
                catalog._epoch_begun = catalog._epoch_begun or self._write.numbered
        finally:
            catalog._writing_lock.release()


class _Write:
    """A writing transaction, and what every kind of write shares."""

    def __init__(self, connection: sqlite3.Connection, epoch_begun: bool) -> None:
        self.connection = connection
        self.numbered = False
        self._epoch_begun = epoch_begun

    def next_seq(self) -> int:
        self.connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'seq'")
        seq = _seq(self.connection)
        self.numbered = True
        if not self._epoch_begun:
            self._epoch_begun = True
            self.connection.execute("INSERT INTO epoch VALUES (?, lower(hex(randomblob(8))))", (seq,))
            self.connection.execute(
                "DELETE FROM epoch WHERE start <= (SELECT start FROM epoch ORDER BY start DESC LIMIT 1 OFFSET ?)",
                (EPOCHS_KEPT,),
            )
        return seq

    def ensure_source(self, name: str) -> int:
        self.connection.execute("INSERT OR IGNORE INTO source (name) VALUES (?)", (name,))
        return int(self.connection.execute("SELECT no FROM source WHERE name = ?", (name,)).fetchone()[0])

    def ensure_model(self, name: str, dim: int) -> int:
        """The number of a model; one that is new has every chunk pending."""
        row = self.connection.execute("SELECT no, dim FROM model WHERE name = ?", (name,)).fetchone()
        if row is None:
            no = self.connection.execute("INSERT INTO model (name, dim) VALUES (?, ?)", (name, dim)).lastrowid
            self.connection.execute(
                "INSERT INTO pending (model_no, chunk_no, source_no, stored_ms) "
                "SELECT ?, c.no, d.source_no, d.stored_ms FROM chunk c JOIN document d ON d.no = c.document_no ORDER BY c.no",
                (no,),
            )
            row = (no, dim)
        if row[1] != dim:
            raise StoreError(
                f"embeddings of '{name}' have {row[1]} dimensions here and {dim} now: run `ctx embed rebuild`, or use another model"
            )
        return int(row[0])

    def drop_documents(self, documents: Sequence[tuple[int, int, int]]) -> int:
        """Deletes documents given as (no, chunk_first, chunk_count); the seq after it."""
        if not documents:
            return _seq(self.connection)
        seq = self.next_seq()
        nos = [(no,) for no, _, _ in documents]
        self.drop_chunks([(first, first + count) for _, first, count in documents])
        self.connection.executemany("DELETE FROM body WHERE document_no = ?", nos)
        self.connection.executemany("DELETE FROM document WHERE no = ?", nos)
        self.connection.executemany(f"INSERT INTO deletion (seq, document_no) VALUES ({seq}, ?)", nos)
        oldest, newest = self.connection.execute(
            "SELECT (SELECT min(no) FROM deletion), (SELECT max(no) FROM deletion)"
        ).fetchone()
        if newest - oldest > 2 * DELETIONS_KEPT:
            known_from = self.connection.execute(
                "SELECT seq FROM deletion WHERE no = ?", (newest - DELETIONS_KEPT,)
            ).fetchone()[0]
            self.connection.execute("DELETE FROM deletion WHERE seq <= ?", (known_from,))
            self.connection.execute(
                "UPDATE meta SET value = ? WHERE key = 'deletions_known_from'", (known_from,)
            )
        return seq

    def drop_chunks(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Deletes the chunks numbered `[first, end)`."""
        models = self.connection.execute("SELECT no FROM model").fetchall()
        for (model_no,) in models:
            self.connection.executemany(
                f"DELETE FROM pending WHERE model_no = {model_no} AND chunk_no >= ? AND chunk_no < ?", ranges
            )
        self.connection.executemany("DELETE FROM chunk WHERE no >= ? AND no < ?", ranges)


# -- small readers -----------------------------------------------------------------------------------------------
def _seq(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT value FROM meta WHERE key = 'seq'").fetchone()[0])


def _last_no(connection: sqlite3.Connection, table: str) -> int:
    """The highest number a table ever gave, deleted rows included."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return int(row[0]) if row else 0


def _source_no(connection: sqlite3.Connection, name: str) -> int | None:
    row = connection.execute("SELECT no FROM source WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else None


def _model_no(connection: sqlite3.Connection, name: str) -> int | None:
    row = connection.execute("SELECT no FROM model WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else None


def _chunk_count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT coalesce(sum(chunk_count), 0) FROM document").fetchone()[0])


def _body(connection: sqlite3.Connection, document_no: int) -> str:
    return str(
        connection.execute("SELECT text FROM body WHERE document_no = ?", (document_no,)).fetchone()[0]
    )


def _chunks(connection: sqlite3.Connection, first: int, count: int) -> tuple[Chunk, ...]:
    rows = connection.execute(
        "SELECT no - ?, start, end, start_line, end_line, heading, text_hash FROM chunk WHERE no BETWEEN ? AND ? ORDER BY no",
        (first, first, first + count - 1),
    )
    return tuple(map(Chunk._make, rows))


def _same_chunks(connection: sqlite3.Connection, first: int, count: int, chunks: Sequence[Chunk]) -> bool:
    return count == len(chunks) and _chunks(connection, first, count) == tuple(chunks)


def _stored(connection: sqlite3.Connection, row: tuple[Any, ...]) -> StoredDocument:
    """A stored document from a row of `_DOCUMENT`."""
    no, seq, first, count, *fields, metadata = row
    document = Document._make((*fields, NO_METADATA if metadata is None else _json(metadata)))
    return StoredDocument(
        no, seq, document, _chunks(connection, first, count), tuple(range(first, first + count))
    )


def _json(text: object) -> Mapping[str, object]:
    import json  # 2 ms, and few documents have metadata

    found: Mapping[str, object] = json.loads(str(text))
    return found


def _json_of(metadata: Mapping[str, object]) -> str | None:
    if not metadata:
        return None
    import json  # 2 ms; a search from the command line writes nothing

    try:
        return json.dumps(dict(metadata), ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise StoreError(f"a document's metadata is not JSON: {error}") from error


def _after(
    connection: sqlite3.Connection, select: str, values: tuple[object, ...], seen: tuple[int, int], limit: int
) -> list[tuple[int, ...]]:
    """Rows of a table with (seq, no, …) after `seen`, in that order.

    Two queries, since one over the pair would walk all rows of a seq again for each page.
    """
    rows = connection.execute(
        f"{select} seq = ? AND no > ? ORDER BY no LIMIT ?", (*values, *seen, limit)
    ).fetchall()
    if len(rows) < limit:
        rows += connection.execute(
            f"{select} seq > ? ORDER BY seq, no LIMIT ?", (*values, seen[0], limit - len(rows))
        )
    return rows


def _documents_after(
    connection: sqlite3.Connection, seen: tuple[int, int], limit: int
) -> list[tuple[int, int, int, int]]:
    """(seq, no, chunk_first, chunk_count) of the documents written after `seen`, a pair (seq, no)."""
    rows = _after(connection, "SELECT seq, no, chunk_first, chunk_count FROM document WHERE", (), seen, limit)
    return [(row[0], row[1], row[2], row[3]) for row in rows]


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _slices(values: Sequence[object]) -> Iterator[Sequence[object]]:
    for start in range(0, len(values), _BOUND):
        yield values[start : start + _BOUND]


# -- vectors -----------------------------------------------------------------------------------------------------
UNIT_TOLERANCE = 0.01  # an embedder's own float16 output is off by 0.001


def _blobs(model: str, batch: "Sequence[tuple[bytes, np.ndarray]]") -> tuple[dict[bytes, bytes], int]:
    """text_hash -> float16 bytes, and the number of dimensions."""
    import numpy as np  # 70 ms; whoever embeds has it already

    try:
        matrix = np.stack([np.asarray(vector, dtype=np.float32) for _, vector in batch])
    except ValueError as error:
        raise StoreError(f"the embedder '{model}' gave vectors of different sizes") from error
    if matrix.ndim != 2:
        raise StoreError(f"the embedder '{model}' gave something other than vectors")
    off = np.abs(np.sqrt(np.einsum("ij,ij->i", matrix, matrix)) - 1)
    if not (off < UNIT_TOLERANCE).all():  # also false for NaN
        raise StoreError(f"the embedder '{model}' gave a vector that is not of unit length")
    halves = matrix.astype("<f2")
    return {
        text_hash: half.tobytes() for (text_hash, _), half in zip(batch, halves, strict=True)
    }, matrix.shape[1]


def _vector_batch(rows: Sequence[tuple[int, int, str, int, bytes]], dim: int) -> VectorBatch:
    import numpy as np  # 70 ms; whoever asks for vectors has it already

    chunk_nos, document_nos, sources, updated_ms, blobs = zip(*rows, strict=True)
    joined = b"".join(blobs)
    if len(joined) != 2 * dim * len(rows):
        raise StoreError("the catalog holds an embedding of the wrong size: run `ctx embed rebuild`")
    vectors = np.frombuffer(joined, dtype="<f2").reshape(len(rows), dim).astype(np.float32)
    vectors /= np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[
        :, None
    ]  # rounding to float16 moved the length
    return VectorBatch(
        np.array(chunk_nos, dtype=np.int64),
        np.array(document_nos, dtype=np.int64),
        list(sources),
        np.array(updated_ms, dtype=np.int64),
        vectors,
    )
