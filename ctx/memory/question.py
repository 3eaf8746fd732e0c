"""What a question asks for, by which one of two statements answers it."""

import itertools
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from ctx.analyze import STOP_WORDS, terms
from ctx.memory.calendar_words import MONTHS
from ctx.memory.contrast import (
    choices,
    contrasted,
    denies,
    kinds_apart,
    label,
    of_other_kinds,
    of_past,
    set_apart,
)
from ctx.memory.language import language
from ctx.memory.persons import may_be
from ctx.memory.slots import attributes
from ctx.memory.statement import Statement

_MEASURED = re.compile(
    r"(?i)\b(?:when|how\s+(?:many|much|long|often|old|far|big|large|high|tall)|what\s+time\b"
    r"|(?:which|what)\s+(?:day|date|month|year)"
    r"|wann|wie\s*(?:viele?|lange|oft|alt|weit|groß|hoch)|um\s+wie\s*viel|cuándo|cuánt[oa]s?"
    r"|qué\s+(?:hora|día)|quand|combien|quelle\s+heure|quel\s+jour)\b"
)
_COUNTED = re.compile(
    r"(?i)\b(?:how\s+(?:many|much|old|tall|heavy|large|big|high|wide|deep|far)|costs?|salary|(?!(?:the|my|our|a|what|which)\b)[a-z]+\s+number|iban|version"
    r"|wie\s*viele?|wie\s+alt|kostet|kosten|telefonnummer|cuánt[oa]s?|cuestan?|combien|coûte(?:nt)?)\b"
)
# Who does something, or what somebody is called. English.
_WHO = re.compile(r"(?i)^\W*who(?:se|['’]s)?\b")
_NAMED = re.compile(
    r"(?i)(?:\b(?:the|my|our|his|her|their|its|what|which|maiden|middle|first|last|family)|['’]s?)\s+"
    r"(?:sur|nick)?names?\b|\b(?:called|named)\W*$"
)
NAME = re.compile(r"\b(?:[A-ZÄÖÜ][\w'’-]+|(?!\d+\b)\w*\d\w*|\w+[-_./@]\w+)")  # also "acme-stage-eu"
_CALLED = re.compile(r"(?i)\b(?:(?:re)?named|called|names?(?:\s+(?:is|are|was))?)\b(?:\s+to\b)?\s*(\w*)")
# Whose something is, and who is or does something.
_BEARER = re.compile(
    r"\b([A-ZÄÖÜ]\w+)['’]s\b|\b(?i:is|are|was|were|does|do|did|has|have|can|will|should)\s+([A-ZÄÖÜ]\w+)"
)
_WHERE = re.compile(r"(?i)\W*where\b")
# What a place is told by; behind such a preposition a time may stand, too.
_PLACE = re.compile(
    r"(?i)\b(?:in|at|on|to|from|near|under|behind|with|by|next\s+to|into|onto|inside|outside|above|below"
    r"|across|opposite|beside|between|through|of|around|along)\s+(?!\d|(?:january|february|march|april|may"
    r"|june|july|august|september|october|november|december|spring|summer|autumn|winter|time|noon|midnight"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b)\w"
    r"|\b(?:here|there|home|abroad|upstairs|downstairs|outside|inside|away)\b"
)
SPEAKER = re.compile(r"(?i)\b(?:i|me|my|mine|we|us|our|ours|user)\b")
# What is spelt as a name and is nobody's: a day, a month, and where somebody is from.
CALENDAR = rf"\b(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?|{'|'.join(MONTHS).title()})\b"
_WHEN_OR_WHERE = re.compile(rf"{CALENDAR}|\bfrom\s+[A-ZÄÖÜ][\w-]+(?=\W*$)")
# Nor a deed that a note begins with, nor, asked who, where something is.
_DEED = re.compile(
    r"^(?!(?:Al|Wil|Mani|Wini)?[Ff]red\b|(?:Jar|Ahm|Ham|Mohamm?|N|T|J)ed\b)\w+ed\s+"
    r"(?=(?:the|an?|my|our|his|her|their|with|to|on|in|up|at)\b)"
)
_IN_A_PLACE = re.compile(r"\b(?:in|from)\s+(?:the\s+)?[A-ZÄÖÜ][\w-]+")
# Somebody without a name: a pronoun, or whom something is done by.
_SOMEBODY = re.compile(
    r"(?i)\b(?:s?he|they|him|them|who(?:ever)?|(?:every|some|any|no)(?:body|one)|no\s+one|people|team|family"
    r"|(?:wo)?m[ae]n|girls?|boys?|couple|kids|children|neighbou?rs?|guests?|tenants?|colleagues?|customers?"
    r"|students?|visitors?)\b|\bby\s+(?:the|an?|our|my|one\s+of)\s"
)
_NUMBER = frozenset(terms("number"))
_LOCATED = re.compile(r"(?i)where\s+(?:is|are|do|does|can|did)\b")
_WORD = re.compile(r"\w+")
_SIGNS = re.compile(r"\b(?:[A-Z]{2,}\w*|[a-z]+[A-Z]\w*)\b")  # API, iOS: names in every language


class Asked(NamedTuple):
    """What stands in a question, by which of two statements the one it asks for can be told."""

    terms: frozenset[str]
    content: frozenset[str]
    spellings: Mapping[str, str]
    kinds: frozenset[tuple[str, str]]
    names: frozenset[str]
    called: Mapping[
        str, str
    ]  # the terms of its names that are spelt with a capital, as they are written; English
    relatives: frozenset[str]
    denied: bool
    measured: bool  # it asks when, how often or how much
    counted: bool  # it asks how much, or for a number
    of_somebody: bool  # it asks who
    of_name: bool  # it asks for a name
    alternative: bool  # it names one of several: the evening, Tuesday, upstairs
    located: bool  # it asks where something is
    past: bool  # it asks what was
    words: frozenset[str]  # as they are written, in lower case
    bearers: frozenset[str]  # those of `called` whose something is, or who does something
    of_place: bool  # it asks where

    @classmethod
    @lru_cache(256)  # a search asks a few times, of the order and of what answers
    def of(cls, query: str) -> "Asked":
        """Read from the question's words."""
        question = Statement.of(query)
        names = question.titled if language(query) != "de" else frozenset()  # where every noun has a capital
        called = (
            {}
            if question.foreign
            else {term: word for term, word in question.spellings.items() if term in names}
        )
        asked_terms = frozenset(terms(query))
        names |= frozenset(term for word in _SIGNS.findall(query) for term in terms(word))
        return cls(
            asked_terms,
            question.content,
            question.spellings,
            question.kinds,
            names,
            called,
            question.others,
            denies(query),
            _MEASURED.search(query) is not None,
            _COUNTED.search(query) is not None,
            _WHO.search(query) is not None,
            _NAMED.search(query) is not None,
            bool(choices(asked_terms)),
            _LOCATED.match(query) is not None,
            of_past(query),
            frozenset(_WORD.findall(query.casefold())),
            frozenset(terms(" ".join(map("".join, _BEARER.findall(query))))) & called.keys(),
            _WHERE.match(query) is not None,
        )

    def tells_apart(self, older: Statement, newer: Statement) -> bool:
        """Whether the question asks for the older statement alone: it names what only that one names, one of
        several alternatives, things of a kind or persons of which the newer one names another, or denies
        what only that one denies, or wants a measure that only that one has."""
        return bool(
            self.names & older.terms - newer.terms
            or set_apart(self.terms, older.terms, newer.terms)
            or of_other_kinds(self.kinds, older.terms, newer.terms, newer.kinds)
            or self._asks_for_another_person(older, newer)
            or newer.owners - older.others - self.relatives
            or self._is_lost(older, newer)
            or (self.terms & contrasted(older.text, newer.text) and not newer.sets_anew(older))
            or self._asks_for_no_part(older, newer)
            or self.is_of_older(older, newer)
        )

    def _is_lost(self, older: Statement, newer: Statement) -> bool:
        """Whether the measure, the number or the denial that is asked for is not in the newer statement."""
        if self.measured and older.measured and not newer.measured and not newer.changes:
            return True
        if self.counted and older.counted and not newer.counted:
            return True
        return self.denied and older.denies and not newer.denies

    def is_of_older(self, older: Statement, newer: Statement) -> bool:
        """Whether the question is plainly of the older statement: it asks what was, or for the other one of
        two ends or of several that bear a label.
        """
        return (
            (self.past and of_past(older.text) and not of_past(newer.text))
            or self._ended_alike(older, newer)
            or self._labelled_apart(older, newer)
        )

    def _asks_for_no_part(self, older: Statement, newer: Statement) -> bool:
        """Whether the newer statement is of some days, places or cases, of one of several things of a kind
        ("my work phone") or of a wish, and neither the question nor the older one is.
        """
        if newer.changes:
            return False
        common = self.terms | older.terms
        partial = newer.partial and not older.partial
        return partial or bool(newer.frame - common) or self.names_special(older, newer)

    def names_special(self, older: Statement, newer: Statement) -> bool:
        """Whether the newer statement is of one of several things of a kind ("the kitchen tap"), and neither
        the question nor the older one tells it from others.
        """
        asked_heads = self.terms & older.terms
        common = self.terms | older.terms
        return any(head in asked_heads and modifier not in common for modifier, head in newer.things)

    def names_in_another(self, older: Statement, newer: Statement) -> bool:
        """Whether what the question names is part of the name of another thing in the newer statement, of
        which neither it nor the older one says anything: "the bike shed" where the bike is asked for,
        "staging deploys" for deploys.
        """
        common = self.terms | older.terms
        return any(not self.terms.isdisjoint(pair) and not common.issuperset(pair) for pair in newer.kinds)

    def _ended_alike(self, older: Statement, newer: Statement) -> bool:
        """Whether two statements tell in the same words of two ends, and the question names the older one's:
        who quit smoking and quit drinking did both.
        """
        alike = not older.ending_words.isdisjoint(newer.ending_words)
        return alike and bool(self.terms & older.ended - newer.terms)

    def _labelled_apart(self, older: Statement, newer: Statement) -> bool:
        """Whether the newer statement is of another one of several by its label ("Team B"), which the
        question does not name.
        """
        older_label, newer_label = label(older.text), label(newer.text)
        is_named = bool(older_label) and older_label in self.words
        return is_named and bool(newer_label) and newer_label not in self.words

    def asks_for_others(self, told: Statement) -> bool:
        """Whether the question is of a person, and a statement of another one, or of the speaker alone."""
        if not told.others:
            return bool(self.relatives) and told.of_self
        pairs = itertools.product(self.relatives, told.others)
        return bool(self.relatives) and not any(
            may_be(relative, told_relative) for relative, told_relative in pairs
        )

    def asks_for_another_name(self, told: Statement) -> bool:
        """Whether the question names somebody, and a statement does not: Malik's birthday, where Signe's was
        asked for.
        """
        return bool(self.bearers) and self.bearers.isdisjoint(told.terms)

    def asks_for_place_beyond(self, told: Statement) -> bool:
        """Whether the question asks where, and a statement says nothing of a place: no preposition that one
        stands behind, and no name beyond the question's. English.
        """
        if told.foreign or not self.of_place:
            return False
        spelt = frozenset(terms(" ".join(NAME.findall(told.text)))) - STOP_WORDS - self.terms
        return all(term[0].isdigit() for term in spelt) and _PLACE.search(told.text) is None

    def _names_another(self, told: Statement) -> bool:
        """Whether a statement has a name that the question has not."""
        text = _DEED.sub(" ", _WHEN_OR_WHERE.sub(" ", told.text))
        if self.of_somebody:
            text = _IN_A_PLACE.sub(" ", text)
        spelt = frozenset(terms(" ".join(NAME.findall(text))))
        return bool(spelt - STOP_WORDS - self.terms)

    def asks_for_name_beyond(self, told: Statement) -> bool:
        """Whether the question asks who, or for a name, and a statement tells of nobody and names nothing but
        what the question names itself. A word with a capital, a number or an identifier is a name. English.
        """
        if told.foreign or not (self.of_somebody or self.of_name):
            return False
        if self._names_another(told):
            return False
        if not self.of_somebody:
            # "Our repository is called shipyard", in small letters; and not by the name that the question has
            return all(self.terms.issuperset(terms(word)) for word in _CALLED.findall(told.text))
        by_speaker = SPEAKER.search(told.text) is not None and not SPEAKER.search(" ".join(self.words))
        return not (by_speaker or told.others - self.relatives or _SOMEBODY.search(told.text))

    def _numbers_apart(self, told: Statement) -> Iterator[tuple[str, str]]:
        """A number of which nothing else is said is one to ring."""
        if told.foreign or _NUMBER.isdisjoint(told.terms - {head for _, head in told.kinds}):
            return
        for modifier, head in self.kinds:
            if head in _NUMBER and modifier not in told.terms:
                yield f"{self.spellings[modifier]} number", "phone number"

    def things_apart(self, told: Statement) -> Iterator[tuple[str, str]]:
        """What the question asks for, and what a statement tells of instead, where both are of one kind ("tax
        number", "phone number") or have one attribute ("colour" and "film" of a favourite one)."""
        if self.kinds & told.kinds:
            return  # both name one thing, whatever else they name
        spellings, told_spellings = self.spellings, told.spellings
        pairs = kinds_apart(self.kinds, self.terms, told.kinds, told.terms)
        for (modifier, head), (told_modifier, told_head) in pairs:
            yield (
                f"{spellings[modifier]} {spellings[head]}",
                f"{told_spellings[told_modifier]} {told_spellings[told_head]}",
            )
        yield from self._numbers_apart(told)
        for (modifier, head), (told_modifier, told_head) in itertools.product(self.kinds, told.kinds):
            unlike = head not in told.terms and told_head not in self.terms
            if modifier == told_modifier and modifier in attributes(language(told.text)) and unlike:
                yield spellings[head], told_spellings[told_head]

    def nameless(self, query: str) -> str:
        """The question without the names in it that are spelt with a capital; itself where there are none."""
        if not self.called:
            return query
        return " ".join(word for word in query.split() if self.called.keys().isdisjoint(terms(word)))

    def is_of_names_alone(self, older: Statement, newer: Statement) -> bool:
        """Whether two statements share nothing but names that the question names: of somebody much is
        said.
        """
        shared = older.content & newer.content
        return bool(shared) and shared <= self.called.keys()

    def is_told_more(self, older: Statement, newer: Statement) -> bool:
        """Whether the newer statement says more of what the older one gives as its value, and nothing in its
        place: "Frieda broke her glasses" of "My daughter is called Frieda", where the question is for her
        name.
        """
        value = older.content - self.content - older.beginning
        return bool(
            newer.beginning
            and newer.beginning <= value
            and newer.is_of_one_clause
            and not newer.changes
            and newer.content.isdisjoint(self.content - self.called.keys())
        )

    def _asks_for_another_person(self, older: Statement, newer: Statement) -> bool:
        named = bool(self.relatives & older.others) and newer.others.isdisjoint(self.relatives)
        return named and bool(newer.others or newer.of_self)

    def turns_from(self, older: Statement, newer: Statement) -> bool:
        """Whether the question names what the older statement is about, and the newer one is about something
        that neither of them names.
        """
        asked_for = older.subject & self.terms
        return bool(
            asked_for
            and not newer.sets_anew(older)
            and newer.ended.isdisjoint(older.subject)
            and newer.subject
            and asked_for.isdisjoint(newer.terms)
            and newer.subject.isdisjoint(older.terms | self.terms)
        )
