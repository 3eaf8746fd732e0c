"""What a question wants to be told beyond the kind of its answer: which one of a kind, who did something,
whether something is so, why, how long, or a value such as a password.

A statement may hold all the question's words and not tell it: of "Kofi used to work for a bank" nobody
knows which bank. What is told here is the verdict alone, and never the order, since each sign may be missing
in what answers in quite other words. English, but for what somebody is called.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from ctx.analyze import STOP_WORDS, terms
from ctx.memory.answer_kinds import (
    AKIN,
    AUXILIARY,
    COST,
    COST_ASKED,
    MOMENT,
    NUMBER_WORDS,
    WORD,
    kind_of,
    words_beside,
)
from ctx.memory.calendar_words import MONTHS
from ctx.memory.language import language
from ctx.memory.persons import kin_of, relations_of
from ctx.memory.question import CALENDAR, NAME, SPEAKER, Asked
from ctx.memory.slots import PERSON_TITLE
from ctx.memory.statement import MAX_STATEMENT_CHARS, Statement

Alike = Callable[[str, str], float]  # the cosine of two texts

_AUXILIARY = rf"(?:{AUXILIARY}|shall|['’]s)"
_WHICH = re.compile(
    r"(?i)^\W*(?:(?:at|in|on|for|with|by|from|to|of|under)\s+)?"
    rf"(?:which|what(?=(?:\s+[\w-]+){{1,2}}\s+{_AUXILIARY}\b))\s+(?!{_AUXILIARY}\b)"
    rf"(?P<kind>[\w-]+)(?:\s+(?P<head>(?!{_AUXILIARY}\b)[\w-]+)(?=\s+{_AUXILIARY}\b))?\b"
)
# What people found, run, print, or make and sell, and places: each has a name of its own.
_BEARING_NAMES = frozenset(
    terms(
        "university college school kindergarten academy bank insurer company firm employer agency supplier "
        "provider vendor manufacturer maker airline carrier hotel hostel hospital clinic restaurant bar pub "
        "cafe shop store supermarket bakery pharmacy gym club league party church museum theatre cinema "
        "newspaper magazine journal brand make band artist author car phone smartphone laptop computer "
        "tablet camera printer"
    )
)
_PLACES = frozenset(
    terms("city town village country state region street airport station island river lake mountain planet")
)
# What any thing has, and of which the language has the words.
_QUALITIES = frozenset(terms("colour color shape material taste flavour flavor smell"))
# A number with what it counts or measures is no name, nor is a year in which something was.
_MEASURE = re.compile(
    r"(?i)(?<![\d.,])[\d.,]*\d\s*(?:%|[a-zäöü]+s\b|percent|cm|km|kg|°)|\b(?:in|until|till|since|by|from|of|to)\s+(?:19|20)\d\d\b"
)
_IN_A_PLACE = re.compile(r"\bin\s+(?:the\s+)?[A-ZÄÖÜ][\w-]+")
_CALENDAR = re.compile(CALENDAR)
_HUMPED = re.compile(r"\b[a-z]+[A-Z]\w*")  # eLife
_NAMING = re.compile(r"(?i)\b(?:named|called)\s+\w")

_WHO_DID = re.compile(
    rf"(?i)^\W*who\s+(?!{_AUXILIARY}\b)\w+\s+(?P<thing>(?:the|our|my|a|an)\s+(?:[\w'’-]+\s+)*?[\w'’-]+)"
    r"(?=\W*$|\s+(?:of|in|on|at|for|to|with|from|by|last|this)\b)"
)
# What says of a thing where it stands, and of nobody what they did with it.
_POSSESSIVE = re.compile(r"['’]s\b")
_STANDS = re.compile(
    r"(?i)\b(?:is|are|was|were|stands?|lies|hangs?|sits?)\s+(?:in|on|at|under|behind|above|below|next\s+to|near|opposite"
    r"|beside|between|inside|outside)\b"
)
_COMPLEMENT = re.compile(r"(?i)\b(?:is|are|was|were)\s+(?:an?|the)\s+(?:[\w'’-]+\s+)*?(?P<head>[\w'’-]+)\W*$")
_OWNED = re.compile(r"(?i)\b(?:my|our|(?:the\s+)?user['’]s)\s+\w+")
_PRONOUN = re.compile(r"(?i)\b(?:s?he|her|his|him|they|them|their)\b")
_NAMED_RELATIVE = re.compile(r"(?i:\b(?:my|our|user['’]s)\s+[\w-]+)\s+[A-ZÄÖÜ]")
_WHETHER = re.compile(
    r"(?i)^\W*(?:do|does|did|is|are|am|was|were|has|have|can|will)\s+"
    r"(?P<subject>i|we|(?:the|my|our)\s+[\w'’-]+(?:['’]s\s+[\w'’-]+)?|(?-i:[A-ZÄÖÜ])[\w.'’-]*"
    r"(?:\s+(?-i:[A-ZÄÖÜ])[\w.'’-]*)*)\s+(?P<rest>\w.*)$"
)
_FORMER = re.compile(
    r"(?i)(?<!\bis\s)(?<!\bare\s)(?<!\bbe\s)(?<!\bwas\s)(?<!\bwere\s)\bused\s+to\s+\w|\bformerly\b|\b(?:früher|ehemals)\b"
)
_OF_THEN = re.compile(
    r"(?i)\b(?:did|was|were|had|used|once|former\w*|before|early|earlier|war|waren|früher)\b"
)
_HOW_MANY_OF = re.compile(
    r"(?i)^\W*how\s+many\b.*?\s(?:do|does|did)\s+(?P<owner>(?:the|our|my)\s+[\w'’ -]+?)\s+"
    r"(?:have|own|hold)\W*$"
)
_HOLDER = re.compile(
    r"^(?:The|Our|My)\s+(?P<holder>[\w'’-]+(?:\s+[\w'’-]+){0,2}?)\s+(?:has|have|had|owns?|holds?)\s"
)
# What says nothing of what is asked whether somebody has, does or is it.
_LIGHT = STOP_WORDS | frozenset(
    terms("have own get take go like use make still currently ever any anything anyone people")
)
_SPEAKER_ALONE = re.compile(r"(?i)^(?:i|we|the\s+user|user)$")
_SOME = re.compile(r"(?i)^\W*(?:an?|every|each|some|most)\b")
_THE = re.compile(r"(?i)^\W*(?:the|this|that|these|those)\b")
_HAVING = re.compile(r"(?i)^\W*(?:do|did|does)\s+(?:i|we|the\s+user|user)\s+(?:\w+\s+)?(?:have|own|keep)\b")

# A number of years, or that nothing stands behind which it would count: "she is nine now".
_AGE = (
    rf"(?:{NUMBER_WORDS}|\b\w+(?:teen|ty)\b|\beleven\b|\btwelve\b)[\d.]*"
    r"(?=[\s-]*(?:years?|months?|weeks?|days?|yrs?|yo)\b|\s+(?:and|now|already|today|this|next|in|as|but|was|is|has|than"
    r"|when|while|soon)\b|\W*$|[,;.])"
)
_UNIT = (
    r"(?:seconds?|secs?|milliseconds?|ms|s|minutes?|mins?|hours?|h|days?|nights?|weeks?|fortnight|months?|years?"
    r"|decades?|mm|cm|m|km|met(?:re|er)s?|(?:centi|kilo|milli)met(?:re|er)s?|inch(?:es)?|feet|foot|ft|yards?|miles?"
    r"|pages?|lines?|characters?|words?|digits?)"
)
# How a question asks, and what a statement that answers it has.
_SIGNS = (
    (re.compile(r"(?i)\bhow\s+old\b"), re.compile(rf"(?i){_AGE}|\bborn\b|birthday|\b(?:19|20)\d\d\b")),
    (
        re.compile(
            r"(?i)^\W*(?:for\s+)?how\s+long\s+(?:is|are|was|were|does|do|did|will|can|may|must|should)\b"
        ),
        re.compile(
            rf"(?i){NUMBER_WORDS}[\d.,]*(?:[\s-]+(?:and\s+a\s+half|more|full|whole|working))?[\s-]*{_UNIT}\b"
            rf"|\b(?:\w+teen|\w+ty|eleven|twelve|several|few|many|all|whole|most\s+of)\s+(?:the\s+)?{_UNIT}\b"
            r"|\b(?:until|till|since|forever|always|overnight|permanent\w*|(?:life|all)[\s-]?(?:time|day|night)"
            r"|long|short|longer|shorter|from\b.*\bto|between|through|ends?|expires?|lasts?|runs?\s+(?:to|out))\b"
            r"|\d{1,2}:\d{2}\s*(?:to|-|–|and)"
        ),
    ),
)
_AT_ALL = re.compile(r"(?i)\b(?:once(?!\s+an?\b)|never|always)\b")  # whether at all, and not when
_MONTH = "|".join(MONTHS)
_DAY = re.compile(
    rf"(?i)\b\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:{_MONTH})\b(?:\s+\d{{4}})?|\b(?:{_MONTH})\s+\d{{1,2}}\b(?:,?\s+\d{{4}})?"
    r"|\b\d{4}-\d\d-\d\d\b|\d{1,2}:\d\d"
)
_MONEY = re.compile(r"(?i)(?:euro|dollar|pound|franc|cent|crown|krone|credit|buck|quid)s?$")
# Whose value is an amount.
_AMOUNTS = frozenset(
    terms("price cost fee salary wage rent revenue income deposit weight height speed distance")
)
_HOW_OFTEN = re.compile(r"(?i)^\W*how\s+often\b")
_HOW_MUCH_SO = re.compile(
    r"(?i)^\W*how\s+(?:fast|deep|thick|hot|warm|cold|loud|expensive|steep|wide)\s+(?:is|are)\b"
)
_WHY = re.compile(r"(?i)^\W*why\b")
_REASON = re.compile(
    r"(?i)\b(?:because|since|as|due|so|to|for|after|of|from|by|otherwise|or|without|with|too|when|if|until"
    r"|caus\w+|reason\w*|means?|makes?|made|need\w*|thanks)\b|[:;,–—]"
)
# What is spelt anew for each that has it, and says nothing: only it itself is the answer.
_SPELT = frozenset(
    terms("password passcode passphrase pin code address url handle username iban plate login")
)
_COPULA = re.compile(
    r"(?i)(?:\b(?:is|are|was|reads|says)\b|[=:])\s+(?!\w+ed\b|(?:in|on|at|with|under|not|the|an?)\b)\w"
)
_SURNAME = re.compile(r"(?i)^(?:(?:last|family|maiden)\s+name|surname)$")
_FULL_NAME = re.compile(r"\b[A-ZÄÖÜ][\w'’-]+\s+(?:(?:de|van|von|la|der|den)\s+)*[A-ZÄÖÜ][\w'’-]+")
_OTHER_NAME = re.compile(r"(?i)^(?:middle\s+name|nickname)$")

_CALLED = {
    "de": re.compile(r"(?i)^\W*wie\s+hei(?:ß|ss)(?:t|en)\b"),
    "es": re.compile(r"(?i)^\W*cómo\s+se\s+llaman?\b"),
    "fr": re.compile(r"(?i)^\W*comment\s+s['’]appell(?:e|ent)\b"),
}
_CALLS = {
    # Every noun has a capital: a name is told by what names, by a title, or behind another noun or a copula.
    "de": re.compile(
        r"(?i:\b(?:hei(?:ß|ss)\w*|names?|namens|genannt|nenn\w+|getauft|herrn?|frau|dr|prof)\b)"
        r"|\b(?!(?:Der|Die|Das|Ein\w*|Mein\w*|Unser\w*|Im|Am|In|Zum|Zur|Vom)\b)[A-ZÄÖÜ][\w-]+\s+[A-ZÄÖÜ]|\b(?:ist|war|sind|waren|wird|wurde|jetzt|nun)\s+[A-ZÄÖÜ]|[\"„«:]"
        r"|^(?!(?:Der|Die|Das|Den|Dem|Ein\w*|Mein\w*|Unser\w*|Kein\w*|In|Im|Am|An|Auf|Bei|Seit|Ab|Von|Vom|Zu|Zum|Zur"
        r"|Mit|Nach|Vor|Wir|Ich|Es|Er|Sie|Jede\w*|Alle)\b)[A-ZÄÖÜ]"
    ),
    "es": re.compile(r"(?i:\bllam\w+|\bnombre)|(?<!^)(?<![.!?]\s)\b[A-ZÁÉÍÓÚÑ]\w|[\"«:]"),
    "fr": re.compile(r"(?i:\bappel\w+|\bnomm\w+|\bnom\b)|(?<!^)(?<![.!?]\s)\b[A-ZÀÂÉÈÊÎÔÛÇ]\w|[\"«:]"),
}


def _money(match: re.Match[str]) -> str:
    """What a number counts, where that is money; else nothing."""
    return match[0] if _MONEY.search(match[0]) else " "


class Wanted(NamedTuple):
    """What a question wants to be told. Empty where that is not plain."""

    query: str
    terms: frozenset[str]
    kind: str  # of which one is asked for: "hotel"
    heads: frozenset[str]  # the term of its last word
    key: str  # what a statement must have to do with: whether what is so, or to what who did something
    keys: frozenset[str]
    whole: frozenset[str]  # of what who did something to a part: "balancer" of "balancer configuration"
    subject: str  # of whom is asked whether something is so
    owner: str  # of how many of something are asked for

    def is_beyond(self, told: Statement, alike: Alike) -> bool:
        """Whether a statement is seen not to tell it. `alike`: the cosine of two texts."""
        if len(self.query) > MAX_STATEMENT_CHARS:
            return False
        if told.foreign:
            return self._calls_nobody_abroad(told)
        return (
            self._is_of_before(told)
            or self._lacks_sign(told)
            or self._is_of_relative(told, alike)
            or self._is_of_nobody(told)
            or self._is_of_none(told, alike)
            or self._is_of_another(told, alike)
            or self._lacks_spelling(told)
        )

    def _calls_nobody_abroad(self, told: Statement) -> bool:
        """Whether another language's question for a name finds a statement of it that names nobody."""
        name = language(self.query)
        called = _CALLED.get(name)
        if called is None or called.match(self.query) is None:
            return False
        return language(told.text) == name and _CALLS[name].search(told.text) is None

    def _is_of_before(self, told: Statement) -> bool:
        """Whether it is told what used to be, where what is is asked for."""
        former = told.is_of_one_clause and _FORMER.search(told.text) is not None
        return former and not _OF_THEN.search(self.query)

    def _lacks_sign(self, told: Statement) -> bool:
        """Whether no age, length of time, measure or reason is told where one is asked for."""
        if any(asked.search(self.query) and not sign.search(told.text) for asked, sign in _SIGNS):
            return True
        kind = kind_of(self.query)
        if _HOW_OFTEN.match(self.query):
            return not told.measured
        if kind.of_time and not MOMENT.search(told.text) and not told.counted:
            return not Statement.of(_AT_ALL.sub(self._unless_asked, told.text)).measured
        if COST_ASKED.search(self.query):
            return COST.search(_MEASURE.sub(_money, _DAY.sub(" ", told.text))) is None
        if _HOW_MUCH_SO.match(self.query) or not kind.heads.isdisjoint(_AMOUNTS):
            return not told.counted
        return _WHY.match(self.query) is not None and told.is_of_one_clause and not _REASON.search(told.text)

    def _unless_asked(self, match: re.Match[str]) -> str:
        return match[0] if self.terms.issuperset(terms(match[0])) else " "

    def _is_of_relative(self, told: Statement, alike: Alike) -> bool:
        """Whether whom the question is of is named only as whose relative something is of: "Tamsin's brother
        is married".
        """
        question = Asked.of(self.query)
        if not told.others:
            return bool(question.relatives) and self._asks_for_relative(told, alike)
        if question.relatives or question.of_somebody:
            return False
        return self._is_of_relative_alone(told, question, alike)

    def _is_of_relative_alone(self, told: Statement, question: Asked, alike: Alike) -> bool:
        told_else = kin_of(told.text)
        whose = question.bearers
        if told_else == told.text or not whose.isdisjoint(terms(told_else)):
            return False
        if not whose and (SPEAKER.search(told_else) or not SPEAKER.search(self.query)):
            return False
        words = [word for word in WORD.findall(self.query) if not (_LIGHT | whose).issuperset(terms(word))]
        # Whoever has a wife is married.
        return all(alike(word, relative) < AKIN for word in words for relative in told.others)

    def _asks_for_relative(self, told: Statement, alike: Alike) -> bool:
        """Whether a relative is asked for of whom the statement speaks alone: of "the landlord's wife" says
        nothing who the landlord is.
        """
        relations = relations_of(self.query)
        if not relations or _NAMED_RELATIVE.search(self.query) or _PRONOUN.search(told.text):
            return False
        whose = frozenset(terms(" ".join(relations)))
        if whose.isdisjoint(told.terms):
            return False
        nameless = Statement.of(NAME.sub(" ", PERSON_TITLE.sub(" ", told.text)))
        return not any(
            self._is_akin(relative, nameless, alike) for relative in Asked.of(self.query).relatives
        )

    def _is_of_nobody(self, told: Statement) -> bool:
        """Whether a statement says where something is, or what somebody is, where it is asked who did
        something: "Our office is in the old mill", "The largest customer is a ferry company".
        """
        question = Asked.of(self.query)
        if not question.of_somebody or told.others:
            return False
        if self._names(_IN_A_PLACE.sub(" ", told.text)):
            return False
        stands = _STANDS.search(told.text) is not None and not _STANDS.search(self.query)
        if stands and SPEAKER.search(_OWNED.sub(" ", told.text)) is None:
            return True
        complement = _COMPLEMENT.search(told.text)
        return bool(self.key) and complement is not None and self.keys == frozenset(terms(complement["head"]))

    def _is_of_none(self, told: Statement, alike: Alike) -> bool:
        """Whether a statement tells no member of the kind of which one is asked for."""
        if not self.heads.isdisjoint(_QUALITIES):
            return not self._is_akin(self.kind, told, alike)
        is_place = not self.heads.isdisjoint(_PLACES)
        if not is_place and self.heads.isdisjoint(_BEARING_NAMES):
            return False
        if any(head in self.heads and modifier not in self.terms for modifier, head in told.kinds):
            return False
        text = told.text if is_place else _IN_A_PLACE.sub(" ", told.text)
        text = _MEASURE.sub(" ", text)
        return not text.islower() and not self._names(text) and _NAMING.search(text) is None

    def _is_held_by_another(self, told: Statement, alike: Alike) -> bool:
        match = _HOLDER.match(told.text) if self.owner else None
        if match is None or not self.terms.isdisjoint(terms(match["holder"])):
            return False
        return alike(self.owner, match["holder"]) < AKIN

    def _is_of_another(self, told: Statement, alike: Alike) -> bool:
        """Whether a statement is of another thing than the question, or has nothing to do with it."""
        if self._is_held_by_another(told, alike):
            return True
        by_speaker = _SPEAKER_ALONE.match(self.subject) and not SPEAKER.search(told.text)
        # Who speaks of the bees has them, and need not do anything with them.
        if by_speaker and (
            _SOME.match(told.text) or (_THE.match(told.text) and not _HAVING.match(self.query))
        ):
            return True
        if not self.key or not self.keys.isdisjoint(told.terms):
            return False
        # Who did something is told in many words, but of a part of a thing not by what is said of that thing.
        is_named = bool(self.subject) or (bool(self.whole) and self.whole <= told.terms)
        return is_named and not self._is_akin(self.key, told, alike)

    def _lacks_spelling(self, told: Statement) -> bool:
        """Whether no password, address or the like is spelt out where it is asked for, or no such name."""
        kind = kind_of(self.query)
        if _SURNAME.match(kind.attribute):
            return kind.heads.isdisjoint(told.terms - {"name"}) and _FULL_NAME.search(told.text) is None
        if _OTHER_NAME.match(kind.attribute):
            return not frozenset(terms(kind.attribute)) <= told.terms
        if kind.heads.isdisjoint(_SPELT):
            return False
        # The first word has a capital whatever it is.
        named = self._names(told.text.lstrip().partition(" ")[2])
        is_told = not kind.heads.isdisjoint(told.terms) and _COPULA.search(told.text) is not None
        return not (named or is_told)

    def _names(self, text: str) -> frozenset[str]:
        """The terms of the names in a text that the question has not."""
        text = _CALENDAR.sub(" ", text)
        spelt = (*NAME.findall(text), *_HUMPED.findall(text))
        return frozenset(terms(" ".join(spelt))) - STOP_WORDS - self.terms

    def _is_akin(self, key: str, told: Statement, alike: Alike) -> bool:
        """Whether a word of the statement that the question has not has to do with something."""
        words = (word for word in words_beside(told) if not self.terms.issuperset(terms(word)))
        return any(alike(key, word) >= AKIN for word in words)


def _parts(query: str) -> tuple[str, str, frozenset[str], str]:
    """The kind that a question asks for, its last word that matters, the terms of the thing whose part that
    is, and the subject.
    """
    if match := _WHICH.match(query):
        return match["head"] or match["kind"], "", frozenset(), ""
    if match := _WHO_DID.match(query):
        *modifiers, key = _POSSESSIVE.sub("", match["thing"]).split()
        return "", key, frozenset(terms(" ".join(modifiers))) - STOP_WORDS, ""
    if match := _WHETHER.match(query):
        words = [word for word in WORD.findall(match["rest"]) if not _LIGHT.issuperset(terms(word))]
        return "", words[-1] if words else "", frozenset(), match["subject"]
    return "", "", frozenset(), ""


@lru_cache(256)  # a question is compared with ten memories
def wanted(query: str) -> Wanted:
    """Read from the question's words; of a whole paragraph it is not plain, and would take the square of its
    length.
    """
    if len(query) > MAX_STATEMENT_CHARS:
        return Wanted(query, frozenset(), "", frozenset(), "", frozenset(), frozenset(), "", "")
    kind, key, whole, subject = _parts(query)
    keys = frozenset(terms(key))
    counting = _HOW_MANY_OF.match(query)
    owner = "" if counting is None else counting["owner"]
    return Wanted(
        query,
        frozenset(terms(query)),
        kind,
        frozenset(terms(kind)),
        key if keys else "",
        keys,
        whole,
        subject,
        owner,
    )
