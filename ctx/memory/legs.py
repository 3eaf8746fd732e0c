"""The two legs of a search over one bank, by words and by meaning, and their fusion into one ranking."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ctx.analyze import query_counts
from ctx.memory.compounds import compounds
from ctx.memory.embedding import Embedding
from ctx.memory.filters import Condition
from ctx.memory.gist import first_person
from ctx.memory.language import callings, inflected, language, sexless, silent_terms
from ctx.memory.question import Asked
from ctx.memory.reader import Candidate, Reader
from ctx.memory.scores import WordQuery, bm25, calibration, coverage, either, word_query
from ctx.memory.statement import MAX_CHARS, MAX_STATEMENT_CHARS
from ctx.memory.vectors import BankVectors, Floats
from ctx.memory.verbs import verb_forms
from ctx.types import JSON

# What the best BM25 weighs beside a cosine where texts and question are short: of 240 facts that a question
# puts in other words 91 come first at .05, 88 at .07, 83 at .1, 76 at .15 (docs/decisions/0018).
_LEAST_SHARE = 0.07
SHORT_QUESTION = 8  # words; one of twice as many is a paragraph
_DIGITS = 6  # of a leg's scores: what differs beyond them differs by the order of an addition
_WIDER = 16  # how much deeper the nearest are asked for, before the whole bank is put through the conditions


class MemoryHit(NamedTuple):
    """A memory as a search found it: `score` in [0, 1] depends on nothing but query and memory; `signals`
    says how it came."""

    memory: Candidate
    score: float
    signals: dict[str, JSON]


class Legs(NamedTuple):
    """What each leg found, best first, before anything is weighed."""

    question: WordQuery
    word_nos: list[int]
    vector_nos: list[int]
    vectors: BankVectors | None
    vector: Floats | None
    matter: Floats | None = None  # of the question without its names, where it was asked for and has some


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
    """The numbers of up to `depth` memories by each leg that `mode` wants."""
    first_person_query = first_person(query)  # "the user" weighs nothing: every memory is theirs
    if query_counts(first_person_query).keys() - {"i", "my"}:
        query = first_person_query
    question, frequencies = _asked_words(reader, query)
    word_nos = [] if mode == "semantic" else reader.by_words(frequencies, conditions, depth)
    vectors = embedding.of_bank(reader) if mode != "keyword" and reader.exists else None
    vector = embedding.query_vector(query) if vectors is not None else None
    vector_nos: list[int] = []
    if vectors is not None and vector is not None:
        vector_nos = nearest(reader, vectors, vector, conditions, depth, superseded=superseded)
    return Legs(question, word_nos, vector_nos, vectors, vector)


def _asked_words(reader: Reader, query: str) -> tuple[WordQuery, dict[str, int]]:
    """A question's words, what stands in for them and its verbs' forms, and how often the bank has each."""
    silent = silent_terms(query)
    counts = query_counts(query)
    counts = {term: count for term, count in counts.items() if term not in silent} or counts
    parts = _stand_ins(reader, query, list(counts))
    forms = verb_forms(counts) if language(query) == "en" else {}
    further = (*parts.values(), *forms.values())
    counts = {**{term: 1 for terms_of_word in further for term in terms_of_word}, **counts}
    frequencies = reader.frequencies(counts)
    bank = reader.bank
    mean_terms = bank.live_terms / (bank.live or 1)
    return word_query(query, counts, frequencies, bank.live, mean_terms, parts, forms), frequencies


def with_matter(legs: Legs, embedding: Embedding) -> Legs:
    """The legs of a question whose answer is looked for: what it asks beside its names is embedded, too."""
    query = legs.question.query
    nameless = Asked.of(query).nameless(query)
    if legs.vector is None or nameless == query:
        return legs
    return legs._replace(matter=embedding.query_vector(nameless))


def _stand_ins(reader: Reader, query: str, words: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Terms that the bank holds and that stand for words of a question: parts of a German compound, and a
    calling as somebody of the other sex has it."""
    name = language(query)
    if name == "en":
        return {}
    forms = {word: inflected((sexless(word, name),), name) - {word} for word in callings(query) & set(words)}
    held_forms = reader.frequencies(frozenset[str]().union(*forms.values()))
    variants = {word: tuple(sorted(forms[word] & held_forms.keys())) for word in forms}
    parts = compounds(words, reader.frequencies) if name == "de" else {}
    return {word: terms for word, terms in {**variants, **parts}.items() if terms}


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
    and its matter, and their share of the best BM25. `fused` is 1 of the best.
    """
    nos = list(dict.fromkeys((*legs.word_nos, *legs.vector_nos)))
    rows, stored = reader.candidates(nos), reader.words(nos)
    cosines = _cosines(legs, legs.vector, nos)
    matters = cosines if legs.matter is None else _cosines(legs, legs.matter, nos)
    weights = {
        no: round(bm25(legs.question, stored.get(no, ())), _DIGITS) if legs.word_nos else 0.0 for no in rows
    }
    nearness = {no: (cosines[no] + matters[no]) / 2 for no in rows if no in cosines}
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
            "matter": matters.get(no),
            "lexical": round(lexical, 6),
            "semantic": round(semantic, 6),
        }
        hits.append(MemoryHit(rows[no], round(either(semantic, lexical), 6), signals))
    return sorted(hits, key=rank_key)


def _fused(
    weights: Mapping[int, float], nearness: Mapping[int, float], share_of_words: float
) -> dict[int, float]:
    """What each memory is worth by its meaning and its words; without either it is left out."""
    nearest_of_all = max(nearness.values(), default=0.0)
    most = max(weights.values(), default=0.0) or 1.0
    # What is not embedded yet is as near as its words say.
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
    """A memory that no leg found, as a hit."""
    signals: dict[str, JSON] = {
        "fused": 0.0,
        "bm25": 0.0,
        "cosine": None,
        "matter": None,
        "lexical": 0.0,
        "semantic": 0.0,
    }
    return MemoryHit(memory, 0.0, signals)


def neighbours(
    reader: Reader, embedding: Embedding, text: str, mode: str, conditions: Sequence[Condition], count: int
) -> list[tuple[Candidate, float | None]]:
    """The memories nearest to a text under the conditions, best first, with the cosine."""
    legs = search_legs(reader, embedding, text[:MAX_CHARS], mode, conditions, count, superseded=False)
    hits = weighed(reader, legs, embedding.model)[:count]
    return [(hit.memory, hit.signals["cosine"]) for hit in hits]


def _share_of_words(question: WordQuery, texts: Sequence[str]) -> float:
    """What the best BM25 weighs beside a cosine: little where texts are statements and the question short, as
    much where texts are longer or the question is a paragraph. Some part of a long text is near to any
    question, and a paragraph is near to much.
    """
    mean_chars = sum(map(len, texts)) / (len(texts) or 1)
    length = mean_chars / MAX_STATEMENT_CHARS * 1.5 - 1  # from two thirds of the longest statement to four
    breadth = (len(question.words) - SHORT_QUESTION) / SHORT_QUESTION
    return _LEAST_SHARE + (1 - _LEAST_SHARE) * min(1.0, max(0.0, length, breadth))


def rank_key(hit: MemoryHit) -> tuple[float, float, int, str]:
    """The order of hits: the fused rank, then the score, then the newest; only twins in all of it go by
    id."""
    return (-hit.signals["fused"], -hit.score, -hit.memory.uttered_ms, hit.memory.id)
