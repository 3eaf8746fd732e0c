"""Later statements to which the names in a found memory lead: "Replaced Jest with Vitest" holds no word of
"How do we run the tests?", and answers it, since what is found ("Tests are run with Jest") names what it
ends."""

from collections.abc import Sequence

from ctx.analyze import terms
from ctx.memory.change import Statement, ends_by_name
from ctx.memory.filters import Condition
from ctx.memory.legs import MemoryHit, unranked
from ctx.memory.reader import Candidate, Reader

NAMING_HITS = 5  # the best, whose names are looked for: what answers a question stands there
MAX_HOLDERS = 50  # memories that hold such a name, looked at one by one
COMMON_NAME = 200  # memories from which on a name tells little, and reading its entries takes long


def with_successors(
    view: Reader, hits: Sequence[MemoryHit], conditions: Sequence[Condition], query: str
) -> list[MemoryHit]:
    """Hits in order of rank, with those statements behind the best that say that is over what these name.
    They are as sure as what they end."""
    asked_terms = frozenset(terms(query))
    naming = [hit for hit in hits[:NAMING_HITS] if Statement.of(hit.memory.text).names - asked_terms]
    later_hits = _later_hits(view, naming, hits, conditions, asked_terms)
    moved = {later.memory.no for laters in later_hits.values() for later in laters}
    ordered: list[MemoryHit] = []
    pending = [hit for hit in reversed(hits) if hit.memory.no not in moved]
    while pending:
        ordered.append(pending.pop())
        pending += reversed(later_hits.get(ordered[-1].memory.no, ()))
    return ordered


def _later_hits(
    view: Reader,
    naming: Sequence[MemoryHit],
    hits: Sequence[MemoryHit],
    conditions: Sequence[Condition],
    asked_terms: frozenset[str],
) -> dict[int, list[MemoryHit]]:
    """The hits that say that is over what one of these names, each by the first such one."""
    present = {hit.memory.no: hit for hit in hits}
    candidates = _holders(view, naming, conditions, asked_terms)
    later_hits: dict[int, list[MemoryHit]] = {}
    for hit in naming:
        earlier = Statement.of(hit.memory.text)
        for no, later in list(candidates.items()):
            if (
                later.kind == hit.memory.kind == "fact"
                and later.uttered_ms > hit.memory.uttered_ms
                and ends_by_name(earlier, Statement.of(later.text), asked_terms)
            ):
                del candidates[no]
                successor = present.get(no) or unranked(later)
                score = max(successor.score, hit.score)
                signals = {**successor.signals, "ends": hit.memory.id}
                later_hits.setdefault(hit.memory.no, []).append(
                    successor._replace(score=score, signals=signals)
                )
    return later_hits


def _holders(
    view: Reader,
    naming: Sequence[MemoryHit],
    conditions: Sequence[Condition],
    asked_terms: frozenset[str],
) -> dict[int, Candidate]:
    """The memories that hold a name of these, but for what the question names."""
    names = frozenset[str]().union(*(Statement.of(hit.memory.text).names for hit in naming)) - asked_terms
    frequencies = view.frequencies(names) if names else {}
    rare = {name: count for name, count in frequencies.items() if 1 < count <= COMMON_NAME}
    return view.candidates(view.by_words(rare, conditions, MAX_HOLDERS)) if rare else {}
