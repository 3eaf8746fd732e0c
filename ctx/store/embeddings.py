"""Stores and reads the catalog's embeddings.

An embedding is stored by the hash of its text, so a text is embedded only once, even if it moves to another
document. Vectors are stored as float16. This halves the file and changes a cosine by less than 0.001, a tenth
of the error of the quantised model. The table `pending` lists the chunks without an embedding for each model,
because finding them among a million chunks takes a second.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from ctx.errors import StoreError
from ctx.models import embedding_text
from ctx.store.documents import DOCUMENTS, PAGE
from ctx.store.record import (
    ModelShare,
    PendingChunk,
    Record,
    Statements,
    VectorBatch,
    chunk_total,
    model_no_of,
    rows_among,
)
from ctx.text import filetypes

if TYPE_CHECKING:  # numpy takes 70 ms, and a keyword search does not need it
    import numpy as np

_VECTORS = 4096  # rows of a VectorBatch: 6 MB at 384 dimensions
# Bytes per embedding besides the vector: the numbers and the text hash, in the table and in two indexes.
_ROW_BYTES = 130
UNIT_TOLERANCE = 0.01  # float16 changes the length by 0.001


_TEXT = "SELECT d.title, b.text FROM document d JOIN body b ON b.document_no = d.no WHERE d.no = ?"
_COLUMNS = "c.no, d.no, s.name, d.updated_ms, e.vector"  # columns of a row that becomes a vector
VectorRow = tuple[int, int, str, int, bytes]  # these columns


class Embeddings(Record):
    """Stores and reads embeddings, and finds the chunks that need one."""

    _unclaimed = ""  # an SQL condition: no other machine is embedding the chunk of the row `p` of `pending`

    def pending_texts(self, model: str, chunk_nos: Sequence[int]) -> list[tuple[bytes, str]]:
        """(text_hash, text to embed) of those of these chunks that have no embedding of `model`, in this
        order, each hash once.
        """
        texts: dict[bytes, str] = {}
        title = body = ""
        last = 0  # document number of the previous row; the chunks of a document follow each other
        columns = 'c.document_no, c.start, c."end", c.heading, c.text_hash'
        with self._reading() as connection:
            model_no = model_no_of(connection, model)
            if model_no is None:
                sql, values = f"SELECT {columns} FROM chunk c WHERE c.no = ?", list[int]()
            else:
                sql = (
                    f"SELECT {columns} FROM pending p CROSS JOIN chunk c "
                    "WHERE c.no = p.chunk_no AND p.model_no = ? AND p.chunk_no = ?"
                )
                values = [model_no]
            for chunk_no in chunk_nos:
                row = connection.execute(sql, (*values, chunk_no)).fetchone()
                if row is None or row[4] in texts:
                    continue
                document_no, start, end, heading, text_hash = row
                if last != document_no:
                    title, body = connection.execute(_TEXT, (document_no,)).fetchone()
                    last = document_no
                texts[text_hash] = embedding_text(title, heading, body[start:end])
        return list(texts.items())

    def claim(self, model: str, chunk_nos: Sequence[int], for_s: float) -> list[int]:
        """Reserves chunks for `for_s` seconds and returns those that no other machine has reserved."""
        return list(chunk_nos)

    def pending_chunks(self, model: str, after: int = 0) -> Iterator[PendingChunk]:
        """The chunks with a number above `after` that have no embedding of `model`, ordered by number."""
        columns = "c.no, c.no - d.chunk_first, d.updated_ms, d.source_id, d.media_type"
        with self._reading() as connection:
            model_no = model_no_of(connection, model)
            if model_no is None:
                key, values = "c.no", [after]
                tables = "chunk c CROSS JOIN document d WHERE c.no > ?"
            else:
                key, values = "p.chunk_no", [model_no, after]
                tables = "pending p CROSS JOIN chunk c CROSS JOIN document d WHERE c.no = p.chunk_no"
                tables += f" AND p.model_no = ? AND p.chunk_no > ?{self._unclaimed}"
            rows = connection.stream(
                f"SELECT {columns} FROM {tables} AND d.no = c.document_no ORDER BY {key}", values
            )
            role_of = lru_cache(1)(filetypes.role)  # the chunks of a document follow each other
            for no, ordinal, updated_ms, path, media_type in rows:
                secondary = role_of(path, media_type) in filetypes.SECONDARY
                yield PendingChunk(no, ordinal, updated_ms, secondary)

    def model_shares(self, besides: Collection[str] = ()) -> list[ModelShare]:
        """The storage used by each model that is not in `besides`, oldest model first."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT m.name, m.dim, count(e.no), EXISTS (SELECT 1 FROM pending p WHERE p.model_no = m.no "
                f"AND NOT (TRUE{self._unclaimed})) FROM model m LEFT JOIN embedding e ON e.model_no = m.no "
                "GROUP BY m.no, m.name, m.dim ORDER BY m.no"
            )
            return [
                ModelShare(name, count, count * (2 * dim + _ROW_BYTES), bool(filling))
                for name, dim, count, filling in rows
                if name not in besides
            ]

    def put_embeddings(self, model: str, batch: "Sequence[tuple[bytes, np.ndarray]]") -> int:
        """Stores pairs (text_hash, float32 unit vector) and returns the new seq. Hashes that already have an
        embedding are ignored. Raises `StoreError` for a vector that is not finite, not of unit length or of
        another size than the model's.
        """
        if not batch:
            return self.seq()
        blobs, dim = _blobs(model, batch)
        with self._writing() as write:
            connection = write.connection
            write.take_turn()
            model_no = write.ensure_model(model, dim)
            sql = "SELECT text_hash FROM embedding WHERE model_no = ? AND text_hash IN ({})"
            stored = {bytes(row[0]) for row in rows_among(connection, sql, (model_no,), list(blobs))}
            inserts = [(text_hash, blob) for text_hash, blob in blobs.items() if text_hash not in stored]
            if not inserts:
                return write.seq()
            seq = write.next_seq()
            connection.executemany(
                "INSERT INTO embedding (model_no, seq, text_hash, vector) VALUES (?, ?, ?, ?)",
                [(model_no, seq, *insert) for insert in inserts],
            )
            connection.executemany(
                "DELETE FROM pending WHERE model_no = ? "
                "AND chunk_no IN (SELECT no FROM chunk WHERE text_hash = ?)",
                [(model_no, text_hash) for text_hash, _ in inserts],
            )
        return seq

    def vectors_since(self, model: str, seq: int) -> Iterator[VectorBatch]:
        """The vectors of all chunks whose document or embedding was written after `seq`, in batches. A chunk
        may occur twice.
        """
        with self._reading() as connection:
            row = connection.execute("SELECT no, dim FROM model WHERE name = ?", (model,)).fetchone()
        if row is None:
            return
        model_no, dim = row
        rows = self._vectors_of_documents(model_no, seq)
        if seq:  # with seq 0, the vectors of all documents are those of all texts
            rows = chain(rows, self._vectors_of_texts(model_no, seq))
        while batch := list(islice(rows, _VECTORS)):
            yield _vector_batch(batch, dim)

    def _vectors_of_documents(self, model_no: int, seq: int) -> Iterator[VectorRow]:
        sql = (
            f"SELECT {_COLUMNS} FROM document d CROSS JOIN source s CROSS JOIN chunk c "
            "CROSS JOIN embedding e WHERE s.no = d.source_no AND e.model_no = ? "
            "AND e.text_hash = c.text_hash AND d.no = ? AND c.no BETWEEN ? AND ?"
        )

        def read(connection: Statements, rows: list[Any]) -> list[VectorRow]:
            bounds = [(model_no, no, first, first + count - 1) for _, no, first, count in rows]
            return [row for values in bounds for row in connection.execute(sql, values)]

        return self._pages(DOCUMENTS, (), seq, PAGE, read)

    def _vectors_of_texts(self, model_no: int, seq: int) -> Iterator[VectorRow]:
        sql = (
            f"SELECT {_COLUMNS} FROM embedding e CROSS JOIN chunk c CROSS JOIN document d "
            "CROSS JOIN source s WHERE c.text_hash = e.text_hash AND d.no = c.document_no "
            # `_vectors_of_documents` has already yielded the documents after `seq`
            "AND s.no = d.source_no AND d.seq <= ? AND e.no IN ({})"
        )

        def read(connection: Statements, rows: list[Any]) -> list[VectorRow]:
            return list(rows_among(connection, sql, (seq,), [no for _, no in rows]))

        select = "SELECT seq, no FROM embedding WHERE model_no = ? AND"
        return self._pages(select, (model_no,), seq, 1000, read)

    def vectors_of(self, model: str, hashes: Sequence[bytes]) -> "dict[bytes, np.ndarray]":
        """text_hash -> float32 vector (dim,), for those of the texts that have an embedding of this model."""
        import numpy as np

        sql = "SELECT text_hash, vector FROM embedding WHERE model_no = ? AND text_hash IN ({})"
        with self._reading() as connection:
            rows = rows_among(connection, sql, (model_no_of(connection, model),), list(dict.fromkeys(hashes)))
            return {
                text_hash: np.frombuffer(blob, dtype="<f2").astype(np.float32) for text_hash, blob in rows
            }

    def forget_embeddings(self, model: str) -> int:
        """Deletes all embeddings of a model (`ctx embed rebuild`) and returns their number."""
        with self._writing() as write:
            model_no = model_no_of(write.connection, model)
            if model_no is None:
                return 0
            write.take_turn()
            write.next_seq()
            deleted = write.connection.execute("DELETE FROM embedding WHERE model_no = ?", (model_no,))
            write.connection.execute("DELETE FROM pending WHERE model_no = ?", (model_no,))
            write.connection.execute("DELETE FROM model WHERE no = ?", (model_no,))
        return int(deleted.rowcount)

    def trim_embeddings(self) -> int:
        """Deletes the embeddings of texts that no chunk contains any more, but only once they outnumber the
        other embeddings. Returns the number deleted.

        Until then they are kept, because texts often return, for example when a branch is switched or a
        folder is mounted again.
        """
        with self._reading() as connection:
            largest = connection.execute(
                "SELECT max(n) FROM (SELECT count(*) AS n FROM embedding GROUP BY model_no)"
            ).fetchone()[0]
            if (largest or 0) <= 2 * chunk_total(connection):
                return 0
        with self._writing() as write:
            write.take_turn()
            deleted = write.connection.execute(
                "DELETE FROM embedding WHERE NOT EXISTS (SELECT 1 FROM chunk c WHERE c.text_hash = "
                "embedding.text_hash)"
            )
        return int(deleted.rowcount)


def _blobs(model: str, batch: "Sequence[tuple[bytes, np.ndarray]]") -> tuple[dict[bytes, bytes], int]:
    """(text_hash -> the vector as float16 bytes, the number of dimensions)."""
    import numpy as np

    try:
        matrix = np.array([vector for _, vector in batch], dtype=np.float32)
        off = np.abs(np.sqrt(np.einsum("ij,ij->i", matrix, matrix)) - 1)
    except ValueError as error:
        raise StoreError(f"the embedder '{model}' gave something other than vectors of one size") from error
    if not (off < UNIT_TOLERANCE).all():  # also false for NaN
        raise StoreError(f"the embedder '{model}' gave a vector that is not of unit length")
    halves = matrix.astype("<f2")
    return {
        text_hash: half.tobytes() for (text_hash, _), half in zip(batch, halves, strict=True)
    }, matrix.shape[1]


def _vector_batch(rows: Sequence[VectorRow], dim: int) -> VectorBatch:
    import numpy as np

    chunk_nos, document_nos, sources, updated_ms, blobs = zip(*rows, strict=True)
    joined = b"".join(blobs)
    if len(joined) != 2 * dim * len(rows):
        raise StoreError("the catalog holds an embedding of the wrong size: run `ctx embed rebuild`")
    vectors = np.frombuffer(joined, dtype="<f2").reshape(len(rows), dim).astype(np.float32)
    # Normalise again, because rounding to float16 changed the lengths.
    vectors /= np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    return VectorBatch(
        np.array(chunk_nos, dtype=np.int64),
        np.array(document_nos, dtype=np.int64),
        list(sources),
        np.array(updated_ms, dtype=np.int64),
        vectors,
    )
