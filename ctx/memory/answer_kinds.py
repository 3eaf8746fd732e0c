"""What kind of answer a question wants, and whether a statement is seen to lack it: a count of the things it
names, a weight, a number to ring, a time, or what it asks of something.

Names make near what answers nothing: of the centrifuge is said in which room it stands, and not how heavy it
is. What lacks the kind is shown all the same, and said to only come near. English, and German where a form is
as plain there.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from ctx.analyze import STOP_WORDS, terms
from ctx.memory.calendar_words import GERMAN_MONTHS, MONTHS
from ctx.memory.question import Asked
from ctx.memory.statement import MAX_STATEMENT_CHARS, Statement

# The cosine from which on a word has to do with what is asked for. Between "password" and the nearest word of
# what says none it was .04 to .40, of what says one in other words ("born" for a birthday) .40 to .63.
AKIN = 0.4
_MOST_WORDS = 12  # of a statement that are compared with it, a model's call each

AUXILIARY = r"(?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|should|may|must)"
_HOW_MANY = re.compile(r"(?i)^\W*(?:how\s+many|wie\s*viele)\s+(?P<things>(?:[\w'’-]+\s+)+)")
# "the salary of X", "X's salary": what is asked for, its last word the kind of it.
_ATTRIBUTES = (
    re.compile(
        r"(?i)^\W*(?:what|when|who|where)(?:['’]s|\s+(?:is|are|was|were))\s+(?P<owner>[\w.'’ -]*?)['’]s?\s+"
        r"(?P<attribute>[\w-]+(?:\s+[\w-]+)?)\W*$"
    ),
    re.compile(
        r"(?i)^\W*what(?:['’]s|\s+(?:is|are|was|were))\s+(?:the|our|my)\s+"
        r"(?P<attribute>[\w-]+(?:\s+[\w-]+)?)\s+(?:of|for|at|in|on)\s+(?P<owner>.*)$"
    ),
    re.compile(
        r"(?i)^\W*what(?:['’]s|\s+(?:is|are|was|were))\s+(?:our|my)\s+(?P<attribute>[\w-]+(?:\s+[\w-]+)?)(?P<owner>)\W*$"
    ),
)
# What says nothing of how its value is worded; what somebody is called is told by other signs.
_OPEN = frozenset(
    terms(
        "state status plan thing things cause reason purpose deal matter problem trouble point way use idea "
        "name names day days job role position"
    )
)
# Whose value is a number or a length of time, whatever stands beside it.
_OF_NUMBERS = frozenset(
    terms(
        "limit rate deadline price cost fee budget size length height width age term terms date time period "
        "interval retention capacity number count amount total dose share"
    )
)
# Asked how many of these something takes, an answer may have only their sign: "11 ms", "€950".
_UNITS = frozenset(
    terms(
        "seconds milliseconds minutes hours days weeks months years metres meters kilometres kilometers "
        "miles inches feet kilos kilograms grams pounds litres liters euros dollars pence cents percent "
        "degrees bytes kilobytes megabytes gigabytes calories watts points times Sekunden Minuten Stunden "
        "Tage Wochen Monate Jahre Meter Kilometer Kilo Gramm Liter Prozent Grad"
    )
)
_QUALIFIED_NAME = re.compile(r"(?i)^(?:first|middle|maiden|last|family)\s+name$|^(?:sur|nick)name$")
WORD = re.compile(r"[^\W_][\w'’+-]*")
# Whose something is, where that is told and is no name, which may be another word for what was asked of.
_OWNER = re.compile(
    r"\b(?!(?:it|that|there|here|what|who|he|she|let)['’])[a-zäöü]\w+['’]s\s|^(?:The|Our|My)\s+\w+\s+ha(?:s|ve|d)\b"
)

NUMBER_WORDS = r"(?:\d|\b(?:a|an|one|two|three|four|five|six|seven|eight|nine|ten|half)\b)"
_MONTH_NAMES = "|".join((*MONTHS, *GERMAN_MONTHS))
COST_ASKED = re.compile(
    r"(?i)\bhow\s+much\b.*\bcosts?\b|\bwhat\s+do(?:es)?\b.*\bcost\W*$|\bwie\s*viel\b.*\bkoste"
)
COST = re.compile(
    r"(?i)(?<![\d:.])(?!(?:19|20)\d\d\b)\d[\d.,]*(?![\d:])|[€$£¥]|\b(?:free|nothing|gratis|kostenlos"
    r"|nichts|hundred|thousand|dozen|euros?|dollars?|pounds?|francs?|cents?|pence)\b"
)
# How a question asks, and what a statement that answers it has.
_FORMS = (
    (COST_ASKED, COST),
    (
        re.compile(
            r"(?i)\bdo(?:es|ing)?\b.*\b(?:for\s+(?:a\s+living|work)|professionally)\W*$"
            r"|\b(?:job|profession|occupation)\W*$"
        ),
        re.compile(
            r"(?i)\b(?:is|am|are|was|were|be|as|became|becomes?|becoming)\s+(?:now\s+|still\s+)?(?:an?|the|our|my)\b"
            r"|\b(?:work|job|profession|occupation|career|employ|train|stud|teach|taught|retire|freelanc)\w*"
            r"|\b(?:runs?|ran|owns?|owned|manages?|drives?|heads?|leads?|sells?|sold|repairs?|quit|joined)\b"
        ),
    ),
    (
        re.compile(r"(?i)\bhow\s+old\b|\bwie\s+alt\b"),
        re.compile(
            r"(?i)(?<![\d:.])\d{1,4}(?![\d:])|\bborn\b|birthday|geboren|geburtstag|\b\w+(?:teen|ty)\b"
            r"|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|ein|zwei|drei|vier|fünf|sechs"
            r"|sieben|acht|neun|zehn|elf|zwölf|\w+zig|\w+zehn)\b"
        ),
    ),
    (
        re.compile(r"(?i)\bhow\s+heavy\b|\bhow\s+much\b.*\bweigh|\bwie\s+schwer\b|\bwie\s*viel\s+wieg"),
        re.compile(
            rf"(?i){NUMBER_WORDS}[\d.,]*\s*(?:kg|kilos?|kilogram\w*|g|grams?|gramm|mg|lbs?|pounds?|stone"
            r"|tons?|tonnes?|tonnen?|oz|ounces?|pfund|zentner)\b|weigh|\bheavy\b|\bscales?\b|wieg|\bschwer\b"
        ),
    ),
    (
        re.compile(r"(?i)\b(?:tele|mobile\s+|cell\s+|fax\s+)?phone\s+number\b|\b(?:telefon|handy)nummer\b"),
        re.compile(r"(?i)\d(?:[\s/().-]*\d){4}|\bnumber\b|nummer\b"),
    ),
    (re.compile(r"(?i)\be-?mail[\s-]+adress\w*|\be-?mail\s+address"), re.compile(r"(?i)@|\be?-?mail")),
    (
        re.compile(r"(?i)\baddress\W*$"),
        re.compile(
            r"(?i)\d|@|\baddress|\b(?:street|road|lane|avenue|square|drive|court|st)\b|://"
            r"|\w(?:straße|strasse|weg|platz|gasse|allee)\b"
        ),
    ),
    (
        re.compile(r"(?i)^\W*where\b.*\bborn\b|^\W*wo\b.*\bgeboren\b"),
        re.compile(
            r"(?i)\bborn\b|\bfrom\b|birth(?!day)|\bnative\b|\bhome\s?town\b|geb(?:oren|urt)|\baus\b|\bgrew\s+up\b"
        ),
    ),
)
# The same of when: a statement may also say it by a measure or a number.
_WHEN = re.compile(
    r"(?i)^\W*(?:(?:at|on|in|from)\s+)?(?:what|which)\s+(?:time(?!\s*zone)|day|date|month|year|hour)s?\b"
    r"|^\W*(?:when|wann)\b"
)
MOMENT = re.compile(
    rf"(?i)\b(?:{_MONTH_NAMES}|after|before|until"
    r"|when|while|whenever|during|if|once|as\s+soon\s+as|for\s+\w+ing|\w+teen|\w+ty"
    r"|nach|vor|bis|wenn|sobald|während)\b"
)


class AnswerKind(NamedTuple):
    """What a question wants. Empty where it is not plain what."""

    things: frozenset[str]  # the terms of what is to be counted
    attribute: str  # what is asked of something, as it is written
    heads: frozenset[str]  # the terms of the attribute's last word
    owner: frozenset[str]  # the terms of what it is asked of
    of_time: bool
    form: re.Pattern[str] | None  # that an answer has, of anything but a time

    def is_lacking(self, told: Statement, alike: Callable[[str, str], float] | None) -> bool:
        """Whether a statement is seen to hold no answer of the kind. `alike`: the cosine of two texts; None:
        what an attribute has to do with is not told.
        """
        if self._lacks_value(told):
            return True
        if not self.attribute or told.foreign:
            return False
        if not self.heads.isdisjoint(told.terms):
            of_another = bool(self.owner) and self.owner.isdisjoint(told.terms)
            return of_another and _OWNER.search(told.text) is not None
        return alike is not None and self._lacks_attribute(told, alike)

    def _lacks_value(self, told: Statement) -> bool:
        """Whether the things that are counted, the form, or the time that is asked for is not there."""
        if self.things and self.things.isdisjoint(told.terms):
            return True
        if self.form is not None and self.form.search(told.text) is None:
            return True
        return self.of_time and not (MOMENT.search(told.text) or told.measured or told.counted)

    def _lacks_attribute(self, told: Statement, alike: Callable[[str, str], float]) -> bool:
        if told.counted and not self.heads.isdisjoint(_OF_NUMBERS):
            return False
        texts = [told.text, *words_beside(told)]
        return all(alike(self.attribute, text) < AKIN for text in texts)


def words_beside(told: Statement) -> list[str]:
    """The words of a statement that say something of their own, as many as are compared with another one."""
    words = [word for word in WORD.findall(told.text) if not STOP_WORDS.issuperset(terms(word))]
    return list(dict.fromkeys(words))[:_MOST_WORDS]


@lru_cache(256)  # a question is compared with ten memories
def kind_of(query: str) -> AnswerKind:
    """Read from the question's words; of a whole paragraph it is not plain."""
    if len(query) > MAX_STATEMENT_CHARS:
        return AnswerKind(frozenset(), "", frozenset(), frozenset(), False, None)
    counting = _HOW_MANY.match(query)
    things = counting["things"] if counting else ""
    attribute, heads, owner = _attribute_of(query)
    form = next((answer for question, answer in _FORMS if question.search(query)), None)
    of_time = form is None and _WHEN.search(query) is not None
    owners = frozenset(terms(owner)) - STOP_WORDS
    return AnswerKind(_things(things), attribute, heads, owners, of_time, form)


def _attribute_of(query: str) -> tuple[str, frozenset[str], str]:
    """The attribute that is asked for, the terms of its last word, and whose it is."""
    match = next((match for form in _ATTRIBUTES if (match := form.match(query))), None)
    attribute, owner = ("", "") if match is None else (match["attribute"], match["owner"])
    heads = frozenset(terms(attribute.rpartition(" ")[2])) - STOP_WORDS
    if not heads or (not heads.isdisjoint(_OPEN) and not _QUALIFIED_NAME.match(attribute)):
        return "", frozenset(), owner
    return attribute, heads, owner


def lacks_answer(told: Statement, query: str) -> bool:
    """Whether a statement is seen, without a model, to lack the kind of answer that is asked for, or any name
    where one is. Of a longer text this is not told.
    """
    return told.short and (
        kind_of(query).is_lacking(told, None) or Asked.of(query).asks_for_name_beyond(told)
    )


def _things(words: str) -> frozenset[str]:
    """The terms of the things that stand first: of "messages fit in the queue" the first two."""
    noun_phrase = re.split(
        rf"(?i)\b(?:{AUXILIARY}|i|we|you|he|she|it|they|there|the|an?|of|in|on|for|at|with|per|to|my|our"
        r"|hat|haben|hast|habe|sind|ist|gibt|kann|können|ich|wir|der|die|das|pro|in|im)\b",
        words,
        maxsplit=1,
    )[0]
    things = frozenset(terms(noun_phrase)) - STOP_WORDS
    return things if things.isdisjoint(_UNITS) else frozenset()
