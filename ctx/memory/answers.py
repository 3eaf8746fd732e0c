"""Whether what was found answers the question, plainly, perhaps, or not at all.

Names make near what answers nothing: of Yuki much is said, and not when she was born. So a question is
compared with a memory a second time without its names, by its matter. How likely a memory answers is a
logistic function of the two cosines and of the question's words it holds, fitted by `benchmarks/memory.py
--fit-answers` (docs/decisions/0018-what-memory-answers.md says on what). A reader of the nearest memories
tells better than this whether they answer: so little is withheld, and what is not plain is said to be that.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ctx.analyze import query_terms
from ctx.memory.answer_kinds import kind_of, lacks_answer
from ctx.memory.answer_values import wanted
from ctx.memory.change import RELATED
from ctx.memory.language import foreign
from ctx.memory.legs import SHORT_QUESTION, MemoryHit
from ctx.memory.question import Asked
from ctx.memory.scores import logistic
from ctx.memory.statement import Statement

# Of the questions of two plainly worded banks that were not fitted by, 94 of 111 that something answers are
# above the first and 110 above the second, of those that nothing answers 1 and 22 of 22; of three banks
# worded as people talk, all about the same names, 72 and 182 of 189, and 23 and 73 of 81. What answers is
# rather shown and said to be weak than withheld.
PLAINLY, PERHAPS = 0.25, 0.02
ANSWERING_HITS = 10  # the best that are near at all, of which each may be the answer
PLAIN_BY_SCORE, PERHAPS_BY_SCORE = 0.5, 0.25  # the same of a score
FLOOR_BY_WORDS = 0.25  # by words alone: half the words of a question are its own
DOUBTFUL = 0.49  # the most that a memory scores that does not plainly answer
_RAISED = frozenset(("in_window", "of_facet", "ends"))


class Answering(NamedTuple):
    """Weights of what tells how likely a memory answers a question."""

    base: float
    cosine: float
    matter: float
    lexical: float

    def likelihood(self, cosine: float, matter: float, lexical: float) -> float:
        """Of the cosine with the question, the one without its names, and the share of its words."""
        return logistic(self.base + self.cosine * cosine + self.matter * matter + self.lexical * lexical)


FITTED = Answering(-8.16, 7.77, 6.94, 1.54)


class Answer(NamedTuple):
    """What the best hits are to a question."""

    plain: bool  # one of them answers it
    possible: bool  # one of them may


def answer_of(hits: Sequence[MemoryHit], query: str, alike: Callable[[str, str], float] | None) -> Answer:
    """Whether a hit speaks to the question. `alike`: the cosine of two things, by a model that was measured;
    None: it is told by words alone. What is of another person or thing than was asked for may be it all the
    same, under another name, and is no plain answer.
    """
    if any(hit.signals.get("in_window") or hit.signals.get("of_facet") for hit in hits):
        return Answer(True, True)
    best = [(hit, Statement.of(hit.memory.text)) for hit in hits[:ANSWERING_HITS]]
    if alike is not None:
        likelihoods = [_likelihood(hit, statement, query) for hit, statement in best]
    else:
        likelihoods = _likelihoods_by_words(hits[:ANSWERING_HITS], query)
    plain = any(
        likelihood >= PLAINLY and not (statement.short and _answers_another(query, statement, alike))
        for likelihood, (_, statement) in zip(likelihoods, best, strict=True)
    )
    return Answer(plain, max(likelihoods, default=0.0) >= PERHAPS)


def _likelihoods_by_words(hits: Sequence[MemoryHit], query: str) -> list[float]:
    # A quarter of the words of a question; of a whole paragraph as many as of a question.
    floor = FLOOR_BY_WORDS * min(1.0, SHORT_QUESTION / (len(set(query_terms(query))) or 1))
    return [PLAINLY if hit.score >= floor else 0.0 for hit in hits]


def doubted(hits: Sequence[MemoryHit], query: str) -> list[MemoryHit]:
    """The hits, of which none that does not plainly answer is called likelier than not. What was raised for
    another reason, its time or what it ends, stays as it is.
    """
    return [
        hit._replace(score=DOUBTFUL)
        if hit.score > DOUBTFUL
        and hit.signals.keys().isdisjoint(_RAISED)
        and _likelihood(hit, Statement.of(hit.memory.text), query) < PLAINLY
        else hit
        for hit in hits
    ]


def of_kind_first(hits: Sequence[MemoryHit], query: str) -> list[MemoryHit]:
    """The hits, of the best ones those last that are seen to lack the kind of answer that is asked for, or
    any name where one is. What was raised for its time stays where it is, and what is news of another one
    that stays.
    """
    best = hits[:ANSWERING_HITS]
    lacking = {
        hit.memory.id
        for hit in best
        if not hit.signals.get("in_window") and lacks_answer(Statement.of(hit.memory.text), query)
    }
    lacking -= {hit.signals.get("outdated") for hit in best if hit.memory.id not in lacking}
    return [*sorted(best, key=lambda hit: hit.memory.id in lacking), *hits[ANSWERING_HITS:]]


def _answers_another(query: str, statement: Statement, alike: Callable[[str, str], float] | None) -> bool:
    """Whether a statement is of another person than the question, or of another thing of its kind, or says no
    number, no place or nobody's name where one is asked for, or lacks its kind of answer.
    """
    question = Asked.of(query)
    return (
        question.asks_for_others(statement)
        or question.asks_for_another_name(statement)
        or question.asks_for_place_beyond(statement)
        or (question.counted and not statement.counted)
        or question.asks_for_name_beyond(statement)
        or (alike is not None and any(alike(*pair) < RELATED for pair in question.things_apart(statement)))
        or kind_of(query).is_lacking(statement, alike)
        or (alike is not None and wanted(query).is_beyond(statement, alike))
    )


def _likelihood(hit: MemoryHit, statement: Statement, query: str) -> float:
    """How likely a hit answers; by its score where its meaning is not known, or says little: in a language
    that the model does not read, and of a long text, of which some part is near to any question.
    """
    cosine, matter, lexical = (hit.signals[name] for name in ("cosine", "matter", "lexical"))
    if cosine is not None and statement.short and not foreign(query):
        return FITTED.likelihood(cosine, matter, lexical)
    return PLAINLY if hit.score >= PLAIN_BY_SCORE else PERHAPS if hit.score >= PERHAPS_BY_SCORE else 0.0
