"""Hybrid search: run the keyword and vector queries, fuse the results, pick the best passage per document
(docs/ranking.md).
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from threading import Lock
from typing import NamedTuple, Protocol

from ctx.config.settings import Retrieval
from ctx.embed import Embedder
from ctx.errors import BadRequest, EmbedderError, EmbeddingsDisabled
from ctx.models import AUTO, COMMITS, JSON, Copy, Filters, Hit, SearchResult
from ctx.search import boosts, fusion, passages
from ctx.search.passages import NO_LEG, Choice, Leg, QueryVector, Request, Rows, Stage
from ctx.search.query import (
    Words,
    ends_cut_off,
    has_version,
    is_cut_hash,
    is_identifier,
    may_be_misspelt,
    members,
    names_asked_for,
    one_letter_off,
    path_test,
    subject_of,
    unquoted_words,
    wanted,
)
from ctx.search.snippets import Matcher
from ctx.store.base import Catalog, SearchIndex
from ctx.text import analyze, filetypes
from ctx.text.strings import counted


class Surroundings(Protocol):
    """The parts of a workspace that a search uses."""

    @property
    def question_embedder(self) -> Embedder | None:
        """The embedder for queries, created at first use; None if embeddings are off."""

    def lacking(self) -> str | None:
        """A sentence about what is not indexed yet; None if everything is."""


MAX_CANDIDATES = 10_000  # maximum hits to request from one index, even if they are of few documents
MAX_COPIES = 200  # maximum copies of results per search; with more copies, a page may have fewer results
DEEPER = 4  # request this many times as many hits if a page is beyond the current ranking
EVERYTHING = Filters()
_QUOTED = re.compile(r'"[^"]+"')

_KIND_SAMPLE = 10  # documents to read to decide whether the hits are prose or code
_DEFINED = 50  # maximum passages that define a name of the query
_PENDING_KEPT_S = 2.0  # how long to cache the number of chunks without an embedding
_LEADING = 32  # number of best keyword results for which to check whether they are embedded
_FILTERS_KEPT = 16  # cached sets of documents by path and type, valid until the next write
_WHOLE_WORDS = "0 matches; outside English only whole words and word beginnings match"
_NO_PHRASE = "no document has the quoted words as written; without quotes their other forms match too"
_NO_WORD = "the query has no letters or digits, so there was no word to search for"
_ASKED_NAMES = 32  # maximum names of a query to look up; pasted code may have thousands
_SAME_CHARS = 60  # characters; documents that share only a shorter passage may differ, so they are not merged
_MAX_HASHES = 8  # maximum words to look up as commit ids; a pasted log may have many
# A semantic result with a lower score, which would be shown as 0.00, is left out unless its similarity is at
# least `_RELATED`.
_LEAST_SCORE = 0.005
# Cosine similarity; with the built-in model, texts about different subjects are below this value.
_RELATED = 0.2
_MAX_TYPOS = 8  # maximum misspelt words to correct in a query


_Answer = tuple[int, float, Stage, list[Choice]]
"""A document's number, its score, the ranking it came from, and its chunks, best first."""


class SearchReply(NamedTuple):
    """`explain` is parallel to `results`, or None if not requested. `partial` says what the results may lack;
    `note` says what was searched for, if not the query as written.
    """

    results: list[SearchResult]
    explain: list[JSON] | None = None
    partial: str | None = None
    note: str | None = None


class Searcher:
    """Searches an index and builds the results from the catalog. Thread-safe.

    `settings.hybrid_alpha` in [0, 1] fixes the weight of semantic search. If it is None, the weight is
    computed from the query and its results.
    """

    def __init__(
        self, catalog: Catalog, index: SearchIndex, settings: Retrieval, surroundings: Surroundings
    ) -> None:
        self._catalog = catalog
        self._index = index
        self._settings = settings
        self._surroundings = surroundings
        self._counting = Lock()
        self._pending: tuple[float, int] | None = None  # (monotonic time, count) of the last count
        self._profiles = boosts.Profiles(catalog.places)
        self._resolved: dict[tuple[int, Sequence[str], Sequence[str]], frozenset[int]] = {}

    def search(
        self,
        query: str,
        mode: str = "keyword",
        limit: int | None = None,
        filters: Filters = EVERYTHING,
        *,
        offset: int = 0,
        per_document: int = 1,
        prefix: bool = False,
        explain: bool = False,
    ) -> SearchReply:
        """The documents from rank `offset` on, at most `limit`, best first, each with its best passage.

        The order does not depend on `limit` or `offset`. Raises `BadRequest` for a blank query,
        `EmbeddingsDisabled` if the mode needs embeddings and they are off, and `EmbedderError` if a semantic
        search gets no vector. A hybrid search without a vector uses keywords only and says so in `partial`.
        """
        by_default = mode == AUTO
        mode = self._default_mode(query) if by_default else mode
        limit = self._settings.final_limit if limit is None else limit
        if not query.strip():
            raise BadRequest("the query is empty")
        partial = self._surroundings.lacking()
        vector = self._question_vector(query, mode)
        if vector is not None and (pending := self._pending_count(vector.model)):
            partial = f"{counted(pending, 'chunk')} not embedded yet, so only keyword search finds them"
        words = self._corrected(query, mode, prefix)
        prefix = prefix or ends_cut_off(words)
        rows = Rows(self._catalog)
        request = self._request(words, mode, filters, prefix, vector, per_document)
        note = words.note or (None if words.weights or mode == "semantic" else _NO_WORD)
        try:
            answers = self._folded(request, rows, offset + limit)
        except EmbedderError as error:
            if mode == "semantic":
                raise
            partial = f"only keyword search was used: {error.message}"
            request = request._replace(mode="keyword", vector=None)
            answers = self._folded(request, rows, offset + limit)
        share = 0.0
        if answers:
            _, _, stage, choices = answers[0][0]
            share = passages.share_of_best(request, choices)
            if request.mode == "hybrid" and not stage.keyword.documents:
                note = note or "0 exact matches; showing results with a similar meaning"
            if by_default and request.mode == "hybrid" and not stage.semantic.documents:
                # No text is embedded yet, and the caller did not ask for semantic search.
                partial = self._surroundings.lacking()
        elif not (offset or filters.closed):
            note = note or (_NO_PHRASE if request.exact else None if query.isascii() else _WHOLE_WORDS)
        page = answers[offset:]
        results = [result._replace(score=result.score * share) for _, result in page]
        explained = [
            passages.explanation_of(number, score * share, stage, choices, request)
            for (number, score, stage, choices), _ in page
        ]
        return SearchReply(results, explained if explain else None, partial, note)

    def resolved(self, filters: Filters, paths: Sequence[str] = (), types: Sequence[str] = ()) -> Filters:
        """The filters, narrowed to documents whose path matches one of the globs and whose type is in
        `types`.

        A type is `prose`, `code` or a media type. Globs have the syntax of a source's `include_globs`.
        """
        if not paths and not types:
            return filters
        key = (self._catalog.seq(), tuple(paths), tuple(types))
        documents = self._resolved.get(key)
        if documents is None:
            if len(self._resolved) >= _FILTERS_KEPT:
                self._resolved.clear()
            documents = self._resolved[key] = self._catalog.matching(
                lambda kind: not types or any(filetypes.in_family(kind, name) for name in types),
                path_test(paths),
            )
        return filters._replace(documents=documents)

    def matcher(self, query: str) -> Matcher:
        """A matcher for the words of a query, in which rare words weigh more."""
        terms = analyze.query_terms(query)
        rarity, _ = self._index.vocabulary(terms, [])
        weights = {term: rarity.get(term, 0.0) for term in terms}
        return Matcher(weights, self._settings.snippet_chars)

    # -- the query -------------------------------------------------------------------------------------------

    def _default_mode(self, query: str) -> str:
        """The mode from `[retrieval] mode`; keyword search for an identifier or a quoted phrase, and without
        embeddings.
        """
        mode = self._settings.mode
        if mode == "keyword" or is_identifier(query) or _QUOTED.fullmatch(query.strip()):
            return "keyword"
        return mode if self._surroundings.question_embedder is not None else "keyword"

    def _question_vector(self, query: str, mode: str) -> QueryVector | None:
        """The query's vector, computed at first use; None for keyword search. Raises `EmbeddingsDisabled`."""
        if mode == "keyword":
            return None
        embedder = self._surroundings.question_embedder
        if embedder is None:
            raise EmbeddingsDisabled(
                "embeddings are disabled; set [embedding] provider in ctx.toml, or search by keyword"
            )
        return QueryVector(embedder, query)

    def _request(
        self,
        words: Words,
        mode: str,
        filters: Filters,
        prefix: bool,
        vector: QueryVector | None,
        per_document: int,
    ) -> Request:
        query, weights = words.query, words.weights
        definitions: dict[int, Hit] = {}
        if words.defined and mode != "semantic":
            hits = self._index.definitions(words.defined, filters, _DEFINED)
            definitions = {hit.document_no: hit for hit in reversed(hits)}
        question = boosts.Question(
            weights,
            words.names,
            words.modules,
            boosts.definition_boost(query, words),
            definitions,
            has_version(query),
            boosts.files_named(query),
            boosts.NAMED_WITHIN if " " in query.strip() else boosts.NAMED,
            wanted(query),
        )
        exact = bool(analyze.exact_phrases(query))
        phrases = analyze.quoted_phrases(query)
        matcher = Matcher(weights, self._settings.snippet_chars, phrases, query)
        return Request(query, mode, filters, prefix, exact, vector, question, matcher, per_document)

    def _corrected(self, query: str, mode: str, prefix: bool) -> Words:
        """The query with unknown words replaced by known words that differ in one letter, and abbreviated
        commit ids by full ids. Quoted queries do not change, nor the last word while it is being typed
        (`prefix`).
        """
        words = self._known(query)
        if all(words.weights.values()) or mode == "semantic" or len(query) > analyze.MAX_QUERY_CHARS:
            return words
        replaced, hashes, typos = list[str](), 0, 0
        words_to_check = [] if analyze.exact_phrases(query) else list(unquoted_words(query))
        if prefix and query[-1:].isalnum():
            del words_to_check[-1:]
        for word, stem in words_to_check:
            folded = analyze.folded(query)
            position = folded.find(word)
            if words.weights.get(stem) or position < 0 or len(folded) != len(query):
                continue
            neighbour = None
            if is_cut_hash(word) and hashes < _MAX_HASHES:
                hashes += 1
                neighbour = self._commit(word, alone=len(word) == len(query.strip()))
            elif may_be_misspelt(word) and typos < _MAX_TYPOS:
                typos += 1
                neighbour = self._index.resembling(one_letter_off(word))
                if neighbour is not None and len(neighbour) > len(word):
                    base = analyze.words(neighbour)[0]
                    if word.startswith(base) and analyze.words(base) == [base]:
                        # Correct "kunden" to "kunde" and not to "kundent", which has the same stem.
                        neighbour = base
            if neighbour is not None:
                query = query[:position] + neighbour + query[position + len(word) :]
                replaced.append(f"'{neighbour}' instead of '{word}'")
        if not replaced:
            return words
        note = (
            f"searched for {', '.join(replaced)}, which has no match; use quotes to search for it as written"
        )
        return self._known(query, note)

    def _commit(self, begun: str, *, alone: bool) -> str | None:
        """The full id for an abbreviated commit id; None if there is no such commit or several. If the query
        has other words too (`alone` is False), returns the path of the commit's document (`@commits/ID`),
        because a match in the path ranks higher than one in the text.
        """
        paths = self._catalog.complete("path", f"{COMMITS}{begun}", None, 2)
        if len(paths) != 1:
            return None
        return paths[0].removeprefix(COMMITS) if alone else paths[0]

    def _known(self, query: str, note: str | None = None) -> Words:
        """Looks up the query's words and names in the index, in one request."""
        terms, subject = analyze.query_terms(query), subject_of(query)
        dotted = members(subject)
        names, modules = names_asked_for(subject, dotted), [module for module, _ in dotted]
        rarity, defined = self._index.vocabulary(terms, names[:_ASKED_NAMES])
        defined += names[_ASKED_NAMES:]
        if subject in defined:
            names = defined = [subject]
        weights = {term: rarity.get(term, 0.0) for term in terms}
        return Words(query, subject, weights, names, modules, defined, note)

    # -- the ranking -----------------------------------------------------------------------------------------

    def _answers(self, request: Request, rows: Rows, count: int) -> Iterator[_Answer]:
        """Yields (document number, score, the ranking it came from, its chunks best first), best document
        first. Searches deeper whenever the caller asks for more.
        """
        met: set[int] = set()
        ceiling = 1.0
        for stage in self._stages(request, rows):
            entries = [entry for entry in stage.ranked if entry[0] not in met] if met else stage.ranked
            for start in range(0, len(entries), count):
                stride = entries[start : start + count]
                hits = passages.hits_of([number for number, _ in stride], stage, request)
                rows.read(passages.chunks_to_read(hits, self._profiles))
                for number, score in stride:
                    choices = passages.choices_of(number, hits[number], stage, rows, request)
                    choices = choices or passages.rewritten(number, stage, rows, request)
                    if choices:
                        yield number, min(score, ceiling), stage, choices
            met.update([number for number, _ in entries])
            ceiling = min(entries[-1][1], ceiling) if entries else ceiling

    def _folded(self, request: Request, rows: Rows, count: int) -> list[tuple[_Answer, SearchResult]]:
        """The first `count` answers with their results. A result with the same passage as an earlier result
        of the same source is added to the earlier result as a copy. Stops after `MAX_COPIES` copies, even
        with fewer than `count` results.
        """
        ranked = islice(self._answers(request, rows, count), count + MAX_COPIES)
        answers: list[tuple[_Answer, SearchResult]] = []
        places: dict[tuple[str, str], int] = {}
        while len(answers) < count and (batch := list(islice(ranked, count - len(answers)))):
            results = passages.results_of(request, [(score, choices) for _, score, _, choices in batch], rows)
            for answer, result in zip(batch, results, strict=True):
                passage_text = _said(result)
                position = len(answers)
                if len(passage_text) >= _SAME_CHARS:
                    position = places.setdefault((result.source, passage_text), position)
                if position == len(answers):
                    answers.append((answer, result))
                    continue
                first, earlier = answers[position]
                copy = Copy(result.id, result.source, result.source_id)
                answers[position] = (first, earlier._replace(also_in=(*earlier.also_in, copy)))
        return answers

    def _stages(self, request: Request, rows: Rows) -> Iterator[Stage]:
        """Yields the ranking for the configured depth, then for greater depths. Earlier results do not
        change.
        """
        deeper = 1
        while True:
            keyword, semantic = self._legs(
                request,
                min(MAX_CANDIDATES, self._settings.candidate_k_keyword * deeper),
                min(MAX_CANDIDATES, self._settings.candidate_k_vector * deeper),
            )
            yield self._stage(request, keyword, semantic, rows)
            if keyword.exhausted and semantic.exhausted:
                return
            deeper *= DEEPER

    def _legs(self, request: Request, words: int, nearest: int) -> tuple[Leg, Leg]:
        """The keyword and semantic hits to these depths; an empty leg if the mode does not use that index."""
        query, filters, prefix, vector = request.query, request.filters, request.prefix, request.vector
        counted = self._settings.max_chunks_per_doc
        keyword = semantic = NO_LEG
        if vector is None or request.mode != "semantic":
            keyword = _leg(self._index.keyword(query, filters, words, prefix=prefix), words, counted)
        if vector is not None:
            hits = self._index.semantic(vector.values(), filters, nearest, vector.model)
            semantic = _leg(hits, nearest)
        return keyword, semantic

    def _stage(self, request: Request, keyword: Leg, semantic: Leg, rows: Rows) -> Stage:
        if request.mode == "semantic":
            ranked = [(number, min(1.0, max(0.0, score))) for number, score in semantic.ranked]
            return Stage(ranked, keyword, semantic, 1.0, {})
        alpha = 0.0
        if request.mode == "hybrid":
            alpha = self._alpha(request, semantic, rows)
            unread = self._unread(request, keyword, semantic)
            if unread:
                first = keyword.documents[:_LEADING]
                read = sum(hit.document_no not in unread for hit in first)
                alpha *= (read / len(first)) ** fusion.COVERAGE_POWER
            ranked = fusion.fuse(self._settings.fusion, keyword.ranked, semantic.ranked, alpha, unread)
            if request.exact:
                ranked = [entry for entry in ranked if entry[0] in keyword.hits]
            nearness = dict(semantic.ranked)
            ranked = [
                (number, score)
                for number, score in ranked
                if score >= _LEAST_SCORE or number in keyword.hits or nearness[number] >= _RELATED
            ]
        else:
            ranked = fusion.of_best(keyword.documents)
        if not request.exact:
            ranked = self._with_defining(ranked, request.question.definitions)
        profiles = self._profiles.of([number for number, _ in ranked])
        ranked, rulings = boosts.apply(ranked, profiles, request.question)
        return Stage(ranked, keyword, semantic, alpha, rulings)

    def _with_defining(self, ranked: fusion.Leg, defining: Mapping[int, Hit]) -> fusion.Leg:
        """The ranking, followed by code that defines a name of the query but was not found by its words."""
        if not defining:
            return ranked
        present = {number for number, _ in ranked}
        absent = [number for number in defining if number not in present]
        profiles = zip(absent, self._profiles.of(absent), strict=True)
        return ranked + [(number, 0.0) for number, profile in profiles if profile.defining]

    def _alpha(self, request: Request, semantic: Leg, rows: Rows) -> float:
        if self._settings.hybrid_alpha is not None:
            return self._settings.hybrid_alpha
        sample = [hit.chunk_no for hit in semantic.documents[:_KIND_SAMPLE]]
        texts = [row.text for row in rows.read(sample)]
        return fusion.semantic_weight(
            subject_of(request.query), texts, self._settings.fusion, request.question.wanted
        )

    def _unread(self, request: Request, keyword: Leg, semantic: Leg) -> frozenset[int]:
        """The documents of the keyword ranking whose passage has no embedding yet."""
        if request.vector is None or not self._pending_count(request.vector.model):
            return frozenset()
        chunks = {
            hit.chunk_no: hit.document_no for hit in keyword.documents if hit.document_no not in semantic.hits
        }
        waiting = self._catalog.awaiting(request.vector.model, list(chunks))
        return frozenset(chunks[no] for no in waiting)

    def _pending_count(self, model: str) -> int:
        """The number of chunks without an embedding, cached for two seconds."""
        with self._counting:
            now_s = time.monotonic()
            if self._pending is None or now_s - self._pending[0] > _PENDING_KEPT_S:
                self._pending = (now_s, self._catalog.pending_count(model))
            return self._pending[1]


def _said(result: SearchResult) -> str:
    """The part of a snippet from its first to its last highlight, used to compare passages; the whole snippet
    if that part is short.
    """
    marks = result.highlights
    marked = " ".join(result.snippet[marks[0][0] : marks[-1][1]].split()) if marks else ""
    return marked if len(marked) >= _SAME_CHARS else " ".join(result.snippet.split())


def _leg(hits: list[Hit], k: int, counted: int = 1) -> Leg:
    groups = fusion.by_document(hits)
    documents = fusion.per_document(groups, counted, fusion.FURTHER_PASSAGES)
    return Leg(groups, documents, len(hits) < k or k == MAX_CANDIDATES)
