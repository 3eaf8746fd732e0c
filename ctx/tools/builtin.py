"""The built-in tools: search (in a module of its own), get, sources, refresh (seed 003; docs/http-api.md)."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ctx import shapes
from ctx.errors import BadParameter, BadRequest, NotFound
from ctx.identity import document_id
from ctx.items import Document, SourceStatus
from ctx.search import unknown_source
from ctx.store.base import Catalog
from ctx.store.rows import StoredDocument
from ctx.text import spellings
from ctx.tools.base import Annotations, Tool
from ctx.tools.search import READING, TOKEN_CHARS, TOKENS, Searched, search_tool
from ctx.types import JSON, Caller, CallProgress


class Library(Searched, Protocol):
    """What the built-in tools need of a workspace."""

    @property
    def catalog(self) -> Catalog: ...

    def statuses(self) -> Sequence[SourceStatus]: ...

    def refresh(
        self, names: Sequence[str], progress: CallProgress | None = None
    ) -> Sequence[Mapping[str, JSON]]: ...


def builtin_tools(library: Library, final_limit: int) -> list[Tool]:
    """The tools that every workspace has."""
    return [
        search_tool(library, final_limit),
        get_tool(library),
        sources_tool(library),
        refresh_tool(library),
    ]


# -- get -----------------------------------------------------------------------------------------------------


def get_tool(library: Library) -> Tool:
    """`get`: a document, or lines of it, by its id or its place."""

    def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
        stored = _stored(arguments, library)
        answer = _document_json(stored.document)
        if arguments.get("chunks"):
            answer["chunks"] = [
                {"index": chunk.ordinal, "text": stored.document.body[chunk.start : chunk.end]}
                for chunk in stored.chunks
            ]
        return answer | _lines(stored.document.body, arguments)

    text = {"type": "string", "minLength": 1}
    line = {"type": "integer", "minimum": 1}
    return Tool(
        name="get",
        title="Get a document",
        description="Retrieve a full document by ID, or some lines of it",
        parameters={
            "type": "object",
            "properties": {
                "id": {**text, "maxLength": 200, "description": "Document id, as search returned it"},
                "source": {**text, "maxLength": 500, "description": "In place of the id: the source's name"},
                "source_id": {**text, "maxLength": 4096, "description": "With source: the path or id there"},
                "start_line": {**line, "description": "First line wanted, counted from 1"},
                "end_line": {**line, "description": "Last line wanted"},
                "max_tokens": TOKENS,
                "chunks": {"type": "boolean", "description": "Also the chunks that the index has of it"},
            },
            "additionalProperties": False,
        },
        alternatives=(("id",), ("source", "source_id")),
        output_schema=_get_schema(),
        annotations=READING,
        builtin=True,
        bare=True,
        lengthy=True,
        run=run,
    )


def _is_of(stored: StoredDocument, source: str, source_id: str) -> bool:
    """Whether a document has that source and source_id; "" is any."""
    place = (stored.document.source, stored.document.source_id)
    return (source or place[0], source_id or place[1]) == place


def _stored(arguments: dict[str, JSON], library: Library) -> StoredDocument:
    """The document that is asked for; beside an id, source and source_id must be its own.
    Raises `BadRequest`, `NotFound`.
    """
    id, source, source_id = (arguments.get(name, "") for name in ("id", "source", "source_id"))
    if not id and not (source and source_id):
        raise BadRequest("missing required parameter: id (or source and source_id)")
    if id:
        stored = library.catalog.document(id.strip().lower())
        if stored is None or not _is_of(stored, source, source_id):
            raise NotFound(f"no document with id: {id[:80]}")
        return stored
    return _at_place(library, source, source_id)


def _at_place(library: Library, source: str, source_id: str) -> StoredDocument:
    for spelling in spellings(source_id):
        stored = library.catalog.document(document_id(source, spelling))
        if stored is not None:
            return stored
    raise _absence(source, source_id, library.searched_names())


def _absence(source: str, source_id: str, sources: Sequence[str]) -> NotFound:
    if source not in sources:
        return NotFound(unknown_source(source, sources))
    return NotFound(f"no document '{source_id[:200]}' in source '{source[:80]}'")


# What is shown of a document, and as what; the rest of `Document` is nobody's business.
_SHOWN = (
    "id", "source", "source_id", "title", "body", "source_url", "updated_ms", "author", "created_ms",
    "media_type", "metadata",
)  # fmt: skip
_HIDDEN = frozenset(Document._fields) - frozenset(_SHOWN)
_REQUIRED = ("id", "source", "source_id", "title", "body", "source_url", "updated_at")


def _document_json(document: Document) -> dict[str, JSON]:
    row = shapes.row(document, omit=_HIDDEN)
    row["content_type"] = row.pop("media_type")
    return row | {"metadata": dict(document.metadata)}


def _get_schema() -> JSON:
    schema = shapes.schema(Document, omit=_HIDDEN)
    fields = schema["properties"]
    fields["content_type"] = fields.pop("media_type")
    chunk = {"index": {"type": "integer"}, "text": {"type": "string"}}
    fields["chunks"] = {
        "type": "array",
        "items": {"type": "object", "properties": chunk, "required": list(chunk)},
    }
    fields |= {name: {"type": "integer"} for name in ("start_line", "end_line", "total_lines")}
    fields["cut"] = {"type": "string"}
    return schema | {"required": list(_REQUIRED)}


def _line_span(arguments: dict[str, JSON], count: int) -> tuple[int, int]:
    """The first and the last line that are asked for. Raises `BadParameter` for those there are not."""
    first, last = arguments.get("start_line", 1), min(arguments.get("end_line", count), count)
    if first > max(1, count):
        problem = f"must be at most the document's last line, {count}, got {first}"
        raise BadParameter("start_line", problem)
    if last < first and count:
        raise BadParameter("end_line", f"must be at least the first line wanted, {first}, got {last}")
    return first, last


def _lines(body: str, arguments: dict[str, JSON]) -> dict[str, JSON]:
    """The body within the lines and the length asked for, which lines these are, and what was cut."""
    *whole, unended = body.split("\n")  # as the chunks count them; other line ends are none
    lines = [f"{line}\n" for line in whole] + ([unended] if unended else [])
    first, last = _line_span(arguments, len(lines))
    answer: dict[str, JSON] = {}
    max_tokens = arguments.get("max_tokens")
    if max_tokens is not None:
        last, remark = _line_that_fits(lines, first, last, max_tokens * TOKEN_CHARS)
        if remark:
            answer["cut"] = remark
    text = body if (first, last) == (1, len(lines)) else "".join(lines[first - 1 : last])
    if max_tokens is not None and len(text) > max_tokens * TOKEN_CHARS:
        text = text[: max_tokens * TOKEN_CHARS]
        answer["cut"] = f"line {first} is longer than max_tokens = {max_tokens}; its end is left out"
    return answer | {"body": text, "start_line": first, "end_line": last, "total_lines": len(lines)}


def _line_that_fits(lines: Sequence[str], first: int, last: int, room: int) -> tuple[int, str | None]:
    """The last line for which there is room, the first one in any case; and what to tell of those behind
    it.
    """
    for number in range(first, last + 1):
        room -= len(lines[number - 1])
        if room < 0 and number > first:
            return number - 1, f"lines {number} to {last} are left out; go on with start_line = {number}"
    return last, None


# -- sources and refresh -------------------------------------------------------------------------------------


def sources_tool(library: Library) -> Tool:
    """`sources`: what is configured, how healthy it is, how much of it is indexed."""

    def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
        return {"sources": [shapes.row(status) for status in library.statuses()]}

    return Tool(
        name="sources",
        title="List sources",
        description="List configured data sources with their health and document counts",
        parameters={"type": "object", "properties": {}, "additionalProperties": False},
        output_schema={
            "type": "object",
            "properties": {
                "sources": {
                    "type": "array",
                    "items": {
                        **shapes.schema(SourceStatus),
                        "required": ["name", "configured", "healthy", "doc_count"],
                    },
                }
            },
            "required": ["sources"],
        },
        annotations=READING,
        builtin=True,
        bare=True,
        run=run,
    )


def refresh_tool(library: Library) -> Tool:
    """`refresh`: index now, say how far it is to a caller that asks, and what changed."""

    def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
        source = arguments.get("source")
        reports = library.refresh([source] if source else [], caller.progress)
        return {"sources": [dict(report) for report in reports]}

    return Tool(
        name="refresh",
        title="Refresh sources",
        description="Index a source (or all of them) now, without waiting for the watcher or the next poll",
        parameters={
            "type": "object",
            "properties": {
                "source": {"type": "string", "description": "A source's name or type; all when absent"}
            },
            "additionalProperties": False,
        },
        annotations=Annotations(read_only=False, destructive=False, idempotent=True, open_world=True),
        builtin=True,
        run=run,
    )
