"""The search index in OpenSearch, which several machines search and any of them can update.

OpenSearch stores our terms and vectors and returns ranked chunk numbers. Text analysis, fusion and ranking
are done by ctx, as with the local index. The index follows the catalog in the same way as the local index
(ctx/store/index.py). Words and vectors are two separate indexes (opensearch_part.py).
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, partial
from itertools import compress

import numpy as np

from ctx.cluster import opensearch_query as queries
from ctx.cluster.opensearch_client import Client, Refusal
from ctx.cluster.opensearch_part import Part, State, Writing
from ctx.cluster.opensearch_query import FORMAT
from ctx.errors import StoreError
from ctx.models import JSON, Filters, Hit
from ctx.store.base import Catalog, IndexTurn, SearchIndex
from ctx.store.tantivy import MAX_TERMS, idf, likeliest, rarest
from ctx.text import analyze
from ctx.text.strings import counted

logger = logging.getLogger(__name__)

STATE_KEPT_S = 0.5  # how long a searcher uses a state before it reads the state again


States = tuple[State | None, State | None]  # of words and vectors; None for an index that does not exist


class OpenSearchIndex(SearchIndex):
    """The `SearchIndex` in OpenSearch. Opening sends no request.

    The caller closes the client, so `close` does nothing. `embedding` is described at `LocalIndex`, and
    `layout` at `Part`. `owner` returns the name of the catalog; an index that belongs to another catalog is
    not changed. `turn` makes processes write one after the other; None means that the caller holds a lock.
    """

    def __init__(
        self,
        client: Client,
        embedding: Callable[[], str | None],
        *,
        name: str = "ctx",
        layout: tuple[int, int] = (1, 1),
        owner: Callable[[], str] = str,
        turn: IndexTurn | None = None,
    ) -> None:
        self._client = client
        self._embedding = embedding
        self._name = name
        self._owner = cache(owner)
        self._turn = turn
        self._words = Part(self._client, f"{name}-words", layout)
        self._vectors = Part(self._client, f"{name}-vectors", layout)
        self._seen: tuple[float, States] | None = None  # (time of the request on the monotonic clock, states)
        self._suspect = self._adopting = False

    # -- searching ------------------------------------------------------------------------------

    def keyword(self, query: str, filters: Filters, k: int, *, prefix: bool = False) -> list[Hit]:
        return self._hits(self._word_query(query, prefix), filters, k)

    def _word_query(self, query: str, prefix: bool) -> JSON | None:
        """The OpenSearch query for a text; None if the text has no word."""
        counts = analyze.query_counts(query)
        if not counts:
            return None
        exact = analyze.exact_phrases(query)
        if exact:
            return queries.exact_query(exact)
        if len(counts) > MAX_TERMS:
            frequencies = self._frequencies_of([("text", term) for term in counts])
            counts = rarest(counts, {term: frequencies["text", term] for term in counts})
        return queries.word_query(query, counts, self._beginning(query) if prefix else None)

    def vocabulary(self, terms: Sequence[str], names: Sequence[str]) -> tuple[dict[str, float], list[str]]:
        state, _ = self._states()
        if state is None or not (terms or names):
            return {}, []
        asked = [(field, term) for field in queries.FIELDS for term in terms]
        wholes = {name: ("defines", analyze.whole(name)) for name in names}
        frequencies = self._frequencies_of([*asked, *wholes.values()])
        counts = {term: frequencies["text", term] or frequencies["head", term] for term in terms}
        rarity = {term: idf(state.size, frequency) for term, frequency in counts.items() if frequency}
        return rarity, [name for name, whole in wholes.items() if frequencies[whole]]

    def resembling(self, words: Sequence[str]) -> str | None:
        stems = analyze.words(" ".join(words))
        if not stems or len(stems) != len(words):
            return None
        frequencies = self._frequencies_of([("text", stem) for stem in stems])
        return likeliest(words, stems, [frequencies["text", stem] for stem in stems])

    def definitions(self, names: Sequence[str], filters: Filters, k: int) -> list[Hit]:
        return self._hits(queries.definition_query(names), filters, k)

    def semantic(self, vector: np.ndarray, filters: Filters, k: int, model: str) -> list[Hit]:
        if filters.closed or k <= 0:
            return []
        body = queries.vector_body(vector, filters, k)
        replies = self._asked(self._vectors, [body], exact=False, model=model)
        return queries.hits_in(replies, 2, -1)  # OpenSearch's score is (1 + cosine) / 2

    def hold(self, model: str) -> bool:
        """Whether the published vectors are of this model, so that `semantic` can search them."""
        return self.published_model() == model

    def published_model(self) -> str | None:
        """The model of the published vectors; None if there are no vectors of this catalog."""
        _, vectors = self._states()
        if vectors is None or (vectors.format, vectors.owner) != (FORMAT, self._owner()):
            return None
        return vectors.model

    def adopt(self) -> None:
        self._adopting = True

    def applied_seq(self) -> int:
        """The last seq that both words and vectors have applied. The value may be `STATE_KEPT_S` old."""
        words, vectors = self._states()
        if words is None or words.owner != self._owner():
            return 0
        if not words.model:
            return words.applied
        return min(words.applied, vectors.applied if vectors else 0)

    # -- catching up ------------------------------------------------------------------------------

    def catch_up(self, catalog: Catalog) -> int:
        """See `Projection`. If the index is missing, or was built from a different catalog (for example
        before a backup was restored), a new one is built. An existing index answers searches until then.

        After a `StoreError`, searchers keep the last published version, and the next call continues from
        there.
        """
        model = self._embedding()
        self._check_owner()
        target = catalog.seq()
        if not self._suspect and self._has_applied(catalog, model, target):
            return target
        done = partial(self._has_applied, catalog, model, target)
        with self._turn(done) if self._turn else nullcontext(True) as mine:
            if not mine:
                return self.applied_seq()
            try:
                applied = self._follow_words(catalog, model)
                if model is None:
                    self._vectors.drop()
                else:
                    applied = min(applied, self._follow_vectors(catalog, model))
                self._suspect = False
                return applied
            finally:
                self._seen = None

    def check(self) -> list[str]:
        """Checks both indexes and returns one line for each problem. If there is one, the next `catch_up` of
        this object rebuilds the index.
        """
        problems = []
        words, vectors = self._read_states()
        halves = [("keyword index", words, self._words)]
        if self._embedding() is not None:
            halves.append(("vectors", vectors, self._vectors))
        for label, state, part in halves:
            if state is None or state.format != FORMAT:
                problems.append(f"OpenSearch has no {label} of this version yet")
            elif state.owner != self._owner():
                problems.append(f"the {label} '{self._name}' in OpenSearch belongs to another catalog")
            elif part.count(state.name) != state.size:
                problems.append(f"OpenSearch does not have all of the {label} any more")
        self._suspect = bool(problems)
        return problems

    def server(self) -> tuple[bool, str]:
        """(whether the OpenSearch cluster is healthy, a line that describes it)."""
        health = self._client.ask("GET", f"/_cluster/health/{self._name}-*")
        nodes, shards, unassigned = (
            int(health[key]) for key in ("number_of_data_nodes", "active_shards", "unassigned_shards")
        )
        line = f"OpenSearch {self._client.version()}, {counted(nodes, 'node')}, {shards} shards"
        if unassigned:
            yellow = health["status"] == "yellow"
            advice = "a copy needs a node of its own ([index] replicas)" if yellow else "nodes are missing"
            line += f", {unassigned} more on no node: {advice}"
        return not unassigned, line

    def _check_owner(self) -> None:
        """Raises `StoreError` if the index belongs to another catalog or was written by a newer ctx. Two
        catalogs with the same index would rebuild it again and again.
        """
        for state in filter(None, self._states()):
            if state.owner != self._owner() and not self._adopting:
                raise self._foreign()
            if state.format > FORMAT:
                raise StoreError("the index in OpenSearch was written by a newer ctx: upgrade this one")

    def _foreign(self) -> StoreError:
        return StoreError(
            f"the index '{self._name}' in OpenSearch belongs to another catalog: choose another [index] "
            "name, or take it over with `ctx doctor --fix`"
        )

    def _has_applied(self, catalog: Catalog, model: str | None, target: int) -> bool:
        """Whether the index follows this catalog with this model, and has applied the seq `target`."""
        words, vectors = self._read_states()
        if model is None and vectors is not None:
            return False
        return all(
            half is not None and half.applied >= target and self._fault(half, catalog, model or "") is None
            for half in ([words] if model is None else [words, vectors])
        )

    def _begin(self, part: Part, catalog: Catalog, model: str, settings: JSON, mappings: JSON) -> State:
        """The state of the index to write to: the current index or else the unfinished new index if it can be
        continued, else a new empty index.
        """
        for alias in (part.alias, part.building_alias):
            state = part.state(alias)
            if state is not None and not self._suspect:
                reason = self._fault(state, catalog, model if part is self._vectors else state.model)
                if reason is None:
                    return state
                logger.warning("index is built anew part=%s reason=%s", part.alias, reason)
        name = part.create(mappings, settings)
        return State(name, FORMAT, owner=self._owner(), model=model)

    def _fault(self, state: State, catalog: Catalog, model: str) -> str | None:
        """The reason why an index cannot be continued; None if it can."""
        if state.format != FORMAT:
            return "it has another format"
        if catalog.history(state.applied) != state.history or state.owner != self._owner():
            return "it belongs to another catalog, or to one that was restored"
        return None if state.model == model else "it has another model"

    def _follow_words(self, catalog: Catalog, model: str | None) -> int:
        part = self._words
        state = self._begin(part, catalog, model or "", {}, queries.WORD_MAPPINGS)
        target = catalog.seq()
        writing = Writing(part, state._replace(model=model or ""), catalog)
        for stored in catalog.documents_since(state.applied):
            if stored.seq > target:
                break  # it was written after this call began; the next call adds it
            writing.publish_some(stored.seq - 1)
            entries = queries.passage_entries(stored)
            writing.put(entries)
            writing.keep(stored.document_no, stored.seq, [int(entry["_id"]) for entry in entries])
        writing.publish(target)
        part.take_place(state.name)
        return target

    def _follow_vectors(self, catalog: Catalog, model: str) -> int:
        for _ in range(2):
            target = catalog.seq()
            try:
                state = self._write_vectors(catalog, model, target)
            except Refusal as error:
                if error.kind != "illegal_argument_exception":
                    raise
                reason = "its vectors have another length"
            else:
                covered = catalog.stats()["chunks"] - catalog.pending_count(model)
                if state.size == covered or catalog.seq() != target:
                    self._vectors.take_place(state.name)
                    return target
                # Embeddings were deleted, or the index lost some. Nothing else reports this.
                reason = "they do not match the catalog"
            logger.warning("vectors are built anew reason=%s", reason)
            self._vectors.drop()
        self._write_vectors(catalog, model, target)
        return target

    def _write_vectors(self, catalog: Catalog, model: str, target: int) -> State:
        """Brings the vectors up to the seq `target`."""
        part = self._vectors
        state = self._begin(part, catalog, model, queries.VECTOR_SETTINGS, queries.VECTOR_MAPPINGS)
        writing = Writing(part, state, catalog)
        if state.applied:
            for seq, document_no, chunk_nos in catalog.chunks_since(state.applied):
                writing.keep(document_no, seq, chunk_nos)
        for number, batch in enumerate(catalog.vectors_since(model, state.applied)):
            if number == 0:
                field = {"properties": queries.vector_field(batch.vectors.shape[1])}
                self._client.ask("PUT", f"/{state.name}/_mapping", field)
            writing.put(queries.vector_entries(batch, target))
        return writing.publish(target)

    # -- asking ------------------------------------------------------------------------------

    def _states(self) -> States:
        """The states of both indexes, at most `STATE_KEPT_S` old."""
        seen = self._seen
        if seen is not None and time.monotonic() - seen[0] < STATE_KEPT_S:
            return seen[1]
        return self._read_states()

    def reach(self) -> None:
        self._read_states(hurried=True)

    def _read_states(self, *, hurried: bool = False) -> States:
        began_s = time.monotonic()
        states = self._words.state(hurried=hurried), self._vectors.state(hurried=hurried)
        self._seen = began_s, states
        return states

    def _asked(
        self, part: Part, bodies: Sequence[JSON], *, exact: bool, model: str | None = None
    ) -> list[JSON]:
        """The replies to searches in the current index. [] if this index does not exist, is empty, or is not
        of `model` (if given). Tries again if the index is replaced meanwhile.
        """
        for last in (False, True):
            words, vectors = self._read_states() if last else self._states()
            state = words if part is self._words else vectors
            if state is None or (model is not None and state.model != model):
                continue
            if state.format != FORMAT:
                raise StoreError("the index in OpenSearch is of another version: run `ctx index`")
            if state.owner != self._owner():  # the chunk numbers in it belong to other documents
                raise self._foreign()
            if not state.size:
                continue
            try:
                searches = [queries.search_of(state.name, body, exact=exact) for body in bodies]
                return self._client.search_all(searches)
            except Refusal as error:
                if error.status != 404 or last:
                    raise  # 404 means that the index was replaced meanwhile
        return []

    def _hits(self, query: JSON | None, filters: Filters, k: int) -> list[Hit]:
        if query is None or filters.closed:
            return []
        body = queries.word_body(query, filters, k)
        return queries.hits_in(self._asked(self._words, [body], exact=True), queries.SCALE)

    def _frequencies_of(self, terms: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """(field, term) -> the number of passages that contain the term in this field. Sends one request."""
        totals = self._totals([queries.term(field, name) for field, name in terms])
        return dict(zip(terms, totals, strict=True))

    def _totals(self, questions: Sequence[JSON]) -> list[int]:
        """The number of passages that each of these queries finds."""
        bodies = [{"size": 0, "track_total_hits": True, "query": question} for question in questions]
        replies = self._asked(self._words, bodies, exact=False) if bodies else []
        return [int(reply["hits"]["total"]["value"]) for reply in replies] or [0] * len(questions)

    def _beginning(self, query: str) -> JSON | None:
        """The query for the terms that the incomplete last word may become; None if no term matches."""
        words = analyze.plain_words(query)
        if not words or query[-1:].isspace():
            return None
        stems = analyze.stems_of_unfinished(words[-1])
        choices = [
            {"prefix": {"text": {"value": words[-1]}}},
            *(queries.term("text", stem) for stem in stems),
        ]
        return next(compress(choices, self._totals(choices)), None)
