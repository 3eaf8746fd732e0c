"""Keyword and vector search over one bank, and their fusion into one ranking."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ctx.memory.embedding import Embedding
from ctx.memory.filters import Condition
from ctx.memory.gist import first_person
from ctx.memory.language import language, silent_terms
from ctx.memory.passages import MAX_STATEMENT_CHARS
from ctx.memory.reader import Candidate, Reader
from ctx.memory.scores import WordQuery, bm25, calibration, coverage, either, word_query
from ctx.memory.vectors import BankVectors, Floats
from ctx.models import JSON
from ctx.text.analyze import STOP_WORDS, query_counts, words

# The weight of the best BM25 next to a cosine, where texts and question are short: a question in other words
# than the memory's is answered by meaning.
_LEAST_SHARE = 0.07
SHORT_QUESTION = 8  # words; one of twice as many is a paragraph
_DIGITS = 6  # of a leg's scores: what differs beyond them differs by the order of an addition
_NAME = re.compile(r"[A-ZÄÖÜ][a-zäöüß]\w*")
_WIDER = 16  # how much deeper the nearest are asked for, before the whole bank is put through the conditions


class MemoryHit(NamedTuple):
    """A result: `score` in [0, 1] depends on query and memory alone; `signals` says how it came about."""

    memory: Candidate
    score: float
    signals: dict[str, JSON]


class Legs(NamedTuple):
    """What keyword and vector search returned, best first, before fusion."""

    question: WordQuery
    word_nos: list[int]
    vector_nos: list[int]
    vectors: BankVectors | None
    vector: Floats | None
    nameless: Floats | None = None  # the vector of the question without its names


def search_legs(
    reader: Reader,
    embedding: Embedding,
    query: str,
    mode: str,
    conditions: Sequence[Condition],
    depth: int,
    *,
    superseded: bool,
) -> Legs:
    """The numbers of up to `depth` memories by each search that `mode` includes."""
    first_person_query = first_person(query)  # "the user" weighs nothing: every memory is theirs
    if query_counts(first_person_query).keys() - {"i", "my"}:
        query = first_person_query
    question, frequencies = words_of(reader, query)
    word_nos = [] if mode == "semantic" else reader.by_words(frequencies, conditions, depth)
    vectors = embedding.of_bank(reader) if mode != "keyword" and reader.exists else None
    vector = embedding.query_vector(query) if vectors is not None else None
    vector_nos: list[int] = []
    if vectors is not None and vector is not None:
        vector_nos = nearest(reader, vectors, vector, conditions, depth, superseded=superseded)
    without_names = nameless(query)
    unnamed = None
    if vector is not None and without_names != query:
        unnamed = embedding.query_vector(without_names)
    return Legs(question, word_nos, vector_nos, vectors, vector, unnamed)


def words_of(reader: Reader, query: str) -> tuple[WordQuery, dict[str, int]]:
    """A question's words, and how often the bank has each."""
    silent = silent_terms(query)
    counts = query_counts(query)
    counts = {term: count for term, count in counts.items() if term not in silent} or counts
    frequencies = reader.frequencies(counts)
    bank = reader.bank
    mean_terms = bank.live_terms / (bank.live or 1)
    return word_query(query, counts, frequencies, bank.live, mean_terms), frequencies


def nameless(question: str) -> str:
    """The question without the names in it: words with a capital, but for the first of a sentence. Everything
    that was said of Yuki is near to a question about Yuki; the rest of the question says what is asked.

    Unchanged in languages other than English, where capitals say less or questions are asked otherwise.
    """
    if language(question) != "en":
        return question
    kept: list[str] = []
    first = True
    for word in question.split():
        stripped = word.strip("\"'“”‘’«»()[],;:.?!")
        is_name = not first and _NAME.match(stripped) is not None and not STOP_WORDS.issuperset(words(word))
        first = word.endswith((".", "!", "?"))
        if not is_name:
            kept.append(word)
    return " ".join(kept)


def nearest(
    reader: Reader,
    vectors: BankVectors,
    vector: Floats,
    conditions: Sequence[Condition],
    depth: int,
    *,
    superseded: bool,
) -> list[int]:
    """Numbers of the nearest memories under the conditions. They are asked of the nearest first, and only
    where too few pass is the whole bank put through them."""
    for width in (depth, depth * _WIDER):
        nos = [neighbour.no for neighbour in vectors.nearest(vector, width, superseded=superseded)]
        passing = set(reader.numbers(conditions, nos))
        matches = [no for no in nos if no in passing]
        if len(matches) >= depth or len(nos) < width:
            return matches[:depth]
    allowed = reader.numbers(conditions)
    return [
        neighbour.no for neighbour in vectors.nearest(vector, depth, superseded=superseded, among=allowed)
    ]


def weighed(reader: Reader, legs: Legs, model: str | None) -> list[MemoryHit]:
    """The hits of both legs, each with its score, best first: by the mean of the cosines with the question
    and with the question without names, and a share of BM25. `fused` is 1 for the best.
    """
    nos = list(dict.fromkeys((*legs.word_nos, *legs.vector_nos)))
    rows, stored = reader.candidates(nos), reader.words(nos)
    cosines = _cosines(legs, legs.vector, nos)
    without_names = cosines if legs.nameless is None else _cosines(legs, legs.nameless, nos)
    weights = {
        no: round(bm25(legs.question, stored.get(no, ())), _DIGITS) if legs.word_nos else 0.0 for no in rows
    }
    nearness = {no: (cosines[no] + without_names[no]) / 2 for no in rows if no in cosines}
    share_of_words = _share_of_words(legs.question, [row.text for row in rows.values()])
    fused = _fused(weights, nearness, share_of_words)
    top = max(fused.values(), default=0.0)
    sureness = calibration(model or "")
    hits = []
    for no, worth in fused.items():
        lexical = coverage(legs.question, stored.get(no, ()), rows[no].text)
        semantic = sureness(cosines[no]) if no in cosines else 0.0
        signals: dict[str, JSON] = {
            "fused": round(worth / top, 9) if top > 0 else worth,
            "bm25": weights[no],
            "cosine": cosines.get(no),
            "nameless": without_names.get(no),
            "lexical": round(lexical, 6),
            "semantic": round(semantic, 6),
        }
        hits.append(MemoryHit(rows[no], round(either(semantic, lexical), 6), signals))
    return sorted(hits, key=rank_key)


def _fused(
    weights: Mapping[int, float], nearness: Mapping[int, float], share_of_words: float
) -> dict[int, float]:
    """The fused score of each memory; one with neither cosine nor BM25 is left out."""
    nearest_of_all = max(nearness.values(), default=0.0)
    most = max(weights.values(), default=0.0) or 1.0
    # A memory that is not embedded yet is as near as its words suggest.
    return {
        no: nearness.get(no, nearest_of_all * weight / most) + share_of_words * weight / most
        for no, weight in weights.items()
        if no in nearness or weight > 0
    }


def _cosines(legs: Legs, vector: Floats | None, nos: list[int]) -> dict[int, float]:
    if legs.vectors is None or vector is None:
        return {}
    return {no: round(cosine, _DIGITS) for no, cosine in legs.vectors.cosines(vector, nos).items()}


def unranked(memory: Candidate) -> MemoryHit:
    """A memory that neither search returned, as a hit."""
    signals: dict[str, JSON] = {
        "fused": 0.0,
        "bm25": 0.0,
        "cosine": None,
        "nameless": None,
        "lexical": 0.0,
        "semantic": 0.0,
    }
    return MemoryHit(memory, 0.0, signals)


def _share_of_words(question: WordQuery, texts: Sequence[str]) -> float:
    """The weight of the best BM25 score relative to a cosine: low for short statements and short questions,
    equal for longer texts or a paragraph as the question, where cosines separate less well.
    """
    mean_chars = sum(map(len, texts)) / (len(texts) or 1)
    length = mean_chars / MAX_STATEMENT_CHARS * 1.5 - 1  # from two thirds of the longest statement to four
    breadth = (len(question.words) - SHORT_QUESTION) / SHORT_QUESTION
    return _LEAST_SHARE + (1 - _LEAST_SHARE) * min(1.0, max(0.0, length, breadth))


def rank_key(hit: MemoryHit) -> tuple[float, float, int, str]:
    """The order of hits: the fused rank, then the score, then the newest; only twins in all of it go by
    id."""
    return (-hit.signals["fused"], -hit.score, -hit.memory.uttered_ms, hit.memory.id)
