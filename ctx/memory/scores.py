"""The indexed words of a memory, and its score for a query.

Most memories are a single passage. A long memory, such as a stored session, is split into passages, and its
best passage decides how well it matches. The reasons: an embedder reads only a few hundred tokens, and the
words of a query belong together only if they are close to each other.

A score in [0, 1] is the probability that a memory answers a query: 1 - (1 - semantic)(1 - lexical). It does
not depend on the other hits. `semantic` is a logistic function of the cosine, fitted for each
embedding model. `lexical` is the share of the query's words, weighted by their rarity in the bank, that occur
together in one passage. One of the two is enough for a high score, so that a threshold such as 0.7 means the
same with and without an embedder.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from ctx.memory.columns import Memory
from ctx.memory.language import first_person
from ctx.memory.records import all_contexts
from ctx.models import embedding_text
from ctx.text.analyze import MAX_QUERY_CHARS, composed, query_terms, terms, words

MAX_STATEMENT_CHARS = 300  # the length of two or three sentences
# The start of a line in a conversation: the name of the speaker and a colon.
_TURN = re.compile(r"\s*[A-ZÄÖÜ][\w.'’-]{0,30}(?:\s[A-ZÄÖÜ][\w.'’-]{0,30})?:\s+(?=\S)")
ABOUT_WEIGHT = 2  # the weight of a word in label, heading, context or tags; a word of the text has 1
NO_CONTEXT = ("general",)  # contexts that say nothing; they are not indexed
_HEADING = re.compile(r"\s*(?:#{1,6}[ \t]+([^\n]{1,200})|([^\n]{1,120})\n[ \t]*\n)")
MAX_PASSAGE_CHARS = 900  # about 200 tokens; the embedding model MiniLM reads at most 256
MAX_PASSAGES = 256  # passages of one text; the last passage has the rest of the text

_BREAKS = (re.compile(r"\n\s*\n"), re.compile(r"\n"), re.compile(r"(?<=[.!?。！？])\s+"), re.compile(r"\s+"))


def passages(text: str, size: int = MAX_PASSAGE_CHARS) -> list[str]:
    """Splits a text into pieces of at most about `size` characters: at the end of a paragraph if possible,
    else of a line, a sentence or a word.

    After `MAX_PASSAGES` - 1 pieces, the last one has the rest of the text.
    """
    if len(text) <= size:
        return [text]
    pieces: list[str] = []
    start = 0
    while len(text) - start > size and len(pieces) < MAX_PASSAGES - 1:
        end = _break(text, start, size)
        if piece := text[start:end].strip():
            pieces.append(piece)
        start = end
    if rest := text[start:].strip():
        pieces.append(rest)
    return pieces or [text]


def _break(text: str, start: int, size: int) -> int:
    stop = start + size
    window = text[start:stop]
    for pattern in _BREAKS:
        last = max((match.end() for match in pattern.finditer(window)), default=0)
        if last > size // 3:  # a break further to the left would leave a very short piece
            return start + last
    return stop


def segments(memory: Memory) -> list[list[str]]:
    """The indexed terms of a memory, as lists: first the terms of its label, heading, contexts and tags, then
    those of each passage.
    """
    about = [
        memory.label if memory.label and memory.label != memory.text else "",
        *(context for context in all_contexts(memory) if context not in NO_CONTEXT),
        *memory.tags,
        heading(memory.text),
    ]
    return [terms(" ".join(about)), *(terms(passage) for passage in passages(memory.text))]


def weighed_length(parts: Sequence[Sequence[str]]) -> int:
    """The length of a memory for BM25, in terms; those of label, heading, contexts and tags count twice."""
    return sum(map(len, parts)) + (ABOUT_WEIGHT - 1) * len(parts[0])


def embedding_texts(text: str) -> list[str]:
    """The texts to embed for a memory: its passages in the first person, each after the first with the
    heading in front.

    A long conversation is split into short passages: its subject changes with every turn, and the vector of a
    long passage would be a mean of all its subjects.
    """
    lines = text.strip().split("\n") if len(text) > MAX_PASSAGE_CHARS else []
    is_conversation = len(lines) > 1 and sum(_TURN.match(line) is not None for line in lines) * 2 > len(lines)
    size = MAX_STATEMENT_CHARS if is_conversation else MAX_PASSAGE_CHARS
    first, *others = passages(first_person(text), size)
    head = heading(text)
    return [first, *(embedding_text(head, "", passage) for passage in others)]


def heading(text: str) -> str:
    """The first line of a text, if it is a Markdown heading or a short line before an empty line; else ""."""
    match = _HEADING.match(text)
    return (match[1] or match[2]) if match else ""


# -- scores --------------------------------------------------------------------------------------------------

SUBSTRING_FLOOR = 0.95  # the minimum lexical score of a memory that contains the whole query
# What the parts of an identifier in the query count, if the whole identifier does not occur.
PART_CREDIT = 0.5
# This many memories are assumed to contain each word, so that one more hardly changes a score.
PRIOR_HOLDERS = 5
# A bank is assumed to have at least this many memories: in a bank of three, no word is common.
PRIOR_MEMORIES = 1000
_BM25_K1 = 1.2
_BM25_B = 0.75
_WORD = re.compile(r"[^\W_]+")


class Logistic(NamedTuple):
    """A logistic function from a cosine to a probability."""

    slope: float
    middle: float

    def __call__(self, cosine: float) -> float:
        return 1.0 / (1.0 + math.exp(-self.slope * (cosine - self.middle)))


# Embedding model -> probability that a memory with this cosine answers the query. Fitted by
# `benchmarks/memory.py --fit` on benchmarks/memories/pairs.tsv.
CALIBRATIONS = {"all-MiniLM-L6-v2": Logistic(11.0, 0.3823)}
# For other models. With bge and e5, unrelated texts have cosines of 0.5 to 0.8, so only a very high cosine
# counts.
UNKNOWN_MODEL = Logistic(20.0, 0.85)


def calibration(model: str) -> Logistic:
    """The calibration for a model whose name contains a name in `CALIBRATIONS`; else `UNKNOWN_MODEL`."""
    low = model.lower()
    return next((fit for name, fit in CALIBRATIONS.items() if name.lower() in low), UNKNOWN_MODEL)


class QueryWord(NamedTuple):
    """A word of a query: its term, the terms of its parts (of an identifier such as `camelCase`), and its
    share of the query's total weight.
    """

    # None for writing without spaces (Chinese, Japanese), which is found by pairs of characters.
    whole: str | None
    parts: tuple[str, ...]
    share: float


class WordQuery(NamedTuple):
    """The weighted words of a query. Their shares sum to 1. Unknown words weigh as much as the rarest."""

    text: str  # the query, folded
    counts: Mapping[str, int]  # how often the query contains each term
    rarity: Mapping[str, float]
    words: tuple[QueryWord, ...]
    mean_terms: float


def word_query(
    query: str,
    counts: Mapping[str, int],
    frequencies: Mapping[str, int],
    memories: int,
    mean_terms: float,
) -> WordQuery:
    """Weights the words of a query by their rarity in the bank.

    `counts` are the terms of the query (`analyze.query_counts`), `frequencies` the numbers of memories that
    contain them. `memories` is the size of the bank, `mean_terms` the mean length of its memories.
    """
    size = max(memories, PRIOR_MEMORIES)
    rarity, weight = {}, {}
    for term in counts:
        frequency = min(frequencies.get(term, 0), size)
        rarity[term] = math.log(1.0 + (size - frequency + 0.5) / (frequency + 0.5))
        weight[term] = math.log(1.0 + (size - frequency + 0.5) / (frequency + PRIOR_HOLDERS))
    # A word weighs as much as its rarest term.
    weights: dict[tuple[str | None, tuple[str, ...]], float] = {}
    for word in _WORD.findall(composed(query[:MAX_QUERY_CHARS])):
        looked_for = [term for term in query_terms(word) if term in weight]
        if looked_for:  # if empty, the word is a stop word
            whole = next((term for term in words(word) if term in looked_for), None)
            parts = tuple(term for term in looked_for if term != whole)
            weights[whole, parts] = max(weight[term] for term in looked_for)
    total = sum(weights.values()) or 1.0
    shares = tuple(QueryWord(whole, parts, weighs / total) for (whole, parts), weighs in weights.items())
    return WordQuery(_folded(query), counts, rarity, shares, mean_terms or 1.0)


def bm25(query: WordQuery, segments: Sequence[Sequence[str]]) -> float:
    """The BM25 of a memory, computed with the word frequencies of its bank. `segments`: its indexed terms."""
    if not segments:
        return 0.0
    counts = Counter(chain(*segments, *repeat(segments[0], ABOUT_WEIGHT - 1)))
    norm = _BM25_K1 * (1 - _BM25_B + _BM25_B * weighed_length(segments) / query.mean_terms)
    return sum(
        repeats * query.rarity[term] * counts[term] * (_BM25_K1 + 1) / (counts[term] + norm)
        for term, repeats in query.counts.items()
        if counts[term]
    )


def coverage(query: WordQuery, segments: Sequence[Sequence[str]], text: str) -> float:
    """The weighted share of the query's words in the memory's best passage, in [0, 1].

    Label, heading, contexts and tags count as part of each passage.
    """
    if not query.words:
        return 0.0
    about, *passages = segments or ((),)
    in_passages = [{*about, *passage} for passage in passages or [()]]
    best = max(sum(word.share * _credit(word, terms) for word in query.words) for terms in in_passages)
    if best < SUBSTRING_FLOOR and len(query.text) >= 4 and _contains(_folded(text), query.text):
        best = SUBSTRING_FLOOR
    return min(best, 1.0)


def _credit(word: QueryWord, terms: set[str]) -> float:
    """How much a word of the query counts: 1 if it is among the terms, less if only parts of it are."""
    if word.whole in terms:
        return 1.0
    if not word.parts:  # true for most words, and faster than the sum of nothing
        return 0.0
    share = sum(part in terms for part in word.parts) / len(word.parts)
    return share if word.whole is None else PART_CREDIT * share


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _contains(text: str, phrase: str) -> bool:
    """Whether a phrase occurs in a text as whole words."""
    before = r"(?<![^\W_])" if phrase[0].isalnum() else ""
    after = r"(?![^\W_])" if phrase[-1].isalnum() else ""
    return re.search(before + re.escape(phrase) + after, text) is not None
