"""Choose the passage of each document to show, and explain its rank (docs/ranking.md)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ctx.code.outline import enclosing
from ctx.code.symbols import Definition
from ctx.embed import Embedder
from ctx.models import JSON, ChunkRow, Filters, Hit, Passage, SearchResult, Symbol
from ctx.search import boosts, fusion
from ctx.search.markup import is_bare
from ctx.search.snippets import Matcher, Terms
from ctx.store.base import Catalog
from ctx.text.filetypes import is_code

if TYPE_CHECKING:  # numpy takes 70 ms to import
    import numpy as np

# If one passage per document is shown: how many of its best keyword hits and semantic hits to compare.
_PASSAGES, _NEAREST = 1, 2
# Bonus for a chunk that defines the name in the query, as large as that for having all its words.
_DEFINING_SHARE = 1.0
_PHRASE_SHARE = 1.0  # bonus for a chunk that has the query, or a quoted part of it, word for word
# Among prose chunks with about equal scores, prefer the first of a section: it introduces the topic.
_OPENING_SHARE = 0.03
_OPENING_READ = 64  # maximum chunks to look back for the start of a section (about thirty pages)
_FURTHER_SHARE = 0.5  # a further passage is shown only above this share of the best passage's score
# Maximum characters of a prose chunk with its neighbours: the size of a passage in the index.
_SECTION_CHARS = 2200
# Maximum chunks to read of a document that changed after it was indexed: a hundred pages.
_REWRITTEN_READ = 200


class QueryVector:
    """The vector of a question and its model. `values()`, computed at its first call, is of unit length, as
    float32 of shape (dim,); it raises `EmbedderError`.
    """

    def __init__(self, embedder: Embedder, question: str) -> None:
        self.model = embedder.model
        self.values: Callable[[], np.ndarray] = cache(partial(embedder.embed_query, question))


class Request(NamedTuple):
    """A search request, prepared for the indexes."""

    # The query with misspelt words corrected. The vector is that of the original query, because a model
    # tolerates typos.
    query: str
    mode: str
    filters: Filters
    prefix: bool
    exact: bool
    vector: QueryVector | None
    question: boosts.Question
    matcher: Matcher
    per_document: int  # passages to show per document


class Leg(NamedTuple):
    """The result of one index (keyword or vector): all hits by document number, and one hit per document,
    best first.
    """

    hits: dict[int, list[Hit]]
    documents: list[Hit]
    exhausted: bool  # whether a larger depth would find no more hits

    @property
    def ranked(self) -> fusion.Leg:
        return [(hit.document_no, hit.score) for hit in self.documents]


NO_LEG = Leg({}, [], True)


class Stage(NamedTuple):
    """The ranking for one depth, with the two rankings it was fused from."""

    ranked: fusion.Leg
    keyword: Leg
    semantic: Leg
    alpha: float  # the weight of semantic search, in [0, 1]
    rulings: dict[int, boosts.Ruling]


class Choice(NamedTuple):
    """A chunk that may be shown, its score, the query terms in its text or heading, and the query terms in
    its text alone.
    """

    row: ChunkRow
    worth: float
    terms: Terms
    text_terms: Terms


class Rows:
    """A cache of the catalog's rows for one search."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._rows: dict[int, ChunkRow] = {}
        self._definitions: dict[int, Sequence[Definition]] = {}

    def read(self, chunk_nos: Sequence[int]) -> list[ChunkRow]:
        """The chunks with these numbers that exist. Those that are not in the cache yet are read."""
        unread = [no for no in chunk_nos if no not in self._rows]
        if unread:
            self._rows.update(self.catalog.chunk_rows(unread))
        return [self._rows[no] for no in chunk_nos if no in self._rows]

    def of(self, document_no: int, chunk_no: int) -> ChunkRow | None:
        """The chunk with this number, or None if it was not read or belongs to another document."""
        row = self._rows.get(chunk_no)
        return row if row is not None and row.document_no == document_no else None

    def listed(self, document_no: int, hits: Sequence[Hit]) -> list[ChunkRow]:
        """The chunks that these hits cover and that belong to the document, without duplicates."""
        spans = (range(hit.chunk_no, hit.chunk_no + hit.span) for hit in hits)
        rows = (self.of(document_no, chunk_no) for chunk_no in dict.fromkeys(chain.from_iterable(spans)))
        return [row for row in rows if row is not None]

    def read_definitions(self, document_nos: Sequence[int]) -> None:
        """Reads the definitions of the documents that are not in the cache yet."""
        unread = [no for no in document_nos if no not in self._definitions]
        if unread:
            self._definitions.update(dict.fromkeys(unread, ()))
            self._definitions.update(self.catalog.definitions_of(unread))

    def definitions(self, document_no: int) -> Sequence[Definition]:
        """The definitions in a document, which are read if they are not in the cache."""
        self.read_definitions([document_no])
        return self._definitions[document_no]


def hits_of(numbers: Iterable[int], stage: Stage, request: Request) -> dict[int, list[Hit]]:
    """The hits to compare when choosing each document's passage: its best keyword passages, its nearest
    chunks, and the passage that defines the name.
    """
    passages: int | None = _PASSAGES if request.per_document == 1 else request.per_document + 1
    nearest = _NEAREST if request.per_document == 1 else request.per_document + 1
    by_words, by_meaning = stage.keyword.hits, stage.semantic.hits
    defining = request.question.definitions
    hits: dict[int, list[Hit]] = {}
    if request.exact:  # any passage may have the quoted words
        passages = None
    for number in numbers:
        hits[number] = by_words[number][:passages] if number in by_words else []
        if number in by_meaning:
            hits[number] += by_meaning[number][:nearest]
        if number in defining:
            hits[number].append(defining[number])
    return hits


def chunks_to_read(hits: Mapping[int, Sequence[Hit]], profiles: boosts.Profiles) -> list[int]:
    """The numbers of the chunks to read: those that may be shown and, in prose, their neighbours, which may
    be shown with them.
    """
    chunk_nos: set[int] = set()
    for number, passages in hits.items():
        profile = profiles.known(number)
        reach = 1 if profile is boosts.UNKNOWN or profile.prose else 0
        for hit in passages:
            chunk_nos.update(range(hit.chunk_no - reach, hit.chunk_no + hit.span + reach))
    return sorted(chunk_nos)


def choices_of(number: int, hits: Sequence[Hit], stage: Stage, rows: Rows, request: Request) -> list[Choice]:
    """The chunks of a document that may be shown, best first.

    A chunk scores by the query's words in it (rare words count more) and by its semantic similarity, weighted
    as in the fusion. A definition of the name in the query adds to the score. A chunk that is only a heading,
    front matter or a label is replaced by the next chunk. If only a heading or the title has the words, the
    start of that section is preferred.
    """
    chunks = rows.listed(number, hits)
    if not _has_exactly(chunks, request.matcher):
        return []
    choices = _weighed(number, chunks, rows, stage, request)
    opening = _opening(number, choices[0], rows, request.matcher)
    if opening is not None:
        (choice,) = _weighed(number, [opening], rows, stage, request)
        raised = choice._replace(worth=choice.worth + _OPENING_SHARE)
        further = [choice for choice in choices if choice.row is not opening]
        choices = sorted([raised, *further], key=_worth, reverse=True)
    return _without_bare(number, choices, rows)


def _has_exactly(chunks: Sequence[ChunkRow], matcher: Matcher) -> bool:
    """Whether there are chunks and, for a query with quoted words, whether they contain these words as
    written.
    """
    if not chunks or not matcher.exact:
        return bool(chunks)
    heads = dict.fromkeys(f"{row.title}\n{row.source_id}\n{row.heading}" for row in chunks)
    return matcher.has_exactly("\n".join([*(row.text for row in chunks), *heads]))


def _weighed(
    number: int, chunks: Iterable[ChunkRow], rows: Rows, stage: Stage, request: Request
) -> list[Choice]:
    """The chunks of a document with their scores, best first. Chunks with equal scores keep their order."""
    matcher = request.matcher
    nearness = _nearness(stage.semantic, number) if stage.alpha else {}
    names = request.question.names if number in request.question.definitions else ()
    lines = _lines_defining(names, rows.definitions(number)) if names else []
    choices = []
    for row in chunks:
        text_terms = matcher.terms_in(row.text)
        terms = text_terms | matcher.terms_in(row.heading)
        worth = (1.0 - stage.alpha) * matcher.shares[terms] + stage.alpha * nearness.get(row.chunk_no, 0.0)
        if any(row.start_line <= line <= row.end_line for line in lines):
            worth += _DEFINING_SHARE
        if matcher.verbatim and matcher.quotes(row.text, text_terms):
            worth += _PHRASE_SHARE
        if row.prose and matcher.is_whole(row.heading.rpartition(" > ")[2]):
            worth += _DEFINING_SHARE
        if row.heading and row.text.lstrip("# ").startswith(row.heading.rpartition(" > ")[2]):
            worth += _OPENING_SHARE
        choices.append(Choice(row, worth, terms, text_terms))
    return sorted(choices, key=_worth, reverse=True)


def _opening(number: int, choice: Choice, rows: Rows, matcher: Matcher) -> ChunkRow | None:
    """The start of the section whose heading has query words that this chunk lacks, or the start of the
    document if only its title has such words. None if the start is this chunk itself or is too far above.

    Needed because the index returns the shortest chunk under a heading, which says the least about the
    heading's topic.
    """
    row, heading_terms = choice.row, choice.terms & ~choice.text_terms
    if not row.ordinal or (choice.text_terms and not heading_terms):
        return None
    section = ""
    if heading_terms:
        parts = row.heading.split(" > ")
        depth = max(
            (i for i, part in enumerate(parts, 1) if matcher.terms_in(part) & heading_terms),
            default=0,
        )
        section = " > ".join(parts[:depth])
    elif not matcher.terms_in(row.title):
        return None
    opening = _first_of(number, section, row, rows)
    # Skip a chunk of code without a heading. It comes before the file's first definition and is a licence or
    # imports.
    if opening is not None and (is_bare(opening) or not (opening.prose or opening.heading)):
        opening = rows.of(number, opening.chunk_no + 1)
    return None if opening is row else opening


def _first_of(number: int, section: str, row: ChunkRow, rows: Rows) -> ChunkRow | None:
    """The first chunk of the section `section` (a heading path; "" is the whole document) that contains
    `row`.
    """
    first_no = row.chunk_no - row.ordinal
    if not section:
        rows.read([first_no, first_no + 1])
        return rows.of(number, first_no)
    low = max(first_no, row.chunk_no - _OPENING_READ)
    first = row
    for chunk_no in range(row.chunk_no - 1, low - 1, -1):
        above = rows.of(number, chunk_no)
        # Only the neighbouring chunk was read so far.
        if above is None and first.chunk_no >= row.chunk_no - 1:
            rows.read(range(low, chunk_no + 1))
            above = rows.of(number, chunk_no)
        if above is None or not (above.heading == section or above.heading.startswith(f"{section} > ")):
            return first
        first = above
    return first if low == first_no else None


_worth = attrgetter("worth")


def _without_bare(number: int, choices: list[Choice], rows: Rows) -> list[Choice]:
    """The choices; a bare one at the front (see `is_bare`) is replaced by the next chunk, or moved to the
    end.
    """
    last: list[Choice] = []
    while choices and is_bare(choices[0].row):
        choice = choices.pop(0)
        follower = rows.of(number, choice.row.chunk_no + 1)
        met = any(follower is each.row for each in choices)
        if follower is None or met or is_bare(follower):
            last.append(choice)
        else:
            return [choice._replace(row=follower), *choices, *last]
    return [*choices, *last]


def _nearness(leg: Leg, number: int) -> dict[int, float]:
    """Chunk number -> semantic similarity, scaled to [0, 1] over all hits."""
    hits = leg.hits.get(number)
    if not hits:
        return {}
    high, low = leg.documents[0].score, leg.documents[-1].score
    width = high - low
    return {hit.chunk_no: (hit.score - low) / width if width > 0 else 1.0 for hit in hits}


def _lines_defining(names: Sequence[str], definitions: Sequence[Definition]) -> list[int]:
    """The lines where one of the names is defined. `empty` also finds Ruby's `empty?`, and `save` finds
    `save!`.
    """
    return [each.name_line for each in definitions if each.name in names or each.name.rstrip("?!=") in names]


def rewritten(number: int, stage: Stage, rows: Rows, request: Request) -> list[Choice]:
    """The chunks of a document that changed after the index was published, read from its current text, best
    first.

    Without this, the document would be missing while its source is being indexed. The list is empty if the
    document no longer has the query's words.
    """
    chunks = rows.read(rows.catalog.chunks_of(number)[:_REWRITTEN_READ])
    if not _has_exactly(chunks, request.matcher):
        return []
    choices = []
    for row in chunks:
        terms = request.matcher.terms_in(f"{row.heading}\n{row.text}")
        choices.append(Choice(row, request.matcher.shares[terms], terms, terms))
    choices.sort(key=_worth, reverse=True)
    row = choices[0].row
    by_words = number not in stage.semantic.hits
    if by_words and not choices[0].terms and not request.matcher.terms_in(f"{row.title} {row.source_id}"):
        return []
    return choices


def share_of_best(request: Request, choices: list[Choice]) -> float:
    """The score to show for the best result. For keyword search, it is the share of the query's terms that
    the result has, because BM25 has no maximum; else it is 1.
    """
    if request.mode != "keyword":
        return 1.0
    return max(1, len(_terms_of(choices, request))) / max(1, len(request.matcher.terms))


def _terms_of(choices: list[Choice], request: Request) -> list[str]:
    """The query terms in the chunks, the title or the path, in the query's order."""
    row = choices[0].row
    terms = request.matcher.terms_in(f"{row.title} {row.source_id}")
    for choice in choices:
        terms |= choice.terms
    return request.matcher.listed(terms)


_Section = tuple[ChunkRow, str, int, int]
"""A chunk to show, the text after it in its section, and the first and last line to show for it."""


def results_of(
    request: Request, answers: Sequence[tuple[float, list[Choice]]], rows: Rows
) -> list[SearchResult]:
    """The search results: each document with its best passage and, if asked for, more passages."""
    results = []
    numbers = [choices[0].row.document_no for _, choices in answers if is_code(choices[0].row.media_type)]
    rows.read_definitions(numbers)
    for score, choices in answers:
        row, sections = choices[0].row, _sections(choices, request.per_document, rows)
        passages = [_passage(section, request, rows) for section in sections]
        first, title = passages[0], row.title
        if not row.prose and title == row.source_id.rpartition("/")[2].rpartition(".")[0]:
            title = row.source_id  # use the whole path, because a bare file name says little
        results.append(
            SearchResult(
                row.id,
                row.source,
                row.source_id,
                title,
                score,
                first.snippet,
                row.source_url,
                row.updated_ms,
                *first[1:],  # heading, start_line, end_line, highlights, symbol
                tuple(passages[1:]),
            )
        )
    return results


def _passage(section: _Section, request: Request, rows: Rows) -> Passage:
    (row, further, start_line, end_line), matcher = section, request.matcher
    if row.prose:
        snippet, highlights = matcher.snippet(row, further)
        return Passage(snippet, row.heading, start_line, end_line, highlights)
    definitions = rows.definitions(row.document_no)
    first, lines, best = matcher.source_lines(row, _lines_defining(request.question.names, definitions))
    snippet = "\n".join(lines)
    highlights = tuple((start, end) for start, end, _ in matcher.marks(snippet))
    definition = enclosing(definitions, best)
    symbol = Symbol.of(definition) if definition else None
    return Passage(snippet, row.heading, first, first + len(lines) - 1, highlights, symbol)


def _sections(choices: Sequence[Choice], count: int, rows: Rows) -> list[_Section]:
    """At most `count` sections of a document that do not overlap."""
    sections = [_section(choices[0].row, rows)]
    if count == 1:
        return sections
    threshold = max(choices[0].worth * _FURTHER_SHARE, 1e-9)
    for choice in choices[1:]:
        if len(sections) == count or choice.worth < threshold:
            break
        if not any(start <= choice.row.start_line <= end for _, _, start, end in sections):
            sections.append(_section(choice.row, rows))
    return sections


def _section(row: ChunkRow, rows: Rows) -> _Section:
    """A chunk and, in prose, its neighbours under the same heading, because a section is read as a whole."""
    if not row.prose:
        return row, "", row.start_line, row.end_line
    chunk, first, last, further = row, row, row, ""
    number, chunk_no, heading, text = row.document_no, row.chunk_no, row.heading, row.text
    room = _SECTION_CHARS - len(text)
    before, after = rows.of(number, chunk_no - 1), rows.of(number, chunk_no + 1)
    if before is not None and before.heading == heading and len(before.text) <= room:
        first, room = before, room - len(before.text)
    if after is not None and after.heading == heading:
        if len(after.text) <= room:
            last, further = after, after.text
        if text.rstrip().endswith(":"):  # it introduces the next chunk
            chunk, further = row._replace(text=f"{text}\n{after.text}"), ""
    return chunk, further, first.start_line, last.end_line


def explanation_of(number: int, score: float, stage: Stage, choices: list[Choice], request: Request) -> JSON:
    explanation: dict[str, JSON] = {"score": round(score, 6)}
    for name, leg in (("keyword", stage.keyword), ("semantic", stage.semantic)):
        for rank, hit in enumerate(leg.documents, 1):
            if hit.document_no == number:
                explanation[name] = {"rank": rank, "score": round(hit.score, 6)}
                break
    if stage.keyword.documents and stage.semantic.documents:
        explanation["semantic_weight"] = round(stage.alpha, 3)
    if request.mode != "semantic":
        explanation["wanted"] = request.question.wanted
    ruling = stage.rulings.get(number)
    if ruling is not None:
        changes = {"path": round(ruling.path, 3), "definition": ruling.definition}
        explanation["rules"] = {name: value for name, value in changes.items() if value}
        if ruling.role is not None:
            explanation["rules"][ruling.role] = ruling.factor
    explanation["terms"] = _terms_of(choices, request)
    explanation["chunk"] = choices[0].row.ordinal
    return explanation
