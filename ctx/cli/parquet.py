"""Chunks and their embeddings as a Parquet table for other programs, and embeddings back from one.

One row a chunk: `document_id`, `source`, `source_id`, `title`, `source_url`, `updated_at`, `chunk_index`,
`heading`, `text`, `text_hash` (16 bytes, of what is embedded: title and heading path before the text),
`model` and `embedding`, both null if there is no embedding.
"""

import os
from collections.abc import Iterator
from itertools import islice
from types import ModuleType
from typing import Any

import numpy as np

from ctx import files
from ctx.errors import BadRequest, CtxError
from ctx.identity import TEXT_HASH_BYTES, embedding_text, text_hash
from ctx.models import JSON
from ctx.store.base import Catalog

ROWS = 4096  # of a row group: 6 MB of vectors at 384 dimensions
_TEXT_COLUMNS = ("title", "heading", "text")

Pair = tuple[bytes, "np.ndarray"]
"""text_hash and float32 vector of unit length, as `Catalog.put_embeddings` takes them."""


def write_table(path: str, catalog: Catalog, model: str | None) -> tuple[int, int]:
    """Writes all chunks with the embeddings of `model`. Returns how many chunks, and how many have one.
    Raises `BadRequest` if the file cannot be written or pyarrow is missing.
    """
    arrow, parquet = _pyarrow()
    schema = _schema(arrow)
    chunks = embedded = 0
    with (
        files.writing(path, BadRequest),
        files.replacement(path) as descriptor,
        open(descriptor, "wb", closefd=False) as file,
        parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for rows in _row_groups(catalog, model):
            embedded += sum(row["embedding"] is not None for row in rows)
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


def _row_groups(catalog: Catalog, model: str | None) -> Iterator[list[dict[str, JSON]]]:
    """The rows of all chunks, ROWS at a time."""
    rows: Iterator[dict[str, JSON]] = (
        {
            "document_id": stored.document.id,
            "source": stored.document.source,
            "source_id": stored.document.source_id,
            "title": stored.document.title,
            "source_url": stored.document.source_url,
            "updated_at": stored.document.updated_ms,
            "chunk_index": chunk.ordinal,
            "heading": chunk.heading,
            "text": stored.document.body[chunk.start : chunk.end],
            "text_hash": chunk.text_hash,
        }
        for stored in catalog.export()
        for chunk in stored.chunks
    )
    while group := list(islice(rows, ROWS)):
        vectors = {} if model is None else catalog.vectors_of(model, [row["text_hash"] for row in group])
        for row in group:
            vector = vectors.get(row["text_hash"])
            row |= {"model": None if vector is None else model, "embedding": vector}
        yield group


def read_embeddings(path: str, model: str) -> Iterator[list[Pair]]:
    """The embeddings in a table, in batches. Rows without one are left out.

    A row names its text by `text_hash`, or by `title`, `heading` and `text`. Vectors are scaled to unit
    length. Raises `BadRequest` if the file is no table, lacks columns, or is of another model.
    """
    arrow, parquet = _pyarrow()
    location = os.path.expanduser(path)
    if files.irregular(location):
        raise BadRequest(f"{path} cannot be read: it is not a file")
    try:
        with parquet.ParquetFile(location) as table:
            names = table.schema_arrow.names
            keys = ["text_hash"] if "text_hash" in names else _TEXT_COLUMNS
            if absent := [name for name in ("embedding", *keys) if name not in names]:
                needed = "it needs the columns embedding and text_hash"
                raise BadRequest(f"{path} has no column {', '.join(absent)}; {needed}")
            columns = ["embedding", *keys, *(["model"] if "model" in names else [])]
            for batch in table.iter_batches(ROWS, columns=columns):
                yield [_pair(path, row, model) for row in batch.to_pylist() if row["embedding"] is not None]
    except CtxError:
        raise
    except (arrow.ArrowException, OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a Parquet table, or it is damaged"
        raise BadRequest(f"{path} cannot be read: {reason}") from error


def _pair(path: str, row: dict[str, JSON], model: str) -> Pair:
    if (row.get("model") or model) != model:
        raise BadRequest(
            f"{path} has embeddings of '{row['model']}', the configuration says '{model}'; "
            "set [embedding] model to match"
        )
    try:
        vector = np.asarray(row["embedding"], dtype=np.float32)
    except (ValueError, TypeError) as error:
        raise BadRequest(f"{path} has an embedding that is not a list of numbers") from error
    length = float(np.linalg.norm(vector.astype(np.float64))) if vector.ndim == 1 else 0.0
    if not np.isfinite(length) or length == 0:
        raise BadRequest(f"{path} has an embedding of zeros")
    if "text_hash" not in row:
        digest = text_hash(embedding_text(*(row[name] or "" for name in _TEXT_COLUMNS)))
    elif isinstance(row["text_hash"], bytes) and len(row["text_hash"]) == TEXT_HASH_BYTES:
        digest = row["text_hash"]
    else:
        raise BadRequest(f"{path} has a text_hash that is not {TEXT_HASH_BYTES} bytes")
    return digest, vector / length
