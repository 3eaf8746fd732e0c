"""What is current among the hits of a search: times that the question names, and the newest of what speaks of
one thing.

Each step takes hits in order of rank and gives them in order of rank, and writes into their signals what it
did.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from ctx.analyze import query_terms
from ctx.clock import DAY_MS
from ctx.memory.answer_kinds import lacks_answer
from ctx.memory.change import (
    RELATED,
    UNRELATED,
    ends_something_else,
    likeness,
    linked,
    names_anew,
    newest_first,
    of_one_subject,
    of_same_people,
    tied,
    updates,
)
from ctx.memory.contrast import set_apart
from ctx.memory.dates import Window
from ctx.memory.language import foreign, silent_terms
from ctx.memory.legs import MemoryHit, rank_key
from ctx.memory.news import NEWS_HITS, NEWS_REACH, news_of
from ctx.memory.question import Asked
from ctx.memory.reader import Candidate
from ctx.memory.scores import UNREAD, either
from ctx.memory.statement import Statement
from ctx.memory.vectors import Floats, cosine_of
from ctx.types import JSON

_ANSWERING = ("bm25", "cosine", "matter", "lexical", "semantic")  # signals that say how well a memory answers
COMPARED_HITS = 30  # the best, among which the newest of what speaks of one thing is looked for
RECENCY_SPAN = 0.1  # the most that age moves a rank: a tenth up or down
# Of a memory whose own time falls in the window that the question names: above all that does not, whose
# best has 1.
NAMED_TIME_LIFT = 1.01
STORED_TIME_LIFT = 0.3  # of one that was merely stored then
NAMED_TIME_SCORE = 0.75  # such a memory is evidence by itself
MOSTLY = 0.5  # of its time has to fall there for that: "in November" says nothing of last night
# How well, as a share of the earlier one's score, a later memory must answer the question to stand before it:
# if it says that something changed, and if it does not.
CUE_SHARE = 0.4
NO_CUE_SHARE = 0.85
CHANGE_SHARE = 0.92  # the same by meaning alone, of one that says that something changed
# The same of the question's words alone, if it says that something changed and has little else to do with the
# earlier one.
WEAK_SHARE = 0.6
# So many later ones that answer equally well, and say of no change, are not one thing told anew: they share a
# topic.
TOPIC_HITS = 3
ALL_SAID = 0.9  # of the question's words, weighed
# Where the earlier one says all that the question says and the later one little of it, they must be alike by
# so much.
OVERSHADOWED = 0.6


def aged(hits: Sequence[MemoryHit], half_life_days: float, now_ms: int) -> list[MemoryHit]:
    """Ranks moved by age, by a tenth at most."""
    moved = []
    for hit in hits:
        age_days = max(0.0, (now_ms - hit.memory.when_ms) / DAY_MS)
        factor = 1 + RECENCY_SPAN * (2 * 0.5 ** (age_days / half_life_days) - 1)
        moved.append(_with_signals(hit, fused=hit.signals["fused"] * factor))
    return sorted(moved, key=rank_key)


def in_window(memory: Candidate, window: Window) -> bool:
    """Whether what a memory tells of happened, in part at least, in the window."""
    first_ms = memory.when_ms
    last_ms = first_ms if memory.event_ms is None or memory.event_last_ms is None else memory.event_last_ms
    return (window.first_ms is None or last_ms >= window.first_ms) and (
        window.last_ms is None or first_ms <= window.last_ms
    )


def timely(hits: Sequence[MemoryHit], window: Window) -> list[MemoryHit]:
    """What falls in the window comes first, and is evidence by itself; what was merely stored then is
    lifted."""
    lifted = []
    for hit in hits:
        if not in_window(hit.memory, window):
            lifted.append(hit)
        elif hit.memory.event_ms is None and hit.memory.said_ms is None:
            lifted.append(_with_signals(hit, fused=hit.signals["fused"] * (1 + STORED_TIME_LIFT)))
        else:
            exactness = _exactness(hit.memory, window)
            if exactness >= MOSTLY:
                hit = _with_signals(hit._replace(score=max(hit.score, NAMED_TIME_SCORE)), in_window=True)
            lift = NAMED_TIME_LIFT * (1 + exactness) / 2
            lifted.append(_with_signals(hit, fused=max(0.0, hit.signals["fused"]) + lift))
    return sorted(lifted, key=rank_key)


def _exactness(memory: Candidate, window: Window) -> float:
    """The share of a memory's own time that falls in the window: of "in November" little is on a day in
    November."""
    if memory.event_ms is None or memory.event_last_ms is None or memory.event_last_ms <= memory.event_ms:
        return 1.0
    first_ms = max(memory.event_ms, memory.event_ms if window.first_ms is None else window.first_ms)
    last_ms = min(memory.event_last_ms, memory.event_last_ms if window.last_ms is None else window.last_ms)
    return max(0, last_ms - first_ms) / (memory.event_last_ms - memory.event_ms)


def in_unread_words(hits: Sequence[MemoryHit], query: str) -> list[MemoryHit]:
    """The hits of a question in a language that the model does not read, each with a score by its words and
    by a meaning that is believed where it is very near. What was raised for another reason stays as it is.
    """
    if not foreign(query):
        return list(hits)
    sober = []
    for hit in hits:
        semantic, lexical, cosine = (hit.signals[name] for name in ("semantic", "lexical", "cosine"))
        if cosine is not None and hit.score <= round(either(semantic, lexical), 6):
            hit = hit._replace(score=round(either(UNREAD(cosine), lexical), 6))
        sober.append(hit)
    return sober


def succeeded(hits: Sequence[MemoryHit], heads: Mapping[str, Candidate | None]) -> list[MemoryHit]:
    """What took a memory's place stands where that memory would: `heads` gives it by the replaced one's id,
    None where it is not to be shown."""
    best: dict[str, MemoryHit] = {}
    for hit in hits:
        if hit.memory.superseded_by is not None and hit.memory.id in heads:
            head = heads[hit.memory.id]
            if head is None:
                continue
            hit = _with_signals(hit._replace(memory=head), through=hit.memory.id)
        earlier = best.get(hit.memory.id)
        best[hit.memory.id] = hit if earlier is None else _stronger(earlier, hit)
    return sorted(best.values(), key=rank_key)


def _stronger(hit: MemoryHit, second: MemoryHit) -> MemoryHit:
    """Two hits of one memory as one, which answers as well as either: by its own words, or by those of what
    it took the place of."""
    signals = {**second.signals, **hit.signals}
    for name in ("fused", *_ANSWERING):
        strengths = (hit.signals[name], second.signals[name])
        signals[name] = max((strength for strength in strengths if strength is not None), default=None)
    return hit._replace(score=max(hit.score, second.score), signals=signals)


def asked_first(hits: Sequence[MemoryHit], query: str) -> list[MemoryHit]:
    """Of alternatives the one that the question names stands before the others; and where it denies ("What do
    I not eat?"), what denies stands before what affirms and speaks of no more of the question's words."""
    question = Asked.of(query)
    statements = [Statement.of(hit.memory.text) for hit in hits]
    short = [index for index, statement in enumerate(statements) if statement.short]  # of a report part does
    before = _denials(hits, statements, short, query) if question.denied else {}
    if question.alternative:
        for index, candidate in itertools.permutations(short, 2):
            names_it = set_apart(question.terms, statements[candidate].terms, statements[index].terms)
            if names_it and _answers_better(hits[candidate], hits[index]):
                before.setdefault(index, set()).add(candidate)
    return [hits[index] for index in newest_first(len(hits), before)]


def _answers_better(candidate: MemoryHit, hit: MemoryHit) -> bool:
    """Whether a hit has more of the question's words than another, and not much less of a score."""
    enough = candidate.score >= hit.score * NO_CUE_SHARE
    return enough and candidate.signals["lexical"] > hit.signals["lexical"]


def _denials(
    hits: Sequence[MemoryHit], statements: Sequence[Statement], short: Sequence[int], query: str
) -> dict[int, set[int]]:
    """For each statement that affirms those that deny and stand before it. Where none has a word of the
    question, it is how well they answer it."""
    asked_terms = frozenset(query_terms(query)) - silent_terms(query)
    shared = [asked_terms & statement.terms for statement in statements]
    wordless = not any(shared)
    share = NO_CUE_SHARE if wordless else CUE_SHARE
    denying = {index for index in short if (wordless or shared[index]) and statements[index].denies}

    def precedes(denial: int, index: int) -> bool:
        return shared[index] <= shared[denial] and hits[denial].score >= hits[index].score * share

    return {
        index: {denial for denial in denying if precedes(denial, index)}
        for index in short
        if index not in denying
    }


def current(
    hits: Sequence[MemoryHit],
    vectors_of: Callable[[list[int]], Mapping[int, Floats]],
    query: str,
    *,
    measured: bool = True,
) -> list[MemoryHit]:
    """Of the best hits that speak of one thing the newest first; `updated_by` among the signals of the older
    ones names it.

    Of one thing speaks a later statement that tells of a change, and so do two that answer the question
    equally well: whoever asks where something is wants to hear the place that was named last. What the
    question names, the later one must name too. And so does what is likely news by its meaning (`news_of`),
    where the model was `measured`.
    """
    reach = NEWS_REACH if measured else COMPARED_HITS
    best = [*asked_first(hits[:COMPARED_HITS], query), *hits[COMPARED_HITS:reach]]
    facts = [index for index, hit in enumerate(best[:COMPARED_HITS]) if hit.memory.kind == "fact"]
    statements = {index: Statement.of(best[index].memory.text) for index in facts}
    fact_nos = [hit.memory.no for hit in best if hit.memory.kind == "fact"]
    vectors = {no: passages[0] for no, passages in vectors_of(fact_nos).items()}
    question = Asked.of(query)
    lacking = {index for index in facts if lacks_answer(statements[index], query)}
    updated_by, asked_for = _told_anew(best, statements, vectors, question, lacking)
    for earlier in facts if measured else ():
        latest = news_of(best[earlier], best, vectors, question) if earlier < NEWS_HITS else None
        if latest is not None and (earlier in lacking or latest not in lacking):
            updated_by.setdefault(earlier, set()).add(latest)
    return [*_outdated(_newest_first(best, updated_by, asked_for), vectors), *hits[len(best) :]]


def _newest_first(
    hits: Sequence[MemoryHit], updated_by: Mapping[int, set[int]], asked_for: Mapping[int, set[int]]
) -> list[MemoryHit]:
    """Hits behind those that are to stand before them; each names what updates it."""
    ordered = []
    before = {index: updated_by.get(index, set()) | asked_for.get(index, set()) for index in range(len(hits))}
    for index in newest_first(len(hits), before):
        later_ids: JSON = [hits[later].memory.id for later in sorted(updated_by.get(index, ()))]
        ordered.append(_with_signals(hits[index], updated_by=later_ids) if later_ids else hits[index])
    return ordered


def _outdated(hits: Sequence[MemoryHit], vectors: Mapping[int, Floats]) -> Sequence[MemoryHit]:
    """The hits, of which the second is `outdated` by the first, where that is news of it and plainly of one
    thing.

    Of what is merely ranked behind something newer most holds as before: of 3,047 such pairs of ten banks 411
    were a memory and what took its place, of those that are marked seven of ten.
    """
    if len(hits) <= 1:
        return hits
    newest, second = hits[:2]
    if newest.memory.id not in second.signals.get("updated_by", ()):
        return hits
    older, newer = Statement.of(second.memory.text), Statement.of(newest.memory.text)
    cosine = cosine_of(vectors, second.memory.no, newest.memory.no)
    plainly = newest.signals.get("ends") == second.memory.id or tied(older, newer)
    if not plainly and likeness(older, newer, cosine) < OVERSHADOWED:
        return hits
    return [newest, _with_signals(second, outdated=newest.memory.id), *hits[2:]]


def as_sure(hits: Sequence[MemoryHit]) -> list[MemoryHit]:
    """The hits, of which what is news of another is as sure as that, since it answers whatever that answers:
    by its score alone the older one would stand before it, or be all that is shown.
    """
    scores = {hit.memory.id: hit.score for hit in hits}
    for hit in reversed(hits):  # the older ones stand behind
        for later_id in hit.signals.get("updated_by", ()):
            scores[later_id] = max(scores[later_id], scores[hit.memory.id])
    return [hit._replace(score=scores[hit.memory.id]) for hit in hits]


def _told_anew(
    hits: Sequence[MemoryHit],
    statements: Mapping[int, Statement],
    vectors: Mapping[int, Floats],
    question: Asked,
    lacking: Set[int],
) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
    """By the index of a hit the later ones that are to stand before it, and the earlier ones that are, since
    the question names what only they are of. `statements`: those of the hits that are compared, by index;
    `lacking`: those without the kind of answer that is asked for, which are no news of what has it.
    """
    updated_by: dict[int, set[int]] = {}
    asked_for: dict[int, set[int]] = {}
    for earlier, later in itertools.permutations(statements, 2):
        if hits[earlier].memory.uttered_ms >= hits[later].memory.uttered_ms:
            continue
        if hits[later].score < hits[earlier].score * CUE_SHARE:
            continue  # it answers the question too little, whatever it says
        older, newer = statements[earlier], statements[later]
        worth = likeness(older, newer, cosine_of(vectors, hits[earlier].memory.no, hits[later].memory.no))
        pair = _Pair(hits[earlier], hits[later], older, newer, worth, question)
        if hits[later].signals.get("ends") == hits[earlier].memory.id or names_anew(older, newer):
            updated_by.setdefault(earlier, set()).add(later)
        elif (later in lacking and earlier not in lacking) or not pair.is_updated():
            continue
        elif not question.tells_apart(older, newer):
            updated_by.setdefault(earlier, set()).add(later)
        elif hits[earlier].score >= hits[later].score and question.is_of_older(older, newer):
            asked_for.setdefault(later, set()).add(earlier)
    for earlier, laters in updated_by.items():
        laters -= _of_its_topic(earlier, laters, hits, statements)
    return updated_by, asked_for


def _of_its_topic(
    earlier: int, laters: Set[int], hits: Sequence[MemoryHit], statements: Mapping[int, Statement]
) -> set[int]:
    """Those of many later hits that say of no change and less of what the question names: they share a topic
    with the earlier one, and are not it told anew. Nor is what tells of talk about it.
    """
    topic = {
        later
        for later in laters
        if not statements[later].changes and hits[later].signals["lexical"] < hits[earlier].signals["lexical"]
    }
    talk = {later for later in laters if statements[later].of_talk and not statements[earlier].of_talk}
    return topic | talk if len(topic) >= TOPIC_HITS else talk


class _Pair(NamedTuple):
    """A memory and a later one, which may be news of it, under a question; `worth`: how alike they are."""

    earlier: MemoryHit
    later: MemoryHit
    older: Statement
    newer: Statement
    worth: float
    question: Asked

    def is_updated(self) -> bool:
        """Whether the later memory is to stand before the earlier one."""
        older, newer = self.older, self.newer
        alike = _answers_alike(self.earlier, self.later)
        if not alike and self._is_unrelated():
            return False
        if newer.adds or self.question.is_told_more(older, newer):
            return False  # it comes on top of what there is
        changes = newer.changes and not ends_something_else(older, newer)
        if not changes and self.question.is_of_names_alone(older, newer):
            return False
        if self.question.located and older.located_thing and older.located_thing == newer.located_thing:
            return of_same_people(older, newer)
        if self._is_faint() and older.denies == newer.denies and not tied(older, newer):
            return False
        if self._is_related() or (alike and self._is_of_one_matter()):
            return True
        return updates(older, newer, self.worth) and self._is_answered_by_change()

    def _is_related(self) -> bool:
        if self.worth < RELATED or not of_same_people(self.older, self.newer):
            return False
        return _answers(self.earlier, self.later, NO_CUE_SHARE)

    def _is_unrelated(self) -> bool:
        """Whether nothing else could make the two of one thing: of most pairs all there is to ask."""
        return self.worth < UNRELATED and not self.question.located

    def _is_faint(self) -> bool:
        """Whether the later one says little of what the earlier one says, and means neither as much."""
        older, newer = self.older, self.newer
        of_subject = of_one_subject(older, newer)
        alike = (
            _means_as_much(self.earlier, self.later, NO_CUE_SHARE if of_subject else CHANGE_SHARE)
            and (newer.changes or of_subject)
            and not self.question.names_special(older, newer)
        )
        return self.worth < OVERSHADOWED and _overshadowed(self.earlier, self.later) and not alike

    def _is_of_one_matter(self) -> bool:
        older, newer = self.older, self.newer
        return of_one_subject(older, newer) or (
            of_same_people(older, newer)
            and _says_all(self.later)
            and not self.question.names_in_another(older, newer)
        )

    def _is_answered_by_change(self) -> bool:
        """Whether the later one answers the question well enough for the news that it is."""
        older, newer, changes = self.older, self.newer, self.newer.changes
        weak = self.later.signals["lexical"] < self.earlier.signals["lexical"] * WEAK_SHARE
        if changes and weak and not linked(older, newer, self.worth):
            return False
        share = CUE_SHARE if changes and not self.question.turns_from(older, newer) else NO_CUE_SHARE
        # Where the two have much to do with each other, the question need not say it again.
        if self.worth >= RELATED or older.names & newer.terms:
            return self.later.score >= self.earlier.score * share
        return _answers(self.earlier, self.later, share)


def _answers_alike(earlier: MemoryHit, later: MemoryHit) -> bool:
    """Whether a later memory answers the question by its words and by its meaning about as well as an earlier
    one."""
    worded: float = later.signals["lexical"]
    return worded >= earlier.signals["lexical"] * NO_CUE_SHARE and _means_as_much(earlier, later)


def _means_as_much(earlier: MemoryHit, later: MemoryHit, share: float = NO_CUE_SHARE) -> bool:
    """Whether a later memory answers the question by its meaning about as well as an earlier one."""
    return bool(later.signals["semantic"] >= earlier.signals["semantic"] * share)


def _overshadowed(earlier: MemoryHit, later: MemoryHit) -> bool:
    """Whether the earlier memory says nearly all that the question says, and the later one little of it."""
    worded: float = earlier.signals["lexical"]
    return _says_all(earlier) and bool(later.signals["lexical"] < worded * WEAK_SHARE)


def _says_all(hit: MemoryHit) -> bool:
    """Whether a memory says nearly all that the question says."""
    return bool(hit.signals["lexical"] >= ALL_SAID)


def _answers(earlier: MemoryHit, later: MemoryHit, share: float) -> bool:
    """Whether a later memory answers the question so well, as a share of an earlier one: on the whole, and
    either by those words of it that it holds, each weighed by its rarity, or by its meaning."""
    return later.score >= earlier.score * share and any(
        later.signals[leg] >= earlier.signals[leg] * share for leg in ("lexical", "semantic")
    )


def _with_signals(hit: MemoryHit, **signals: JSON) -> MemoryHit:
    return hit._replace(signals={**hit.signals, **signals})
