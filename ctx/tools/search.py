"""The built-in tool that searches (seed 003; docs/http-api.md)."""

from typing import TYPE_CHECKING

from ctx import shapes
from ctx.answers import MAX_QUERY_CHARACTERS, answer
from ctx.tools.base import Annotations, Tool
from ctx.types import JSON, MODES, SearchResult

if TYPE_CHECKING:
    from ctx.answers import Searched

MAX_LIMIT = 100
MAX_OFFSET = 1000  # whoever reads on so far should ask a better question
MAX_PER_DOCUMENT = 10

READING = Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)


def _one_or_more(description: str) -> JSON:
    """The schema of a string or a list of strings."""
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
        "path": _one_or_more("Only paths that fit a glob (docs/**, *.py); or a list of globs"),
        "type": _one_or_more(
            "Only prose, only code, or only a media type (text/markdown); or a list of them"
        ),
        "since": _date("Updated at or after this date or time"),
        "until": _date("Updated at or before this date or time"),
    },
    "additionalProperties": False,
}


def _count(least: int, most: int, description: str) -> dict[str, JSON]:
    return {"type": "integer", "minimum": least, "maximum": most, "description": description}


TOKENS = _count(50, 1_000_000, "Leave out what would make the reply longer than about so many tokens")


def _search_parameters(final_limit: int) -> JSON:
    query = {"type": "string", "minLength": 1, "maxLength": MAX_QUERY_CHARACTERS}
    return {
        "type": "object",
        "properties": {
            "query": {**query, "description": "Search query"},
            "mode": {
                "type": "string",
                "enum": list(MODES),
                "default": "keyword",
                "description": "keyword: words and identifiers; semantic: meaning; hybrid: both",
            },
            "limit": {**_count(1, MAX_LIMIT, "Max results"), "default": final_limit},
            "offset": {
                **_count(0, MAX_OFFSET, "Results to pass over: the next page begins at limit"),
                "default": 0,
            },
            "source": _SOURCE,
            "filters": _FILTERS,
            "per_document": {
                **_count(1, MAX_PER_DOCUMENT, "Passages shown of one document"),
                "default": 1,
            },
            "max_tokens": TOKENS,
            "prefix": {
                "type": "boolean",
                "description": "The last word may be unfinished: for a box that searches while one types",
            },
            "explain": {"type": "boolean", "description": "Say how each result was ranked"},
        },
        "required": ["query"],
        "additionalProperties": False,
    }


def search_tool(workspace: "Searched", final_limit: int) -> Tool:
    """`search`: documents by keyword, by meaning, or both."""

    return Tool(
        name="search",
        title="Search documents",
        description="Search indexed documents by keyword, semantic, or hybrid query",
        parameters=_search_parameters(final_limit),
        output_schema={
            "type": "object",
            "properties": {
                "results": {"type": "array", "items": shapes.schema(SearchResult)},
                "partial": {"type": "string"},
                "note": {"type": "string"},
                "cut": {"type": "string"},
            },
            "required": ["results"],
        },
        annotations=READING,
        builtin=True,
        bare=True,
        run=lambda arguments, caller: answer(workspace, arguments),
    )
