"""Chunks and their embeddings as a Parquet table for other programs, and embeddings back from one.

One row a chunk: `document_id`, `source`, `source_id`, `title`, `source_url`, `updated_at`, `chunk_index`,
`heading`, `text`, `text_hash` (16 bytes, of what is embedded: title and heading path before the text),
`model` and `embedding`, both null where none is stored.
"""

import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from ctx import file_writing, files
from ctx.errors import BadRequest, CtxError
from ctx.identity import TEXT_HASH_BYTES, embedding_text, text_hash
from ctx.models import JSON
from ctx.store.base import Catalog
from ctx.store.rows import StoredDocument

ROWS = 4096  # of a row group: 6 MB of vectors at 384 dimensions
# That reading a table may take beside what the process has. A file says a thousand times in a few bytes what
# it says once, and neither its size nor what it tells of itself bounds what comes out.
MAX_MEMORY_BYTES = 2 << 30
_TEXT_COLUMNS = ("title", "heading", "text")

Pair = tuple[bytes, "np.ndarray"]
"""text_hash and float32 vector of unit length, as `Catalog.put_embeddings` takes them."""


def write_table(path: str, catalog: Catalog, model: str | None) -> tuple[int, int]:
    """Writes all chunks with the embeddings of `model`; how many chunks, and how many of them have one.

    The file takes its place once it is whole. Raises `BadRequest` where it cannot be written or pyarrow is
    missing.
    """
    arrow, parquet = _pyarrow()
    schema = _schema(arrow)
    chunks = embedded = 0
    with (
        file_writing.writing(path, BadRequest),
        file_writing.replacement(path) as descriptor,
        open(descriptor, "wb", closefd=False) as file,
        parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for rows in _row_groups(catalog):
            embedded += _add_vectors(rows, catalog, model)
            chunks += len(rows)
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
    return chunks, embedded


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise BadRequest("Parquet needs pyarrow: pip install 'ctx-server[parquet]'") from error
    return pyarrow, pyarrow.parquet


def _schema(arrow: ModuleType) -> Any:
    text, moment = arrow.string(), arrow.timestamp("ms", tz="UTC")
    return arrow.schema(
        [
            *((name, text) for name in ("document_id", "source", "source_id", "title", "source_url")),
            ("updated_at", moment),
            ("chunk_index", arrow.int32()),
            ("heading", text),
            ("text", text),
            ("text_hash", arrow.binary(TEXT_HASH_BYTES)),
            ("model", text),
            ("embedding", arrow.list_(arrow.float32())),
        ]
    )


def _row_groups(catalog: Catalog) -> Iterator[list[dict[str, JSON]]]:
    rows: list[dict[str, JSON]] = []
    for stored in catalog.export():
        rows += _rows(stored)
        while len(rows) >= ROWS:
            yield rows[:ROWS]
            del rows[:ROWS]
    if rows:
        yield rows


def _rows(stored: StoredDocument) -> Iterator[dict[str, JSON]]:
    document = stored.document
    for chunk in stored.chunks:
        yield {
            "document_id": document.id,
            "source": document.source,
            "source_id": document.source_id,
            "title": document.title,
            "source_url": document.source_url,
            "updated_at": document.updated_ms,
            "chunk_index": chunk.ordinal,
            "heading": chunk.heading,
            "text": document.body[chunk.start : chunk.end],
            "text_hash": chunk.text_hash,
        }


def _add_vectors(rows: Sequence[dict[str, JSON]], catalog: Catalog, model: str | None) -> int:
    """Gives rows the embeddings that are stored; how many got one."""
    vectors = {} if model is None else catalog.vectors_of(model, [row["text_hash"] for row in rows])
    for row in rows:
        vector = vectors.get(row["text_hash"])
        row |= {"model": None if vector is None else model, "embedding": vector}
    return sum(row["embedding"] is not None for row in rows)


def read_embeddings(path: str, model: str) -> Iterator[list[Pair]]:
    """The embeddings in a table, in batches. Rows without one are passed over.

    A row says which text it is for by its `text_hash`, or by `title`, `heading` and `text`. Vectors are
    brought to unit length. Raises `BadRequest` where the table is none, lacks columns, or is of another
    model.
    """
    arrow, parquet = _pyarrow()
    location = os.path.expanduser(path)
    if files.irregular(location):
        raise BadRequest(f"{path} cannot be read: it is no file")
    try:
        with _bounded_memory(), parquet.ParquetFile(location) as table:
            columns = _columns(path, table.schema_arrow.names)
            for batch in table.iter_batches(ROWS, columns=columns):
                yield [_pair(path, row, model) for row in batch.to_pylist() if row["embedding"] is not None]
    except CtxError:
        raise
    except MemoryError as error:
        raise BadRequest(
            f"{path} cannot be read: a few of its rows unpack to more than {MAX_MEMORY_BYTES >> 20} MiB"
        ) from error
    except (arrow.ArrowException, OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no Parquet table, or damaged"
        raise BadRequest(f"{path} cannot be read: {reason}") from error


@contextmanager
def _bounded_memory() -> Iterator[None]:
    """A block in which memory that is asked for beyond the bound is refused; where the system tells how much
    the process has.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    try:
        with open("/proc/self/statm") as figures:
            pages = int(figures.read().split()[0])
    except (OSError, ValueError):
        yield  # no Linux
        return
    limit = pages * resource.getpagesize() + MAX_MEMORY_BYTES
    bounds = [bound for bound in (limit, *before) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(bounds), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _columns(path: str, names: Sequence[str]) -> list[str]:
    keys = ["text_hash"] if "text_hash" in names else list(_TEXT_COLUMNS)
    absent = [name for name in ("embedding", *keys) if name not in names]
    if absent:
        raise BadRequest(f"{path} has no column {', '.join(absent)}; it needs embedding and text_hash")
    return ["embedding", *keys, *(["model"] if "model" in names else [])]


def _pair(path: str, row: dict[str, JSON], model: str) -> Pair:
    if (row.get("model") or model) != model:
        raise BadRequest(
            f"{path} has embeddings of '{row['model']}', the configuration says '{model}'; set its model"
        )
    try:
        vector = np.asarray(row["embedding"], dtype=np.float32)
    except (ValueError, TypeError) as error:
        raise BadRequest(f"{path} has an embedding that is no list of numbers") from error
    length = float(np.linalg.norm(vector.astype(np.float64))) if vector.ndim == 1 else 0.0
    if not np.isfinite(length) or length == 0:
        raise BadRequest(f"{path} has an embedding without a direction")
    return _digest(path, row), vector / length


def _digest(path: str, row: dict[str, JSON]) -> bytes:
    if "text_hash" not in row:
        return text_hash(embedding_text(*(row[name] or "" for name in _TEXT_COLUMNS)))
    digest = row["text_hash"]
    if not isinstance(digest, bytes) or len(digest) != TEXT_HASH_BYTES:
        raise BadRequest(f"{path} has a text_hash that is not {TEXT_HASH_BYTES} bytes")
    return digest
