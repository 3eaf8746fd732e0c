"""What among the evidence disagrees, and what took what's place."""

import itertools
from collections.abc import Sequence

from ctx.memory.change import likeness, updates
from ctx.memory.contrast import contrasted, denies
from ctx.memory.evidence import Evidence, Vector, day, sentences, shortened
from ctx.memory.statement import Statement
from ctx.types import JSON

OVERLAP = 0.5  # share of terms at which a negation contradicts
MAX_CONFLICTS = 5


def conflicts(evidence: Sequence[Evidence], vectors: Sequence[Vector]) -> list[JSON]:
    """Pairs that cannot both hold now: "changed" where the later says so or is later, "conflict" where no
    order is known.

    What was replaced when the later one was stored is told with it; that older one is no evidence and has no
    number.
    """
    pairs = [
        _pair("changed", "replaced", _side(id, text, uttered_ms, None), _cited(entry, number))
        for number, entry in enumerate(evidence, 1)
        for id, text, uttered_ms in entry.replaced[:1]
    ]
    terms_of = [set(vector) for vector in vectors]
    statements = [Statement.of((sentences(entry.text) or [entry.text])[0]) for entry in evidence]
    for numbers in itertools.combinations(range(len(evidence)), 2):
        earlier, later = sorted(numbers, key=lambda index: (evidence[index].when_ms, evidence[index].id))
        reason = _disagreement(statements[earlier], statements[later], terms_of[earlier], terms_of[later])
        if reason is not None:
            ordered = evidence[earlier].when_ms < evidence[later].when_ms
            sides = (_cited(evidence[index], index + 1) for index in (earlier, later))
            pairs.append(_pair("changed" if ordered else "conflict", reason, *sides))
    return pairs[:MAX_CONFLICTS]


def successions(pairs: Sequence[JSON]) -> dict[int, int]:
    """The places in the evidence of statements that changed, each with that of the one which says so."""
    return {
        pair["older"]["n"] - 1: pair["newer"]["n"] - 1
        for pair in pairs
        if pair["kind"] == "changed" and pair["older"]["n"] is not None
    }


def _side(id: str, text: str, ms: int, number: int | None) -> JSON:
    return {"id": id, "text": shortened(text), "date": day(ms), "n": number}


def _cited(entry: Evidence, number: int) -> JSON:
    return _side(entry.id, entry.text, entry.when_ms, number)


def _pair(kind: str, reason: str, older: JSON, newer: JSON) -> JSON:
    return {"kind": kind, "why": reason, "older": older, "newer": newer}


def _disagreement(
    earlier: Statement, later: Statement, earlier_terms: set[str], later_terms: set[str]
) -> str | None:
    """Why two statements cannot both hold; None where they can."""
    if earlier.text == later.text or earlier.others != later.others or contrasted(earlier.text, later.text):
        return None
    common, shorter = len(earlier_terms & later_terms), min(len(earlier_terms), len(later_terms))
    shared = common / (shorter or 1)
    # Of one word in common it is no more than the verb: "I do not like leeks", "I like salad".
    negated = denies(earlier.text) != denies(later.text)
    if negated and shared >= OVERLAP and (common > 1 or common == shorter):
        return "negation"
    if later.changes:
        return "change" if shared >= OVERLAP else None
    return "value" if _fill_otherwise(earlier, later) else None


def _fill_otherwise(earlier: Statement, later: Statement) -> bool:
    """Whether the later of two statements fills the earlier one's slot with another value."""
    if not earlier.slot or not later.slot or earlier.slot.value == later.slot.value:
        return False
    return updates(earlier, later, likeness(earlier, later, None))
