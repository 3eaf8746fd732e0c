"""The two legs of a search over one bank, by words and by meaning, and their fusion into one ranking."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ctx.analyze import query_counts
from ctx.memory.compounds import compounds
from ctx.memory.embedding import Embedding
from ctx.memory.filters import Condition
from ctx.memory.gist import first_person
from ctx.memory.language import callings, inflected, language, sexless, silent_terms
from ctx.memory.passages import MAX_PASSAGE_CHARS
from ctx.memory.question import Asked
from ctx.memory.reader import Candidate, Reader
from ctx.memory.scores import WordQuery, bm25, calibration, coverage, either, word_query
from ctx.memory.statement import MAX_CHARS
from ctx.memory.vectors import BankVectors, Floats
from ctx.memory.verbs import verb_forms
from ctx.ranking import fuse
from ctx.types import JSON

_SAMPLE = 10  # of the best of each leg that tell how long the texts are
_LONG_PASSAGES = 1.5  # of a memory that is long
# The weight of the ranks in both legs over texts of one passage, and of the vectors in it. Facts that a
# question puts in other words are found better with less (of 240 first: 85 at 0, 67 at .25), and turns of a
# conversation worse (`--talks`: R@5 .519 at 0, .556 at .15, .581 at .25, by words alone .563).
_RANKS = 0.2
# Words of a question of which the share tells; of one of twice as many it tells little, and BM25 much: of
# the queries of CACM, a paragraph each, words rank NDCG@10 .52 by BM25 and .39 by the share.
SHORT_QUESTION = 8
_SHARE_OF_MEANING = 0.2  # of .2, .35, .5 and .65 the best MRR on sessions of LoCoMo (.775)
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
    matter: Floats | None = (
        None  # of the question without its names, where that was asked for and it has some
    )


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
    bank, first_person_query = (
        reader.bank,
        first_person(query),
    )  # "the user" weighs nothing: every memory is theirs
    counts = query_counts(first_person_query)
    if set(counts) - {"i", "my"}:
        query = first_person_query
    else:
        counts = query_counts(query)
    silent = silent_terms(query)
    counts = {term: count for term, count in counts.items() if term not in silent} or counts
    parts = _stand_ins(reader, query, list(counts))
    forms = verb_forms(counts) if language(query) == "en" else {}
    further = (*parts.values(), *forms.values())
    counts = {**{term: 1 for terms_of_word in further for term in terms_of_word}, **counts}
    frequencies = reader.frequencies(counts)
    mean_terms = bank.live_terms / (bank.live or 1)
    question = word_query(query, counts, frequencies, bank.live, mean_terms, parts, forms)
    word_nos = [] if mode == "semantic" else reader.by_words(frequencies, conditions, depth)
    vectors = embedding.of_bank(reader) if mode != "keyword" and reader.exists else None
    vector = embedding.query_vector(query) if vectors is not None else None
    vector_nos: list[int] = []
    if vectors is not None and vector is not None:
        vector_nos = nearest(reader, vectors, vector, conditions, depth, superseded=superseded)
    return Legs(question, word_nos, vector_nos, vectors, vector)


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
    """The hits of both legs, each with its score, best first: by the score where texts are short, and the
    longer they are the more by the ranks in both legs, since some passage of a long text is near to any
    question. What a leg scores alike has one rank in it; the order of what ties altogether is `rank_key`'s.
    """
    nos = list(dict.fromkeys((*legs.word_nos, *legs.vector_nos)))
    rows, stored = reader.candidates(nos), reader.words(nos)
    cosines = _cosines(legs, legs.vector, nos)
    matters = cosines if legs.matter is None else _cosines(legs, legs.matter, nos)
    weights = {
        no: round(bm25(legs.question, stored.get(no, ())), _DIGITS) for no in legs.word_nos if no in rows
    }
    by_words = _ranked(rows, {no: weight for no, weight in weights.items() if weight > 0})
    by_meaning = _ranked(rows, {no: cosines[no] for no in legs.vector_nos if no in rows and no in cosines})
    word_rank, vector_rank = _ranks(by_words, weights), _ranks(by_meaning, cosines)
    length = _length([rows[no].text for no in (*by_words[:_SAMPLE], *by_meaning[:_SAMPLE])])
    fused = fuse(
        "rrf",
        [(no, weights[no]) for no in by_words],
        [(no, cosines[no]) for no in by_meaning],
        _SHARE_OF_MEANING,
    )
    top = fused[0][1] if fused else 1.0
    breadth = min(1.0, max(0, len(legs.question.words) - SHORT_QUESTION) / SHORT_QUESTION)
    by_rank = max(_RANKS, length, breadth) if legs.vector is not None else 1.0
    sureness = calibration(model or "")
    hits = []
    for no, ranks in fused:
        lexical = coverage(legs.question, stored.get(no, ()), rows[no].text)
        semantic = sureness(cosines[no]) if no in cosines else 0.0
        score = either(semantic, lexical)
        signals: dict[str, JSON] = {
            "fused": round((1 - by_rank) * score + by_rank * ranks / top, 9),
            "bm25": weights.get(no, 0.0),
            "cosine": cosines.get(no),
            "matter": matters.get(no),
            "lexical": round(lexical, 6),
            "semantic": round(semantic, 6),
            "word_rank": word_rank.get(no),
            "vector_rank": vector_rank.get(no),
        }
        hits.append(MemoryHit(rows[no], round(score, 6), signals))
    return sorted(hits, key=rank_key)


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
        "word_rank": None,
        "vector_rank": None,
    }
    return MemoryHit(memory, 0.0, signals)


def neighbours(
    reader: Reader,
    embedding: Embedding,
    text: str,
    mode: str,
    conditions: Sequence[Condition],
    count: int,
) -> list[tuple[Candidate, float | None]]:
    """The memories nearest to a text under the conditions, best first, with the cosine."""
    legs = search_legs(reader, embedding, text[:MAX_CHARS], mode, conditions, count, superseded=False)
    hits = weighed(reader, legs, embedding.model)[:count]
    return [(hit.memory, hit.signals["cosine"]) for hit in hits]


def _length(texts: Sequence[str]) -> float:
    """How long texts are: 0 where each is one passage, 1 from a few passages on."""
    passages = sum(max(1.0, len(text) / MAX_PASSAGE_CHARS) for text in texts) / (len(texts) or 1)
    return min(1.0, max(0.0, passages - 1) / (_LONG_PASSAGES - 1))


def _ranked(rows: Mapping[int, Candidate], scores: Mapping[int, float]) -> list[int]:
    """The numbers of scored memories, best first; of equals the newest, and then by id: numbers differ
    between two files that hold the same memories."""
    return sorted(scores, key=lambda no: (-scores[no], -rows[no].uttered_ms, rows[no].id))


def _ranks(nos: Sequence[int], scores: Mapping[int, float]) -> dict[int, int]:
    """The rank of each; equals have that of the first of them."""
    first_of: dict[float, int] = {}
    return {no: first_of.setdefault(scores[no], rank) for rank, no in enumerate(nos, 1)}


def rank_key(hit: MemoryHit) -> tuple[float, float, int, str]:
    """The order of hits: the fused rank, then the score, then the newest; only twins in all of it go by
    id."""
    return (-hit.signals["fused"], -hit.score, -hit.memory.uttered_ms, hit.memory.id)
