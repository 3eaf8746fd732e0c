"""Find the document that a path means, and the lines or the symbol that may follow the path."""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from ctx.errors import BadRequest, NotFound
from ctx.models import JSON, CallProgress, SourceStatus, document_id
from ctx.search.searcher import Searcher
from ctx.store.base import Catalog, SearchIndex
from ctx.store.record import StoredDocument
from ctx.text.strings import first_few, spellings

MAX_CHILDREN = 40  # maximum files and subfolders of a folder to name in an error
MAX_CANDIDATES = 6  # maximum documents to name in an error
PAGE = 5000  # documents to read from the catalog at a time
_MAX_MARKS = 8
_DRIVE = re.compile(r"\A[A-Za-z]:(?=/)")
_LINES = re.compile(r"(.+?)(?::L?|#L)(\d+)(?:([-:])L?(\d+))?\Z", re.DOTALL)
"""Matches `path:10`, `path:10-40` and, as code hosting sites write it, `path#L10-L40`."""


class Library(Protocol):
    """The parts of a workspace that the built-in tools need."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def index(self) -> SearchIndex: ...

    @property
    def searcher(self) -> Searcher: ...

    def searched_names(self) -> Sequence[str]: ...

    def statuses(self) -> Sequence[SourceStatus]: ...

    def refresh(
        self, names: Sequence[str], progress: CallProgress | None = None
    ) -> Sequence[Mapping[str, JSON]]: ...


class Place(NamedTuple):
    """A document, and the symbol or the lines in it that were requested. Lines count from 1; None means no
    restriction.
    """

    stored: StoredDocument
    symbol: str | None = None
    first: int | None = None
    last: int | None = None


def resolve_sources(names: Sequence[str], known: Iterable[str]) -> frozenset[str] | None:
    """The full names of the sources given by full name (`git:platform`), by type (`git`) or, if neither
    matches, by the name without its type (`platform`). None (no restriction) if `names` is empty. An empty
    set if no source matches, so that the search finds nothing.
    """
    if not names:
        return None
    known = list(known)
    chosen: set[str] = set()
    for name in names:
        full = [each for each in known if each == name or each.startswith(f"{name}:")]
        chosen.update(full or [each for each in known if each.partition(":")[2] == name])
    return frozenset(chosen)


def unknown_source(name: str, known: Sequence[str]) -> str:
    """The error message for an unknown source."""
    return f"no source is called '{name[:80]}' (known: {', '.join(known) or 'none'})"


def place_of(library: Library, text: str, source: str | None = None) -> Place:
    """The document at `path`, `path:10-40`, `path:10` or `path#symbol`. Raises `NotFound`, or `BadRequest` if
    several documents match.
    """
    if places := exact_places(library, text, source):
        return the_only(places, text)
    path, symbol, first, last = _readings(text.strip())[-1]
    end = "/" + path.strip("/")
    ending = [(id, place) for id, place in all_paths(library, source) if place.endswith(end)]
    if len(ending) == 1:
        stored = library.catalog.document(ending[0][0])
        if stored is not None:
            return Place(stored, symbol, first, last)
    if ending:
        names = ", ".join(place for _, place in ending[:MAX_CANDIDATES])
        raise BadRequest(f"'{path[:120]}' matches {len(ending)} paths: {names}; give more of the path")
    raise NotFound(f"no document at '{path[:200]}'; {_near(library, path, source)}")


def exact_places(library: Library, text: str, source: str | None = None) -> list[Place]:
    """The documents at exactly this path, at most one per source."""
    for path, symbol, first, last in _readings(text.strip()):
        if documents := _at_path(library, path, source):
            return [Place(stored, symbol, first, last) for stored in documents]
    return []


def the_only(places: Sequence[Place], text: str) -> Place:
    """The only place in the list. Raises `BadRequest`, which lists the places, if there are several."""
    if len(places) > 1:
        documents = [place.stored.document for place in places]
        names = [f"{each.source} {each.source_id} ({each.id[:8]})" for each in documents]
        raise BadRequest(
            f"'{text[:120]}' matches {len(places)} documents: {first_few(names, MAX_CANDIDATES)}; "
            "give the source too, or an id"
        )
    return places[0]


def _readings(text: str) -> list[tuple[str, str | None, int | None, int | None]]:
    """All ways to read the text, as (path, symbol, first line, last line): as a path, as a path with lines,
    as a path with a symbol, and the same with Windows path separators replaced.
    """
    readings: list[tuple[str, str | None, int | None, int | None]] = [(text, None, None, None)]
    if match := _LINES.match(text):
        if match[3] == ":":  # in `path:3:10` the path itself may end in `:3`
            readings.append((f"{match[1]}:{match[2]}", None, int(match[4]), int(match[4])))
        readings.append((match[1], None, int(match[2]), int(match[4] or match[2])))
    # Each `#` may separate a symbol, because file names and headings may contain `#` too.
    marks = [index for index, char in enumerate(text) if char == "#"][:_MAX_MARKS]
    readings += [(text[:at], text[at + 1 :], None, None) for at in marks if text[:at] and text[at + 1 :]]
    if "::" in text:  # `test_app.py::TestApp::test_get`, as pytest and ctags write it
        path, _, symbol = text.partition("::")
        readings.append((path, symbol.replace("::", "."), None, None))
    if (bare := text.strip("`'\"").removeprefix("file://")) != text:
        readings += _readings(bare)
    if "\\" in text:
        readings += _readings(_DRIVE.sub("", text.replace("\\", "/")))
    return readings


def _sources(library: Library, source: str | None) -> Sequence[str]:
    names = library.searched_names()
    return names if source is None else sorted(resolve_sources([source], names) or ())


def _at_path(library: Library, path: str, source: str | None) -> list[StoredDocument]:
    """The documents at a path. Of an absolute path, folders at the start are left out until there are
    documents.
    """
    parts = path.removeprefix("./").split("/")
    starts = range(len(parts)) if path.startswith(("/", "../")) else range(1)
    for start in starts:
        end = "/".join(parts[start:])
        documents = [document_at(library, name, end) for name in _sources(library, source)]
        if any(documents):
            return [document for document in documents if document is not None]
    return []


def document_at(library: Library, source: str, source_id: str) -> StoredDocument | None:
    """The document with this id in its source, however the accents in the id are encoded."""
    ids = [document_id(source, spelling) for spelling in spellings(source_id)]
    return next(filter(None, map(library.catalog.document, ids)), None)


def all_paths(library: Library, source: str | None = None) -> Iterator[tuple[str, str]]:
    """(id, path) of every document in the sources."""
    names = frozenset(_sources(library, source))
    after = None
    while page := library.catalog.list_documents(after, PAGE):
        yield from ((each.id, each.source_id) for each in page if each.source in names)
        after = (page[-1].source, page[-1].source_id)


def _near(library: Library, path: str, source: str | None) -> str:
    """A hint for the error message about a path without a document."""
    places = [place for _, place in all_paths(library, source)]
    inside = [rest for place in places if (rest := f"/{place}".partition(f"/{path.strip('/')}/")[2])]
    if inside:
        children = Counter(f"{head}{slash}" for head, slash, _ in (rest.partition("/") for rest in inside))
        names = [f"{name} ({count})" if name[-1] == "/" else name for name, count in children.items()]
        return f"that is a folder with {len(inside)} files: {first_few(names, MAX_CHILDREN)}"
    name = path.rsplit("/", 1)[-1].casefold()
    neighbours = [place for place in places if place.rsplit("/", 1)[-1].casefold() == name][:MAX_CANDIDATES]
    neighbours = neighbours or difflib.get_close_matches(path, places[:20_000], 3, 0.6)
    return f"near it: {', '.join(neighbours)}" if neighbours else "search finds paths and words"
