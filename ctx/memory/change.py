"""When a statement takes an earlier one's place: by what stands in the two texts, and how near they are in
meaning.

`replaces` is for the plain case, decided when the later one is stored: both fill one slot ("the backup starts
at"), or the later one says that something changed and names what the earlier one is about. `updates` is for
the rest, decided when a question finds both: it only orders them, so that a mistake costs a rank. Arithmetic
on texts: no model but the embedder's cosine, no clock, no chance.
"""

from collections.abc import Set
from typing import NamedTuple

from ctx.analyze import STOP_WORDS, terms
from ctx.memory.contrast import (
    begins_with_another,
    kinds_apart,
    labelled_apart,
    of_another,
    of_another_time,
    scoped_otherwise,
)
from ctx.memory.language import inflected, language
from ctx.memory.slots import STATES, Slot, named_clues, same_slot, told_by_slot
from ctx.memory.statement import Statement

PLAIN_COSINE = 0.5  # of two texts of which the later says that something changed
RELATED = 0.5  # cosine, and what else speaks for it, from which on two texts are about one thing
RELATED_ALONE = 0.47  # the cosine at which two texts need not share a word to be about one thing
CUE_WORTH = 0.2
NAMED_WORTH = 0.15  # of a name or number of the earlier text in the later one
SLOT_WORTH = 0.3
_NAMINGS = ("called", "named", "name is")
UNRELATED = RELATED - CUE_WORTH - NAMED_WORTH  # nothing that speaks for it makes two texts of one thing


def _are_statements_of_one(earlier: Statement, later: Statement) -> bool:
    """Whether both are statements, not reports, and not by two speakers."""
    if not (earlier.short and later.short):
        return False
    return not earlier.speaker or not later.speaker or earlier.speaker == later.speaker


def of_same_people(earlier: Statement, later: Statement) -> bool:
    """Whether both are statements, not reports, by one speaker and about the same people."""
    return earlier.others == later.others and _are_statements_of_one(earlier, later)


def of_one_subject(earlier: Statement, later: Statement) -> bool:
    """Whether both, of the same people, begin with one thing, of which the one may say more: "Image hosting",
    "Images"."""
    subjects = earlier.subject, later.subject
    nested = subjects[0] <= subjects[1] or subjects[1] <= subjects[0]
    return nested and all(subjects) and of_same_people(earlier, later)


def likeness(earlier: Statement, later: Statement, cosine: float | None) -> float:
    """How much two texts speak of one thing: the cosine, or the share of their terms that they share where
    that is more.

    Of two turns of one speaker the words alone count: the name before them makes them all alike to an
    embedder. So does a language that it does not read: there the two must share a word besides.
    """
    if earlier.speaker and later.speaker:
        cosine = None
    if (earlier.foreign or later.foreign) and earlier.content.isdisjoint(later.content):
        cosine = None
    shared = 2 * len(earlier.content & later.content) / (len(earlier.content) + len(later.content) or 1)
    if earlier.places & later.places:
        shared = max(shared, RELATED)
    return shared if cosine is None else max(cosine, shared)


class Clues(NamedTuple):
    """What stands in every statement that a later one can replace: a term of each set of `every`, or any of
    `some`."""

    every: frozenset[frozenset[str]]
    some: frozenset[str]


def _slot_clues(slot: Slot) -> frozenset[str]:
    """The terms of which a statement that fills a slot holds one; none: it holds those of the slot's key."""
    if "state" in slot.types:
        group = slot.key[0]
        return frozenset(terms(" ".join([group, *(state for state in STATES if STATES[state] == group)])))
    return named_clues().get(slot.key, frozenset())


def clues(later: Statement) -> Clues:
    """By what the statements can be looked for that a later one may replace (`replaces`); nothing: there are
    none."""
    every: frozenset[frozenset[str]] = frozenset()
    some = set(_slot_clues(later.slot)) if later.slot is not None else set()
    if later.slot is not None and not some:
        every = frozenset(inflected((term,), language(later.text)) for term in later.slot.key)
    if later.changes:  # also as "the user goes" is stored, which is compared as "I go"
        some.update(form for term in later.ended_forms for form in (term, *terms(f"{term}es")))
    return Clues(every, frozenset(some))


def replaces(earlier: Statement, later: Statement, cosine: float | None) -> str | None:
    """Why a later statement plainly takes an earlier one's place; None where it does not.

    "value": both fill one slot. "change": the later one says that something changed, and names what the
    earlier one is about.
    """
    if not of_same_people(earlier, later):
        return None
    if told_by_slot(earlier.slot, later.slot):
        return "value"  # whatever the words: who is engaged is single no more, and a number is another number
    if same_slot(earlier.slot, later.slot) and not _shares_slot(earlier, later):
        reason = "value"
    elif later.changes and _names_what_ended(earlier, later) and not _beside(earlier, later):
        reason = "change"
    else:
        return None
    return reason if likeness(earlier, later, cosine) >= PLAIN_COSINE else None


def _shares_slot(earlier: Statement, later: Statement) -> bool:
    """Whether what both fill may have room for both, and the later one does not say that there is another
    now.
    """
    assert earlier.slot is not None
    assert later.slot is not None
    return (earlier.slot.shared or later.slot.shared) and not (later.slot.single and later.changes)


def _beside(earlier: Statement, later: Statement) -> bool:
    """Whether the two are of two things, or of two purposes, or tell in the same words of two ends (who
    stopped drinking milk and stopped drinking beer drinks neither), or each is of something that the other
    lacks, where it says what ended.
    """
    texts = earlier.text, later.text
    return (
        begins_with_another(*texts)
        or labelled_apart(*texts)
        or bool(of_another(*texts))
        or scoped_otherwise(*texts)
        or any(kinds_apart(earlier.things, earlier.terms, later.things, later.terms))
        or of_another_time(earlier.terms, later.terms)
        or not earlier.ending_words.isdisjoint(later.ending_words)
        or bool(later.ending - earlier.terms - earlier.content and earlier.content - later.terms)
    )


def _names_what_ended(earlier: Statement, later: Statement) -> bool:
    """Whether a later statement names as over what the earlier one is about."""
    referred = (earlier.names | earlier.content) & later.ended
    if not referred or not earlier.terms.issuperset(later.leaver):
        return False
    if later.owned.isdisjoint(earlier.terms) and later.owned:
        return False
    if later.subject.isdisjoint(earlier.terms) and later.subject and later.says_no_more:
        return False  # what is no longer so is so of something else: of the parking, not of the breakfast
    return earlier.of_self or bool((earlier.content - referred) & later.content)


def updates(earlier: Statement, later: Statement, worth: float) -> bool:
    """Whether a later statement speaks of the same thing as an earlier one, so that of the two it is the one
    to go by; `worth` is their likeness."""
    if worth < UNRELATED or not _are_statements_of_one(earlier, later):
        return False
    if _fills_in_part(earlier, later):
        return True
    # What has little to do with the earlier one, and names what ended, or a person, of whom that says
    # nothing.
    if worth < RELATED and (ends_something_else(earlier, later) or later.others - earlier.others):
        return False
    if earlier.places & later.places:
        return not ends_something_else(earlier, later)
    if _ends_value(earlier, later):
        return True
    if later.changes and (worth >= RELATED_ALONE or earlier.matter & later.content):
        worth += CUE_WORTH + (NAMED_WORTH if earlier.names & later.terms else 0.0)
        return worth >= RELATED
    return same_slot(earlier.slot, later.slot) and worth + SLOT_WORTH >= RELATED


def linked(earlier: Statement, later: Statement, worth: float) -> bool:
    """Whether more than a word that they share ties a later statement to an earlier one: they are much alike,
    or `tied`.
    """
    return worth >= RELATED or tied(earlier, later)


def tied(earlier: Statement, later: Statement) -> bool:
    """Whether two statements are of one slot or both of where the speaker lives, or the later one names what
    ended, or nothing else but names.
    """
    return (
        bool(earlier.places & later.places)
        or same_slot(earlier.slot, later.slot)
        or _fills_in_part(earlier, later)
        or names_anew(earlier, later)
        or (later.changes and earlier.slot is not None and later.content.issuperset(earlier.slot.key))
        or later.matter <= earlier.content
        or (
            earlier.terms.issuperset(later.leaver)
            and not later.gone.isdisjoint(earlier.names | earlier.content)
        )
    )


def names_anew(earlier: Statement, later: Statement) -> bool:
    """Whether a later statement gives another name to what an earlier one says the name of: "It is called
    heron", "heron is now called egret".
    """
    former = later.former_name
    return bool(former) and any(f" {naming} {former} " in earlier.worded for naming in _NAMINGS)


def _fills_in_part(earlier: Statement, later: Statement) -> bool:
    """Whether a part of the later sentence gives the earlier one's slot another value."""
    return any(same_slot(earlier.slot, part) for part in later.clause_slots)


def _ends_value(earlier: Statement, later: Statement) -> bool:
    """Whether a later statement says that what the earlier one gives as a value is over, or what that is
    called.
    """
    if not later.changes or earlier.slot is None:
        return False
    called = earlier.named_value
    return later.ended.issuperset(terms(earlier.slot.value)) or (bool(called) and called <= later.gone)


def ends_something_else(earlier: Statement, later: Statement) -> bool:
    """Whether a later statement names what is over, and that is nothing which the earlier one speaks of: who
    sold the boat may paint as before.
    """
    if later.ended:
        return later.ended.isdisjoint(earlier.names | earlier.content)
    gone_terms = later.gone - STOP_WORDS  # "my singing teacher retired" is nothing of whoever sings
    return bool(gone_terms) and not gone_terms <= earlier.terms and gone_terms.isdisjoint(earlier.names)


def ends_by_name(earlier: Statement, later: Statement, asked_terms: Set[str]) -> bool:
    """Whether a later statement says that is over what the earlier one names ("Replaced Jest with Vitest"),
    and that is not what was asked about: then it answers whatever the earlier one answers, in whatever
    words."""
    statements = _are_statements_of_one(earlier, later)
    if not (later.changes and statements and _of_its_persons(earlier, later)) or _beside(earlier, later):
        return False
    if language(later.text) == "de":
        return False  # where every noun is spelt as a name
    ended_names = later.gone & earlier.names
    if not later.gone - later.ended - STOP_WORDS <= earlier.terms or ends_something_else(earlier, later):
        return False  # of "the Linux user group" Linux is no end
    return bool(ended_names) and ended_names.isdisjoint(asked_terms)


def _of_its_persons(earlier: Statement, later: Statement) -> bool:
    """Whether a later statement is of nobody else than the earlier one: "Deborah left" of "my manager", and
    "I left the club" not of "my son"."""
    return later.others == earlier.others or (
        later.others < earlier.others and (earlier.tells_deed or not later.tells_deed)
    )


def newest_first(count: int, updated_by: dict[int, set[int]]) -> list[int]:
    """The order of `count` ranked things in which none stands above what updates it: that goes just before
    it."""
    order: list[int] = []
    ranked: set[int] = set()

    def rank(index: int) -> None:
        if index not in ranked:
            ranked.add(index)
            for later in sorted(updated_by.get(index, ())):
                rank(later)
            order.append(index)

    for index in range(count):
        rank(index)
    return order
