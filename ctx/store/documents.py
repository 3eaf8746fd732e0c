"""The catalog's documents and chunks.

A chunk's text is a slice of its document's body and is not stored twice. The chunks of a document are written
together and are numbered without a gap, so that a document row names them by the first and their count; a
number is never used again, nor is a document's.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from ctx.clock import now_ms
from ctx.lean import TYPE_CHECKING, Any, records
from ctx.store.record import (
    EVERY,
    PAGE,
    Record,
    Statements,
    chunks_between,
    documents_after,
    marks,
    metadata_of,
    runs,
    slices,
    source_no_of,
)
from ctx.types import NO_METADATA, ChunkRow

if TYPE_CHECKING:
    from ctx.items import Chunk, Document
    from ctx.store.rows import Listing, StoredDocument

_DOCUMENT = (
    "d.no, d.seq, d.chunk_first, d.chunk_count, d.id, s.name, d.source_id, d.title, b.text, d.media_type, "
    "d.updated_ms, "
    "d.fingerprint, d.content_hash, d.source_url, d.author, d.created_ms, d.metadata "
    "FROM document d JOIN source s ON s.no = d.source_no JOIN body b ON b.document_no = d.no"
)


class Documents(Record):
    """What is put in, taken out and read of documents."""

    _fingerprint = "fingerprint"  # as whoever asks has seen it, and what is bound in that

    def _fingerprint_values(self) -> tuple[str, ...]:
        return ()

    def fingerprints(self, source: str, below: Sequence[str] | None = None) -> dict[str, str]:
        columns = f"SELECT source_id, {self._fingerprint} FROM document WHERE source_no = ?"
        with self._reading() as connection:
            values = (*self._fingerprint_values(), source_no_of(connection, source))
            if below is None:
                return dict(connection.execute(columns, values))
            fingerprints: dict[str, str] = {}
            for top in below:
                # "0" is the character after "/". Two ranges of the index; an OR of them would read all of the
                # source.
                fingerprints.update(connection.execute(f"{columns} AND source_id = ?", (*values, top)))
                fingerprints.update(
                    connection.execute(
                        f"{columns} AND source_id > ? AND source_id < ?", (*values, top + "/", top + "0")
                    )
                )
        return fingerprints

    def content_hashes(self, source: str, source_ids: Sequence[str]) -> dict[str, bytes]:
        digests: dict[str, bytes] = {}
        with self._reading() as connection:
            source_no = source_no_of(connection, source)
            for ids in slices(source_ids):
                digests.update(
                    connection.execute(
                        "SELECT source_id, content_hash FROM document WHERE source_no = ? AND source_id IN "
                        f"({marks(ids)})",
                        (source_no, *ids),
                    )
                )
        return digests

    def put_documents(self, batch: "Sequence[tuple[Document, Sequence[Chunk]]]") -> int:
        """As the protocol has it. Chunks that are the same as before keep their numbers, if all of a document
        are.

        `Chunk.ordinal` must count from 0. A document that comes twice counts as it comes last. Raises
        `StoreError` also for text that is not Unicode (lone surrogates), and stores nothing of the batch
        then.
        """
        if not batch:
            return self.seq()
        from ctx.store.write import BatchRows  # what a search has no use for

        latest = {document.id: (document, chunks) for document, chunks in batch}
        with self._writing() as write:
            stored = BatchRows(write, now_ms(), latest.values()).store()
        self._latest = stored
        return stored[0].seq

    def touch_documents(self, batch: Sequence[tuple[str, str, str, int]]) -> int:
        """As the protocol has it. Only another `updated_ms` is a write that a projection has to apply."""
        if not batch:
            return self.seq()
        with self._writing() as write:
            connection = write.connection
            sources = {name: write.source(name) for name in sorted({entry[0] for entry in batch})}
            moved = []
            for source, source_id, _, updated_ms in batch:
                row = connection.execute(
                    "SELECT no, updated_ms FROM document WHERE source_no = ? AND source_id = ?",
                    (sources[source], source_id),
                ).fetchone()
                if row is not None and row[1] != updated_ms:
                    moved.append((updated_ms, row[0]))
            connection.executemany(
                "UPDATE document SET fingerprint = ? WHERE source_no = ? AND source_id = ?",
                [(fingerprint, sources[source], source_id) for source, source_id, fingerprint, _ in batch],
            )
            if not moved:
                return write.seq()
            seq = write.next_seq()
            connection.executemany(
                "UPDATE document SET seq = ?, updated_ms = ? WHERE no = ?", [(seq, *row) for row in moved]
            )
        return seq

    def delete_documents(self, source: str, source_ids: Sequence[str]) -> int:
        with self._writing() as write:
            source_no = write.source(source)
            spans: list[tuple[int, int, int]] = []
            for ids in slices(source_ids):
                spans += write.connection.execute(
                    "SELECT no, chunk_first, chunk_count FROM document WHERE source_no = ? AND source_id "
                    f"IN ({marks(ids)})",
                    (source_no, *ids),
                )
            return write.drop_documents(spans)

    def delete_source(self, source: str) -> int:
        with self._writing() as write:
            source_no = write.source(source)
            seq = write.drop_documents(
                write.connection.execute(
                    "SELECT no, chunk_first, chunk_count FROM document WHERE source_no = ?", (source_no,)
                ).fetchall()
            )
            write.connection.execute("DELETE FROM source WHERE no = ?", (source_no,))
        return seq

    def document(self, id: str) -> "StoredDocument | None":
        with self._reading() as connection:
            row = connection.execute(f"SELECT {_DOCUMENT} WHERE d.id = ?", (id,)).fetchone()
            return None if row is None else _stored(connection, row)

    def chunk_rows(
        self, chunk_nos: Sequence[int], within: Container[int] | None = None
    ) -> dict[int, ChunkRow]:
        chunk_rows: dict[int, ChunkRow] = {}
        with self._reading() as connection:
            for rows, bounds in runs(chunk_nos):
                chunks = connection.execute(
                    f"WITH run (first, past) AS (VALUES {rows}) "
                    'SELECT document_no, no, start_line, end_line, heading, start, "end" '
                    "FROM run CROSS JOIN chunk WHERE no >= run.first AND no < run.past",
                    bounds,
                ).fetchall()
                if within is not None:
                    chunks = [chunk for chunk in chunks if chunk[0] in within]
                document_nos = list({chunk[0] for chunk in chunks})
                documents = {
                    row[0]: row
                    for row in connection.execute(
                        "SELECT d.no, b.text, d.chunk_first, d.id, s.name, d.source_id, d.title, "
                        "d.source_url, "
                        "d.updated_ms, d.media_type FROM document d JOIN source s ON s.no = d.source_no "
                        f"JOIN body b ON b.document_no = d.no WHERE d.no IN ({marks(document_nos)})",
                        document_nos,
                    )
                }
                numbers = map(itemgetter(1), chunks)
                chunk_rows.update(zip(numbers, records(ChunkRow, _joined(chunks, documents)), strict=True))
        return chunk_rows

    def places(self, document_nos: Sequence[int]) -> list[tuple[int, str, str]]:
        places: list[tuple[int, str, str]] = []
        with self._glance() as connection:
            for nos in slices(document_nos):
                places += connection.execute(
                    f"SELECT no, source_id, media_type FROM document WHERE no IN ({marks(nos)})", nos
                )
        return places

    def matching(self, media_type: Callable[[str], bool], path: Callable[[str], bool]) -> frozenset[int]:
        with self._reading() as connection:
            types = [row[0] for row in connection.execute("SELECT DISTINCT media_type FROM document")]
            media_types = [name for name in types if media_type(name)]
            rows = connection.execute(
                f"SELECT no, source_id FROM document WHERE media_type IN ({marks(media_types)})", media_types
            )
            return frozenset(no for no, source_id in rows if path(source_id))

    def list_documents(self, after: tuple[str, str] | None, limit: int) -> "list[Listing]":
        from ctx.store.rows import Listing  # what a search has no use for

        with self._reading() as connection:
            rows = connection.execute(
                "SELECT d.id, s.name, d.source_id, d.title, d.media_type FROM source s JOIN document d ON "
                "d.source_no = s.no "
                "WHERE (s.name, d.source_id) > (?, ?) ORDER BY s.name, d.source_id LIMIT ?",
                (*(after or ("", "")), limit),
            )
            return [Listing._make(row) for row in rows]

    def complete(self, field: str, begun: str, source: str | None, limit: int) -> list[str]:
        columns = {"source": "s.name", "path": "d.source_id", "id": "d.id"}
        column = columns[field]
        # SQLite then goes through the sources and reads of each what begins so, not every path there is.
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
        with self._reading() as connection:
            row = connection.execute(
                "SELECT chunk_first, chunk_count FROM document WHERE no = ?", (document_no,)
            ).fetchone()
            return range(row[0], row[0] + row[1]) if row else ()

    def documents_since(self, seq: int) -> "Iterator[StoredDocument]":
        """As the protocol has it. Pages are read one by one: a document written meanwhile comes as it is
        then, or later.
        """
        cursor = (seq, EVERY)
        while True:
            with self._reading() as connection:
                page = [
                    _stored(
                        connection, connection.execute(f"SELECT {_DOCUMENT} WHERE d.no = ?", (no,)).fetchone()
                    )
                    for _, no, _, _ in documents_after(connection, cursor, PAGE)
                ]
            if not page:
                return
            yield from page
            cursor = (page[-1].seq, page[-1].document_no)

    def take_batch(self) -> "list[StoredDocument]":
        batch, self._latest = self._latest, []
        return batch

    def chunks_since(self, seq: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        cursor = (seq, EVERY)
        while True:
            with self._reading() as connection:
                page = documents_after(connection, cursor, 100 * PAGE)
            if not page:
                return
            for row_seq, no, first, count in page:
                yield row_seq, no, tuple(range(first, first + count))
            cursor = page[-1][:2]

    def deletions_since(self, seq: int) -> Iterator[tuple[int, int]]:
        with self._reading() as connection:
            return iter(
                connection.execute(
                    "SELECT seq, document_no FROM deletion WHERE seq > ? ORDER BY seq, no", (seq,)
                ).fetchall()
            )

    def export(self) -> "Iterator[StoredDocument]":
        """As the protocol has it, from one steady view: the file's log grows while it is read."""
        with self._reading() as connection:
            for (source_no,) in connection.execute("SELECT no FROM source ORDER BY name").fetchall():
                rows = self._stream(
                    connection, f"SELECT {_DOCUMENT} WHERE d.source_no = ? ORDER BY d.source_id", (source_no,)
                )
                for row in rows:
                    yield _stored(connection, row)

    def ids(self) -> Iterator[str]:
        """The id of every document, in the order of their chunks; those that are written meanwhile may be
        missing.
        """
        cursor = (-1, -1)
        while True:
            with self._reading() as connection:
                rows = connection.execute(
                    "SELECT chunk_first, no, id FROM document WHERE (chunk_first, no) > (?, ?) "
                    "ORDER BY chunk_first, no LIMIT ?",
                    (*cursor, 100 * PAGE),
                ).fetchall()
            if not rows:
                return
            yield from (row[2] for row in rows)
            cursor = (rows[-1][0], rows[-1][1])

    # -- embeddings ------------------------------------------------------------------------------------------


def _joined(
    chunks: Iterable[tuple[Any, ...]], documents: Mapping[int, tuple[Any, ...]]
) -> Iterator[tuple[Any, ...]]:
    """The fields of `ChunkRow` of chunks and the documents that they are of, as `chunk_rows` reads both."""
    columns = {no: (row[1], row[2], row[3:]) for no, row in documents.items()}
    for document_no, no, start_line, end_line, heading, start, end in chunks:
        body, first, fields = columns[document_no]
        yield (no, document_no, no - first, start_line, end_line, heading, body[start:end]) + fields  # noqa: RUF005 - half the time


def _stored(connection: Statements, row: tuple[Any, ...]) -> "StoredDocument":
    """A stored document from a row of `_DOCUMENT`."""
    from ctx.items import Document  # what a search has no use for
    from ctx.store.rows import StoredDocument

    no, seq, first, count, *fields, metadata = row
    document = Document._make((*fields, NO_METADATA if metadata is None else metadata_of(metadata)))
    return StoredDocument(
        no, seq, document, chunks_between(connection, first, count), tuple(range(first, first + count))
    )
