"""The SQL of catalog writes: the write transaction, and storing a batch of documents.

Where SQLite and PostgreSQL differ, a method of `Write` is overridden.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ctx.errors import StoreError
from ctx.models import Chunk, Document
from ctx.store.record import Statements, chunks_between, current_seq, marks, rows_among, source_no_of

# The number of latest deletions that are recorded. An index that is further behind must be rebuilt, which
# costs about as much as catching up.
DELETIONS_KEPT = 100_000
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
        sql = (
            "INSERT INTO source (name) VALUES (?) ON CONFLICT (name) DO UPDATE SET name = excluded.name "
            "RETURNING no"
        )
        return {name: self.connection.execute(sql, (name,)).fetchone()[0] for name in names}

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

    def ensure_model(self, name: str, dim: int) -> int:
        """The number of an embedding model in this catalog. A new model is added, and all chunks wait to be
        embedded with it. Raises `StoreError` if `dim` differs from the stored number of dimensions.
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
        self.connection.execute(
            "DELETE FROM deletion WHERE no <= (SELECT max(no) FROM deletion) - ?", (DELETIONS_KEPT,)
        )
        return seq

    def drop_chunks(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Deletes the chunks in these ranges of numbers, given as (first, last + 1)."""
        self.connection.executemany(
            "DELETE FROM pending WHERE model_no IN (SELECT no FROM model) AND chunk_no >= ? AND chunk_no < ?",
            ranges,
        )
        self.connection.executemany("DELETE FROM chunk WHERE no >= ? AND no < ?", ranges)


@dataclass(slots=True)
class _Entry:
    """A document of a batch, and its numbers in the catalog."""

    document: Document
    chunks: Sequence[Chunk]
    metadata: str | None  # JSON
    replaced: tuple[int, int] | None  # (first, last + 1) of the chunks of the stored document; None if new
    unchanged: bool  # whether its chunks equal the stored chunks
    no: int
    chunk_first: int
    stored_ms: int


def store_batch(
    write: Write, present_ms: int, documents: Collection[tuple[Document, Sequence[Chunk]]]
) -> int:
    """Stores a batch of documents and returns its seq."""
    sources = write.sources({document.source for document, _ in documents})
    entries = list(_entries(write.connection, documents))
    changed = [entry for entry in entries if not entry.unchanged]
    next_no, first_chunk = write.numbers(
        sum(entry.replaced is None for entry in changed), sum(len(entry.chunks) for entry in changed)
    )
    next_chunk = first_chunk
    for entry in changed:
        entry.chunk_first, entry.stored_ms = next_chunk, present_ms
        next_chunk += len(entry.chunks)
        if entry.replaced is None:
            entry.no = next_no
            next_no += 1
    write.supersede([entry.no for entry in entries if entry.replaced])
    _store_texts(write.connection, entries)
    seq = write.next_seq()
    write.drop_chunks([entry.replaced for entry in changed if entry.replaced])
    _store_documents(write, sources, entries, seq)
    _note_pending(write.connection, first_chunk, next_chunk)
    return seq


def _entries(
    connection: Statements, documents: Collection[tuple[Document, Sequence[Chunk]]]
) -> Iterator[_Entry]:
    sql = "SELECT id, no, chunk_first, chunk_count, stored_ms FROM document WHERE id IN ({})"
    rows = {row[0]: row[1:] for row in rows_among(connection, sql, (), [entry[0].id for entry in documents])}
    for document, chunks in documents:
        metadata = _json_of(document.metadata)
        if document.id not in rows:
            yield _Entry(document, chunks, metadata, None, False, 0, 0, 0)
            continue
        no, first, count, stored_ms = rows[document.id]
        unchanged = count == len(chunks) and chunks_between(connection, first, count) == tuple(chunks)
        yield _Entry(document, chunks, metadata, (first, first + count), unchanged, no, first, stored_ms)


def _store_texts(connection: Statements, entries: Sequence[_Entry]) -> None:
    """Writes bodies, definitions and new chunks. This is most of the work, and is done before the seq is
    taken so that other writers do not wait for it.
    """
    connection.executemany(
        "INSERT INTO body (document_no, text) VALUES (?, ?) "
        "ON CONFLICT (document_no) DO UPDATE SET text = excluded.text",
        [(entry.no, entry.document.body) for entry in entries],
    )
    connection.executemany(
        "DELETE FROM definition WHERE document_no = ?", [(entry.no,) for entry in entries if entry.replaced]
    )
    connection.executemany(
        "INSERT INTO definition VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (entry.no, ordinal, *definition)
            for entry in entries
            for ordinal, definition in enumerate(entry.document.definitions)
        ],
    )
    connection.executemany(
        "INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (entry.chunk_first + ordinal, entry.no, *chunk[1:])
            for entry in entries
            if not entry.unchanged
            for ordinal, chunk in enumerate(entry.chunks)
        ],
    )


def _store_documents(write: Write, sources: Mapping[str, int], entries: Sequence[_Entry], seq: int) -> None:
    extras = {source: write.own_columns(source) for source in sources}
    columns = ", ".join((_COLUMNS, *next(iter(extras.values()))))
    inserts: list[tuple[object, ...]] = []
    updates: list[tuple[object, ...]] = []
    for entry in entries:
        document = entry.document
        values = (
            *(seq, document.id, sources[document.source], document.source_id, document.title),
            *(document.media_type, document.updated_ms, document.fingerprint, document.content_hash),
            *(document.source_url, document.author, document.created_ms, entry.metadata, entry.stored_ms),
            *(entry.chunk_first, len(entry.chunks), *extras[document.source].values(), entry.no),
        )
        (updates if entry.replaced else inserts).append(values)
    bound = marks(range(columns.count(",") + 1))
    write.connection.executemany(f"INSERT INTO document ({columns}, no) VALUES ({bound}, ?)", inserts)
    write.connection.executemany(f"UPDATE document SET ({columns}) = ({bound}) WHERE no = ?", updates)


def _note_pending(connection: Statements, first: int, end: int) -> None:
    if first == end:
        return
    connection.execute(
        "INSERT INTO pending (model_no, chunk_no, source_no, stored_ms) "
        "SELECT m.no, c.no, d.source_no, d.stored_ms FROM chunk c JOIN document d ON d.no = c.document_no "
        "CROSS JOIN model m WHERE c.no >= ? AND c.no < ? AND NOT EXISTS "
        "(SELECT 1 FROM embedding e WHERE e.model_no = m.no AND e.text_hash = c.text_hash)",
        (first, end),
    )


def _json_of(metadata: Mapping[str, object]) -> str | None:
    if not metadata:
        return None
    try:
        return json.dumps(dict(metadata), ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise StoreError(f"a document's metadata is not JSON: {error}") from error
