"""What a search answers, as JSON (seed 003; docs/http-api.md): what is behind the tool `search`, of arguments
that fit it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ctx import shapes
from ctx.clock import parse_ms
from ctx.errors import BadParameter
from ctx.kinds import FAMILIES
from ctx.search import Searcher, SearchReply, resolve_sources, unknown_source
from ctx.types import JSON, Filters

if TYPE_CHECKING:  # a shape, and a class less that a search makes

    class Searched(Protocol):
        """What searching needs of a workspace."""

        @property
        def searcher(self) -> Searcher: ...

        def searched_names(self) -> Sequence[str]: ...


MAX_QUERY_CHARACTERS = 4096  # a longer text is a document; chunks are a tenth of it
_NAMED = 3  # globs or types that a note names
TOKEN_CHARS = 4  # of a token of a language model, about, in English and in code


def answer(workspace: "Searched", arguments: Mapping[str, JSON]) -> dict[str, JSON]:
    """The reply to a query in a mode; the other arguments of the tool may be left out."""
    narrowed = arguments.get("filters", {})
    sources, notes = _sources(arguments, workspace)
    paths, types = _listed(narrowed.get("path")), _listed(narrowed.get("type"))
    filters = Filters(
        sources=sources,
        since_ms=_moment("since", narrowed.get("since"), end_of_day=False),
        until_ms=_moment("until", narrowed.get("until"), end_of_day=True),
    )
    searcher = workspace.searcher
    filters = searcher.resolved(filters, paths, types)
    notes += _strange_types(types) or _unfit(filters, paths, types)
    reply = searcher.search(
        arguments["query"],
        mode=arguments["mode"],
        limit=arguments.get("limit"),
        filters=filters,
        offset=arguments.get("offset", 0),
        per_document=arguments.get("per_document", 1),
        prefix=arguments.get("prefix", False),
        explain=arguments.get("explain", False),
    )
    return search_json(reply, notes, arguments.get("max_tokens"))


def _listed(value: str | list[str] | None) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


def _sources(arguments: Mapping[str, JSON], workspace: "Searched") -> tuple[frozenset[str] | None, list[str]]:
    """The full names that a search is narrowed to, None for all; and what to tell of names that nothing has.

    An unknown one is no error: a script may name a source that another machine has. But a typing mistake must
    not pass for "nothing found".
    """
    wanted = (_listed(arguments.get("source")), _listed(arguments.get("filters", {}).get("source")))
    sources = workspace.searched_names() if any(wanted) else ()
    narrowed: frozenset[str] | None = None
    notes: list[str] = []
    for names in wanted:
        notes += [unknown_source(name, sources) for name in names if not resolve_sources([name], sources)]
        chosen = resolve_sources(names, sources)
        if chosen is not None:
            narrowed = chosen if narrowed is None else narrowed & chosen
            if not narrowed and chosen:
                notes.append("source and filters.source have nothing in common")
    return narrowed, notes


def _strange_types(types: Sequence[str]) -> list[str]:
    """What to tell of types that no file can have."""
    return [
        f"type: '{name[:80]}' is neither {' nor '.join(FAMILIES)} nor a media type such as text/markdown; "
        "the files of one language are a path: *.py"
        for name in types
        if name not in FAMILIES and "/" not in name
    ]


def _unfit(filters: Filters, paths: Sequence[str], types: Sequence[str]) -> list[str]:
    """What to tell where no document at all has such a path or type, which otherwise passes for a query that
    finds nothing.
    """
    if filters.documents is None or filters.documents:
        return []
    kinds = " or ".join(f"'{name[:80]}'" for name in types[:_NAMED])
    if not paths:
        return [f"no document is of type {kinds}"]
    globs = " or ".join(f"'{glob[:80]}'" for glob in paths[:_NAMED])
    return [
        f"no document{f' of type {kinds}' if types else ''} has a path like {globs}: paths are those of "
        "results, from the root of their source on, and a folder is docs/ or docs/**"
    ]


def search_json(
    reply: SearchReply, notes: Sequence[str] = (), max_tokens: int | None = None
) -> dict[str, JSON]:
    """A reply in the shape of seed 003, with what is additive; without the results for which `max_tokens` has
    no room.
    """
    results = [shapes.row(result, omit=() if result.passages else ("passages",)) for result in reply.results]
    for row, explained in zip(results, reply.explain or (), strict=False):
        row["explain"] = explained
    count = _fitting(results, max_tokens)
    answer: dict[str, JSON] = {"results": results[:count]}
    if count < len(results):
        answer["cut"] = (
            f"{len(results) - count} of {len(results)} results are left out to stay within max_tokens = "
            f"{max_tokens}; the next one is at offset + {count}"
        )
    if reply.partial:
        answer["partial"] = reply.partial
    if note := "; ".join(filter(None, [*notes, reply.note])):
        answer["note"] = note
    return answer


def _fitting(rows: Sequence[Mapping[str, JSON]], max_tokens: int | None) -> int:
    """How many of the rows fit, the first one in any case."""
    if max_tokens is None:
        return len(rows)
    room = max_tokens * TOKEN_CHARS
    for count, row in enumerate(rows):
        room -= len(str(row))
        if room < 0 and count:
            return count
    return len(rows)


def _moment(name: str, text: str | None, *, end_of_day: bool) -> int | None:
    if text is None:
        return None
    try:
        return parse_ms(text, end_of_day=end_of_day)
    except ValueError as error:
        raise BadParameter(
            f"filters.{name}", f'must be an ISO 8601 date or time such as 2026-01-31, got "{text[:40]}"'
        ) from error
