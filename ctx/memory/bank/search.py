"""Searching a bank: memories for a query, similar memories, and answers from many memories."""

from collections.abc import Sequence
from itertools import accumulate

from ctx.clock import DAY_MS
from ctx.errors import BadRequest, EmbeddingsDisabled
from ctx.memory.bank.read import MAX_LIMIT, Reading
from ctx.memory.columns import Memory, moment_ms, number, whole
from ctx.memory.dates import Window
from ctx.memory.dates import window as window_of
from ctx.memory.filters import Condition, compile_filter, same
from ctx.memory.ranking import MemoryHit, find, nearest, newer_twins, succeeded, timely, words_of
from ctx.memory.reader import Reader, visible
from ctx.memory.reflect import reflect
from ctx.memory.scores import UNKNOWN_MODEL, bm25, calibration, segments
from ctx.memory.vectors import unpack
from ctx.models import JSON, MODES
from ctx.text.analyze import MAX_QUERY_CHARS

# Budget -> number of candidates from each of the two searches, keyword and vector.
DEPTHS = {"low": 100, "mid": 300, "high": 1000}
CHARS_PER_TOKEN = 4
MAX_SIMILAR = 3
# Thresholds from which a memory counts as close in meaning to a new one. 6 % of the pairs of facts in the
# LoCoMo data set, taken from different sessions, reach `SIMILAR_COSINE`. The other two thresholds let through
# the same share of pairs: the quantile for embedding models without a known calibration, the share of words
# for memories without vectors.
SIMILAR_COSINE = 0.62
SIMILAR_QUANTILE = 0.94
SIMILAR_WORDS = 0.23  # the BM25 of the two texts, divided by that of the new text with itself
_NEIGHBOURS = 20  # older memories that are compared with each passage of a new memory
_COMPARED_PASSAGES = 8  # only the first passages of a new memory are compared with older memories


class Searching(Reading):
    """The operations that search memories."""

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        offset: int = 0,
        mode: str = "hybrid",
        filter: JSON = None,
        min_score: float = 0.0,
        budget: str = "low",
        max_tokens: int | None = None,
        window: JSON = None,
        as_of: JSON = None,
        include_superseded: bool = False,
        order: str = "rank",
        asked_at: JSON = None,
        touch: bool = False,
    ) -> JSON:
        """The memories that answer a query: `{"results": [{"record", "score", "container"?, "replaced"?,
        "newer"?}], "total", "confidence", "degraded"}`.

        Arguments: `budget` sets the number of candidates from each search: low 100, mid 300, high 1000.
        `order` "rank" sorts by relevance, "score" only by the calibrated score. `max_tokens` limits the texts
        of one page (a token is four characters); a page always has at least one result.
        `window` "auto" ranks memories higher if they are from a time named in the query; `{"since", "until"}`
        leaves out all memories of other times. Times in the query are relative to `asked_at`, by default now.
        `touch` counts a read of each result.

        Reply: `total` counts the candidates with at least `min_score`, before `offset` and `limit`.
        `confidence` is the best score in [0, 1]: how likely it is that any memory answers the query. `newer`
        has the ids of later results that are close in meaning to this one, or that replaced it. `degraded` is
        "no_embedder" if vector search was not possible, else null. `missing`, only in the reply if the store
        has lost memories, is their number.
        """
        if order not in ("rank", "score"):
            raise BadRequest("order: rank or score")
        limit, offset = whole("limit", limit, 0, MAX_LIMIT), whole("offset", offset, 0, 100_000)
        max_tokens = None if max_tokens is None else whole("max_tokens", max_tokens, 1, 10_000_000)
        least_score = number("min_score", min_score, 0.0, 1.0)
        options = {"mode": mode, "filter": filter, "window": window, "as_of": as_of, "asked_at": asked_at}
        options["include_superseded"] = include_superseded
        with self._view() as view:
            hits, degraded = self._hits(view, query, offset + limit, budget, **options)
            confidence = max((hit.score for hit in hits), default=0.0)
            hits = [hit for hit in hits if hit.score >= least_score]
            if order == "score":
                hits.sort(key=lambda hit: -hit.score)  # a stable sort: equal scores stay sorted by rank
            page = hits[offset : offset + limit]
            tokens = accumulate(-(-len(hit.memory.text) // CHARS_PER_TOKEN) for hit in page)
            if max_tokens is not None:
                page = page[: max(1, sum(count <= max_tokens for count in tokens))]
            results = self._results(view, page)
        if touch:
            self._count_reading([hit.memory.no for hit in page])
        reply = {"results": results, "total": len(hits), "confidence": confidence, "degraded": degraded}
        lost = self._rows.missing().lost
        return reply | ({"missing": lost} if lost else {})

    def synthesize(
        self,
        query: str,
        *,
        budget: str = "low",
        context: str | None = None,
        filter: JSON = None,
        as_of: JSON = None,
    ) -> JSON:
        """Answers a query from memories, with citations. See `ctx.memory.reflect.reflect` for the reply.

        Without a language model, the same memories, query and time of the call give the same reply.
        """
        if not isinstance(context, str | None):
            raise BadRequest("context: must be a text")
        query = _checked(query, budget)
        with self._view() as view:

            def find_hits(sub_query: str, count: int) -> list[MemoryHit]:
                hits, _ = self._hits(view, sub_query, count, "mid", filter=filter, window="auto", as_of=as_of)
                replaced = view.replaced_by([hit.memory.id for hit in hits[:count]])
                return [
                    hit._replace(memory=memory)
                    for hit in hits[:count]
                    for memory in (hit.memory, *replaced.get(hit.memory.id, ()))
                ]

            return reflect(
                query,
                find_hits,
                now_ms=self._now(),
                budget=budget,
                context=context,
                config=view.bank.config,
                language_model=self._store.language_model,
            )

    def similar(self, memory: Memory, packed: Sequence[bytes]) -> list[tuple[Memory, float]]:
        """Live memories of the same kind, close in meaning to a new memory, with scores, closest first.

        Facts must have the same label too. Memories said in the same session at the same moment are left
        out. `packed` has the vectors of the new memory.
        """
        with self._view() as view:
            if not view.exists:
                return []
            conditions = [visible(self._now()), same("m.kind", memory.kind)]
            if memory.kind == "fact":  # the label is a project, and a fact says nothing about another project
                conditions.append(same("m.label", memory.label))
            scored = self._close_in_meaning(view, packed, conditions)
            if scored is None:
                scored = _close_in_words(view, memory, conditions)
            rows = view.rows(scored)
        moment = (memory.session, memory.said_ms)
        close = [row for row in rows.values() if row.said_ms is None or (row.session, row.said_ms) != moment]
        return sorted(((row, scored[row.no]) for row in close), key=lambda pair: (-pair[1], pair[0].id))

    def _close_in_meaning(
        self, view: Reader, packed: Sequence[bytes], conditions: Sequence[Condition]
    ) -> dict[int, float] | None:
        """Memory number -> cosine, for close memories; None if there are no vectors to compare."""
        vectors = self._embedding.of_bank(view) if packed else None
        if vectors is None:
            return None
        least = SIMILAR_COSINE
        if calibration(self._embedding.model or "") is UNKNOWN_MODEL:
            least = vectors.quantile(SIMILAR_QUANTILE) or least
        cosines: dict[int, float] = {}
        for vector in map(unpack, packed[:_COMPARED_PASSAGES]):
            for no, cosine in nearest(view, vectors, vector, conditions, _NEIGHBOURS).items():
                cosines[no] = max(cosine, cosines.get(no, -1.0))
        return {no: round(cosine, 4) for no, cosine in cosines.items() if cosine >= least}

    def _hits(
        self,
        view: Reader,
        query: str,
        needed: int,
        budget: str,
        *,
        mode: str = "hybrid",
        filter: JSON = None,
        window: JSON = None,
        as_of: JSON = None,
        include_superseded: bool = False,
        asked_at: JSON = None,
    ) -> tuple[list[MemoryHit], str | None]:
        """All hits, best rank first, and the value of `degraded`. `needed` is the number of hits to show."""
        query = _checked(query, budget)
        if mode not in MODES:
            raise BadRequest(f"mode: one of {', '.join(MODES)}")
        if self._embedding.model is None and mode == "semantic":
            raise EmbeddingsDisabled("semantic search needs an embedder; none is configured")
        now_ms = self._now()
        asked_ms = moment_ms("asked_at", asked_at)
        lifted, admitted = _windows(window, query, now_ms if asked_ms is None else asked_ms)
        narrowed = [compile_filter(filter), *([_in_window(admitted)] if admitted else [])]
        conditions = [self._shown(as_of, include_superseded), *narrowed]
        if not view.exists:
            return [], None
        # Search replaced memories too. A hit on one is exchanged for the memory that replaced it, whose own
        # words may not match the question.
        depth = DEPTHS[budget]
        if needed > depth:  # round up, so that most pages of one query are cut from the same ranking
            depth = -(-needed // 1000) * 1000
        follows = as_of is None and not include_superseded
        searched = [visible(now_ms, superseded=True), *narrowed] if follows else conditions
        hits, failed = find(view, self._embedding, query, mode, searched, depth)
        if lifted is not None:
            hit_nos = {hit.memory.no for hit in hits}
            has_date = Condition("m.event_ms IS NOT NULL OR m.said_ms IS NOT NULL", ())
            dated = [*conditions, has_date, _in_window(lifted)]
            in_window = view.select(dated, "coalesce(m.event_ms, m.said_ms), m.no", depth)
            hits = timely(hits, [memory for memory in in_window if memory.no not in hit_nos], lifted)
        if follows:
            hits = succeeded(hits, _heads(view, hits, conditions))
        unread = self._embedding.model is None or failed
        return hits, "no_embedder" if unread and mode != "keyword" else None

    def _results(self, view: Reader, hits: Sequence[MemoryHit]) -> list[JSON]:
        records = self._records(view, [hit.memory for hit in hits])
        parents = map(view.row, sorted({record["parent"] for record in records if record["parent"]}))
        undeleted = [parent for parent in parents if parent is not None and parent.deleted_ms is None]
        containers = {record["id"]: record for record in self._records(view, undeleted)}
        replaced = {
            id: [{"id": old.id, "text": old.text, "timestamp": old.uttered_ms} for old in memories]
            for id, memories in view.replaced_by([record["id"] for record in records]).items()
        }
        newer = newer_twins(hits, self._embedding.of_bank(view) if len(hits) > 1 else None)
        return [
            {
                "record": record,
                "score": hit.score,
                **({"container": containers[record["parent"]]} if record["parent"] in containers else {}),
                **({"replaced": replaced[record["id"]]} if record["id"] in replaced else {}),
                **({"newer": newer[record["id"]]} if record["id"] in newer else {}),
            }
            for hit, record in zip(hits, records, strict=True)
        ]


def _checked(query: JSON, budget: str) -> str:
    """Checks a query and a budget. Returns the query cut to `MAX_QUERY_CHARS`. Raises `BadRequest`."""
    if not isinstance(query, str) or not query.strip():
        raise BadRequest("query: must be a text with at least one character")
    if budget not in DEPTHS:
        raise BadRequest(f"budget: one of {', '.join(DEPTHS)}")
    return query[:MAX_QUERY_CHARS]


def _heads(
    view: Reader, hits: Sequence[MemoryHit], conditions: Sequence[Condition]
) -> dict[str, Memory | None]:
    """Id of each replaced hit -> the last memory that replaced it; None if that memory must not be shown."""
    step = {hit.memory.id: hit.memory.superseded_by for hit in hits if hit.memory.superseded_by}
    ends = dict(step)
    pending = set(step.values()) - step.keys()
    while pending:
        following = view.successors(pending)
        step |= following
        pending = set(following.values()) - step.keys()
    for id, end in ends.items():
        chain = {id}
        while end in step and end not in chain:  # in a cycle of replaced memories, stop at any of them
            chain.add(end)
            end = step[end]
        ends[id] = end
    heads = {row.id: row for id in set(ends.values()) if (row := view.row(id)) is not None}
    shown = set(view.numbers(conditions, [row.no for row in heads.values()]))
    return {id: heads[end] if end in heads and heads[end].no in shown else None for id, end in ends.items()}


def _windows(value: JSON, query: str, now_ms: int) -> tuple[Window | None, Window | None]:
    """(the window whose memories rank higher, the window that all results must be in); None for no window."""
    if value is None or value == "auto":
        return (window_of(query, now_ms) if value else None), None
    if not isinstance(value, dict) or not set(value) <= {"since", "until"}:
        raise BadRequest('window: "auto" or {"since", "until"}')
    until = value.get("until")
    last_ms = moment_ms("window.until", until)
    if isinstance(until, str) and len(until.strip()) == 10 and last_ms is not None:
        last_ms += DAY_MS - 1  # a date without a time includes the whole day
    return None, Window(moment_ms("window.since", value.get("since")), last_ms)


def _in_window(admitted: Window) -> Condition:
    first = "coalesce(m.event_ms, m.said_ms, m.created_ms)"
    last = f"coalesce(CASE WHEN m.event_ms IS NOT NULL THEN m.event_last_ms END, {first})"
    ends = ((f"{last} >= ?", admitted.first_ms), (f"{first} <= ?", admitted.last_ms))
    bounds = [(sql, ms) for sql, ms in ends if ms is not None]
    return Condition(" AND ".join(sql for sql, _ in bounds) or "TRUE", tuple(ms for _, ms in bounds))


def _close_in_words(view: Reader, memory: Memory, conditions: Sequence[Condition]) -> dict[int, float]:
    """Memory number -> BM25 for the words of `memory`, divided by the BM25 of `memory` itself, if close."""
    question, frequencies = words_of(view, memory.text)
    itself = bm25(question, segments(memory))
    nos = view.by_words(frequencies, conditions, _NEIGHBOURS)
    if not nos or not itself:
        return {}
    shares = {no: bm25(question, parts) / itself for no, parts in view.words(nos).items()}
    return {no: round(min(share, 1.0), 4) for no, share in shares.items() if share >= SIMILAR_WORDS}
