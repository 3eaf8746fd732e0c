"""What a score means: how sure we are, in [0, 1], that a memory answers a query.

A score is a matter of the query and the memory alone, never of the other hits: score = 1 - (1 - semantic)(1 -
lexical), where semantic is a logistic function of the cosine, fitted once per embedding model, and lexical is
the share of the query's words, each weighed by its rarity in the bank, that stand together in one passage.
Either is enough to pass a threshold, so 0.7 means the same with and without the embedder.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ctx.memory.passages import ABOUT_WEIGHT, weighed_length
from ctx.text.analyze import MAX_QUERY_CHARS, composed, query_terms, words

SUBSTRING_FLOOR = 0.95  # of a memory that holds the query word for word
PART_CREDIT = 0.5  # of a query's identifier whose parts are there and which is not there whole
PRIOR_HOLDERS = (
    5  # memories that hold any word, for its weight: so that one more does not change what a score means
)
PRIOR_MEMORIES = 1000  # a bank counts as at least so large: in a bank of three, no word is common
_BM25_K1 = 1.2
_BM25_B = 0.75
_WORD = re.compile(r"[^\W_]+")


def calibrated(model: str | None) -> bool:
    """Whether the cosines of a model were measured. Of other models only a very high one is trusted."""
    return model is not None and calibration(model) is not UNKNOWN_MODEL


def logistic(weighed: float) -> float:
    """1 / (1 + exp(-x)): what is weighed, as a likelihood."""
    return 1.0 / (1.0 + math.exp(-weighed))


class Logistic(NamedTuple):
    """The logistic function of slope * (cosine - middle)."""

    slope: float
    middle: float

    def __call__(self, cosine: float) -> float:
        return logistic(self.slope * (cosine - self.middle))


# Fitted by `benchmarks/memory.py --fit` on benchmarks/memories/pairs.tsv (docs/ranking.md): P(the memory
# answers the query).
CALIBRATIONS = {"all-MiniLM-L6-v2": Logistic(11.0, 0.3823)}
# For other models: bge and e5 give unrelated texts 0.5 to 0.8, so only a very high cosine counts.
UNKNOWN_MODEL = Logistic(20.0, 0.85)


def calibration(model: str) -> Logistic:
    """By the model's name, whatever the maker's prefix or our suffix."""
    low = model.lower()
    return next((fit for name, fit in CALIBRATIONS.items() if name.lower() in low), UNKNOWN_MODEL)


def either(semantic: float, lexical: float) -> float:
    """The probability that one of two independent signals is right: .5 and .5 give .75."""
    return 1.0 - (1.0 - semantic) * (1.0 - lexical)


class QueryWord(NamedTuple):
    """A word of a query: its term, the terms of its parts (an identifier in camel case), its share of the
    query.
    """

    whole: str | None  # None: a run without spaces, which is looked up by its pairs of characters
    parts: tuple[str, ...]
    share: float


class WordQuery(NamedTuple):
    """A query as the word leg sees it.
    Shares sum to 1; words that no memory of the bank holds weigh like the rarest.
    """

    query: str
    text: str  # the query folded
    counts: Mapping[str, int]  # how often the query says each term: what it repeats it means
    rarity: Mapping[str, float]
    words: tuple[QueryWord, ...]
    mean_terms: float


def _weights_of_words(
    query: str, weight: Mapping[str, float]
) -> dict[tuple[str | None, tuple[str, ...]], float]:
    """The weight of each word, that of its rarest term, by the term of the whole word and those of its
    parts.
    """
    weights: dict[tuple[str | None, tuple[str, ...]], float] = {}
    for word in _WORD.findall(composed(query[:MAX_QUERY_CHARS])):
        looked_for = [term for term in query_terms(word) if term in weight]
        if looked_for:  # else a stop word among others
            whole = next((term for term in words(word) if term in looked_for), None)
            parts = tuple(term for term in looked_for if term != whole)
            weights[whole, parts] = max(weight[term] for term in looked_for)
    return weights


def word_query(
    query: str,
    counts: Mapping[str, int],
    frequencies: Mapping[str, int],
    memories: int,
    mean_terms: float,
) -> WordQuery:
    """Weighs the query's words by their frequency among the bank's memories; `counts` are its terms
    (`analyze.query_counts`).
    """
    size = max(memories, PRIOR_MEMORIES)
    rarity, weight = {}, {}
    for term in counts:
        frequency = min(frequencies.get(term, 0), size)
        rarity[term] = math.log(1.0 + (size - frequency + 0.5) / (frequency + 0.5))
        weight[term] = math.log(1.0 + (size - frequency + 0.5) / (frequency + PRIOR_HOLDERS))
    weights_of_words = _weights_of_words(query, weight)
    total = sum(weights_of_words.values()) or 1.0
    shares = tuple(
        QueryWord(whole, parts, weighs / total) for (whole, parts), weighs in weights_of_words.items()
    )
    return WordQuery(query, folded(query), counts, rarity, shares, mean_terms or 1.0)


def bm25(query: WordQuery, segments: Sequence[Sequence[str]]) -> float:
    """BM25 (k1 1.2, b 0.75) of a memory by the statistics of its own bank; `segments` as the store keeps
    them.
    """
    if not segments:
        return 0.0
    counts: Counter[str] = Counter()
    for part in segments:
        counts.update(part)
    for _ in range(ABOUT_WEIGHT - 1):
        counts.update(segments[0])
    norm = _BM25_K1 * (1 - _BM25_B + _BM25_B * weighed_length(segments) / query.mean_terms)
    return sum(
        repeats * query.rarity[term] * counts[term] * (_BM25_K1 + 1) / (counts[term] + norm)
        for term, repeats in query.counts.items()
        if counts[term]
    )


def _share_in(terms: set[str], words: Sequence[QueryWord]) -> float:
    return sum(word.share * _held(word, terms) for word in words)


def coverage(query: WordQuery, segments: Sequence[Sequence[str]], text: str) -> float:
    """The weighed share of the query's words in the memory's best passage (its label, context and tags count
    with each).
    """
    if not query.words:
        return 0.0
    about, *passages = segments or ((),)
    best = max(_share_in({*about, *part}, query.words) for part in passages or [()])
    if best < SUBSTRING_FLOOR and len(query.text) >= 4 and _stands_in(query.text, folded(text)):
        best = SUBSTRING_FLOOR
    return min(best, 1.0)


def _held(word: QueryWord, terms_of_part: set[str]) -> float:
    if word.whole in terms_of_part:
        return 1.0
    if not word.parts:
        return 0.0
    return (
        (1.0 if word.whole is None else PART_CREDIT)
        * sum(part in terms_of_part for part in word.parts)
        / len(word.parts)
    )


def folded(text: str) -> str:
    """The text in one case and evenly spaced."""
    return " ".join(text.casefold().split())


def _stands_in(needle: str, text: str) -> bool:
    """Whether the words stand in the text, not inside other words."""
    start = text.find(needle)
    while start >= 0:
        end = start + len(needle)
        if not (start and text[start - 1].isalnum() and needle[0].isalnum()) and not (
            end < len(text) and text[end].isalnum() and needle[-1].isalnum()
        ):
            return True
        start = text.find(needle, start + 1)
    return False
