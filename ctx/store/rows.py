"""Values that pass between the catalog and its indexes. What a search reads is in ctx/models.py."""

from typing import TYPE_CHECKING, NamedTuple

from ctx.models import Chunk, Document

if TYPE_CHECKING:  # numpy takes 70 ms, and listing documents does not need it
    import numpy as np


class StoredDocument(NamedTuple):
    """A document with the numbers that the catalog gave it. `chunk_nos` are parallel to `chunks`."""

    document_no: int
    seq: int
    document: Document
    chunks: tuple[Chunk, ...]
    chunk_nos: tuple[int, ...]


class Listing(NamedTuple):
    """A document in a list of documents."""

    id: str
    source: str
    source_id: str
    title: str
    media_type: str


class VectorPosition(NamedTuple):
    """A position in a stream of vectors: first by document, then (`embedded`) by embedding."""

    embedded: bool
    seq: int
    no: int


class VectorBatch(NamedTuple):
    """Chunks with their embeddings; all fields have length n. `position` is where the next batch starts."""

    chunk_nos: "np.ndarray"  # int64 (n,)
    document_nos: "np.ndarray"  # int64 (n,)
    sources: list[str]
    updated_ms: "np.ndarray"  # int64 (n,)
    vectors: "np.ndarray"  # float32 (n, dim), unit vectors
    position: VectorPosition = VectorPosition(False, 0, 0)


class ModelShare(NamedTuple):
    """What one model takes up in a catalog. `size_bytes` estimates the size of its embeddings.

    `filling`: another machine is embedding with it now.
    """

    model: str
    embeddings: int
    size_bytes: int
    filling: bool


class PendingChunk(NamedTuple):
    """A chunk without an embedding: its place in its document, and when that was updated.

    `secondary`: its document is a test, an example or a change log.
    """

    chunk_no: int
    ordinal: int
    updated_ms: int
    secondary: bool = False
