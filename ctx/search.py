"""Search: a query to two legs, one ranking, and an answer with snippets (docs/ranking.md)."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from ctx import analyze, ranking
from ctx.errors import BadRequest, ConfigError, EmbedderError, EmbeddingsDisabled
from ctx.lean import TYPE_CHECKING, NamedTuple, Protocol
from ctx.store.base import Catalog, ChunkRow, SearchIndex
from ctx.types import JSON, Filters, Hit, SearchResult

if TYPE_CHECKING:  # numpy costs 70 ms, and a keyword search from the command line needs none of it
    import numpy as np

MODES = ("keyword", "semantic", "hybrid")
SNIPPET_CHARS = 240
MAX_CANDIDATES = 10_000  # hits asked of a leg at most, however few documents they are of
EVERYTHING = Filters()

_KIND_SAMPLE = 10  # documents from which prose or code is told
_HEADROOM = 3  # hits asked for a document wanted
_REWRITTEN_READ = 200  # chunks looked at of a document that changed under the index: a hundred pages
_PENDING_KEPT_S = 2.0  # for which a count of chunks without an embedding is good

# Texts are looked through by hand: `re` with four patterns would be 4 ms of a search from the command line, an eighth of it.
_RULES = '-=~^*_`"'  # three at the start of a line draw a rule, or open a block of code
_STOPS, _FULL_STOPS = ".!?…", "。！？"  # the first end a sentence where a space follows
_CLOSERS = "\"'’”)]"
_OPENING = 60  # characters shown before the first matching word at most, where no sentence begins nearer


class QueryEmbedder(Protocol):
    """What a semantic search needs of an embedder."""

    @property
    def model(self) -> str: ...

    def embed_query(self, text: str) -> "np.ndarray": ...


class SearchReply(NamedTuple):
    """`explain` is parallel to `results`, None where not asked for. `partial` says what the results may lack."""

    results: list[SearchResult]
    explain: list[JSON] | None = None
    partial: str | None = None


class _Legs(NamedTuple):
    """What each way of searching found, best hit per document, best first."""

    keyword: list[Hit]
    semantic: list[Hit]
    alpha: float  # the weight of the semantic leg that was used


class Searcher:
    """Searches an index and answers from the catalog. Holds no state of its own but a count; safe from several threads.

    `embedder` gives the embedder when a query needs one, None where embeddings are off. `hybrid_alpha` in [0, 1] fixes the
    weight of the semantic leg; None lets the query and what it finds decide. `lacking` tells of what is not indexed yet.
    """

    def __init__(
        self,
        catalog: Catalog,
        index: SearchIndex,
        embedder: Callable[[], QueryEmbedder | None] | None,
        *,
        final_limit: int = 12,
        fusion: str = "minmax",
        hybrid_alpha: float | None = None,
        candidate_k_keyword: int = 100,
        candidate_k_vector: int = 100,
        max_chunks_per_doc: int = 3,
        lacking: Callable[[], str | None] = lambda: None,
    ) -> None:
        if fusion not in ranking.METHODS:
            raise ConfigError(
                f"[retrieval] fusion: unknown method '{fusion}' (known: {', '.join(ranking.METHODS)})"
            )
        self._catalog = catalog
        self._index = index
        self._embedder = embedder
        self._final_limit = final_limit
        self._fusion = fusion
        self._hybrid_alpha = hybrid_alpha
        self._candidate_k_keyword = candidate_k_keyword
        self._candidate_k_vector = candidate_k_vector
        self._max_chunks_per_doc = max_chunks_per_doc
        self._lacking = lacking
        self._counting = threading.Lock()
        self._pending: tuple[float, int] | None = None  # when counted, on the monotonic clock; how many

    def search(
        self,
        query: str,
        mode: str = "keyword",
        limit: int | None = None,
        filters: Filters = EVERYTHING,
        explain: bool = False,
    ) -> SearchReply:
        """At most `limit` documents, best first, each with its best chunk.

        Raises `BadRequest` for a blank query, an unknown mode or a limit below 1, `EmbeddingsDisabled` where the mode needs what
        is not there, `EmbedderError` where a semantic search gets no vector; a hybrid one then goes by words and says so.
        """
        limit = self._final_limit if limit is None else limit
        if not query.strip():
            raise BadRequest("the query is empty")
        if mode not in MODES:
            raise BadRequest(f"unknown mode '{query_word(mode)}' (known: {', '.join(MODES)})")
        if limit < 1:
            raise BadRequest(f"limit must be at least 1, got {limit}")
        partial = self._lacking()
        vector = None
        if mode != "keyword":
            embedder = self._embedder() if self._embedder is not None else None
            if embedder is None:
                raise EmbeddingsDisabled(
                    "embeddings are disabled; set [embedding] provider in ctx.toml, or search by keyword"
                )
            try:
                vector = embedder.embed_query(query)
                partial = partial or self._missing(embedder.model)
            except EmbedderError as error:
                if mode == "semantic":
                    raise
                mode = "keyword"
                partial = f"found by keyword alone: {error.message}"
        rows = _Rows(self._catalog)
        terms = analyze.query_terms(query)
        legs, ranked = self._ranked(query, mode, vector, limit, filters, rows)
        matcher = _Matcher(terms)
        results: list[SearchResult] = []
        explained: list[JSON] = []
        share = 1.0
        of_keyword = {hit.document_no: hit for hit in legs.keyword}
        of_semantic = {hit.document_no: hit for hit in legs.semantic}
        for document_no, score in self._living(ranked, of_keyword, of_semantic, rows, limit):
            found = self._best_row(of_keyword.get(document_no), of_semantic.get(document_no), rows, matcher)
            if found is None:
                found = self._rewritten(document_no, rows, matcher, by_words=document_no not in of_semantic)
            if found is None:
                continue
            row, matched = found
            if mode == "keyword" and not results:
                # BM25 has no top: the best result is worth the share of the query's words that it has.
                share = max(1, len(matched)) / max(1, len(terms))
            snippet, highlights = matcher.snippet(row)
            results.append(_result(row, score * share, snippet, highlights))
            if explain:
                explained.append(_explanation(document_no, score * share, legs, matched, row))
            if len(results) == limit:
                break
        return SearchReply(results, explained if explain else None, partial)

    def _ranked(
        self, query: str, mode: str, vector: "np.ndarray | None", limit: int, filters: Filters, rows: "_Rows"
    ) -> tuple[_Legs, ranking.Leg]:
        keyword: list[Hit] = []
        semantic: list[Hit] = []
        if mode != "semantic":
            keyword = _documents(
                lambda k: self._index.keyword(query, filters, k), self._candidate_k_keyword, limit
            )
            keyword = ranking.per_document(keyword, self._max_chunks_per_doc, ranking.FURTHER_PASSAGES)
        if vector is not None:
            found = vector
            semantic = _documents(
                lambda k: self._index.semantic(found, filters, k), self._candidate_k_vector, limit
            )
            semantic = ranking.per_document(semantic)
        by_words = [(hit.document_no, hit.score) for hit in keyword]
        by_meaning = [(hit.document_no, hit.score) for hit in semantic]
        if mode == "keyword":
            return _Legs(keyword, [], 0.0), ranking.of_best(by_words)
        if mode == "semantic":
            return _Legs([], semantic, 1.0), [
                (number, min(1.0, max(0.0, score))) for number, score in by_meaning
            ]
        alpha = self._hybrid_alpha
        if alpha is None:
            rows.read([hit.chunk_no for hit in semantic[:_KIND_SAMPLE]])
            sample = [row.text for hit in semantic[:_KIND_SAMPLE] if (row := rows.get(hit.chunk_no))]
            alpha = ranking.semantic_weight(query, sample, self._fusion)
        return _Legs(keyword, semantic, alpha), ranking.fuse(self._fusion, by_words, by_meaning, alpha)

    def _living(
        self,
        ranked: ranking.Leg,
        keyword: dict[int, Hit],
        semantic: dict[int, Hit],
        rows: "_Rows",
        limit: int,
    ) -> Iterator[tuple[int, float]]:
        """The ranked documents, their rows read in strides: the first should do, unless the catalog has moved on."""
        for start in range(0, len(ranked), limit):
            stride = ranked[start : start + limit]
            wanted: list[int] = []
            for number, _ in stride:
                for hit in (keyword.get(number), semantic.get(number)):
                    if hit is not None:
                        wanted += range(hit.chunk_no, hit.chunk_no + hit.span)
            rows.read(wanted)
            yield from stride

    @staticmethod
    def _best_row(
        keyword: Hit | None, semantic: Hit | None, rows: "_Rows", matcher: "_Matcher"
    ) -> tuple[ChunkRow, list[str]] | None:
        """The chunk to show, and the terms its passage has. Of a passage the chunk with most words, but one near in meaning wins ties."""
        nearest = None if semantic is None else rows.get(semantic.chunk_no)
        candidates = [] if nearest is None else [nearest]
        if keyword is not None:
            passage = (rows.get(keyword.chunk_no + i) for i in range(keyword.span))
            candidates += [row for row in passage if row is not None]
        if not candidates:
            return None
        found = [matcher.terms_in(row.text) for row in candidates]
        best = max(range(len(candidates)), key=lambda i: (len(found[i]), -i))
        row = candidates[best]
        everywhere = set().union(*found, matcher.terms_in(f"{row.title} {row.heading} {row.source_id}"))
        return row, [term for term in matcher.terms if term in everywhere]

    @staticmethod
    def _rewritten(
        document_no: int, rows: "_Rows", matcher: "_Matcher", *, by_words: bool
    ) -> tuple[ChunkRow, list[str]] | None:
        """What to show of a document that was rewritten since the index was published: its text as it is now.

        Without this a document would be lost for as long as its source is being indexed. One that was found by words it no longer has
        is left out: the index is a moment old, the answer must not be wrong.
        """
        chunk_nos = rows.current(document_no)
        found = [(row, matcher.terms_in(row.text)) for row in map(rows.get, chunk_nos) if row is not None]
        if not found:
            return None
        row, terms = max(found, key=lambda pair: len(pair[1]))
        terms = terms | matcher.terms_in(f"{row.title} {row.heading} {row.source_id}")
        if by_words and not terms:
            return None
        return row, [term for term in matcher.terms if term in terms]

    def _missing(self, model: str) -> str | None:
        """What to tell of chunks that have no embedding yet."""
        with self._counting:
            now_s = time.monotonic()
            if self._pending is None or now_s - self._pending[0] > _PENDING_KEPT_S:
                self._pending = (now_s, self._catalog.pending_count(model))
            pending = self._pending[1]
        if not pending:
            return None
        return f"{pending:,} chunks are not embedded yet, so the search by meaning cannot find them"


def resolve_sources(source: str | None, names: Iterable[str]) -> frozenset[str] | None:
    """The full names that `source` means: a name (`git:platform`) or a type (`git`); None, no restriction, where it is None.

    Empty where nothing is called so: the search then finds nothing.
    """
    if source is None:
        return None
    return frozenset(name for name in names if name == source or name.startswith(f"{source}:"))


def query_word(text: str) -> str:
    """A caller's word, short enough to be repeated in a message."""
    return text if len(text) <= 40 else text[:39] + "…"


def _documents(find: Callable[[int], list[Hit]], k: int, limit: int) -> list[Hit]:
    """Hits of at least `limit` documents where there are so many, though one long document may have a great many."""
    k = min(MAX_CANDIDATES, max(k, limit * _HEADROOM))
    while True:
        hits = find(k)
        if len(hits) < k or k >= MAX_CANDIDATES or len({hit.document_no for hit in hits}) >= limit:
            return hits
        k = min(MAX_CANDIDATES, k * 4)


class _Rows:
    """The rows of the catalog that one search has read, each read once."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[int, ChunkRow] = {}
        self._asked: set[int] = set()

    def read(self, chunk_nos: Sequence[int]) -> None:
        new = [no for no in dict.fromkeys(chunk_nos) if no not in self._asked]
        if new:
            self._asked.update(new)
            self._known.update(self._catalog.chunk_rows(new))

    def get(self, chunk_no: int) -> ChunkRow | None:
        return self._known.get(chunk_no)

    def current(self, document_no: int) -> Sequence[int]:
        """A document's chunks as they are now, read; the first ones of a long document."""
        chunk_nos = self._catalog.chunks_of(document_no)[:_REWRITTEN_READ]
        self.read(chunk_nos)
        return chunk_nos


class _Matcher:
    """Finds a query's terms in texts, fast enough to be done for every result.

    A stem begins its word but for a last letter (happi, happy), so texts are looked through for beginnings, and only the words found so
    are analysed.
    """

    def __init__(self, terms: list[str]) -> None:
        self.terms = terms
        self._wanted = set(terms)
        self._beginnings = [(term, _beginning(term)) for term in terms]
        self._parts = sorted({beginning for _, beginning in self._beginnings}, key=len, reverse=True)
        self._known: dict[str, bool] = {}  # word -> is it one of the query's

    def terms_in(self, text: str) -> set[str]:
        """The terms a text seems to have; a word that merely contains a term's beginning counts too."""
        low = text.lower()
        return {term for term, beginning in self._beginnings if beginning in low}

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the words stand, [start, end) each, in order and apart."""
        low = text.lower()
        if len(low) != len(text):  # a capital dotted I has two small characters
            low = text
        found: list[tuple[int, int]] = []
        read_to = 0
        for start, end in _apart(_places(low, self._parts)):
            if start < read_to:
                continue
            if low[start:end].isascii():
                while start > read_to and text[start - 1].isalnum():
                    start -= 1
                while end < len(text) and text[end].isalnum():
                    end += 1
                word = text[start:end]
                wanted = self._known.get(word)
                if wanted is None:
                    wanted = self._known[word] = not self._wanted.isdisjoint(analyze.terms(word))
                if not wanted:
                    continue
            found.append((start, end))
            read_to = end
        return found

    def snippet(self, row: ChunkRow) -> tuple[str, tuple[tuple[int, int], ...]]:
        """About SNIPPET_CHARS of a chunk, whole words, around most of the query's words; and where those stand in it."""
        text = _plain(row)
        spans = self.spans(text)
        start, end = _window(text, spans)
        lead = "…" if start else ""
        shown = lead + text[start:end] + ("…" if end < len(text) else "")
        shift = len(lead) - start
        return shown, tuple((a + shift, b + shift) for a, b in spans if a >= start and b <= end)


def _places(text: str, parts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """[start, end) of every part in the text, in no order but for those of one start, where the longer of `parts` comes first."""
    for part in parts:
        at = text.find(part)
        while at >= 0:
            yield at, at + len(part)
            at = text.find(part, at + 1)


def _apart(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The spans in order of start, the first of those that overlap."""
    read_to = 0
    for start, end in sorted(spans, key=lambda span: span[0]):
        if start >= read_to:
            yield start, end
            read_to = end


def _beginning(term: str) -> str:
    return term[:-1] if len(term) > 3 and term[-1] in "iy" else term


def _plain(row: ChunkRow) -> str:
    """A chunk's text on one line, without the marks of headings and rules, and without the heading that is told beside it."""
    text = row.text
    first, _, rest = text.partition("\n")
    named = first.lstrip("# \t").strip()
    if rest and named and named in (row.title, row.heading.rsplit(" > ", 1)[-1]):
        text = rest
    plain = " ".join(" ".join(map(_unmarked, text.split("\n"))).split())
    return plain or " ".join(row.text.split()) or row.title


def _unmarked(line: str) -> str:
    """The line without the mark of a heading or a quotation before it; nothing of one that begins with a rule."""
    bare = line.lstrip(" \t")
    if bare.startswith(">"):
        return bare[1:]
    if bare.startswith("#"):
        named = bare.lstrip("#")
        return named if named.startswith((" ", "\t")) and len(bare) - len(named) <= 6 else line
    return "" if len(bare) >= 3 and all(char in _RULES for char in bare[:3]) else line


def _window(text: str, spans: list[tuple[int, int]]) -> tuple[int, int]:
    """[start, end) of the SNIPPET_CHARS characters with the most different words, begun at a sentence where one is near."""
    if len(text) <= SNIPPET_CHARS:
        return 0, len(text)
    start = 0
    if spans:
        starts = [span[0] for span in spans]
        words = [text[a:b].lower()[:5] for a, b in spans]
        first, most, last = 0, 0.0, 0
        for i, at in enumerate(starts):
            while last < len(starts) and starts[last] < at + SNIPPET_CHARS - _OPENING:
                last += 1
            value = len(set(words[i:last])) + 0.01 * (last - i)
            if value > most:
                first, most = at, value
        if first > SNIPPET_CHARS // 2:
            sentences = _sentences(text, max(0, first - 2 * _OPENING), first)
            begun = sentences[0] if sentences else text.find(" ", max(0, first - _OPENING), first) + 1
            start = begun or first
    end = min(len(text), start + SNIPPET_CHARS)
    if end < len(text):
        sentences = _sentences(text, start + SNIPPET_CHARS * 2 // 3, end)
        covered = max((b for _, b in spans if b <= end), default=0)
        if sentences and sentences[-1] >= covered:
            end = sentences[-1]
        else:
            space = text.rfind(" ", start + SNIPPET_CHARS // 2, end + 1)
            end = space if space > 0 else end
    while end > start and text[end - 1] == " ":
        end -= 1
    return start, end


def _sentences(text: str, start: int, end: int) -> list[int]:
    """Where sentences begin behind one that ends in [start, end) of a text on one line, at most at `end`."""
    begins = []
    for at, char in enumerate(text[start:end], start + 1):
        if char in _FULL_STOPS:
            begins.append(at)
        elif char in _STOPS:
            while at < end and text[at] in _CLOSERS:
                at += 1
            if at < end and text[at] == " ":
                begins.append(at + 1)
    return begins


def _result(
    row: ChunkRow, score: float, snippet: str, highlights: tuple[tuple[int, int], ...]
) -> SearchResult:
    return SearchResult(
        id=row.id,
        source=row.source,
        source_id=row.source_id,
        title=row.title,
        score=score,
        snippet=snippet,
        source_url=row.source_url,
        updated_ms=row.updated_ms,
        heading=row.heading,
        start_line=row.start_line,
        end_line=row.end_line,
        highlights=highlights,
    )


def _explanation(document_no: int, score: float, legs: _Legs, matched: list[str], row: ChunkRow) -> JSON:
    said: dict[str, JSON] = {"score": round(score, 6)}
    for name, leg in (("keyword", legs.keyword), ("semantic", legs.semantic)):
        for rank, hit in enumerate(leg, 1):
            if hit.document_no == document_no:
                said[name] = {"rank": rank, "score": round(hit.score, 6)}
                break
    if legs.keyword and legs.semantic:
        said["semantic_weight"] = round(legs.alpha, 3)
    said["terms"] = matched
    said["chunk"] = row.ordinal
    return said
