"""Later statements to which a found memory leads. "Replaced Jest with Vitest" holds no word of "How do we run
the tests?", and answers it, since what is found ("Tests are run with Jest") names what it ends; so does "I
report to Daniel" of "Who is my manager?", since both tell of one facet.
"""

from collections.abc import Callable, Mapping, Sequence, Set

from ctx.analyze import terms
from ctx.memory.answers import PLAIN_BY_SCORE
from ctx.memory.change import ends_by_name
from ctx.memory.facets import asked_facets, facet_clues
from ctx.memory.filters import Condition
from ctx.memory.legs import MemoryHit, unranked
from ctx.memory.reader import Candidate, Reader
from ctx.memory.statement import Statement

NAMING_HITS = 5  # the best, whose names are looked for: what answers a question stands there
MAX_HOLDERS = 50  # memories that hold such a name, looked at one by one
COMMON_NAME = 200  # memories from which on a name tells little, and reading its entries takes long


def with_successors(
    view: Reader, hits: Sequence[MemoryHit], conditions: Sequence[Condition], query: str
) -> list[MemoryHit]:
    """Hits in order of rank, with those statements behind the best that say that is over what these name, or
    tell anew of the facet that the question asks for. They are as sure as what they end.
    """
    asked_terms = frozenset(terms(query))
    naming = [hit for hit in hits[:NAMING_HITS] if Statement.of(hit.memory.text).names - asked_terms]
    question = Statement.of(query)
    facets = asked_facets(query, question.content) if question.short else frozenset[str]()
    later_hits: dict[int, list[MemoryHit]] = {}
    if facets:
        latest = _latest_of_facets(view, facets, conditions)
        hits = _told_of(facets, hits, latest)
        _add_later(
            later_hits,
            [hit for hit in hits[:NAMING_HITS] if facets & Statement.of(hit.memory.text).facets],
            hits,
            latest,
            lambda earlier, later: bool(facets & earlier.facets & later.facets),
        )
    _add_later(
        later_hits,
        naming,
        hits,
        _holders(view, naming, conditions, asked_terms),
        lambda earlier, later: ends_by_name(earlier, later, asked_terms),
    )
    return _each_with_later(hits, later_hits)


def _each_with_later(
    hits: Sequence[MemoryHit], later_hits: Mapping[int, Sequence[MemoryHit]]
) -> list[MemoryHit]:
    """Hits, each with its later ones behind it, and those with theirs."""
    moved = {later.memory.no for laters in later_hits.values() for later in laters}
    ordered: list[MemoryHit] = []
    pending = [hit for hit in reversed(hits) if hit.memory.no not in moved]
    while pending:
        ordered.append(pending.pop())
        pending += reversed(later_hits.get(ordered[-1].memory.no, ()))
    return ordered


def _led_by(memories: Sequence[Candidate], hits: Sequence[MemoryHit]) -> list[MemoryHit]:
    """Hits behind some memories, which may be among them."""
    numbers = {memory.no for memory in memories}
    present = {hit.memory.no: hit for hit in hits if hit.memory.no in numbers}
    leading = [present.get(memory.no) or unranked(memory) for memory in memories]
    return [*leading, *(hit for hit in hits if hit.memory.no not in numbers)]


def _told_of(facets: Set[str], hits: Sequence[MemoryHit], latest: Sequence[Candidate]) -> Sequence[MemoryHit]:
    """Hits of which those that tell of the facet that is asked for are evidence by that, in whatever words;
    where nothing else answers, and none of the best tells of it, what told of it last stands before them.
    """
    named = any(facets & Statement.of(hit.memory.text).facets for hit in hits[:NAMING_HITS])
    floor = 0.0 if any(hit.score >= PLAIN_BY_SCORE for hit in hits) else PLAIN_BY_SCORE
    if not named and floor:
        hits = _led_by(latest, hits)
    return [
        hit._replace(score=max(hit.score, floor), signals={**hit.signals, "of_facet": True})
        if facets & Statement.of(hit.memory.text).facets
        else hit
        for hit in hits[:NAMING_HITS]
    ] + list(hits[NAMING_HITS:])


def _add_later(
    later_hits: dict[int, list[MemoryHit]],
    leading: Sequence[MemoryHit],
    hits: Sequence[MemoryHit],
    candidates: Sequence[Candidate],
    succeeds: Callable[[Statement, Statement], bool],
) -> None:
    """Adds to the later hits, by the number of what they succeed, those candidates that succeed one of the
    leading hits, each by the first such one.
    """
    present = {hit.memory.no: hit for hit in hits}
    numbers = {later.memory.no for laters in later_hits.values() for later in laters}
    for hit in leading:
        earlier = Statement.of(hit.memory.text)
        for later in candidates:
            if (
                later.no not in numbers
                and later.kind == hit.memory.kind == "fact"
                and later.uttered_ms > hit.memory.uttered_ms
                and succeeds(earlier, Statement.of(later.text))
            ):
                numbers.add(later.no)
                successor = present.get(later.no) or unranked(later)
                score = max(successor.score, hit.score)
                signals = {**successor.signals, "ends": hit.memory.id}
                later_hits.setdefault(hit.memory.no, []).append(
                    successor._replace(score=score, signals=signals)
                )


def _latest_of_facets(view: Reader, facets: Set[str], conditions: Sequence[Condition]) -> list[Candidate]:
    """Of each of these facets the memory that told of it last."""
    frequencies = view.frequencies(frozenset[str]().union(*map(facet_clues, facets)))
    rare = {term: count for term, count in frequencies.items() if count <= COMMON_NAME}
    holders = view.candidates(view.by_words(rare, conditions, MAX_HOLDERS)) if rare else {}
    by_age = sorted(holders.values(), key=lambda holder: holder.uttered_ms)
    latest = {facet: holder for holder in by_age for facet in facets & Statement.of(holder.text).facets}
    return list(latest.values())


def _holders(
    view: Reader, naming: Sequence[MemoryHit], conditions: Sequence[Condition], asked_terms: frozenset[str]
) -> list[Candidate]:
    """The memories that hold a name of these, but for what the question names."""
    names = frozenset[str]().union(*(Statement.of(hit.memory.text).names for hit in naming)) - asked_terms
    frequencies = view.frequencies(names) if names else {}
    rare = {name: count for name, count in frequencies.items() if 1 < count <= COMMON_NAME}
    return list(view.candidates(view.by_words(rare, conditions, MAX_HOLDERS)).values()) if rare else []
