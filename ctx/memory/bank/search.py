"""Searching a bank: what answers a query, in which order, and what the memories say together."""

from collections.abc import Sequence
from typing import NamedTuple

from ctx.analyze import query_terms
from ctx.errors import BadRequest, EmbeddingsDisabled
from ctx.memory.bank.base import MAX_LIMIT, BankView
from ctx.memory.columns import Memory, moment_ms, number, whole
from ctx.memory.dates import Window, window
from ctx.memory.filters import Condition, compile_filter
from ctx.memory.legs import MemoryHit, rank_key, search_legs, weighed
from ctx.memory.reader import Candidate, Reader
from ctx.memory.reflect import Disposition, Evidence, reflect
from ctx.types import JSON

DEPTHS = {"low": 100, "mid": 300, "high": 1000}  # candidates each leg gives
MODES = ("hybrid", "keyword", "semantic")
NEAR_COSINE = 0.93  # two wordings of one statement under MiniLM; only links, so a mistake costs nothing
NEAR_WORDS = 0.8  # shared share of all terms, where there is no embedder
TIME_LIFT = 0.3  # of a memory in the time a query names: from the fourth rank to the first
RECENCY_SPAN = 0.1  # the most that age moves a rank: a tenth up or down
CHARS_PER_TOKEN = 4
_DAY_MS = 86_400_000


class Question(NamedTuple):
    """What is asked of a bank, checked."""

    query: str
    mode: str = "hybrid"
    budget: str = "low"
    needed: int = 10  # hits
    filter: JSON = None
    window: JSON = None
    as_of: JSON = None
    include_superseded: bool = False
    half_life_days: float | None = None

    def check(self) -> "Question":
        """Itself. Raises `BadRequest`."""
        if not isinstance(self.query, str) or not self.query.strip():
            raise BadRequest("query: a text with at least one character is needed")
        if self.mode not in MODES:
            raise BadRequest(f"mode: one of {', '.join(MODES)}")
        if self.budget not in DEPTHS:
            raise BadRequest(f"budget: one of {', '.join(DEPTHS)}")
        return self

    @property
    def depth(self) -> int:
        """Candidates of each leg: one depth for all pages of a query, or a page would be ranked otherwise than the one before."""
        depth = DEPTHS[self.budget]
        return max(depth, -(-self.needed // 1000) * 1000 if self.needed > depth else 0)


class Searching(BankView):
    """What finds memories by what they say."""

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
        half_life_days: float | None = None,
        explain: bool = False,
        touch: bool = False,
    ) -> JSON:
        """The memories that answer a query: `{"results": [{"record", "score", "container"?, "signals"?}], "total", "degraded"}`.

        `order`: "rank" fuses both legs (reciprocal ranks), "score" sorts by the calibrated score. `total` counts what reached
        `min_score` among the candidates of `budget` (low 100, mid 300, high 1000 from each leg), before `offset` and `limit`.
        `max_tokens` ends the page before it is exceeded (a token is four characters), but never before the first result.
        `window`: "auto" lifts what falls in a time named by the query, `{"since", "until"}` admits nothing else.
        `half_life_days` moves ranks by age, by a tenth at most. `touch` counts a reading of what is returned.
        `degraded` says why the search was less than asked: "no_embedder".
        """
        if order not in ("rank", "score"):
            raise BadRequest("order: rank or score")
        limit, offset = whole("limit", limit, 0, MAX_LIMIT), whole("offset", offset, 0, 100_000)
        if max_tokens is not None:
            max_tokens = whole("max_tokens", max_tokens, 1, 10_000_000)
        if half_life_days is not None:
            half_life_days = number("half_life_days", half_life_days, 0.001, 1e6)
        floor = number("min_score", min_score, 0.0, 1.0)
        question = Question(
            query, mode, budget, offset + limit, filter, window, as_of, include_superseded, half_life_days
        )
        with self._view() as view:
            hits, degraded = self._hits(view, question.check())
            hits = [hit for hit in hits if hit.score >= floor]
            if order == "score":
                hits.sort(key=lambda hit: -hit.score)  # stable: equal scores keep the order of rank
            page = _within_tokens(hits[offset : offset + limit], max_tokens)
            results = self._results(view, page, explain=explain)
        if touch and page:
            self._count_reading([hit.memory.no for hit in page])
        return {"results": results, "total": len(hits), "degraded": degraded}

    def synthesize(
        self,
        query: str,
        *,
        budget: str = "low",
        context: str | None = None,
        disposition: JSON = None,
        filter: JSON = None,
        as_of: JSON = None,
    ) -> JSON:
        """What the memories say to a question, each sentence with its evidence: see `ctx.memory.reflect.reflect`.

        `disposition` ({"mission", "skepticism", "literalism", "empathy"}) replaces what the bank configures. The same memories, query
        and clock give the same bytes.
        """
        if budget not in DEPTHS:
            raise BadRequest(f"budget: one of {', '.join(DEPTHS)}")
        if context is not None and not isinstance(context, str):
            raise BadRequest("context: a text is needed")
        with self._view() as view:
            manner = Disposition.of({**view.bank.config, **(disposition or {})})

            def evidence(sub_query: str, count: int) -> list[Evidence]:
                question = Question(sub_query, "hybrid", "mid", count, filter, "auto", as_of).check()
                hits = self._hits(view, question)[0][:count]
                rows = view.rows([hit.memory.no for hit in hits])
                return [_evidence(rows[hit.memory.no], hit.score) for hit in hits]

            return reflect(
                query,
                evidence,
                now_ms=self._now(),
                budget=budget,
                context=context,
                disposition=manner,
                language_model=self._resources.language_model,
            )

    def near(self, text: str, kind: str) -> list[tuple[Candidate, float]]:
        """Up to five memories of the kind that say almost the same, with how much they are alike, most alike first."""
        terms = set(query_terms(text))
        alike = []
        with self._view() as view:
            hits, _ = self._hits(view, Question(text, needed=20).check())
        for hit in hits[:20]:
            cosine = hit.signals.get("cosine") or 0.0
            terms_of_hit = set(query_terms(hit.memory.text))
            shared = len(terms & terms_of_hit) / (len(terms | terms_of_hit) or 1)
            if hit.memory.kind == kind and (cosine >= NEAR_COSINE or shared >= NEAR_WORDS):
                alike.append((hit.memory, round(max(cosine, shared), 4)))
        return sorted(alike, key=lambda pair: (-pair[1], pair[0].id))[:5]

    def _hits(self, view: Reader, question: Question) -> tuple[list[MemoryHit], str | None]:
        """Everything the legs found, best rank first, and why it may be less than asked."""
        if self._embedding.model is None and question.mode == "semantic":
            raise EmbeddingsDisabled("semantic search needs an embedder; none is configured")
        now_ms = self._now()
        conditions = [
            self._shown(question.as_of, question.include_superseded),
            compile_filter(question.filter),
        ]
        lifted, admitted = _window(question.window, question.query, now_ms)
        if admitted is not None:
            conditions.append(_in_window(admitted))
        if not view.exists:
            return [], None
        legs = search_legs(
            view,
            self._embedding,
            question.query,
            question.mode,
            conditions,
            question.depth,
            superseded=question.include_superseded or question.as_of is not None,
        )
        hits = weighed(view, legs, self._embedding.model)
        if lifted is not None or question.half_life_days is not None:
            hits = _reweighed(hits, lifted, question.half_life_days, now_ms)
        unread = self._embedding.model is None or (legs.vectors is not None and legs.vector is None)
        return hits, "no_embedder" if unread and question.mode != "keyword" else None

    def _results(self, view: Reader, hits: Sequence[MemoryHit], *, explain: bool) -> list[JSON]:
        rows = view.rows([hit.memory.no for hit in hits]) if hits else {}
        records = self._records(view, [rows[hit.memory.no] for hit in hits])
        containers = self._containers(view, {record["parent"] for record in records if record["parent"]})
        results = []
        for hit, record in zip(hits, records, strict=True):
            result = {"record": record, "score": hit.score}
            if record["parent"] in containers:
                result["container"] = containers[record["parent"]]
            if explain:
                result["signals"] = hit.signals
            results.append(result)
        return results

    def _containers(self, view: Reader, ids: set[str]) -> dict[str, JSON]:
        parents = [parent for id in sorted(ids) if (parent := view.row(id)) is not None]
        undeleted = [parent for parent in parents if parent.deleted_ms is None]
        return {record["id"]: record for record in self._records(view, undeleted)}


# -- ranking ------------------------------------------------------------------------------------------------------


def _reweighed(
    hits: list[MemoryHit], lifted: Window | None, half_life_days: float | None, now_ms: int
) -> list[MemoryHit]:
    reweighed = []
    for hit in hits:
        when_ms = hit.memory.when_ms
        factor = 1.0
        if half_life_days is not None:
            age_days = max(0.0, (now_ms - when_ms) / _DAY_MS)
            factor *= 1 + RECENCY_SPAN * (2 * 0.5 ** (age_days / half_life_days) - 1)
        if lifted is not None and (lifted.first_ms or when_ms) <= when_ms <= (lifted.last_ms or when_ms):
            factor *= 1 + TIME_LIFT
        reweighed.append(hit._replace(signals={**hit.signals, "fused": hit.signals["fused"] * factor}))
    return sorted(reweighed, key=rank_key)


def _window(value: JSON, query: str, now_ms: int) -> tuple[Window | None, Window | None]:
    """(window whose memories are lifted, window outside which nothing is shown)."""
    if value is None:
        return None, None
    if value == "auto":
        return window(query, now_ms), None
    if not isinstance(value, dict) or not set(value) <= {"since", "until"}:
        raise BadRequest('window: "auto" or {"since", "until"}')
    until = value.get("until")
    last_ms = moment_ms("window.until", until)
    if isinstance(until, str) and len(until.strip()) == 10 and last_ms is not None:
        last_ms += _DAY_MS - 1  # a date alone is the whole day
    return None, Window(moment_ms("window.since", value.get("since")), last_ms)


def _in_window(admitted: Window) -> Condition:
    moment = "ifnull(m.event_ms, ifnull(m.said_ms, m.created_ms))"
    ends = ((">=", admitted.first_ms), ("<=", admitted.last_ms))
    bounds = [(f"{moment} {sign} ?", ms) for sign, ms in ends if ms is not None]
    return Condition(" AND ".join(sql for sql, _ in bounds) or "1", tuple(ms for _, ms in bounds))


def _within_tokens(hits: list[MemoryHit], max_tokens: int | None) -> list[MemoryHit]:
    if max_tokens is None:
        return hits
    page: list[MemoryHit] = []
    tokens = 0
    for hit in hits:
        tokens += -(-len(hit.memory.text) // CHARS_PER_TOKEN)
        if page and tokens > max_tokens:
            break
        page.append(hit)
    return page


def _evidence(memory: Memory, score: float) -> Evidence:
    return Evidence(
        memory.id, memory.text, memory.context, memory.event_ms, memory.created_ms, score, tuple(memory.flags)
    )
