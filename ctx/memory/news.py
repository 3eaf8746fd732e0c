"""How likely a later memory is news of an earlier one that a question finds, by what the two mean.

"Picked up the Yaris on Saturday, the garage took the old one" shares no word with "I drive a blue Corsa", and
little with "What car do I have?". But the two are nearer to each other than to most that is stored. So the
later one is looked for from the earlier one and not from the question, and how likely it is to be the one to
go by is a logistic function of how near they are, whether the later one says that something changed, how much
nearer it is to the question, and how much of what the earlier one says beyond the question it says too. The
weights are fitted by `benchmarks/memory.py --fit-news`. It orders, and puts nothing away.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ctx.memory.change import of_same_people
from ctx.memory.legs import MemoryHit
from ctx.memory.question import Asked
from ctx.memory.scores import logistic
from ctx.memory.statement import Statement
from ctx.memory.vectors import Floats, cosine_of

NEWS_HITS = 5  # the best, of which news is looked for: what answers a question stands there
NEWS_REACH = 100  # hits among which it is; what answers in other words is far behind
# Of three plainly worded banks' 105 facts 104 stand first from .3 on and 100 from .2 on; of 178 changes put
# as people talk the new one stands above in 95 and 99.
LIKELY = 0.3
LEAST_COSINE = 0.2  # of two that have to do with each other at all
_NAMING = 2  # so many of the question's words that only the earlier one has: it is what was asked for


class Weights(NamedTuple):
    """Of what tells how likely a later memory is news."""

    base: float
    cosine: float
    changes: float
    nearer: float
    told: float

    def likelihood(self, signals: "Signals") -> float:
        weighed = sum(weight * signal for weight, signal in zip(self[1:], signals, strict=True))
        return logistic(self.base + weighed)


class Signals(NamedTuple):
    """What tells it of two memories under a question."""

    cosine: float  # of the two
    changes: bool  # the later one says that something changed
    nearer: float  # its cosine with the question less that of the earlier one
    told: float  # the share of the earlier one's words beyond the question that it has too


# Fitted on the same sets with the lines called `unseen` of all but twins.tsv. Without them the regression
# gives (-7.83, 12.71, 1.78, 6.82, 2.62), by which 89 to 92 stand above, with 101 or 102 of the facts first.
FITTED = Weights(-6.6, 11.3, 1.79, 7.49, 2.25)


def signals_of(question: Asked, older: Statement, newer: Statement, cosine: float, nearer: float) -> Signals:
    """`nearer`: by how much the newer one's cosine with the question is more."""
    beyond = older.content - question.content
    return Signals(cosine, newer.changes, nearer, len(beyond & newer.content) / (len(beyond) or 1))


def apart(question: Asked, older: Statement, newer: Statement) -> bool:
    """Whether two statements stand beside each other, however near: of different people, or of two things of
    which the question asks for the older one, in its own words; or their nearness says nothing, since the
    model does not read them, or both are turns of a conversation, with a name before them.
    """
    unread = older.foreign or newer.foreign
    worded = len(question.content & older.content - newer.content) >= _NAMING
    return (
        newer.adds
        or question.is_told_more(older, newer)
        or (worded and newer.content.isdisjoint(older.content - question.content))
        or (unread and older.content.isdisjoint(newer.content))
        or bool(older.speaker and newer.speaker)
        or not of_same_people(older, newer)
        or question.names_special(older, newer)
        or question.tells_apart(older, newer)
    )


def news_of(
    earlier: MemoryHit, hits: Sequence[MemoryHit], vectors: Mapping[int, Floats], question: Asked
) -> int | None:
    """The index of the hit that is likeliest news of an earlier one; None where none is likely. `vectors`:
    the unit vector of each memory that may be, by its number."""
    if earlier.signals["cosine"] is None:
        return None
    older = Statement.of(earlier.memory.text)
    likeliest, news = LIKELY, None
    for index, later in enumerate(hits):
        if later.signals["cosine"] is None or later.memory.uttered_ms <= earlier.memory.uttered_ms:
            continue
        cosine = cosine_of(vectors, earlier.memory.no, later.memory.no)
        nearer = later.signals["cosine"] - earlier.signals["cosine"]
        if cosine is None or not _may_be_news(cosine, nearer, likeliest):
            continue
        newer = Statement.of(later.memory.text)
        likelihood = FITTED.likelihood(signals_of(question, older, newer, cosine, nearer))
        if likelihood >= likeliest and not apart(question, older, newer):
            likeliest, news = likelihood, index
    return news


def _may_be_news(cosine: float, nearer: float, least: float) -> bool:
    """Whether two texts of that cosine can be as likely, whatever they say."""
    return cosine >= LEAST_COSINE and FITTED.likelihood(Signals(cosine, True, nearer, 1.0)) >= least
