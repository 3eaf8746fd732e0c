"""The built-in tools: search, get, sources, refresh (seed 003; docs/http-api.md)."""

from collections.abc import Callable, Mapping, Sequence

from ctx.clock import iso_utc, parse_ms
from ctx.errors import BadRequest, NotFound
from ctx.lean import Protocol
from ctx.search import SearchReply, resolve_sources
from ctx.store.base import Catalog
from ctx.tools.base import Annotations, Tool
from ctx.types import JSON, Caller, Filters, SourceStatus

MODES = ("keyword", "semantic", "hybrid")
MAX_QUERY_CHARACTERS = 4096  # a longer text is a document; chunks are a tenth of it
MAX_LIMIT = 100

_READING = Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)

_FILTERS = {
    "type": "object",
    "description": "Narrow the search",
    "properties": {
        "source": {"type": "string", "description": "A source's name (git:platform) or its type (git)"},
        "since": {
            "type": "string",
            "format": "date-time",
            "description": "Updated at or after this date or time (ISO 8601)",
        },
        "until": {
            "type": "string",
            "format": "date-time",
            "description": "Updated at or before this date or time (ISO 8601)",
        },
    },
    "additionalProperties": False,
}

_RESULT = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "source": {"type": "string"},
        "source_id": {"type": "string"},
        "title": {"type": "string"},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "snippet": {"type": "string"},
        "source_url": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "updated_at": {"type": "string"},
        "heading": {"type": "string"},
        "start_line": {"type": "integer"},
        "end_line": {"type": "integer"},
        "highlights": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    },
    "required": ["id", "source", "source_id", "title", "score", "snippet", "source_url"],
}


class Searches(Protocol):
    """What `search` needs of a Searcher."""

    def search(
        self,
        query: str,
        mode: str = "keyword",
        limit: int | None = None,
        filters: Filters = ...,
        explain: bool = False,
    ) -> SearchReply: ...


def search_tool(
    searcher: Callable[[], Searches], sources: Callable[[], Sequence[str]], final_limit: int
) -> Tool:
    """`search`: documents by keyword, by meaning, or both."""

    def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
        filters = arguments.get("filters", {})
        wanted = arguments.get("source", filters.get("source"))
        chosen = resolve_sources(wanted, sources())
        reply = searcher().search(
            arguments["query"],
            mode=arguments["mode"],
            limit=arguments["limit"],
            filters=Filters(
                sources=chosen,
                since_ms=_moment("since", filters.get("since"), end_of_day=False),
                until_ms=_moment("until", filters.get("until"), end_of_day=True),
            ),
            explain=arguments.get("explain", False),
        )
        answer = search_json(reply)
        if chosen is not None and not chosen:
            # Not an error: a script may name a source that another machine has. But a typing mistake must not pass for "nothing found".
            answer["note"] = f"no source is called '{wanted[:80]}' (known: {', '.join(sources()) or 'none'})"
        return answer

    return Tool(
        name="search",
        title="Search documents",
        description="Search indexed documents by keyword, semantic, or hybrid query",
        parameters={
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "Search query",
                    "minLength": 1,
                    "maxLength": MAX_QUERY_CHARACTERS,
                },
                "mode": {
                    "type": "string",
                    "enum": list(MODES),
                    "default": "keyword",
                    "description": "keyword: words and identifiers; semantic: meaning; hybrid: both",
                },
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_LIMIT,
                    "default": final_limit,
                    "description": "Max results",
                },
                "source": {
                    "type": "string",
                    "description": "Filter by source name (git:platform) or type (git)",
                },
                "filters": _FILTERS,
                "explain": {"type": "boolean", "description": "Say how each result was ranked"},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        output_schema={
            "type": "object",
            "properties": {
                "results": {"type": "array", "items": _RESULT},
                "partial": {"type": "string"},
                "note": {"type": "string"},
            },
            "required": ["results"],
        },
        annotations=_READING,
        builtin=True,
        bare=True,
        run=run,
    )


def search_json(reply: SearchReply) -> JSON:
    """A reply in the shape of seed 003, with what is additive."""
    results = []
    for position, result in enumerate(reply.results):
        row: dict[str, JSON] = {
            "id": result.id,
            "source": result.source,
            "source_id": result.source_id,
            "title": result.title,
            "score": round(result.score, 6),
            "snippet": result.snippet,
            "source_url": result.source_url,
            "updated_at": iso_utc(result.updated_ms),
            "heading": result.heading,
            "start_line": result.start_line,
            "end_line": result.end_line,
            "highlights": [list(span) for span in result.highlights],
        }
        if reply.explain is not None:
            row["explain"] = reply.explain[position]
        results.append(row)
    answer: dict[str, JSON] = {"results": results}
    if reply.partial:
        answer["partial"] = reply.partial
    return answer


def _moment(name: str, text: str | None, *, end_of_day: bool) -> int | None:
    if text is None:
        return None
    try:
        return parse_ms(text, end_of_day=end_of_day)
    except ValueError as error:
        raise BadRequest(
            f"parameter 'filters.{name}' must be an ISO 8601 date or time such as 2026-01-31, got \"{text[:40]}\""
        ) from error


def get_tool(catalog: Callable[[], Catalog]) -> Tool:
    """`get`: a whole document by its id."""

    def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
        stored = catalog().document(arguments["id"].strip().lower())
        if stored is None:
            raise NotFound(f"no document with id: {arguments['id'][:80]}")
        document = stored.document
        return {
            "id": document.id,
            "source": document.source,
            "source_id": document.source_id,
            "title": document.title,
            "body": document.body,
            "source_url": document.source_url,
            "updated_at": iso_utc(document.updated_ms),
            "author": document.author,
            "created_at": None if document.created_ms is None else iso_utc(document.created_ms),
            "content_type": document.media_type,
            "metadata": dict(document.metadata),
            "chunks": [
                {"index": chunk.ordinal, "text": document.body[chunk.start : chunk.end]}
                for chunk in stored.chunks
            ],
        }

    nullable = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    return Tool(
        name="get",
        title="Get a document",
        description="Retrieve a full document by ID",
        parameters={
            "type": "object",
            "properties": {
                "id": {
                    "type": "string",
                    "description": "Document id, as search returned it",
                    "minLength": 1,
                    "maxLength": 200,
                }
            },
            "required": ["id"],
            "additionalProperties": False,
        },
        output_schema={
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "source": {"type": "string"},
                "source_id": {"type": "string"},
                "title": {"type": "string"},
                "body": {"type": "string"},
                "source_url": nullable,
                "updated_at": {"type": "string"},
                "author": nullable,
                "created_at": nullable,
                "content_type": {"type": "string"},
                "metadata": {"type": "object"},
                "chunks": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"index": {"type": "integer"}, "text": {"type": "string"}},
                        "required": ["index", "text"],
                    },
                },
            },
            "required": ["id", "source", "source_id", "title", "body", "source_url", "updated_at"],
        },
        annotations=_READING,
        builtin=True,
        bare=True,
        run=run,
    )


def sources_tool(statuses: Callable[[], Sequence[SourceStatus]]) -> Tool:
    """`sources`: what is configured, how healthy it is, how much of it is indexed."""

    def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
        return {"sources": [source_json(status) for status in statuses()]}

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
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "configured": {"type": "boolean"},
                            "healthy": {"type": "boolean"},
                            "doc_count": {"type": "integer"},
                            "chunk_count": {"type": "integer"},
                            "pending": {"type": "integer"},
                            "oldest_pending_at": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                            "last_indexed_at": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                            "revision": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                        },
                        "required": ["name", "configured", "healthy", "doc_count"],
                    },
                }
            },
            "required": ["sources"],
        },
        annotations=_READING,
        builtin=True,
        bare=True,
        run=run,
    )


def source_json(status: SourceStatus) -> JSON:
    """A source as seed 003 shows it, with what is additive."""
    return {
        "name": status.name,
        "configured": status.configured,
        "healthy": status.healthy,
        "doc_count": status.doc_count,
        "chunk_count": status.chunk_count,
        "pending": status.pending,
        "oldest_pending_at": None if status.oldest_pending_ms is None else iso_utc(status.oldest_pending_ms),
        "last_indexed_at": None if status.last_indexed_ms is None else iso_utc(status.last_indexed_ms),
        "revision": status.revision,
        "note": status.note,
    }


Progress = Callable[[float, float | None, str], None]


def refresh_tool(refresh: Callable[[Sequence[str], Progress | None], Sequence[Mapping[str, JSON]]]) -> Tool:
    """`refresh`: index now, say how far it is to a caller that asks, and what changed."""

    def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
        source = arguments.get("source")
        return {"sources": [dict(report) for report in refresh([source] if source else [], caller.progress)]}

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
