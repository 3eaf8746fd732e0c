"""What crosses rooms on the way from a source into the catalog: an item, what is read of it, its text, the
document and its chunks; and the health of a source.

A search has no use for these, and of the other values (ctx/models.py) for nearly all.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ctx.code.symbols import Definition
from ctx.models import JSON, NO_METADATA


class Content(NamedTuple):
    """What `SourceItem.read()` gives: the bytes (or text already decoded) and what the connector knows of
    them.
    """

    data: bytes | str
    media_type: str | None = None  # None: decided by the name and the bytes
    title: str | None = None  # None: decided by the text
    author: str | None = None
    created_ms: int | None = None
    updated_ms: int | None = None  # None: SourceItem.updated_ms
    source_url: str | None = None
    metadata: Mapping[str, JSON] = NO_METADATA


class SourceItem(NamedTuple):
    """One thing a connector can read, before it is read.

    `source_id` is unique within its source: for files the path below the source's root, with `/`.
    `fingerprint` changes whenever the content may have changed; equal fingerprints mean "do not read again".
    `read` raises `SourceError`.
    """

    source_id: str
    fingerprint: str
    updated_ms: int
    read: Callable[[], Content]


class Heading(NamedTuple):
    """A heading of an extracted body: where its line starts (characters), its level (1 is the top) and its
    words. A definition in source code is one, too, and has its signature.
    """

    start: int
    level: int
    title: str
    signature: str = ""


class Extracted(NamedTuple):
    """A document's text: `body` is what a reader is given, and every span below counts characters of it.

    `headings` are in order of `start`. `atoms` are spans `[start, end)` that a chunk should not cut (code
    blocks, tables, functions), in order and disjoint. `note`: what the report should say of it, though it
    could be read.
    """

    title: str
    body: str
    media_type: str
    headings: tuple[Heading, ...] = ()
    atoms: tuple[tuple[int, int], ...] = ()
    metadata: Mapping[str, JSON] = NO_METADATA
    note: str | None = None
    definitions: tuple[Definition, ...] = ()  # of source code


class Chunk(NamedTuple):
    """A piece of a document: characters `[start, end)` of its body, lines `start_line..end_line` (1-based,
    inclusive).

    `heading` is the path of headings above it, joined with " > " ("" at the top). `text_hash` is the identity
    of what the embedder reads (title, heading path and text): equal hashes share one embedding.
    """

    ordinal: int
    start: int
    end: int
    start_line: int
    end_line: int
    heading: str
    text_hash: bytes


class Document(NamedTuple):
    """A document as the catalog keeps it.
    `id` is a lower-case UUID, stable across rebuilds (`identity.document_id`).
    """

    id: str
    source: str
    source_id: str
    title: str
    body: str
    media_type: str
    updated_ms: int
    fingerprint: str
    content_hash: bytes  # of the bytes read: equal means nothing to do
    source_url: str | None = None
    author: str | None = None
    created_ms: int | None = None
    metadata: Mapping[str, JSON] = NO_METADATA
    definitions: tuple[Definition, ...] = ()  # of source code, in the order of their start


class SourceStatus(NamedTuple):
    """The health of one source. `pending` counts chunks that no embedding covers yet."""

    name: str
    configured: bool
    healthy: bool
    doc_count: int
    chunk_count: int
    pending: int
    last_indexed_ms: int | None
    note: str | None
    revision: str | None = None  # the git commit indexed
    oldest_pending_ms: int | None = None  # when the oldest chunk without an embedding was stored


def oldest_pending_ms(statuses: Iterable[SourceStatus]) -> int | None:
    """When the oldest chunk of all these sources without an embedding was stored."""
    moments = (status.oldest_pending_ms for status in statuses)
    return min((moment for moment in moments if moment is not None), default=None)
