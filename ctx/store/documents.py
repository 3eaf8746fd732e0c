"""Stores, deletes, lists and reads the catalog's documents and chunks.

A chunk's text is a slice of its document's body, so it is not stored separately. The chunks of a document are
written together and have consecutive numbers, so a document row holds the number of its first chunk and the
count of its chunks. Numbers of chunks and documents are never reused.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ctx.clock import now_ms
from ctx.models import NO_METADATA, Chunk, Document, Run
from ctx.store.record import (
    Listing,
    Record,
    Statements,
    StoredDocument,
    chunk_total,
    chunks_between,
    current_seq,
    definitions_among,
    rows_among,
    set_unfinished,
    source_no_of,
)
from ctx.store.write import store_batch
from ctx.text.filetypes import is_code

# Documents per page. Short read transactions keep the write-ahead log small while an index is built.
PAGE = 200
DOCUMENTS = "SELECT seq, no, chunk_first, chunk_count FROM document WHERE"  # for `Record._pages`
_DOCUMENT = (
    "d.no, d.seq, d.chunk_first, d.chunk_count, d.id, s.name, d.source_id, d.title, b.text, d.media_type, "
    "d.updated_ms, "
    "d.fingerprint, d.content_hash, d.source_url, d.author, d.created_ms, d.metadata "
    "FROM document d JOIN source s ON s.no = d.source_no JOIN body b ON b.document_no = d.no"
)


class Documents(Record):
    """Stores, deletes and lists documents."""

    # An SQL expression and its values. In PostgreSQL they depend on the machine.
    _fingerprint = "fingerprint"
    _fingerprint_values: tuple[str, ...] = ()

    def fingerprints(self, source: str, below: Sequence[str] | None = None) -> dict[str, str]:
        """source_id -> fingerprint of a source's documents. With `below`, only of the documents with these
        ids and of those under them (`id/...`).
        """
        columns = f"SELECT source_id, {self._fingerprint} FROM document WHERE source_no = ?"
        with self._reading() as connection:
            values = (*self._fingerprint_values, source_no_of(connection, source))
            if below is None:
                return dict(connection.execute(columns, values))
            fingerprints: dict[str, str] = {}
            for top in below:
                # "0" is the character after "/". Two range scans; an OR of them would scan the whole source.
                fingerprints.update(connection.execute(f"{columns} AND source_id = ?", (*values, top)))
                fingerprints.update(
                    connection.execute(
                        f"{columns} AND source_id > ? AND source_id < ?", (*values, top + "/", top + "0")
                    )
                )
        return fingerprints

    def content_hashes(self, source: str, source_ids: Sequence[str]) -> dict[str, bytes]:
        """source_id -> content_hash for those of the given documents that exist."""
        sql = "SELECT source_id, content_hash FROM document WHERE source_no = ? AND source_id IN ({})"
        with self._reading() as connection:
            return dict(rows_among(connection, sql, (source_no_of(connection, source),), source_ids))

    def put_documents(self, batch: Sequence[tuple[Document, Sequence[Chunk]]]) -> int:
        """Stores or replaces whole documents with their chunks and returns the new seq. A replaced document
        keeps its number. Its chunks keep their numbers if all of them are unchanged.

        `Chunk.ordinal` must count from 0. If the batch contains a document twice, the last version is stored.
        On a `StoreError`, also for text with lone surrogates, nothing of the batch is stored.
        """
        if not batch:
            return self.seq()
        latest = {document.id: (document, chunks) for document, chunks in batch}
        with self._writing() as write:
            return store_batch(write, now_ms(), latest.values())

    def touch_documents(self, batch: Sequence[tuple[str, str, str, int]]) -> int:
        """Updates the fingerprint and the time of documents whose content is unchanged. `batch` holds
        (source, source_id, fingerprint, updated_ms). Returns the seq, which is new only if a time changed.
        """
        if not batch:
            return self.seq()
        with self._writing() as write:
            connection = write.connection
            sources = {name: write.source(name) for name in sorted({entry[0] for entry in batch})}
            moved = []
            for source, source_id, fingerprint, updated_ms in batch:
                row = connection.execute(
                    "UPDATE document SET fingerprint = ? WHERE source_no = ? AND source_id = ? "
                    "RETURNING no, updated_ms",
                    (fingerprint, sources[source], source_id),
                ).fetchone()
                if row is not None and row[1] != updated_ms:
                    moved.append((updated_ms, row[0]))
            if not moved:
                return write.seq()
            seq = write.next_seq()
            connection.executemany(
                "UPDATE document SET seq = ?, updated_ms = ? WHERE no = ?", [(seq, *row) for row in moved]
            )
        return seq

    def delete_documents(self, source: str, source_ids: Sequence[str]) -> int:
        """Deletes documents and returns the new seq. Unknown ids are ignored."""
        sql = "SELECT no, chunk_first, chunk_count FROM document WHERE source_no = ? AND source_id IN ({})"
        with self._writing() as write:
            spans = rows_among(write.connection, sql, (write.source(source),), source_ids)
            return write.drop_documents(list(spans))

    def delete_source(self, source: str) -> int:
        """Deletes a source with all its documents and returns the new seq."""
        with self._writing() as write:
            source_no = write.source(source)
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

    def list_documents(self, after: tuple[str, str] | None, limit: int) -> list[Listing]:
        """At most `limit` documents in the order of (source, source_id). `after` is the last such pair of the
        previous page; None starts at the beginning.
        """
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT d.id, s.name, d.source_id, d.title, d.media_type FROM source s JOIN document d ON "
                "d.source_no = s.no "
                "WHERE (s.name, d.source_id) > (?, ?) ORDER BY s.name, d.source_id LIMIT ?",
                (*(after or ("", "")), limit),
            )
            return [Listing._make(row) for row in rows]

    def documents_since(self, seq: int) -> Iterator[StoredDocument]:
        """The documents written after `seq`, which an index still has to apply, in order of seq. Reads page
        by page: a document that is replaced meanwhile comes in its new version, possibly at a later place.
        """

        def read(connection: Statements, rows: list[Any]) -> list[StoredDocument]:
            sql = f"SELECT {_DOCUMENT} WHERE d.no = ?"
            return [_stored(connection, connection.execute(sql, (no,)).fetchone()) for _, no, _, _ in rows]

        return self._pages(DOCUMENTS, (), seq, PAGE, read)

    def chunks_since(self, seq: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """(seq, document_no, chunk_nos) of the documents written after `seq`, in order of seq."""
        for row_seq, no, first, count in self._pages(DOCUMENTS, (), seq, 100 * PAGE, lambda _, rows: rows):
            yield row_seq, no, tuple(range(first, first + count))

    def deletions_since(self, seq: int) -> Iterator[tuple[int, int]]:
        """(seq, document_no) of the documents deleted after `seq`, in order of seq."""
        with self._reading() as connection:
            return iter(
                connection.execute(
                    "SELECT seq, document_no FROM deletion WHERE seq > ? ORDER BY seq, no", (seq,)
                ).fetchall()
            )

    def export(self) -> Iterator[StoredDocument]:
        """All documents in the order of (source, source_id), read from one snapshot. The write-ahead log
        grows while the iterator is open.
        """
        with self._reading() as connection:
            for (source_no,) in connection.execute("SELECT no FROM source ORDER BY name").fetchall():
                rows = connection.stream(
                    f"SELECT {_DOCUMENT} WHERE d.source_no = ? ORDER BY d.source_id", (source_no,)
                )
                for row in rows:
                    yield _stored(connection, row)

    def ids(self) -> Iterator[str]:
        """The ids of all documents, ordered by their first chunk, read from one snapshot."""
        with self._reading() as connection:
            for (id,) in connection.stream("SELECT id FROM document ORDER BY chunk_first, no"):
                yield id

    def history(self, seq: int) -> str | None:
        """An identifier for the sequence of writes up to `seq`.

        An index that has applied `seq` under another identifier followed another catalog (a restored backup,
        a new file) and must be rebuilt. It must also be rebuilt if this returns None: then `seq` is ahead of
        the catalog, or the deletions after `seq` are no longer recorded.
        """
        with self._reading() as connection:
            # Numbers start at 1, so a higher one says that earlier deletions are no longer recorded.
            oldest, known_from = connection.execute(
                "SELECT (SELECT min(no) FROM deletion), (SELECT min(seq) FROM deletion)"
            ).fetchone()
            if seq > current_seq(connection) or ((oldest or 1) > 1 and seq < known_from):
                return None
            row = connection.execute(
                "SELECT token FROM epoch WHERE start <= ? ORDER BY start DESC LIMIT 1", (seq,)
            ).fetchone()
        return str(row[0]) if row else None

    def mark_unfinished(self, unfinished: bool) -> None:
        """Marks this store as the target of an unfinished migration, or removes the mark."""
        with self._writing() as write:
            set_unfinished(write.connection, unfinished)

    def record_run(self, source: str, run: Run) -> None:
        with self._writing() as write:
            write.connection.execute(
                "UPDATE source SET (finished_ms, ok, note, revision, signature, configuration, succeeded_ms) "
                "= (?, ?, ?, ?, ?, ?, coalesce(?, succeeded_ms)) WHERE no = ?",
                (
                    *(run.finished_ms, int(run.ok), run.note, run.revision, run.signature, run.configuration),
                    *(run.finished_ms if run.ok else None, write.sources([source])[source]),
                ),
            )

    def ages(self, until_ms: int, span_ms: int, spans: int) -> dict[str, list[int]]:
        """source -> the number of documents last updated in each of `spans` time spans before `until_ms`,
        newest span first, and then the number of all older documents. Each span is `span_ms` long. Documents
        with a later date count in the newest span.
        """
        counts: dict[str, list[int]] = {}
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT s.name, CASE WHEN d.updated_ms > ? THEN 0 WHEN d.updated_ms <= ? THEN CAST(? AS "
                "BIGINT) "
                "ELSE (? - d.updated_ms) / ? END AS span, count(*) "
                "FROM document d JOIN source s ON s.no = d.source_no GROUP BY s.name, span",
                (until_ms, until_ms - spans * span_ms, spans, until_ms, span_ms),
            )
            for name, span, count in rows:
                counts.setdefault(name, [0] * (spans + 1))[span] = count
        return counts

    def stats(self) -> Mapping[str, int]:
        """The number of `documents`, `chunks` and `embeddings` in the store, and `size_bytes` on disk."""
        with self._reading() as connection:
            return {
                "documents": int(connection.execute("SELECT count(*) FROM document").fetchone()[0]),
                "chunks": chunk_total(connection),
                "embeddings": int(connection.execute("SELECT count(*) FROM embedding").fetchone()[0]),
                "size_bytes": self._size_bytes(connection),
            }


def _stored(connection: Statements, row: tuple[Any, ...]) -> StoredDocument:
    """Builds a stored document from a row with the columns `_DOCUMENT`."""
    no, seq, first, count, *fields, metadata = row
    document = Document._make((*fields, json.loads(metadata) if metadata else NO_METADATA, ()))
    if is_code(document.media_type):
        document = document._replace(definitions=tuple(definitions_among(connection, [no]).get(no, ())))
    return StoredDocument(
        no, seq, document, chunks_between(connection, first, count), tuple(range(first, first + count))
    )
