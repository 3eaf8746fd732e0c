"""The values that pass between a catalog, its indexes and who reads them (`base.py` has the shapes of both).
What a search reads is in ctx/models.py.
"""

from typing import TYPE_CHECKING, NamedTuple

from ctx.items import Chunk, Document

if TYPE_CHECKING:  # numpy costs 70 ms, and who lists documents needs none of it
    import numpy as np


class StoredDocument(NamedTuple):
    """A document with the numbers the catalog gave it. `chunk_nos` are parallel to `chunks`."""

    document_no: int
    seq: int
    document: Document
    chunks: tuple[Chunk, ...]
    chunk_nos: tuple[int, ...]


class Listing(NamedTuple):
    """A document as a list of documents shows it."""

    id: str
    source: str
    source_id: str
    title: str
    media_type: str


class VectorPosition(NamedTuple):
    """How far a reader of vectors has come: through the documents, then (`embedded`) through the
    embeddings.
    """

    embedded: bool
    seq: int
    no: int


class VectorBatch(NamedTuple):
    """Chunks with their embeddings, each field of the same length n; `position`: behind which the next ones
    come.
    """

    chunk_nos: "np.ndarray"  # int64 (n,)
    document_nos: "np.ndarray"  # int64 (n,)
    sources: list[str]
    updated_ms: "np.ndarray"  # int64 (n,)
    vectors: "np.ndarray"  # float32 (n, dim), of unit length
    position: VectorPosition = VectorPosition(False, 0, 0)


class ModelShare(NamedTuple):
    """What a catalog holds of one model. `size_bytes` is about what its embeddings take in the store.

    `filling`: another machine is embedding texts with it just now.
    """

    model: str
    embeddings: int
    size_bytes: int
    filling: bool


class PendingChunk(NamedTuple):
    """A chunk that awaits an embedding: its place in its document, and when that changed last.

    `secondary`: its document is a test, an example or a change log.
    """

    chunk_no: int
    ordinal: int
    updated_ms: int
    secondary: bool = False
