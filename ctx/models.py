"""The values that packages pass to each other: hits, documents, chunks, items of a source, its status."""

import re
from collections.abc import Callable, Container, Iterable, Mapping
from operator import itemgetter
from types import UnionType
from typing import Any, NamedTuple, TypeGuard, TypeVar

from ctx.clock import iso_utc
from ctx.code.symbols import Definition
from ctx.text.filetypes import is_prose

JSON = Any
"""Any JSON value: None, bool, int, float, str, list, dict with str keys."""

NO_METADATA: Mapping[str, JSON] = {}


def as_table(value: JSON) -> dict[str, JSON]:
    """The value if it is a table, else {}. Checking the configuration reports the error."""
    return value if isinstance(value, dict) else {}


def plain_entries(table: dict[str, JSON]) -> dict[str, JSON]:
    """The entries of a table that are not tables."""
    return {key: value for key, value in table.items() if not isinstance(value, dict)}


def is_number(value: JSON) -> TypeGuard[int | float]:
    """Whether a value is a number. Booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: JSON) -> TypeGuard[int]:
    """Whether a value is an integer. Booleans are not."""
    return isinstance(value, int) and not isinstance(value, bool)


MODES = ("keyword", "semantic", "hybrid")  # by words, by meaning, by both
AUTO = "auto"  # decided by `[retrieval] mode` and the query
COMMITS = "@commits/"  # prefix of the paths of commits; few repositories have such a folder


def source_kind(name: str) -> str:
    """The kind of a source: its name up to the colon."""
    return name.partition(":")[0]


class Filters(NamedTuple):
    """Restricts a search; None means no restriction.

    `sources` are full connector names; `documents` are document numbers that match path and type filters.
    """

    sources: frozenset[str] | None = None
    since_ms: int | None = None  # updated at or after
    until_ms: int | None = None  # updated at or before
    documents: frozenset[int] | None = None

    @property
    def closed(self) -> bool:
        """Whether no document can pass."""
        return (self.sources is not None and not self.sources) or (
            self.documents is not None and not self.documents
        )


class Hit(NamedTuple):
    """A chunk found by an engine. `score` is on the engine's own scale; higher is better.

    An engine may return several neighbouring chunks as one hit: `span` chunks from `chunk_no` on.
    """

    chunk_no: int
    document_no: int
    score: float
    span: int = 1


Span = tuple[int, int, int]
"""Chunks of a document: document number, first chunk number, and the number after the last."""

# the fields of a hit, so that only the best hits become `Hit`s
Fields = TypeVar("Fields", bound="tuple[int, int, float, int]")


def best_first(hits: Iterable[Fields]) -> list[Fields]:
    """The hits by score, equal scores by chunk number; each chunk once, with its best score."""
    best = {hit[0]: hit for hit in sorted(hits, key=itemgetter(2))}
    return sorted(best.values(), key=lambda hit: (-hit[2], hit[0]))


class ChunkRow(NamedTuple):
    """A chunk with the data that a search result needs."""

    chunk_no: int
    document_no: int
    ordinal: int
    start_line: int
    end_line: int
    heading: str
    text: str
    id: str
    source: str
    source_id: str
    title: str
    source_url: str | None
    updated_ms: int
    media_type: str

    @property
    def prose(self) -> bool:
        return is_prose(self.media_type)


class StoredText(NamedTuple):
    """A document's text and where it is from."""

    document_no: int
    id: str
    source: str
    source_id: str
    title: str
    media_type: str
    body: str


class Run(NamedTuple):
    """The result of the last index run of a source."""

    finished_ms: int
    ok: bool
    note: str | None
    revision: str | None
    signature: str
    # The configuration file of the run, relative to the store's folder; None: no file.
    configuration: str | None = None


class Symbol(NamedTuple):
    """A definition in a search result: its qualified name and its lines, which count from 1."""

    name: str
    kind: str
    start_line: int
    end_line: int


class Passage(NamedTuple):
    """A part of a document in a search result. Of code, `snippet` is whole source lines, the first of them
    `start_line`. `highlights` are spans [start, end) of `snippet` that match words of the query.
    """

    snippet: str
    heading: str = ""
    start_line: int = 1
    end_line: int = 1
    highlights: tuple[tuple[int, int], ...] = ()
    symbol: Symbol | None = None


class Copy(NamedTuple):
    """A document with the same text as a result, which is not shown on its own."""

    id: str
    source: str
    source_id: str


class SearchResult(NamedTuple):
    """A document in a search result, with its best passage. `score` is in [0, 1], comparable within one
    reply.

    The fields without a default are required by seed 003. Row, JSON Schema and OpenAPI are made from this
    class (`shapes.py`).
    """

    id: str
    source: str
    source_id: str
    title: str
    score: float
    snippet: str
    source_url: str | None
    updated_ms: int = 0
    heading: str = ""
    start_line: int = 1
    end_line: int = 1
    highlights: tuple[tuple[int, int], ...] = ()
    symbol: Symbol | None = None  # that contains the snippet, in source code
    passages: tuple[Passage, ...] = ()  # further passages, best first, if several per document are requested
    also_in: tuple[Copy, ...] = ()  # lower-ranked documents with the same passage

    @property
    def path(self) -> str:
        """Where the document is in its source: the same as `source_id`."""
        return self.source_id

    @property
    def lines(self) -> tuple[int, int]:
        """The first and last line of the passage; they count from 1."""
        return self.start_line, self.end_line

    def __repr__(self) -> str:
        return f"<{self.path}:{self.start_line}-{self.end_line} {self.score:.2f} {self.title!r}>"


CallProgress = Callable[[float, float | None, str], None]
"""`progress(done, total, message)`: how far a call has come; may be called from any thread."""


class Caller(NamedTuple):
    """Who calls a tool, through which interface, and until when.

    `bank` is set by the interface before any script runs. `deadline_s` is on the clock of `time.monotonic()`.
    """

    door: str  # rest | mcp | stdio | cli | script
    principal: str | None = None
    bank: str | None = None
    bank_fixed: bool = False  # the URL names the bank, so no argument may name another
    session_id: str | None = None
    client: str | None = None  # the name that the client gives itself; None: nothing is logged of it
    request_id: str | None = None
    pack: str | None = None  # the pack's own endpoint or profile through which the call came
    deadline_s: float | None = None
    progress: CallProgress | None = None
    banks: frozenset[str] | None = None  # the banks that the key allows; None: all
    script_depth: int = 0  # nesting depth of calls from scripts

    @property
    def share(self) -> str:
        """Whose quota the call counts against: the key's, else the session's, else that of all anonymous
        callers of the interface.
        """
        return self.principal or self.session_id or self.door

    @property
    def ends_s(self) -> float:
        """When the caller stops waiting; infinity if there is no deadline."""
        return float("inf") if self.deadline_s is None else self.deadline_s


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


# -- records as JSON -----------------------------------------------------------------------------------------

_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean"}
_BOUNDS: Mapping[str, Mapping[str, JSON]] = {"score": {"minimum": 0, "maximum": 1}}


# Only these leave as `source_url`: a connector may give any text, and a page may link it.
_LINK = re.compile(r"(?:https?://|mailto:)[^\x00-\x1f\x7f]+", re.IGNORECASE)


def record_json(record: Any, omit: Container[str] = ()) -> dict[str, JSON]:
    """A named tuple as JSON, without the fields in `omit`.

    A field `updated_ms` becomes `updated_at`, a time in ISO 8601.
    """
    fields = zip(record._fields, record, strict=True)
    return {_json_name(field): _json_value(field, value) for field, value in fields if field not in omit}


def _json_name(field: str) -> str:
    return f"{field[:-3]}_at" if field.endswith("_ms") else field


def _json_value(field: str, value: Any) -> JSON:
    if field.endswith("_ms"):
        return None if value is None else iso_utc(value)
    if field == "source_url":
        return value if value is not None and _LINK.fullmatch(value) else None
    if isinstance(value, float):
        return round(value, 6)
    if hasattr(value, "_fields"):
        return record_json(value)
    return [_json_value("", entry) for entry in value] if isinstance(value, tuple) else value


def record_schema(record: Any, omit: Container[str] = ()) -> dict[str, JSON]:
    """The JSON Schema of `record_json(record, omit)`. A field without a default is required."""
    properties: dict[str, JSON] = {}
    fields = [field for field in record._fields if field not in omit]
    for field in fields:
        annotation = record.__annotations__[field]
        if field.endswith("_ms"):
            annotation = str if annotation is int else str | None
        properties[_json_name(field)] = {**_schema_of(annotation), **_BOUNDS.get(field, {})}
    required = [_json_name(field) for field in fields if field not in record._field_defaults]
    return {"type": "object", "properties": properties, "required": required}


def _schema_of(annotation: Any) -> dict[str, JSON]:
    if annotation in _KINDS:
        return {"type": _KINDS[annotation]}
    if isinstance(annotation, UnionType):
        inner = [part for part in annotation.__args__ if part is not type(None)]
        return {"anyOf": [*map(_schema_of, inner), {"type": "null"}]}
    if hasattr(annotation, "_fields"):
        return record_schema(annotation)
    if annotation.__origin__ is Mapping:
        return {"type": "object"}
    return {"type": "array", "items": _schema_of(annotation.__args__[0])}
