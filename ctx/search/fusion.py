"""Fusion: group hits by document, and merge two rankings into one (docs/ranking.md has the figures).

A leg is the ranking of one index: (document_no, score) pairs, best first, each document once. The result has
the same form with scores in [0, 1], comparable within one list only.
"""

import re
from bisect import insort
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import groupby
from math import sqrt

from ctx.models import Hit
from ctx.search import intent

Leg = list[tuple[int, float]]

RRF_K = 10  # how fast weight falls with rank; 5 to 60 work about equally well
SIGMAS = 3.0  # DBSF: the mean and this many deviations to each side are mapped to [0, 1]
# The share that a document's other passages add to its best keyword score; it does not help vector scores.
FURTHER_PASSAGES = 0.05
# The weight of meaning where prose is found, and where code is: a question shares few words with the function
# that answers it.
DEFAULT_ALPHA = {"rrf": 0.5, "minmax": 0.37, "dbsf": 0.5}
CODE_ALPHA = {"rrf": 0.85, "minmax": 0.72, "dbsf": 0.9}
# How fast meaning gains weight while texts are being embedded: the best of a few nearest says less
# (docs/design/embedding-order.md).
COVERAGE_POWER = 0.5
SYMBOL_ALPHA = 0.3  # where the query is one word or an identifier: a name is found by its letters first

# The low end of a leg's spread, as a share of its last score. BM25 is 0 where no word is found; cosines
# have no such zero, so the last one is the low end.
KEYWORD_FLOOR, SEMANTIC_FLOOR = 0.0, 1.0

# The share of brackets and operators: of prose nearly all is below the first, of code most above the second.
_PROSE_MARKS, _CODE_MARKS = 0.015, 0.045
_FIRST_UNSPACED = "\u0e00"  # scripts that put no spaces between words: a run of theirs may be a sentence
# `find?` and `save!` are names of Ruby, `~Store` is one of C++.
_SYMBOL = re.compile(r"~?\w+(?:(?:\.|::~?|/|->|#|-)\w+)*(?:\(\)|[?!=])?")
_NAMELIKE = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]|_|\.|::|->|#|/|\(\)|[A-Za-z][0-9]|^~|[!=]$")


def by_document(hits: Iterable[Hit]) -> dict[int, list[Hit]]:
    """The hits of each document, in the order in which they come."""
    groups: dict[int, list[Hit]] = {}
    for hit in hits:
        groups.setdefault(hit.document_no, []).append(hit)
    return groups


def per_document(groups: Mapping[int, Sequence[Hit]], counted: int = 1, bonus: float = 0.0) -> list[Hit]:
    """One hit for each document, its best, best first; ties by chunk number. The groups and their hits come
    in that order.

    `counted` hits of a document count: the best wholly, each further one with `bonus` of its score.
    """
    best = [group[0] for group in groups.values()]
    if counted < 2 or not bonus:
        return best
    several = [i for i, count in enumerate(map(len, groups.values())) if count > 1]
    for i in several:  # a raised hit moves up, to a place among those before it
        group = groups[best[i].document_no]
        chunk_no, document_no, score, span = group[0]
        raised = Hit(chunk_no, document_no, score + bonus * sum(hit.score for hit in group[1:counted]), span)
        del best[i]
        insort(best, raised, hi=i, key=_order)
    return best


def _order(hit: Hit) -> tuple[float, int]:
    return -hit.score, hit.chunk_no


def of_best(hits: Sequence[Hit]) -> Leg:
    """The documents of hits, best first, with their scores as shares of the best one."""
    top = hits[0].score if hits else 0.0
    if top <= 0:
        return [(hit.document_no, 0.0) for hit in hits]
    return [(hit.document_no, hit.score / top) for hit in hits]


def is_name(query: str) -> bool:
    """Whether a query is one name: written as names in code are (`getUser`, `os.path`), or a single plain
    word.
    """
    word = query.strip().strip("\"'`")
    return _SYMBOL.fullmatch(word) is not None and max(word) < _FIRST_UNSPACED


def is_identifier(query: str) -> bool:
    """Whether a query is a name written as only names in code are: `getUserName`, `os.path.join`,
    `sha256`.
    """
    word = query.strip()
    return is_name(word) and not (word.isalpha() and word.islower()) and _NAMELIKE.search(word) is not None


def semantic_weight(query: str, texts: Sequence[str], method: str, wanted: str = intent.PAGES) -> float:
    """The weight of the semantic leg: fixed for a name, else larger the more its nearest texts are code.

    A commit message, an issue or a stack trace has the words of the code, so meaning gains nothing there.
    """
    if is_name(query):
        return SYMBOL_ALPHA
    code = 0.0 if wanted == intent.CODE else sum(map(_likeness_to_code, texts)) / max(1, len(texts))
    return DEFAULT_ALPHA[method] + code * (CODE_ALPHA[method] - DEFAULT_ALPHA[method])


def _likeness_to_code(text: str) -> float:
    share = sum(map(text.count, "(){}[]=_;<>")) / max(1, len(text))
    return _clipped((share - _PROSE_MARKS) / (_CODE_MARKS - _PROSE_MARKS))


def weight_of_part(alpha: float, coverage: float) -> float:
    """The weight of a semantic leg that knows a share `coverage` in [0, 1] of what the words find first."""
    return alpha * float(coverage**COVERAGE_POWER)


def fuse(method: str, keyword: Leg, semantic: Leg, alpha: float, unread: Container[int] = frozenset()) -> Leg:
    """One list of two, best first; `alpha` in [0, 1] is the weight of the semantic leg.

    Documents of the keyword leg that are `unread`, whose meaning is not known yet, have their share of the
    keyword leg whole: as if meaning said of them what the words say.

    A leg of weight 0 takes no part, so 0 and 1 give the order of one leg; one that found nothing leaves its
    share of the score unearned. Ties: by the better rank in either leg, then by number.
    """
    shares = METHODS[method]
    legs = [
        (1.0 - alpha, keyword, shares(keyword, KEYWORD_FLOOR)),
        (alpha, semantic, shares(semantic, SEMANTIC_FLOOR)),
    ]
    fused = _weighted([entry for entry in legs if entry[0] > 0])
    if not unread or not 0 < alpha < 1:
        return fused
    raised = [
        (number, min(1.0, score / (1.0 - alpha)) if number in unread else score) for number, score in fused
    ]
    return sorted(raised, key=lambda entry: -entry[1])  # stable: ties stay as they were


def reciprocal_ranks(leg: Leg, floor: float) -> list[float]:
    """(k + 1) / (k + rank): 1 for the first. Cormack et al. 2009, scaled so that first in every leg is 1.

    Tied scores share the mean of their ranks, because their order is arbitrary.
    """
    shares: list[float] = []
    for _, tied in groupby(score for _, score in leg):
        first, last = len(shares) + 1, len(shares) + sum(1 for _ in tied)
        mean = sum((RRF_K + 1) / (RRF_K + rank) for rank in range(first, last + 1)) / (last + 1 - first)
        shares += [mean] * (last + 1 - first)
    return shares


def spread(leg: Leg, floor: float) -> list[float]:
    """Min-max: the best is 1, and 0 is what has `floor` times the last one's score; all 1 where all are
    equal.
    """
    if not leg:
        return []
    high, low = leg[0][1], leg[-1][1] * floor
    width = high - low
    if width <= 0:
        return [1.0] * len(leg)
    return [max(0.0, (score - low) / width) for _, score in leg]


def deviations(leg: Leg, floor: float) -> list[float]:
    """DBSF: the mean is 1/2, SIGMAS standard deviations above it 1, below it 0; all 1/2 where all are
    equal.
    """
    scores = [score for _, score in leg]
    mean = sum(scores) / max(1, len(scores))
    deviation = sqrt(sum((score - mean) ** 2 for score in scores) / max(1, len(scores)))
    if deviation <= 0:
        return [0.5] * len(leg)
    return [_clipped(0.5 + (score - mean) / (2 * SIGMAS * deviation)) for score in scores]


METHODS: dict[str, Callable[[Leg, float], list[float]]] = {
    "rrf": reciprocal_ranks,
    "minmax": spread,
    "dbsf": deviations,
}


def _weighted(legs: list[tuple[float, Leg, list[float]]]) -> Leg:
    # Document -> (less for a higher score, its best rank, itself).
    fused: dict[int, tuple[float, int, int]] = {}
    for weight, leg, shares in legs:
        for rank, ((number, _), share) in enumerate(zip(leg, shares, strict=True)):
            earlier = fused.get(number)
            if earlier is None:
                fused[number] = (-weight * share, rank, number)
            else:
                fused[number] = (earlier[0] - weight * share, min(rank, earlier[1]), number)
    return [(number, min(1.0, -negated)) for negated, _, number in sorted(fused.values())]


def _clipped(share: float) -> float:
    return min(1.0, max(0.0, share))
