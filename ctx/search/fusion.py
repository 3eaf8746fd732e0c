"""Fusion: group hits by document, and merge two rankings into one (docs/ranking.md has the figures).

A leg is the ranking of one index: (document_no, score) pairs, best first, each document once. The merged
ranking has the same form. Its scores are in [0, 1] and comparable only within the list.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import groupby
from math import sqrt

from ctx.models import Hit
from ctx.search.query import CODE, PAGES, is_name

Leg = list[tuple[int, float]]

RRF_K = 10  # RRF: how fast the weight of a result falls with its rank; 5 to 60 work about equally well
SIGMAS = 3.0  # DBSF: the mean and this many deviations to each side are mapped to [0, 1]
# The share that a document's other passages add to its best keyword score; it does not help vector scores.
FURTHER_PASSAGES = 0.05
# Fusion method -> the weight of semantic search, first if the hits are prose, then if they are code. It is
# larger for code, because a question shares few words with the function that answers it.
DEFAULT_ALPHA = {"rrf": 0.5, "minmax": 0.37, "dbsf": 0.5}
CODE_ALPHA = {"rrf": 0.85, "minmax": 0.72, "dbsf": 0.9}
# How fast the weight of semantic search grows while texts are being embedded: among few embedded texts, the
# nearest one says less (docs/design/embedding-order.md).
COVERAGE_POWER = 0.5
# The weight of semantic search if the query is one word or an identifier: exact letters matter most.
SYMBOL_ALPHA = 0.3

# The score that min-max scaling maps to 0, as a share of the last score in the ranking. A BM25 score is 0 if
# no word matches, so 0 stays 0. Cosines have no such zero, so their last score is mapped to 0.
KEYWORD_FLOOR, SEMANTIC_FLOOR = 0.0, 1.0

# The share of brackets and operators in a text: nearly all prose is below the first, most code above the
# second.
_PROSE_MARKS, _CODE_MARKS = 0.015, 0.045


def by_document(hits: Iterable[Hit]) -> dict[int, list[Hit]]:
    """Groups hits by document number, keeping their order."""
    groups: dict[int, list[Hit]] = {}
    for hit in hits:
        groups.setdefault(hit.document_no, []).append(hit)
    return groups


def per_document(groups: Mapping[int, Sequence[Hit]], counted: int = 1, bonus: float = 0.0) -> list[Hit]:
    """The best hit of each document, best first; ties by chunk number. The groups and their hits must come in
    that order.

    The score is that of the best hit plus `bonus` times the scores of the next hits, up to `counted` hits.
    """
    best = [group[0] for group in groups.values()]
    if counted < 2:
        return best
    for position, group in enumerate(groups.values()):
        if len(group) > 1:
            score = group[0].score + bonus * sum(hit.score for hit in group[1:counted])
            best[position] = group[0]._replace(score=score)
    return sorted(best, key=lambda hit: (-hit.score, hit.chunk_no))


def of_best(hits: Sequence[Hit]) -> Leg:
    """(document number, score as a share of the best score) of each hit, in the same order."""
    top = hits[0].score if hits else 0.0
    if top <= 0:
        return [(hit.document_no, 0.0) for hit in hits]
    return [(hit.document_no, hit.score / top) for hit in hits]


def semantic_weight(query: str, texts: Sequence[str], method: str, wanted: str = PAGES) -> float:
    """The weight of semantic search, in [0, 1]: fixed for a query that is a name, else the larger, the more
    of the nearest texts are code.

    A query that wants code, such as a commit message, an issue or a stack trace, has the words of the code,
    so semantic search gets no extra weight.
    """
    if is_name(query):
        return SYMBOL_ALPHA
    code = 0.0 if wanted == CODE else sum(map(_likeness_to_code, texts)) / max(1, len(texts))
    return DEFAULT_ALPHA[method] + code * (CODE_ALPHA[method] - DEFAULT_ALPHA[method])


def _likeness_to_code(text: str) -> float:
    share = sum(map(text.count, "(){}[]=_;<>")) / max(1, len(text))
    return _clipped((share - _PROSE_MARKS) / (_CODE_MARKS - _PROSE_MARKS))


def fuse(method: str, keyword: Leg, semantic: Leg, alpha: float, unread: Container[int] = frozenset()) -> Leg:
    """Merges two rankings into one, best first. `alpha` in [0, 1] is the weight of the semantic ranking.

    Documents of the keyword ranking that are `unread` (not embedded yet) get their keyword score
    undiminished, as if semantic search had scored them the same.

    A ranking of weight 0 is left out, so an `alpha` of 0 or 1 gives the order of one ranking. A document that
    a ranking lacks gets 0 from it. Ties are ordered by the better of the two ranks, then by document number.
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
    return sorted(raised, key=lambda entry: -entry[1])  # the sort is stable, so ties keep their order


def reciprocal_ranks(leg: Leg, floor: float) -> list[float]:
    """RRF: (k + 1) / (k + rank), so the first gets 1 (Cormack et al. 2009, scaled).

    Tied scores share the mean of their values, because their order is arbitrary.
    """
    shares: list[float] = []
    for _, tied in groupby(score for _, score in leg):
        first, last = len(shares) + 1, len(shares) + sum(1 for _ in tied)
        mean = sum((RRF_K + 1) / (RRF_K + rank) for rank in range(first, last + 1)) / (last + 1 - first)
        shares += [mean] * (last + 1 - first)
    return shares


def spread(leg: Leg, floor: float) -> list[float]:
    """Min-max scaling: the best score becomes 1, and `floor` times the last score becomes 0. All become 1 if
    they are equal.
    """
    if not leg:
        return []
    high, low = leg[0][1], leg[-1][1] * floor
    width = high - low
    if width <= 0:
        return [1.0] * len(leg)
    return [max(0.0, (score - low) / width) for _, score in leg]


def deviations(leg: Leg, floor: float) -> list[float]:
    """DBSF: the mean becomes 1/2, SIGMAS standard deviations above it 1, below it 0. All become 1/2 if they
    are equal.
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
    # Document number -> (negated score, best rank, document number), which sorts best first.
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
