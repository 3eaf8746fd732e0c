"""The value types that the packages share: hits, documents, chunks, and the items and status of a source; and
their ids and hashes.
"""

import hashlib
import re
import uuid
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
    """The value if it is a table, else {}. The check of the configuration reports the wrong type."""
    return value if isinstance(value, dict) else {}


def plain_entries(table: dict[str, JSON]) -> dict[str, JSON]:
    """The entries of a table that are not tables."""
    return {key: value for key, value in table.items() if not isinstance(value, dict)}


def is_number(value: JSON) -> TypeGuard[int | float]:
    """Whether a value is a number and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: JSON) -> TypeGuard[int]:
    """Whether a value is an integer and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


MODES = ("keyword", "semantic", "hybrid")  # search by words, by meaning, or by both
AUTO = "auto"  # `[retrieval] mode` and the query decide the mode
COMMITS = "@commits/"  # the path prefix of commits; few repositories have a folder of this name

# A valid name of a memory bank (a named set of memories). An e-mail address is valid; `.` and `..` are not.
BANK = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.@:+-]{1,128}")
BANK_RULE = "1 to 128 of A-Z a-z 0-9 _ . @ : + -"
OWN_BANK = "pack:"  # the prefix of the banks that belong to packs; no caller can name such a bank
RESERVED_BANKS = frozenset({"tools", "sse", "messages"})  # other systems use these path segments below /mcp

TEXT_HASH_BYTES = 16  # a collision becomes likely only at 2**64 texts


def source_kind(name: str) -> str:
    """The kind of a source, which is its name up to the colon: `git` for `git:docs`."""
    return name.partition(":")[0]


class Filters(NamedTuple):
    """The filters of a search. None means no restriction.

    `sources` are full names of sources. `documents` are the numbers of the documents that match the path and
    type filters.
    """

    sources: frozenset[str] | None = None
    since_ms: int | None = None  # only documents updated at or after this time
    until_ms: int | None = None  # only documents updated at or before this time
    documents: frozenset[int] | None = None

    @property
    def closed(self) -> bool:
        """Whether no document can pass the filters."""
        return frozenset() in (self.sources, self.documents)


class Hit(NamedTuple):
    """A chunk that a search engine found. `score` is on the engine's own scale; higher is better.

    A hit may cover several neighbouring chunks: `span` chunks from `chunk_no` on.
    """

    chunk_no: int
    document_no: int
    score: float
    span: int = 1


# The fields of a hit as a plain tuple. Only the best hits are converted to `Hit`.
Fields = TypeVar("Fields", bound="tuple[int, int, float, int]")


def best_first(hits: Iterable[Fields]) -> list[Fields]:
    """The hits sorted by score, best first; hits with equal scores by chunk number. Each chunk occurs once,
    with its best score.
    """
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
    """A document's text, with its id, source, path, title and media type."""

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
    # The configuration file that the run used, relative to the store's folder; None if there was no file.
    configuration: str | None = None


class Symbol(NamedTuple):
    """A definition in a search result: its qualified name and its lines, which count from 1."""

    name: str
    kind: str
    start_line: int
    end_line: int

    @classmethod
    def of(cls, definition: Definition) -> "Symbol":
        return cls(definition.qualified, definition.kind, definition.start_line, definition.end_line)


class Passage(NamedTuple):
    """A part of a document in a search result. In source code, `snippet` consists of whole lines, beginning
    with line `start_line`. `highlights` are spans [start, end) of characters in `snippet` that match words of
    the query.
    """

    snippet: str
    heading: str = ""
    start_line: int = 1
    end_line: int = 1
    highlights: tuple[tuple[int, int], ...] = ()
    symbol: Symbol | None = None


class Copy(NamedTuple):
    """A document with the same text as a search result. It is listed with that result instead of
    separately.
    """

    id: str
    source: str
    source_id: str


class SearchResult(NamedTuple):
    """A document that a search found, with its best passage. `score` is in [0, 1] and comparable within one
    reply.

    The fields without a default are required by the REST contract. The JSON, the JSON Schema and the OpenAPI
    description of a result are generated from this class.
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
    symbol: Symbol | None = None  # the definition that contains the snippet, in source code
    passages: tuple[Passage, ...] = ()  # further passages, best first, if more than one is requested
    also_in: tuple[Copy, ...] = ()  # lower-ranked documents with the same passage

    @property
    def path(self) -> str:
        """The path of the document in its source; the same as `source_id`."""
        return self.source_id

    @property
    def lines(self) -> tuple[int, int]:
        """(first line, last line) of the passage; lines count from 1."""
        return self.start_line, self.end_line

    def __repr__(self) -> str:
        return f"<{self.path}:{self.start_line}-{self.end_line} {self.score:.2f} {self.title!r}>"


CallProgress = Callable[[float, float | None, str], None]
"""`progress(done, total, message)` reports the progress of a call. It may be called from any thread."""


class Caller(NamedTuple):
    """The caller of a tool: the interface, the identity, the memory bank and the deadline.

    The interface sets `bank` before any script runs. `deadline_s` is a time on the clock of
    `time.monotonic()`.
    """

    interface: str  # rest | mcp | stdio | cli | script
    principal: str | None = None
    bank: str | None = None
    bank_fixed: bool = False  # the URL names the bank, so no argument may name another
    session_id: str | None = None
    client: str | None = None  # the name that the client gives itself; None: its calls are not logged
    request_id: str | None = None
    pack: str | None = None  # the pack whose own endpoint or profile received the call
    deadline_s: float | None = None
    progress: CallProgress | None = None
    banks: frozenset[str] | None = None  # the banks that the key allows; None: all banks
    script_depth: int = 0  # nesting depth of calls from scripts

    @property
    def share(self) -> str:
        """The name of the quota that the call counts against: the key's, else the session's, else the quota
        that all anonymous callers of the interface share.
        """
        return self.principal or self.session_id or self.interface

    @property
    def ends_s(self) -> float:
        """The time (on the clock of `time.monotonic()`) when the caller stops waiting; infinity if there is
        no deadline.
        """
        return float("inf") if self.deadline_s is None else self.deadline_s


class Content(NamedTuple):
    """The result of `SourceItem.read()`: bytes or decoded text, and metadata from the connector."""

    data: bytes | str
    media_type: str | None = None  # None: it is detected from the name and the bytes
    title: str | None = None  # None: it is taken from the text
    author: str | None = None
    created_ms: int | None = None
    updated_ms: int | None = None  # None: `SourceItem.updated_ms` is used
    source_url: str | None = None
    metadata: Mapping[str, JSON] = NO_METADATA


class SourceItem(NamedTuple):
    """An item that a source offers for indexing, such as a file.

    `source_id` is unique in the source; for a file it is the path relative to the source's root, with `/`.
    `fingerprint` changes whenever the content may have changed. If it is unchanged, the item is not read
    again. `read` raises `SourceError`.
    """

    source_id: str
    fingerprint: str
    updated_ms: int
    read: Callable[[], Content]


class Heading(NamedTuple):
    """A heading in an extracted body. `start` is the index of the first character of its line, and `level` 1
    is the top level. Definitions in source code are headings, too, and have a `signature`.
    """

    start: int
    level: int
    title: str
    signature: str = ""


class Extracted(NamedTuple):
    """The text that was extracted from an item. `body` is the document's text; all spans are character
    indexes in it.

    `headings` are in order of `start`. `atoms` are spans `[start, end)` that a chunk should not split, such
    as code blocks, tables and functions; they are in order and do not overlap. `note` is a remark for the
    report of the run.
    """

    title: str
    body: str
    media_type: str
    headings: tuple[Heading, ...] = ()
    atoms: tuple[tuple[int, int], ...] = ()
    metadata: Mapping[str, JSON] = NO_METADATA
    note: str | None = None
    definitions: tuple[Definition, ...] = ()  # the definitions in source code


class Chunk(NamedTuple):
    """A piece of a document: the characters `[start, end)` of its body, which are in the lines `start_line`
    to `end_line` (both inclusive, from 1).

    `heading` is the path of the headings above the chunk, joined with " > ", or "" without any. `text_hash`
    identifies the text to embed (title, heading path and text). Chunks with equal hashes share one embedding.
    """

    ordinal: int
    start: int
    end: int
    start_line: int
    end_line: int
    heading: str
    text_hash: bytes


class Document(NamedTuple):
    """A document as stored in the catalog. `id` is a lower-case UUID that a rebuild does not change
    (`document_id`).
    """

    id: str
    source: str
    source_id: str
    title: str
    body: str
    media_type: str
    updated_ms: int
    fingerprint: str
    content_hash: bytes  # a hash of the content that was read; if it is unchanged, nothing is stored
    source_url: str | None = None
    author: str | None = None
    created_ms: int | None = None
    metadata: Mapping[str, JSON] = NO_METADATA
    definitions: tuple[Definition, ...] = ()  # the definitions in source code, in the order of the text


class SourceStatus(NamedTuple):
    """The status of a source. `pending` is the number of chunks without an embedding."""

    name: str
    configured: bool
    healthy: bool
    doc_count: int
    chunk_count: int
    pending: int
    last_indexed_ms: int | None
    note: str | None
    revision: str | None = None  # the indexed git commit
    oldest_pending_ms: int | None = None  # the time when the oldest pending chunk was stored


def oldest_pending_ms(statuses: Iterable[SourceStatus]) -> int | None:
    """The time when the oldest pending chunk of these sources was stored; None if no chunk is pending."""
    moments = (status.oldest_pending_ms for status in statuses)
    return min((moment for moment in moments if moment is not None), default=None)


# -- ids and hashes, which stay the same after a rebuild -----------------------------------------------------


def document_id(source: str, source_id: str) -> str:
    """The id of a document, a UUID that depends only on the source's name and the document's `source_id`."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{source}\0{source_id}"))


def embedding_text(title: str, heading: str, text: str) -> str:
    """The text to embed for a chunk: the title and headings, then the chunk's text. The headings come first,
    because the text often does not name its subject.
    """
    head = title if not heading or heading == title else f"{title} > {heading}"
    return f"{head}\n{text}" if head else text


def outline(value: object, digits: int = 16) -> str:
    """A short hash of a value's `repr`, used to detect a changed configuration."""
    return digest(repr(value).encode("utf-8", "surrogateescape"), digits)


def digest(content: bytes, digits: int) -> str:
    """The first `digits` hexadecimal digits of the SHA-256 of `content`."""
    return hashlib.sha256(content).hexdigest()[:digits]


def text_hash(text: str) -> bytes:
    """A hash of 16 bytes that identifies a text to embed."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:TEXT_HASH_BYTES]


# -- records as JSON -----------------------------------------------------------------------------------------

_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean"}
_BOUNDS: Mapping[str, Mapping[str, JSON]] = {"score": {"minimum": 0, "maximum": 1}}


# Only such URLs are returned as `source_url`. A connector may set any text, and a web page may link it.
_LINK = re.compile(r"(?:https?://|mailto:)[^\x00-\x1f\x7f]+", re.IGNORECASE)


def record_json(record: Any, omit: Container[str] = ()) -> dict[str, JSON]:
    """A named tuple as a JSON object, without the fields in `omit`.

    A field whose name ends in `_ms` becomes a time in ISO 8601: `updated_ms` becomes `updated_at`.
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
