"""Values that several packages share. Times are integers: milliseconds since the epoch, UTC.

They are named tuples, not dataclasses, since a scan makes one for each file.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple, TypeGuard, TypeVar

from ctx.text.filetypes import is_prose

JSON = Any
"""Whatever JSON can say: None, bool, int, float, str, list, dict with str keys."""

NO_METADATA: Mapping[str, JSON] = {}


def as_table(value: JSON) -> dict[str, JSON]:
    """A value as a table, empty where it is none: whoever checks the configuration refuses that."""
    return value if isinstance(value, dict) else {}


def plain_entries(table: dict[str, JSON]) -> dict[str, JSON]:
    """The entries of a table that are no tables themselves."""
    return {key: value for key, value in table.items() if not isinstance(value, dict)}


def is_number(value: JSON) -> TypeGuard[int | float]:
    """Whether a value is a number; to Python true and false are some."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: JSON) -> TypeGuard[int]:
    """Whether a value is a whole number, written as one."""
    return isinstance(value, int) and not isinstance(value, bool)


MODES = ("keyword", "semantic", "hybrid")  # the ways to search: by words, by meaning, by both
AUTO = "auto"  # the mode that `[retrieval] mode` and the query decide on
COMMITS = "@commits/"  # how the paths of commits begin: a name that few repositories have


def source_kind(name: str) -> str:
    """The kind of a source: its name up to the colon."""
    return name.partition(":")[0]


class Filters(NamedTuple):
    """What a search is narrowed to; None means no restriction.

    `sources` are full connector names; `documents` numbers of the catalog, as it resolved paths and types to
    them.
    """

    sources: frozenset[str] | None = None
    since_ms: int | None = None  # updated at or after
    until_ms: int | None = None  # updated at or before
    documents: frozenset[int] | None = None

    @property
    def closed(self) -> bool:
        """Whether nothing can pass."""
        return (self.sources is not None and not self.sources) or (
            self.documents is not None and not self.documents
        )


class Hit(NamedTuple):
    """A chunk as an engine found it. `score` is on the engine's own scale; higher is better.

    An engine may find several neighbouring chunks as one: `chunk_no` is the first of `span`, numbered without
    a gap.
    """

    chunk_no: int
    document_no: int
    score: float
    span: int = 1


Span = tuple[int, int, int]
"""Chunks of a document: its number, that of the first, and the one behind the last."""

Fields = TypeVar("Fields", bound="tuple[int, int, float, int]")  # of a hit, which is made of the best alone


def best_first(hits: Iterable[Fields]) -> list[Fields]:
    """The hits by score, those of equal scores by chunk number; of a chunk that comes several times the
    best.
    """
    best = {hit[0]: hit for hit in sorted(hits, key=itemgetter(2))}
    return sorted(best.values(), key=lambda hit: (-hit[2], hit[0]))


class ChunkRow(NamedTuple):
    """A chunk as a search needs it to answer: where it is, what it says and what document it is of."""

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
    """How the last index run of a source went."""

    finished_ms: int
    ok: bool
    note: str | None
    revision: str | None
    signature: str
    # The file of the configuration that it was run by, by its way from the store's folder; None: by none.
    configuration: str | None = None


class Symbol(NamedTuple):
    """A definition as a search result names it: its qualified name and its lines, which count from 1."""

    name: str
    kind: str
    start_line: int
    end_line: int


class Passage(NamedTuple):
    """A part of a document as a search shows it. Of code, `snippet` is whole source lines, the first of them
    `start_line`. `highlights` are the spans [start, end) of `snippet` that are the query's words.
    """

    snippet: str
    heading: str = ""
    start_line: int = 1
    end_line: int = 1
    highlights: tuple[tuple[int, int], ...] = ()
    symbol: Symbol | None = None


class Copy(NamedTuple):
    """A document that says the same as a result and is not shown on its own."""

    id: str
    source: str
    source_id: str


class SearchResult(NamedTuple):
    """A document as a search answers it, with its best passage. `score` is in [0, 1], comparable within one
    reply.

    The fields without a default are those of seed 003. Row, JSON Schema and OpenAPI follow from this class
    (`shapes.py`).
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
    symbol: Symbol | None = None  # that the snippet is in, in source code
    passages: tuple[Passage, ...] = ()  # further ones, best first, where several of a document are asked for
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
    """Who calls a tool, through which door, and by when an answer is owed.

    `bank` is fixed by the door before any script runs. `deadline_s` is on the clock of `time.monotonic()`.
    """

    door: str  # rest | mcp | stdio | cli | script
    principal: str | None = None
    bank: str | None = None
    bank_fixed: bool = False  # the URL names the bank: no argument may name another
    session_id: str | None = None
    client: str | None = None  # the name that the client gives itself; None: nothing is logged of it
    request_id: str | None = None
    pack: str | None = None  # the pack's own endpoint or profile through which the call came
    deadline_s: float | None = None
    progress: CallProgress | None = None
    banks: frozenset[str] | None = None  # the banks that the key covers; None: no key restricts them
    script_depth: int = 0  # scripts that wait for this call, each for the next

    @property
    def share(self) -> str:
        """Against whose share of a bounded thing the call counts: a key's, else a session's, else that of a
        door's strangers together.
        """
        return self.principal or self.session_id or self.door

    @property
    def ends_s(self) -> float:
        """When nobody waits for the answer any more; infinity where no deadline was given."""
        return float("inf") if self.deadline_s is None else self.deadline_s
