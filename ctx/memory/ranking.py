"""Ranks the memories of a bank for a query.

`find` runs keyword and vector search and fuses their results. The other steps take a list of hits, best
first, and return another: `timely` ranks memories from a time window higher, and `succeeded` exchanges a hit
on a replaced memory for the memory that replaced it.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import NamedTuple

from ctx.memory.columns import Memory
from ctx.memory.dates import Window
from ctx.memory.filters import Condition
from ctx.memory.language import first_person, language, silent_terms
from ctx.memory.reader import Reader
from ctx.memory.scores import MAX_STATEMENT_CHARS, WordQuery, bm25, calibration, coverage, word_query
from ctx.memory.vectors import BankVectors, Embedding, Floats
from ctx.text.analyze import STOP_WORDS, query_counts, words

# The weight of the best keyword score (BM25) relative to a cosine, for short texts and a short question. It
# is low, so that vector search can find a memory that uses other words than the question.
_LEAST_SHARE = 0.07
_SHORT_QUESTION = 8  # words; a question with twice as many is weighted as a paragraph
# Decimal digits that BM25 and cosines are rounded to; further ones depend on the order of additions.
_DIGITS = 6
_NAME = re.compile(r"[A-ZÄÖÜ][a-zäöüß]\w*")
_WIDER = 16  # factor for the number of nearest memories to look at, if the conditions exclude too many

# Added to the fused score if a memory's own time is in the time window that the question names. The best
# fused score is 1, so these memories rank above all others.
_NAMED_TIME_LIFT = 1.01
_STORED_TIME_LIFT = 0.3  # raises the fused score by this share if only the time of storing is in the window
_NAMED_TIME_SCORE = 0.75  # the minimum score of a memory with at least half of its time in the window
_NEAR_TWIN = 0.75  # cosine; on average, a fact in the LoCoMo data set has one earlier fact this close


class MemoryHit(NamedTuple):
    """A search result. `score`, in [0, 1], does not depend on the other results. Results are ordered by
    `fused`, which is 1 for the best result of `find`.
    """

    memory: Memory
    score: float
    fused: float


def rank_key(hit: MemoryHit) -> tuple[float, float, int, str]:
    """Sort key for hits: fused score, then score, then newest first, then id."""
    return (-hit.fused, -hit.score, -hit.memory.uttered_ms, hit.memory.id)


# -- keyword and vector search -------------------------------------------------------------------------------


def find(
    reader: Reader,
    embedding: Embedding,
    query: str,
    mode: str,
    conditions: Sequence[Condition],
    depth: int,
) -> tuple[list[MemoryHit], bool]:
    """Up to `depth` memories from each search that `mode` includes, best first, and whether the embedder
    failed.

    The fused score is the mean of two cosines, one with the query and one with the query without names, plus
    a share of BM25. It is scaled so that the best memory has 1.
    """
    first_person_query = first_person(query)  # "the user" finds nothing: most memories are about them
    if query_counts(first_person_query).keys() - {"i", "my"}:
        query = first_person_query
    question, frequencies = words_of(reader, query)
    nos = [] if mode == "semantic" else reader.by_words(frequencies, conditions, depth)
    by_words = bool(nos)
    vectors = embedding.of_bank(reader) if mode != "keyword" else None
    vector = embedding.query_vector(query) if vectors is not None else None
    cosines: dict[int, float] = {}
    without_names = cosines
    if vectors is not None and vector is not None:
        nos = list(dict.fromkeys((*nos, *nearest(reader, vectors, vector, conditions, depth))))
        cosines = without_names = _cosines(vectors, vector, nos)
        nameless = _nameless(query)
        if nameless != query and (unnamed := embedding.query_vector(nameless)) is not None:
            without_names = _cosines(vectors, unnamed, nos)
    rows, stored = reader.rows(nos), reader.words(nos)
    weights = {no: round(bm25(question, stored.get(no, ())), _DIGITS) if by_words else 0.0 for no in rows}
    nearness = {no: (cosines[no] + without_names[no]) / 2 for no in rows if no in cosines}
    fused = _fused(weights, nearness, _share_of_words(question, [row.text for row in rows.values()]))
    top = max(fused.values(), default=0.0)
    likelihood = calibration(embedding.model or "")
    hits = []
    for no, strength in fused.items():
        lexical = coverage(question, stored.get(no, ()), rows[no].text)
        semantic = likelihood(cosines[no]) if no in cosines else 0.0
        rank = round(strength / top, 9) if top > 0 else strength
        hits.append(MemoryHit(rows[no], round(1.0 - (1.0 - semantic) * (1.0 - lexical), 6), rank))
    return sorted(hits, key=rank_key), vectors is not None and vector is None


def words_of(reader: Reader, query: str) -> tuple[WordQuery, dict[str, int]]:
    """The weighted words of a query, and the number of memories in the bank that contain each term."""
    silent = silent_terms(query)
    counts = query_counts(query)
    counts = {term: count for term, count in counts.items() if term not in silent} or counts
    frequencies = reader.frequencies(counts)
    bank = reader.bank
    mean_terms = bank.live_terms / (bank.live or 1)
    return word_query(query, counts, frequencies, bank.live, mean_terms), frequencies


def nearest(
    reader: Reader, vectors: BankVectors, vector: Floats, conditions: Sequence[Condition], depth: int
) -> dict[int, float]:
    """Memory number -> cosine of the nearest memories that meet the conditions, nearest first.

    The conditions are tested on the nearest memories of the bank first. Only if too few meet them, they are
    tested on the whole bank.
    """
    for width in (depth, depth * _WIDER):
        cosines = vectors.nearest(vector, width)
        passing = set(reader.numbers(conditions, list(cosines)))
        matches = {no: cosine for no, cosine in cosines.items() if no in passing}
        if len(matches) >= depth or len(cosines) < width:
            return dict(islice(matches.items(), depth))
    return vectors.nearest(vector, depth, among=reader.numbers(conditions))


def _cosines(vectors: BankVectors, vector: Floats, nos: list[int]) -> dict[int, float]:
    return {no: round(cosine, _DIGITS) for no, cosine in vectors.cosines(vector, nos).items()}


def _nameless(question: str) -> str:
    """The question without names, that is, without capitalised words except the first of a sentence.

    All memories about Yuki are close to any question about Yuki, so the other words must select among them.
    Only English questions are changed: other languages use capitals or form questions in other ways.
    """
    if language(question) != "en":
        return question
    nameless: list[str] = []
    is_first = True
    for word in question.split():
        stripped = word.strip("\"'“”‘’«»()[],;:.?!")
        if is_first or not _NAME.match(stripped) or STOP_WORDS.issuperset(words(word)):
            nameless.append(word)
        is_first = word.endswith((".", "!", "?"))
    return " ".join(nameless)


def _fused(
    weights: Mapping[int, float], nearness: Mapping[int, float], share_of_words: float
) -> dict[int, float]:
    """Memory number -> fused score. Memories with neither a cosine nor a BM25 are left out."""
    nearest_of_all = max(nearness.values(), default=0.0)
    most = max(weights.values(), default=0.0) or 1.0
    # For a memory that is not embedded yet, the cosine is estimated from its BM25.
    return {
        no: nearness.get(no, nearest_of_all * weight / most) + share_of_words * weight / most
        for no, weight in weights.items()
        if no in nearness or weight > 0
    }


def _share_of_words(question: WordQuery, texts: Sequence[str]) -> float:
    """The weight of the best BM25 relative to a cosine, from `_LEAST_SHARE` to 1.

    It is low for short statements and short questions. It rises for longer texts and longer questions, where
    cosines separate less well.
    """
    mean_chars = sum(map(len, texts)) / (len(texts) or 1)
    length = mean_chars / MAX_STATEMENT_CHARS * 1.5 - 1  # 0 at two thirds of the longest statement, 1 at four
    breadth = (len(question.words) - _SHORT_QUESTION) / _SHORT_QUESTION
    return _LEAST_SHARE + (1 - _LEAST_SHARE) * min(1.0, max(0.0, length, breadth))


# -- steps on ranked hits ------------------------------------------------------------------------------------


def timely(hits: Sequence[MemoryHit], others: Sequence[Memory], window: Window) -> list[MemoryHit]:
    """Puts memories whose own time is in the window first. Memories that were only stored in the window rank
    higher than before. `others` are memories in the window that neither search found.
    """
    lifted = []
    for memory, score, rank in (*hits, *(MemoryHit(memory, 0.0, 0.0) for memory in others)):
        share = _share_within(memory, window)
        if share is not None and memory.event_ms is None and memory.said_ms is None:
            rank *= 1 + _STORED_TIME_LIFT
        elif share is not None:
            score = max(score, _NAMED_TIME_SCORE) if share >= 0.5 else score
            rank = max(0.0, rank) + _NAMED_TIME_LIFT * (1 + share) / 2
        lifted.append(MemoryHit(memory, score, rank))
    return sorted(lifted, key=rank_key)


def _share_within(memory: Memory, window: Window) -> float | None:
    """The share of a memory's time that is in the window, in [0, 1]; None if no part of it is.

    For example, only 1/30 of "in November" is in a window of one day in that month.
    """
    first_ms = last_ms = memory.uttered_ms if memory.event_ms is None else memory.event_ms
    if memory.event_ms is not None and memory.event_last_ms is not None:
        last_ms = memory.event_last_ms
    begin_ms = first_ms if window.first_ms is None else max(first_ms, window.first_ms)
    end_ms = last_ms if window.last_ms is None else min(last_ms, window.last_ms)
    if end_ms < begin_ms:
        return None
    return (end_ms - begin_ms) / (last_ms - first_ms) if last_ms > first_ms else 1.0


def succeeded(hits: Sequence[MemoryHit], heads: Mapping[str, Memory | None]) -> list[MemoryHit]:
    """Replaces hits on replaced memories by hits on their last successors, and merges duplicates.

    `heads` has the id of each replaced memory -> its last successor; None if that must not be shown.
    """
    best: dict[str, MemoryHit] = {}
    for hit in hits:
        if hit.memory.superseded_by is not None and hit.memory.id in heads:
            head = heads[hit.memory.id]
            if head is None:
                continue
            hit = hit._replace(memory=head)
        twin = best.get(hit.memory.id, hit)  # the same memory, which was found in more than one way
        best[hit.memory.id] = MemoryHit(hit.memory, max(hit.score, twin.score), max(hit.fused, twin.fused))
    return sorted(best.values(), key=rank_key)


def newer_twins(page: Sequence[MemoryHit], vectors: BankVectors | None) -> dict[str, list[str]]:
    """Memory id -> ids of other memories on the same page that replaced it, or that are later and close in
    meaning, closest first. Memories without such others are left out.
    """
    cosines = {} if vectors is None else vectors.cosines_among([hit.memory.no for hit in page])
    newer: dict[str, list[tuple[bool, float, str]]] = {}
    for memory, other in product((hit.memory for hit in page), repeat=2):
        is_later = other.uttered_ms > memory.uttered_ms
        cosine = cosines.get((memory.no, other.no), 0.0) if is_later else 0.0
        is_successor = other.id == memory.superseded_by
        if is_successor or cosine >= _NEAR_TWIN:
            newer.setdefault(memory.id, []).append((is_successor, cosine, other.id))
    return {id: [twin for *_, twin in sorted(twins, reverse=True)[:3]] for id, twins in newer.items()}
