"""The values on the way from a source to the catalog: item, content, extracted text, document and chunks; and
the health of a source.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ctx.code.symbols import Definition
from ctx.models import JSON, NO_METADATA


class Content(NamedTuple):
    """The result of `SourceItem.read()`: bytes (or decoded text) and what the connector knows about them."""

    data: bytes | str
    media_type: str | None = None  # None: found from the name and the bytes
    title: str | None = None  # None: found in the text
    author: str | None = None
    created_ms: int | None = None
    updated_ms: int | None = None  # None: SourceItem.updated_ms
    source_url: str | None = None
    metadata: Mapping[str, JSON] = NO_METADATA


class SourceItem(NamedTuple):
    """An item of a source that can be read.

    `source_id` is unique in its source: for files the path relative to the source's root, with `/`.
    `fingerprint` changes whenever the content may have changed; if it is equal, the item is not read again.
    `read` raises `SourceError`.
    """

    source_id: str
    fingerprint: str
    updated_ms: int
    read: Callable[[], Content]


class Heading(NamedTuple):
    """A heading in an extracted body: the start of its line (characters), its level (1 is the top) and its
    text. Definitions in source code are headings, too, with their signature.
    """

    start: int
    level: int
    title: str
    signature: str = ""


class Extracted(NamedTuple):
    """A document's text. `body` is what readers get; all spans count its characters.

    `headings` are in order of `start`. `atoms` are spans `[start, end)` that a chunk should not split (code
    blocks, tables, functions), in order and disjoint. `note` is a remark for the report.
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
    """A piece of a document: characters `[start, end)` of its body, lines `start_line..end_line` (from 1,
    inclusive).

    `heading` is the path of headings above it, joined with " > " ("" at the top). `text_hash` identifies the
    text for the embedder (title, heading path and text): equal hashes share one embedding.
    """

    ordinal: int
    start: int
    end: int
    start_line: int
    end_line: int
    heading: str
    text_hash: bytes


class Document(NamedTuple):
    """A document as stored in the catalog. `id` is a lower-case UUID, stable across rebuilds
    (`identity.document_id`).
    """

    id: str
    source: str
    source_id: str
    title: str
    body: str
    media_type: str
    updated_ms: int
    fingerprint: str
    content_hash: bytes  # of the content read; if equal, nothing is stored
    source_url: str | None = None
    author: str | None = None
    created_ms: int | None = None
    metadata: Mapping[str, JSON] = NO_METADATA
    definitions: tuple[Definition, ...] = ()  # of source code, by start


class SourceStatus(NamedTuple):
    """The health of a source. `pending` counts chunks without an embedding."""

    name: str
    configured: bool
    healthy: bool
    doc_count: int
    chunk_count: int
    pending: int
    last_indexed_ms: int | None
    note: str | None
    revision: str | None = None  # the indexed git commit
    oldest_pending_ms: int | None = None  # when the oldest of them was stored


def oldest_pending_ms(statuses: Iterable[SourceStatus]) -> int | None:
    """When the oldest chunk without an embedding in any of these sources was stored."""
    moments = (status.oldest_pending_ms for status in statuses)
    return min((moment for moment in moments if moment is not None), default=None)
