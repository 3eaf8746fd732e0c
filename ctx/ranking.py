"""The arithmetic of ranked lists: hits to documents, two lists to one. Pure: numbers in, numbers out.

A leg is what one way of searching found, as (document_no, score) pairs, best first, each document once. What comes out has the
same form with scores in [0, 1], comparable within one list and not across lists. docs/ranking.md has the figures behind the constants.
"""

from collections.abc import Callable, Sequence
from math import sqrt

from ctx.lean import pattern
from ctx.types import Hit

Leg = list[tuple[int, float]]

RRF_K = 10  # how soon rank loses weight; 5 to 60 do about equally well
SIGMAS = 3.0  # DBSF: the mean and this many deviations to each side are mapped to [0, 1]
FURTHER_PASSAGES = (
    0.05  # what a further passage of a document adds to its best, by words; by meaning it would only blur
)
DEFAULT_ALPHA = {"rrf": 0.5, "minmax": 0.45, "dbsf": 0.5}  # the weight of meaning where prose is found
CODE_ALPHA = {
    "rrf": 0.85,
    "minmax": 0.8,
    "dbsf": 0.9,
}  # where code is: a question shares few words with the code that answers it
SYMBOL_ALPHA = 0.3  # where the query is an identifier: a name is found by its letters first

_PROSE_MARKS, _CODE_MARKS = (
    0.015,
    0.045,
)  # the share of brackets and operators: of prose nearly all is below, of code most above
_SYMBOL = pattern(r"\w+(?:(?:\.|::|/|->|#|-)\w+)*(?:\(\))?")
_NAMELIKE = pattern(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]|_|\.|::|->|#|/|\(\)|[A-Za-z][0-9]")


def per_document(hits: Sequence[Hit], counted: int = 1, bonus: float = 0.0) -> list[Hit]:
    """One hit for each document, its best, best first; ties by chunk number.

    `counted` hits of a document count: the best wholly, each further one with `bonus` of its score.
    """
    best: dict[int, Hit] = {}
    seen: dict[int, int] = {}
    added: dict[int, float] = {}
    for hit in sorted(hits, key=lambda hit: (-hit.score, hit.chunk_no)):
        number = hit.document_no
        seen[number] = seen.get(number, 0) + 1
        if seen[number] == 1:
            best[number] = hit
        elif seen[number] <= counted and bonus:
            added[number] = added.get(number, 0.0) + bonus * hit.score
    if not added:
        return list(best.values())
    found = [hit._replace(score=hit.score + added.get(hit.document_no, 0.0)) for hit in best.values()]
    return sorted(found, key=lambda hit: (-hit.score, hit.chunk_no))


def of_best(leg: Leg) -> Leg:
    """The scores as shares of the best one."""
    top = leg[0][1] if leg else 0.0
    return [(number, _clipped(score / top) if top > 0 else 0.0) for number, score in leg]


def semantic_weight(query: str, found: Sequence[str], method: str) -> float:
    """How much meaning counts for a query, by what the query is and by what its meaning leads to (texts of chunks)."""
    word = query.strip()
    if _SYMBOL.fullmatch(word) and _NAMELIKE.search(word):
        return SYMBOL_ALPHA
    code = sum(map(_likeness_to_code, found)) / len(found) if found else 0.0
    return DEFAULT_ALPHA[method] + code * (CODE_ALPHA[method] - DEFAULT_ALPHA[method])


def _likeness_to_code(text: str) -> float:
    share = sum(map(text.count, "(){}[]=_;<>")) / max(1, len(text))
    return _clipped((share - _PROSE_MARKS) / (_CODE_MARKS - _PROSE_MARKS))


def fuse(method: str, keyword: Leg, semantic: Leg, alpha: float) -> Leg:
    """One list of two, best first; `alpha` in [0, 1] is the weight of the semantic leg.

    A leg of weight 0 takes no part, so 0 and 1 give the order of one leg; one that found nothing leaves its share of the score
    unearned. Ties: by the better rank in either leg, then by number.
    """
    legs = [(1.0 - alpha, keyword), (alpha, semantic)]
    return _weighted([(weight, leg) for weight, leg in legs if weight > 0 and leg], METHODS[method])


def reciprocal_ranks(leg: Leg) -> list[float]:
    """(k + 1) / (k + rank): 1 for the first. Cormack et al. 2009, scaled so that first in every leg is 1."""
    return [(RRF_K + 1) / (RRF_K + rank) for rank in range(1, len(leg) + 1)]


def spread(leg: Leg) -> list[float]:
    """Min-max: the best is 1, the last 0; all 1 where all are equal."""
    high, low = leg[0][1], leg[-1][1]
    width = high - low
    if width <= 0:
        return [1.0] * len(leg)
    return [_clipped((score - low) / width) for _, score in leg]


def deviations(leg: Leg) -> list[float]:
    """DBSF: the mean is 1/2, SIGMAS standard deviations above it 1, below it 0; all 1/2 where all are equal."""
    scores = [score for _, score in leg]
    mean = sum(scores) / len(scores)
    deviation = sqrt(sum((score - mean) ** 2 for score in scores) / len(scores))
    if deviation <= 0:
        return [0.5] * len(leg)
    return [_clipped(0.5 + (score - mean) / (2 * SIGMAS * deviation)) for score in scores]


METHODS: dict[str, Callable[[Leg], list[float]]] = {
    "rrf": reciprocal_ranks,
    "minmax": spread,
    "dbsf": deviations,
}


def _weighted(legs: list[tuple[float, Leg]], normalised: Callable[[Leg], list[float]]) -> Leg:
    fused: dict[int, float] = {}
    best_rank: dict[int, int] = {}
    for weight, leg in legs:
        for rank, ((number, _), share) in enumerate(zip(leg, normalised(leg), strict=True)):
            fused[number] = fused.get(number, 0.0) + weight * share
            best_rank[number] = min(rank, best_rank.get(number, rank))
    return sorted(
        ((number, _clipped(score)) for number, score in fused.items()),
        key=lambda entry: (-entry[1], best_rank[entry[0]], entry[0]),
    )


def _clipped(share: float) -> float:
    return min(1.0, max(0.0, share))
