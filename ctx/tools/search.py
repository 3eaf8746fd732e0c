"""The tool `search` (docs/http-api.md), which REST, MCP, the command line and Lua all call."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from ctx.clock import parse_ms
from ctx.errors import BadParameter
from ctx.models import AUTO, JSON, MODES, Filters, SearchResult, record_json, record_schema
from ctx.search.searcher import SearchReply
from ctx.text.analyze import MAX_QUERY_CHARS
from ctx.tools.places import Library, resolve_sources, unknown_source
from ctx.tools.toolbox import Tool, document_tool

MAX_QUERY_CHARACTERS = 20_000  # maximum length of a query, enough for a pasted log or traceback
TOKEN_CHARS = 4  # average characters per token of a language model, in English and in code
_NAMED = 3  # maximum globs or types to name in a note
MAX_LIMIT = 100
MAX_OFFSET = 1000
MAX_PER_DOCUMENT = 10


def _one_or_more(description: str) -> JSON:
    """The JSON Schema of a string or a list of strings."""
    text = {"type": "string", "minLength": 1, "maxLength": 500}
    return {"anyOf": [text, {"type": "array", "items": text, "maxItems": 50}], "description": description}


def _date(description: str) -> JSON:
    return {"type": "string", "format": "date-time", "description": f"{description} (ISO 8601)"}


_SOURCE = _one_or_more("Only this source, by name (git:platform) or type (git); or a list of them")

_FILTERS = {
    "type": "object",
    "description": "Narrow the search",
    "properties": {
        "source": _SOURCE,
        "path": _one_or_more(
            "Only paths in a folder (docs) or that match a glob (docs/**/*.md, *.py); or a list of them"
        ),
        "type": _one_or_more(
            "Only prose, only code, or only a media type (text/markdown); or a list of them"
        ),
        "since": _date("Updated at or after this date or time"),
        "until": _date("Updated at or before this date or time"),
    },
    "additionalProperties": False,
}


def text_schema(description: str, most: int = 4096) -> dict[str, JSON]:
    return {"type": "string", "minLength": 1, "maxLength": most, "description": description}


def _count(least: int, most: int, description: str) -> dict[str, JSON]:
    return {"type": "integer", "minimum": least, "maximum": most, "description": description}


TOKENS = _count(50, 1_000_000, "Shorten the reply to about this many tokens")


def search_tool(library: Library, final_limit: int) -> Tool:
    """The tool `search`: finds documents by keyword, by meaning, or both."""
    offset = _count(0, MAX_OFFSET, "Results to skip: the next page begins at limit")
    properties = {
        "query": text_schema("Search query", MAX_QUERY_CHARACTERS),
        "mode": {
            "type": "string",
            "enum": [*MODES, AUTO],
            "default": "keyword",
            "description": "keyword: words and identifiers; semantic: meaning; hybrid: both",
        },
        "limit": {**_count(1, MAX_LIMIT, "Max results"), "default": final_limit},
        "offset": {**offset, "default": 0},
        "source": _SOURCE,
        "filters": _FILTERS,
        "per_document": {**_count(1, MAX_PER_DOCUMENT, "The most passages per document"), "default": 1},
        "max_tokens": TOKENS,
        "prefix": {"type": "boolean", "description": "The last word may be unfinished (search as you type)"},
        "explain": {"type": "boolean", "description": "Show how each result was ranked"},
    }
    return document_tool(
        "search",
        "Search documents",
        "Search indexed documents by keyword, semantic, or hybrid query",
        properties,
        lambda arguments, caller: _search_json(found(library, arguments), arguments.get("max_tokens")),
        required=["query"],
        output_schema={
            "type": "object",
            "properties": {
                "results": {"type": "array", "items": record_schema(SearchResult)},
                "partial": {"type": "string"},
                "note": {"type": "string"},
                "cut": {"type": "string"},
            },
            "required": ["results"],
        },
        bare=True,
    )


def found(library: Library, arguments: Mapping[str, JSON]) -> SearchReply:
    """Runs the query. `arguments` must match the tool's parameters."""
    narrowed = arguments.get("filters", {})
    sources, notes = _sources(arguments, library)
    paths, types = _listed(narrowed.get("path")), _listed(narrowed.get("type"))
    filters = Filters(
        sources=sources,
        since_ms=_moment("since", narrowed.get("since"), end_of_day=False),
        until_ms=_moment("until", narrowed.get("until"), end_of_day=True),
    )
    searcher = library.searcher
    filters = searcher.resolved(filters, paths, types)
    notes += _unknown_types(types) or _unmatched(filters, paths, types)
    per_document = arguments.get("per_document", 1)
    # If only one document is searched, list its passages.
    if filters.documents is not None and len(filters.documents) == 1:
        per_document = max(per_document, min(arguments.get("limit", per_document), MAX_PER_DOCUMENT))
    query = arguments["query"]
    if len(query) > MAX_QUERY_CHARS:
        half = MAX_QUERY_CHARS // 2 - 1
        query = f"{query[:half]}\n{query[-half:]}"  # the last lines of a log usually have the error
    reply = searcher.search(
        query,
        mode=arguments["mode"],
        limit=arguments.get("limit"),
        filters=filters,
        offset=arguments.get("offset", 0),
        per_document=per_document,
        prefix=arguments.get("prefix", False),
        explain=arguments.get("explain", False),
    )
    return reply._replace(note="; ".join(filter(None, [*notes, reply.note])) or None)


def _listed(value: str | list[str] | None) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


def _sources(arguments: Mapping[str, JSON], library: Library) -> tuple[frozenset[str] | None, list[str]]:
    """The full names of the sources to search (None: all), and notes on names that match no source.

    An unknown name is not an error, because a script may name a source that only another machine has. The
    note shows a user who mistyped a name why nothing was found.
    """
    requested = (_listed(arguments.get("source")), _listed(arguments.get("filters", {}).get("source")))
    sources = library.searched_names() if any(requested) else ()
    narrowed: frozenset[str] | None = None
    notes: list[str] = []
    for names in requested:
        notes += [unknown_source(name, sources) for name in names if not resolve_sources([name], sources)]
        chosen = resolve_sources(names, sources)
        if chosen is not None:
            narrowed = chosen if narrowed is None else narrowed & chosen
            if not narrowed and chosen:
                notes.append("no source matches both source and filters.source")
    return narrowed, notes


def _unknown_types(types: Sequence[str]) -> list[str]:
    """Notes on values of the argument `type` that are not known types."""
    return [
        f"type: '{name[:80]}' is neither prose nor code nor a media type such as text/markdown; "
        "the files of one language are a path: *.py"
        for name in types
        if name.strip().lower() not in ("prose", "code") and "/" not in name
    ]


def _unmatched(filters: Filters, paths: Sequence[str], types: Sequence[str]) -> list[str]:
    """A list with one note if no document at all has such a path or type; else empty."""
    if filters.documents is None or filters.documents:
        return []
    kinds = " or ".join(f"'{name[:80]}'" for name in types[:_NAMED])
    if not paths:
        return [f"no document is of type {kinds}"]
    globs = " or ".join(f"'{glob[:80]}'" for glob in paths[:_NAMED])
    return [
        f"no document{f' of type {kinds}' if types else ''} has a path like {globs}: write paths as "
        "in results, from the root of their source"
    ]


def _search_json(reply: SearchReply, max_tokens: int | None = None) -> dict[str, JSON]:
    """The reply in the form that docs/http-api.md specifies, cut to about `max_tokens`."""
    results = [
        record_json(result, [name for name in ("passages", "also_in") if not getattr(result, name)])
        for result in reply.results
    ]
    for row in results:
        for passage in (row, *row.get("passages", ())):
            if passage["symbol"] is None:  # only source code has one
                del passage["symbol"]
    for row, explained in zip(results, reply.explain or (), strict=False):
        row["explain"] = explained
    count = len(results) if max_tokens is None else fitting([len(str(row)) for row in results], max_tokens)
    answer: dict[str, JSON] = {"results": results[:count]}
    if count < len(results):
        answer["cut"] = (
            f"{len(results) - count} of {len(results)} results are left out to stay within max_tokens = "
            f"{max_tokens}; the next one is at offset + {count}"
        )
    if reply.partial:
        answer["partial"] = reply.partial
    if reply.note:
        answer["note"] = reply.note
    return answer


def fitting(lengths: Sequence[int], max_tokens: int | None) -> int:
    """How many texts of these lengths (in characters) fit together into `max_tokens`; at least the first."""
    if max_tokens is None or not lengths:
        return len(lengths)
    return max(1, bisect_right(list(accumulate(lengths)), max_tokens * TOKEN_CHARS))


def _moment(name: str, text: str | None, *, end_of_day: bool) -> int | None:
    if text is None:
        return None
    try:
        return parse_ms(text, end_of_day=end_of_day)
    except ValueError as error:
        raise BadParameter(
            f"filters.{name}", f'must be an ISO 8601 date or time such as 2026-01-31, got "{text[:40]}"'
        ) from error
