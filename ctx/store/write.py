"""The SQL of catalog writes: the write transaction, and storing a batch of documents.

Where SQLite and PostgreSQL differ, a method of `Write` is overridden.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ctx.errors import StoreError
from ctx.models import Chunk, Document
from ctx.store.record import (
    Statements,
    StoredDocument,
    chunks_between,
    current_seq,
    marks,
    metadata_of,
    rows_among,
    source_no_of,
)

# The number of latest deletions that are recorded. An index that is further behind must be rebuilt, which
# costs about as much as catching up.
DELETIONS_KEPT = 100_000
EPOCHS_KEPT = 1_000  # the number of latest writing processes that are recorded
_COLUMNS = (
    "seq, id, source_no, source_id, title, media_type, updated_ms, fingerprint, content_hash, source_url, "
    "author, created_ms, metadata, stored_ms, chunk_first, chunk_count"
)


class Write:
    """A write transaction."""

    def __init__(self, connection: Statements) -> None:
        self.connection = connection

    def next_seq(self) -> int:
        """Takes the next sequence number for this write and returns it."""
        raise NotImplementedError

    def seq(self) -> int:
        """The last sequence number that was taken."""
        return current_seq(self.connection)

    def take_turn(self) -> None:
        """Waits until the running writes commit, and makes later writes wait for this one."""

    def numbers(self, documents: int, chunks: int) -> tuple[int, int]:
        """Reserves `documents` document numbers and `chunks` chunk numbers. Returns the first number of
        each.
        """
        raise NotImplementedError

    def sources(self, names: Iterable[str]) -> dict[str, int]:
        """name -> number of these sources. Creates sources that do not exist."""
        return {name: self.ensure_source(name) for name in sorted(names)}

    def own_columns(self, source: str) -> dict[str, str]:
        """column name -> value, for the columns of `document` that only this engine has. The names are the
        same for every source.
        """
        return {}

    def supersede(self, document_nos: Sequence[int]) -> None:
        """Saves the fingerprints of other machines before their documents are replaced."""

    def source(self, name: str) -> int | None:
        """The number of a source; None if it does not exist. No other transaction can write documents of this
        source until this transaction ends.
        """
        return source_no_of(self.connection, name)

    def ensure_source(self, name: str) -> int:
        self.connection.execute("INSERT INTO source (name) VALUES (?) ON CONFLICT DO NOTHING", (name,))
        no = self.source(name)
        assert no is not None
        return no

    def _drop_epochs(self) -> None:
        self.connection.execute(
            "DELETE FROM epoch WHERE start <= (SELECT start FROM epoch ORDER BY start DESC LIMIT 1 OFFSET ?)",
            (EPOCHS_KEPT,),
        )

    def ensure_model(self, name: str, dim: int) -> int:
        """The number of a model. Creates a model that does not exist, with all chunks pending. Raises
        `StoreError` if `dim` differs from the stored number of dimensions.
        """
        row = self.connection.execute("SELECT no, dim FROM model WHERE name = ?", (name,)).fetchone()
        if row is None:
            no = self.connection.execute(
                "INSERT INTO model (name, dim) VALUES (?, ?) RETURNING no", (name, dim)
            ).fetchone()[0]
            self.connection.execute(
                "INSERT INTO pending (model_no, chunk_no, source_no, stored_ms) "
                "SELECT ?, c.no, d.source_no, d.stored_ms FROM chunk c JOIN document d "
                "ON d.no = c.document_no ORDER BY c.no",
                (no,),
            )
            row = (no, dim)
        if row[1] != dim:
            raise StoreError(
                f"embeddings of '{name}' have {row[1]} dimensions here and {dim} now: run `ctx embed "
                "rebuild`, or use another model"
            )
        return int(row[0])

    def drop_documents(self, documents: Sequence[tuple[int, int, int]]) -> int:
        """Deletes documents given as (no, chunk_first, chunk_count) and returns the new seq."""
        if not documents:
            return self.seq()
        nos = [(no,) for no, _, _ in documents]
        self.connection.executemany("DELETE FROM body WHERE document_no = ?", nos)
        self.connection.executemany("DELETE FROM definition WHERE document_no = ?", nos)
        self.connection.executemany("DELETE FROM document WHERE no = ?", nos)
        # Comes before the deletion from `pending`, because a writer of embeddings locks in this order, too.
        seq = self.next_seq()
        self.drop_chunks([(first, first + count) for _, first, count in documents])
        self.connection.executemany(
            "INSERT INTO deletion (seq, document_no) VALUES (?, ?)", [(seq, no) for no, _, _ in documents]
        )
        oldest, newest = self.connection.execute(
            "SELECT (SELECT min(no) FROM deletion), (SELECT max(no) FROM deletion)"
        ).fetchone()
        if newest - oldest > 2 * DELETIONS_KEPT:
            known_from = self.connection.execute(
                "SELECT seq FROM deletion WHERE no <= ? ORDER BY no DESC LIMIT 1", (newest - DELETIONS_KEPT,)
            ).fetchone()[0]
            self.connection.execute("DELETE FROM deletion WHERE seq <= ?", (known_from,))
            self.connection.execute(
                "UPDATE meta SET value = ? WHERE key = 'deletions_known_from'", (known_from,)
            )
        return seq

    def drop_chunks(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Deletes the chunks in these ranges of numbers, given as (first, last + 1)."""
        if not ranges:
            return
        self.connection.executemany(
            "DELETE FROM pending WHERE model_no IN (SELECT no FROM model) AND chunk_no >= ? AND chunk_no < ?",
            ranges,
        )
        self.connection.executemany("DELETE FROM chunk WHERE no >= ? AND no < ?", ranges)


class _Entry(NamedTuple):
    """A document of a batch, and its stored row if the catalog already has it."""

    document: Document
    chunks: Sequence[Chunk]
    metadata: str | None  # JSON
    row: tuple[int, int, int, int] | None  # no, chunk_first, chunk_count, stored_ms
    unchanged: bool  # whether its chunks equal the stored chunks


class BatchRows:
    """Stores a batch of documents."""

    def __init__(
        self, write: Write, present_ms: int, batch: Iterable[tuple[Document, Sequence[Chunk]]]
    ) -> None:
        self._write = write
        self._connection = write.connection
        self._present_ms = present_ms
        documents = list(batch)
        self._sources = write.sources({document.source for document, _ in documents})
        sql = "SELECT id, no, chunk_first, chunk_count, stored_ms FROM document WHERE id IN ({})"
        ids = [document.id for document, _ in documents]
        rows = {row[0]: row[1:] for row in rows_among(self._connection, sql, (), ids)}
        self._entries = [
            self._entry(document, chunks, rows.get(document.id)) for document, chunks in documents
        ]

    def _entry(
        self, document: Document, chunks: Sequence[Chunk], row: tuple[int, int, int, int] | None
    ) -> _Entry:
        metadata = _json_of(document.metadata)
        if metadata is not None:
            document = document._replace(metadata=metadata_of(metadata))
        unchanged = row is not None and _same_chunks(self._connection, row[1], row[2], chunks)
        return _Entry(document, chunks, metadata, row, unchanged)

    def _places(self, next_document: int, next_chunk: int) -> tuple[list[tuple[_Entry, int, int, int]], int]:
        """([(entry, document number, first chunk number, stored_ms)] for all documents, the number after the
        last new chunk).
        """
        places: list[tuple[_Entry, int, int, int]] = []
        for entry in self._entries:
            if entry.unchanged and entry.row is not None:
                no, chunk_first, _, stored_ms = entry.row
            else:
                no, chunk_first, stored_ms = next_document, next_chunk, self._present_ms
                if entry.row is None:
                    next_document += 1
                else:
                    no = entry.row[0]
                next_chunk += len(entry.chunks)
            places.append((entry, no, chunk_first, stored_ms))
        return places, next_chunk

    def store(self) -> list[StoredDocument]:
        """Writes the batch and returns the stored documents, ordered by number."""
        changed = [entry for entry in self._entries if not entry.unchanged]
        next_document, first_chunk = self._write.numbers(
            sum(entry.row is None for entry in changed), sum(len(entry.chunks) for entry in changed)
        )
        places, next_chunk = self._places(next_document, first_chunk)
        self._write.supersede([no for entry, no, _, _ in places if entry.row is not None])
        self._store_texts(places)
        seq = self._write.next_seq()
        self._write.drop_chunks([(row[1], row[1] + row[2]) for _, _, _, row, _ in changed if row])
        self._store_documents(places, seq)
        self._note_pending(first_chunk, next_chunk)
        # Sorts by document number only, because the numbers are distinct.
        return sorted(
            StoredDocument(
                no, seq, entry.document, tuple(entry.chunks), tuple(range(first, first + len(entry.chunks)))
            )
            for entry, no, first, _ in places
        )

    def _store_texts(self, places: Sequence[tuple[_Entry, int, int, int]]) -> None:
        """Writes bodies, definitions and new chunks. This is most of the work, and is done before the seq is
        taken so that other writers do not wait for it.
        """
        self._connection.executemany(
            "INSERT INTO body (document_no, text) VALUES (?, ?) "
            "ON CONFLICT (document_no) DO UPDATE SET text = excluded.text",
            [(no, entry.document.body) for entry, no, _, _ in places],
        )
        self._connection.executemany(
            "DELETE FROM definition WHERE document_no = ?",
            [(no,) for entry, no, _, _ in places if entry.row is not None],
        )
        self._connection.executemany(
            "INSERT INTO definition VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (no, ordinal, *definition)
                for entry, no, _, _ in places
                for ordinal, definition in enumerate(entry.document.definitions)
            ],
        )
        self._connection.executemany(
            "INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (chunk_first + ordinal, no, *chunk[1:])
                for entry, no, chunk_first, _ in places
                if not entry.unchanged
                for ordinal, chunk in enumerate(entry.chunks)
            ],
        )

    def _store_documents(self, places: Sequence[tuple[_Entry, int, int, int]], seq: int) -> None:
        extras = {source: self._write.own_columns(source) for source in self._sources}
        columns = ", ".join((_COLUMNS, *next(iter(extras.values()))))
        inserts: list[tuple[object, ...]] = []
        updates: list[tuple[object, ...]] = []
        for entry, no, chunk_first, stored_ms in places:
            document = entry.document
            values = (
                *(seq, document.id, self._sources[document.source], document.source_id, document.title),
                *(document.media_type, document.updated_ms, document.fingerprint, document.content_hash),
                *(document.source_url, document.author, document.created_ms, entry.metadata),
                *(stored_ms, chunk_first, len(entry.chunks), *extras[document.source].values(), no),
            )
            (inserts if entry.row is None else updates).append(values)
        bound = marks(range(columns.count(",") + 1))
        if inserts:
            self._connection.executemany(f"INSERT INTO document ({columns}, no) VALUES ({bound}, ?)", inserts)
        if updates:
            self._connection.executemany(f"UPDATE document SET ({columns}) = ({bound}) WHERE no = ?", updates)

    def _note_pending(self, first: int, end: int) -> None:
        if first == end:
            return
        self._connection.execute(
            "INSERT INTO pending (model_no, chunk_no, source_no, stored_ms) "
            "SELECT m.no, c.no, d.source_no, d.stored_ms FROM chunk c JOIN document d ON d.no = "
            "c.document_no "
            "CROSS JOIN model m WHERE c.no >= ? AND c.no < ? AND NOT EXISTS "
            "(SELECT 1 FROM embedding e WHERE e.model_no = m.no AND e.text_hash = c.text_hash)",
            (first, end),
        )


def _same_chunks(connection: Statements, first: int, count: int, chunks: Sequence[Chunk]) -> bool:
    return count == len(chunks) and chunks_between(connection, first, count) == tuple(chunks)


def _json_of(metadata: Mapping[str, object]) -> str | None:
    if not metadata:
        return None
    try:
        return json.dumps(dict(metadata), ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise StoreError(f"a document's metadata is not JSON: {error}") from error
