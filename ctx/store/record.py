"""The base of the SQLite and PostgreSQL catalogs: their value types, transactions, and the reads of a search.

Documents are written in documents.py and write.py, embeddings in embeddings.py.

The SQL runs on both engines, with `?` for a value. Where the engines differ, a method of `Record` or `Write`
is overridden. A write takes its `seq` as late as possible, because no index can go beyond this seq until the
write commits.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

from ctx.code.symbols import Definition
from ctx.errors import StoreError
from ctx.models import Chunk, ChunkRow, Document, Run, SourceStatus, StoredText

if TYPE_CHECKING:  # numpy takes 70 ms, and listing documents does not need it
    import numpy as np

    from ctx.store.write import Write


T = TypeVar("T")

TOO_LARGE = "a number or a text is larger than the catalog can hold"
NEVER_INDEXED = "not indexed yet"
MOVING = "moving"  # the key in `meta` that marks an unfinished migration into this store
# What a search reads of chunks and of their documents.
_CHUNKS = 'SELECT document_no, no, start_line, end_line, heading, start, "end" FROM chunk WHERE no IN ({})'
_DOCUMENTS = (
    "SELECT d.no, b.text, d.chunk_first, d.id, s.name, d.source_id, d.title, d.source_url, d.updated_ms, "
    "d.media_type FROM document d JOIN source s ON s.no = d.source_no JOIN body b ON b.document_no = d.no "
    "WHERE d.no IN ({})"
)
EVERY = 1 << 62  # larger than any row number: the cursor (seq, EVERY) comes after all rows written at `seq`
_BOUND = 500  # about the largest number of values bound to one statement
_DEFINITION = "name, qualified, kind, signature, start_line, name_line, end_line"
# Lists of bound values are padded to a multiple of this, so that the engines see few different statements and
# can cache them.
_STRIDE = 16


# -- values that pass between the catalog and its indexes ----------------------------------------------------


class StoredDocument(NamedTuple):
    """A document with the numbers that the catalog assigned. `chunk_nos[i]` is the number of `chunks[i]`."""

    document_no: int
    seq: int
    document: Document
    chunks: tuple[Chunk, ...]
    chunk_nos: tuple[int, ...]


class Listing(NamedTuple):
    """One line in a list of documents: the document without its text."""

    id: str
    source: str
    source_id: str
    title: str
    media_type: str


class VectorBatch(NamedTuple):
    """n chunks with their embeddings."""

    chunk_nos: "np.ndarray"  # int64 (n,)
    document_nos: "np.ndarray"  # int64 (n,)
    sources: list[str]
    updated_ms: "np.ndarray"  # int64 (n,)
    vectors: "np.ndarray"  # float32 (n, dim), unit vectors


class ModelShare(NamedTuple):
    """The storage that one model uses in a catalog. `size_bytes` is an estimate.

    `filling`: another machine is embedding with this model now.
    """

    model: str
    embeddings: int
    size_bytes: int
    filling: bool


class PendingChunk(NamedTuple):
    """A chunk without an embedding. `ordinal` is its index in its document, and `updated_ms` the time of the
    document.

    `secondary`: the document is a test, an example, a change log or a generated file.
    """

    chunk_no: int
    ordinal: int
    updated_ms: int
    secondary: bool = False


# -- statements and reads ------------------------------------------------------------------------------------


class Statements(Protocol):
    """A connection of SQLite or PostgreSQL inside a transaction. `execute` returns the driver's cursor."""

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Any: ...

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> Any: ...

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        """The rows of a query, read in portions."""
        ...


class Closeable:
    """A context manager that calls `close` at the end of the block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Record(Closeable):
    """Transactions, and the reads that a search needs from documents and sources."""

    def _reading(self) -> AbstractContextManager[Statements]:
        """A read transaction, in which all queries see the same state."""
        raise NotImplementedError

    def _writing(self) -> "AbstractContextManager[Write]":
        """A write transaction, committed at the end of the block and rolled back on any exception."""
        raise NotImplementedError

    def _pages(
        self,
        select: str,
        values: tuple[object, ...],
        seq: int,
        limit: int,
        read: Callable[[Statements, list[Any]], list[T]],
    ) -> Iterator[T]:
        """Yields what `read` makes of the rows (seq, no, ...) that were written after `seq`, in this order.
        It gets at most `limit` rows in each read transaction. `select` ends where a condition can follow.
        """
        cursor = (seq, EVERY)
        while True:
            with self._reading() as connection:
                # Two queries, because one query over the pair would scan all rows of a seq for each page.
                rows = connection.execute(
                    f"{select} seq = ? AND no > ? ORDER BY no LIMIT ?", (*values, *cursor, limit)
                ).fetchall()
                if len(rows) < limit:
                    rows += connection.execute(
                        f"{select} seq > ? ORDER BY seq, no LIMIT ?", (*values, cursor[0], limit - len(rows))
                    )
                results = read(connection, rows)
            if not rows:
                return
            yield from results
            cursor = rows[-1][:2]

    def _size_bytes(self, statements: Statements) -> int:
        """The size of the database on disk, in bytes."""
        raise NotImplementedError

    def seq(self) -> int:
        """The sequence number of the last write that an index must apply. `record_run` takes no number."""
        with self._reading() as connection:
            return current_seq(connection)

    def unfinished(self) -> bool:
        """Whether a migration into this store has begun and has not finished."""
        with self._reading() as connection:
            return is_unfinished(connection)

    def last_run(self, source: str) -> Run | None:
        with self._reading() as connection:
            row = connection.execute(
                "SELECT finished_ms, ok, note, revision, signature, configuration FROM source "
                "WHERE name = ? AND finished_ms IS NOT NULL",
                (source,),
            ).fetchone()
        return None if row is None else Run(row[0], bool(row[1]), *row[2:])

    def filled_sources(self) -> list[str]:
        """The names of all sources that have documents, sorted, whether configured or not."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT name FROM source WHERE EXISTS (SELECT 1 FROM document WHERE source_no = source.no)"
            ).fetchall()
        return sorted(row[0] for row in rows)

    def statuses(self, model: str | None, configured: Iterable[str]) -> list[SourceStatus]:
        """The status of every source that is configured or has documents: configured sources first, each
        group sorted by name. A source whose last run failed is not healthy. `last_indexed_ms` is the time of
        the last successful run.

        If `model` is None (embeddings are off), no chunk is pending.
        """
        names = set(configured)
        with self._reading() as connection:
            model_no = None if model is None else model_no_of(connection, model)
            rows = connection.execute(
                "SELECT s.name, s.finished_ms, s.ok, s.note, s.revision, s.succeeded_ms, "
                "coalesce(d.documents, 0), coalesce(d.chunks, 0), d.oldest_ms, "
                "coalesce(p.chunks, 0), p.oldest_ms FROM source s LEFT JOIN ("
                "SELECT source_no, count(*) AS documents, CAST(sum(chunk_count) AS BIGINT) AS chunks, "
                "min(CASE WHEN chunk_count > 0 THEN stored_ms END) AS oldest_ms FROM document "
                "GROUP BY source_no) d ON d.source_no = s.no LEFT JOIN ("
                "SELECT source_no, count(*) AS chunks, min(stored_ms) AS oldest_ms FROM pending "
                "WHERE model_no = ? GROUP BY source_no) p ON p.source_no = s.no",
                (model_no,),
            ).fetchall()
        statuses = {name: SourceStatus(name, True, True, 0, 0, 0, None, NEVER_INDEXED) for name in names}
        for name, finished_ms, ok, note, revision, succeeded_ms, documents, chunks, stored_ms, *queue in rows:
            # A model without embeddings has no rows in `pending`, and all chunks are pending.
            waiting, oldest_ms = (chunks, stored_ms) if model is not None and model_no is None else queue
            if name in names or documents:
                statuses[name] = SourceStatus(
                    name=name,
                    configured=name in names,
                    healthy=finished_ms is None or bool(ok),
                    doc_count=documents,
                    chunk_count=chunks,
                    pending=waiting,
                    last_indexed_ms=succeeded_ms,
                    note=note if finished_ms is not None else NEVER_INDEXED,
                    revision=revision,
                    oldest_pending_ms=oldest_ms,
                )
        return sorted(statuses.values(), key=lambda status: (not status.configured, status.name))

    def pending_count(self, model: str) -> int:
        with self._reading() as connection:
            model_no = model_no_of(connection, model)
            if model_no is None:
                return chunk_total(connection)
            sql = "SELECT count(*) FROM pending WHERE model_no = ?"
            return int(connection.execute(sql, (model_no,)).fetchone()[0])

    def awaiting(self, model: str, chunk_nos: Sequence[int]) -> frozenset[int]:
        """Those of these chunk numbers that have no embedding of `model` yet."""
        sql = "SELECT chunk_no FROM pending WHERE model_no = ? AND chunk_no IN ({})"
        with self._reading() as connection:
            model_no = model_no_of(connection, model)
            if model_no is None:
                return frozenset(chunk_nos)
            return frozenset(row[0] for row in rows_among(connection, sql, (model_no,), chunk_nos))

    # -- documents -------------------------------------------------------------------------------------------

    def chunk_rows(self, chunk_nos: Sequence[int]) -> dict[int, ChunkRow]:
        """chunk_no -> the row of this chunk. Deleted chunks are missing."""
        with self._reading() as connection:
            chunks = list(rows_among(connection, _CHUNKS, (), chunk_nos))
            document_nos = list({chunk[0] for chunk in chunks})
            documents = {
                row[0]: (row[1], row[2], row[3:])
                for row in rows_among(connection, _DOCUMENTS, (), document_nos)
            }
        chunk_rows = {}
        for document_no, no, start_line, end_line, heading, start, end in chunks:
            if document_no in documents:
                body, first, fields = documents[document_no]
                place = (no, document_no, no - first, start_line, end_line, heading, body[start:end])
                chunk_rows[no] = ChunkRow._make((*place, *fields))
        return chunk_rows

    def places(self, document_nos: Sequence[int]) -> list[tuple[int, str, str]]:
        """(document_no, source_id, media type) of these documents. Deleted documents are missing."""
        sql = "SELECT no, source_id, media_type FROM document WHERE no IN ({})"
        with self._reading() as connection:
            return list(rows_among(connection, sql, (), document_nos))

    def matching(self, media_type: Callable[[str], bool], path: Callable[[str], bool]) -> frozenset[int]:
        """The numbers of the documents for which both `media_type(media type)` and `path(source_id)` are
        true.
        """
        with self._reading() as connection:
            types = [row[0] for row in connection.execute("SELECT DISTINCT media_type FROM document")]
            media_types = [name for name in types if media_type(name)]
            rows = connection.execute(
                f"SELECT no, source_id FROM document WHERE media_type IN ({marks(media_types)})", media_types
            )
            return frozenset(no for no, source_id in rows if path(source_id))

    def bodies(self, document_nos: Sequence[int]) -> dict[int, StoredText]:
        """document_no -> the document's text and place. Deleted documents are missing."""
        sql = (
            "SELECT d.no, d.id, s.name, d.source_id, d.title, d.media_type, b.text FROM document d "
            "JOIN source s ON s.no = d.source_no JOIN body b ON b.document_no = d.no WHERE d.no IN ({})"
        )
        with self._reading() as connection:
            return {row[0]: StoredText(*row) for row in rows_among(connection, sql, (), document_nos)}

    def media_types(self) -> dict[str, int]:
        """media type -> number of documents."""
        with self._reading() as connection:
            sql = "SELECT media_type, count(*) FROM document GROUP BY media_type"
            return {row[0]: row[1] for row in connection.execute(sql)}

    def definitions_of(self, document_nos: Sequence[int]) -> dict[int, list[Definition]]:
        """document_no -> its definitions in the order of the text. Documents without any are missing."""
        with self._reading() as connection:
            return definitions_among(connection, document_nos)

    def definitions_named(self, name: str, limit: int) -> list[tuple[int, Definition]]:
        """At most `limit` pairs (document_no, definition) of the definitions with this name."""
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT document_no, {_DEFINITION} FROM definition WHERE name = ? "
                "ORDER BY document_no, ordinal LIMIT ?",
                (name, limit),
            )
            return [(row[0], Definition(*row[1:])) for row in rows]

    def complete(self, field: str, begun: str, source: str | None, limit: int) -> list[str]:
        """At most `limit` values that start with `begun`, sorted, for completion. `field` is "source", "path"
        or "id". With `source`, only values of this source.
        """
        columns = {"source": "s.name", "path": "d.source_id", "id": "d.id"}
        column = columns[field]
        # Makes SQLite scan only the paths with this prefix in each source, not all paths.
        joint = " CROSS JOIN" if field == "path" else ","
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT DISTINCT {column} FROM source s{joint} document d WHERE d.source_no = s.no "
                f"AND {column} >= ? AND {column} < ? AND (CAST(? AS TEXT) IS NULL OR s.name = ?) ORDER BY "
                f"{column} LIMIT ?",
                (begun, begun + "\U0010ffff", source, source, limit),
            )
            return [value for (value,) in rows]

    def chunks_of(self, document_no: int) -> Sequence[int]:
        """The chunk numbers of a document, in order; empty if the document was deleted."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT chunk_first, chunk_count FROM document WHERE no = ?", (document_no,)
            ).fetchone()
            return range(row[0], row[0] + row[1]) if row else ()


def unfit(error: OverflowError | UnicodeEncodeError) -> StoreError:
    """The `StoreError` to raise for a value that the database driver cannot store."""
    if isinstance(error, OverflowError):
        return StoreError(TOO_LARGE)
    return StoreError("a text holds a lone surrogate, which is not Unicode text and cannot be stored")


def current_seq(connection: Statements) -> int:
    return int(connection.execute("SELECT value FROM meta WHERE key = 'seq'").fetchone()[0])


def is_unfinished(connection: Statements) -> bool:
    return connection.execute(f"SELECT 1 FROM meta WHERE key = '{MOVING}'").fetchone() is not None


def set_unfinished(connection: Statements, unfinished: bool) -> None:
    """Marks this store as the target of an unfinished migration, or removes the mark."""
    if unfinished:
        connection.execute(f"INSERT INTO meta VALUES ('{MOVING}', 1) ON CONFLICT (key) DO NOTHING")
    else:
        connection.execute(f"DELETE FROM meta WHERE key = '{MOVING}'")


def source_no_of(connection: Statements, name: str) -> int | None:
    row = connection.execute("SELECT no FROM source WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else None


def model_no_of(connection: Statements, name: str) -> int | None:
    row = connection.execute("SELECT no FROM model WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else None


def chunk_total(connection: Statements) -> int:
    return int(connection.execute("SELECT coalesce(sum(chunk_count), 0) FROM document").fetchone()[0])


def marks(values: Sequence[object]) -> str:
    """The placeholders for `IN (...)`. Without values it is NULL, which equals nothing."""
    return ", ".join("?" * len(values)) or "NULL"


def slices(values: Sequence[object]) -> Iterator[Sequence[object]]:
    """Splits values into parts for `IN (...)`. Each part is padded with copies of its last value, so that the
    engine sees few different statements and can cache them.
    """
    for start in range(0, len(values), _BOUND):
        run = [*values[start : start + _BOUND]]
        yield run + run[-1:] * (-len(run) % _STRIDE)


def rows_among(
    connection: Statements, sql: str, values: tuple[object, ...], chosen: Sequence[object]
) -> Iterator[Any]:
    """The rows of a statement that contains `IN ({})`, which is run for one part of `chosen` at a time.

    `values` are bound before `chosen`.
    """
    for run in slices(chosen):
        yield from connection.execute(sql.format(marks(run)), (*values, *run))


def definitions_among(connection: Statements, document_nos: Sequence[int]) -> dict[int, list[Definition]]:
    """document_no -> its definitions in the order of the text. Documents without any are missing."""
    sql = (
        f"SELECT document_no, {_DEFINITION} FROM definition WHERE document_no IN ({{}}) "
        "ORDER BY document_no, ordinal"
    )
    definitions: dict[int, list[Definition]] = {}
    for no, *fields in rows_among(connection, sql, (), document_nos):
        definitions.setdefault(no, []).append(Definition(*fields))
    return definitions


def chunks_between(connection: Statements, first: int, count: int) -> tuple[Chunk, ...]:
    rows = connection.execute(
        'SELECT no - ?, start, "end", start_line, end_line, heading, text_hash '
        "FROM chunk WHERE no BETWEEN ? AND ? ORDER BY no",
        (first, first, first + count - 1),
    )
    return tuple(map(Chunk._make, rows))
