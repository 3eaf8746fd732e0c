"""What crosses rooms on the way from a source into the catalog: an item, what is read of it, its text.

A search has no use for these, and of the other values (ctx/types.py) for nearly all.
"""

from collections.abc import Callable, Mapping

from ctx.lean import NamedTuple
from ctx.types import JSON, NO_METADATA


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
    words.
    """

    start: int
    level: int
    title: str


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
