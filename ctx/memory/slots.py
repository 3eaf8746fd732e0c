"""Slots: what a statement gives a value to, where it has the form of one that does ("the backup starts at",
"I live in", "my phone number is"), in English, German, Spanish and French.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from ctx.analyze import STOP_WORDS, terms
from ctx.memory.contrast import NUMBER_TERMS
from ctx.memory.gist import first_person
from ctx.memory.language import language, sexless, silent_terms
from ctx.memory.persons import one_of_a_kind, several

PERSON_TITLE = re.compile(r"\b(?:Frau|Herrn?|Dr|Prof|Mrs?|Ms|Sra?|Mme|(?i:do[ck]t(?:or|ora|eur|eure)))\b")
VALUE_TYPES = {
    "time": re.compile(r"\b\d{1,2}(?::\d{2}|\s?(?:am|pm|uhr))\b|\b(?:noon|midnight)\b", re.I),
    "day": re.compile(r"\b(?:(?:mon|diens|donners|frei|sams|sonn)tags?|mittwochs?|lunes|martes|miércoles"
                       r"|jueves|viernes|sábado|domingo|(?:lun|mar|mercre|jeu|vendre|same)di|dimanche)\b"
                       r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b\d{4}-\d{2}-\d{2}\b"
                       r"|\b\d{1,2}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct"
                       r"|nov|dec)|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\w*\s+\d", re.I),
    "number": re.compile(r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty"
                          r"|fifty|hundred|thousand)\b", re.I),
    "name": re.compile(r"(?<!^)\b[A-ZÄÖÜ]\w"),
    "person": PERSON_TITLE,
}  # fmt: skip
_ATTRIBUTE_WORDS = {
    "en": """
        colour color name number address email mail birthday date time deadline budget limit price cost rate
        password version port url size favourite favorite preferred default primary main current owner lead
        leader manager boss landlord doctor dentist therapist language timezone salary title position role job
        weight height status goal target theme font location office hometown diet plan
    """,
    "de": """
        nummer telefonnummer handynummer adresse geburtstag passwort chef chefin vermieter vermieterin
        hausarzt hausärztin zahnarzt zahnärztin lieblingsfarbe lieblingsessen schuhgröße kontonummer
    """,
    "es": """
        número teléfono dirección nombre cumpleaños contraseña jefe jefa médico médica dentista casero casera
        color talla
    """,
    "fr": "",
}
_SELF = r"i(?:\s+(?:am|be|is|are)|['’]m)?(?:\s+(?:now|currently))?"
_LIVING = r"(?:lives?|lived|living|resides?|stays?|based|located|situated)\s+(?:in|at|near)"
_WORKING = r"(?:works?|working|employed)\s+(?:at|for|with|by)"
_HAPPENING = (
    r"(?:starts?|begins?|ends?|takes\s+place|happens?|runs?|is\s+scheduled|are\s+scheduled|is\s+due|is\s+held"
    r"|meets?|opens?|closes?|expires?|leaves?|departs?)"
)
_SLOTS = (
    # (what names the slot, what stands in it): a statement of one of these forms holds one value at a time.
    re.compile(rf"(?i)^(?P<slot>{_SELF}\s+{_LIVING})\s+(?P<value>[^.;,!?]+)"),
    re.compile(rf"(?i)^(?P<slot>{_SELF}\s+{_WORKING})\s+(?P<value>[^.;,!?]+)"),
    re.compile(r"(?i)^(?P<slot>(?:i|we)\s+(?:now\s+|currently\s+)?(?:drives?|rides?|stud(?:y|ies)\s+at"
               r"|banks?\s+with|lives?\s+with|reports?\s+to))\s+(?P<value>[^.;,!?]+)"),
    re.compile(rf"(?i)^(?P<slot>(?:the|our|my)\s+[\w\s'’/-]{{2,60}}?\s+{_HAPPENING})\s+(?:now\s+)?(?:(?:at|on"
               r"|in|every|until|from)\s+)?(?P<value>[^.;!?]+)"),
    re.compile(r"(?i)^(?P<slot>(?:i|we)\s+(?:always\s+|usually\s+|now\s+)?(?:prefers?|uses?|likes?"
               r"|wants?))\s+(?P<value>[^.;,!?]+?)\s+(?P<purpose>(?:for|as|when|with|in)\s+[^.;,!?]+)$"),
    re.compile(r"^(?P<value>[A-ZÄÖÜ][\w.-]+(?:\s+[A-ZÄÖÜ][\w.-]+)?)\s+is\s+(?:now\s+"
               r"|currently\s+)?(?P<slot>(?:the|our|my)\s+[\w\s'’/-]{2,60})$"),
    re.compile(r"(?i)^(?P<slot>(?:the|our|my|[\w-]+['’]s)\s+[\w\s'’/-]{2,60}?\s+(?:is|are|was"
               r"|be))\s+(?:now\s+|currently\s+)?(?P<value>[^.;!?]+)"),
    re.compile(r"(?i)^(?P<slot>(?:the|our|my)\s+[\w\s'’/-]{2,60}?\s+(?:allows?|costs?|supports?|lasts?|takes?"
               r"|runs\s+on|uses?|is\s+written\s+in|is\s+called"
               r"|is\s+located\s+in))\s+(?:now\s+)?(?P<value>[^.;!?]+)"),
    # German and Spanish: where one lives and works, and what is said of a thing.
    re.compile(r"(?i)^(?P<slot>ich\s+(?:wohn|leb)[et]\s+(?:(?:jetzt|nun)\s+)?in"
               r"|(?:(?:yo\s+|ahora\s+)*vivo|yo\s+(?:ahora\s+)?vive)\s+(?:ahora\s+)?en)\s+(?P<value>[^.;,!?]+)"),
    re.compile(r"(?i)^(?P<slot>ich\s+arbeitet?\s+(?:(?:jetzt|nun)\s+)?(?:bei|für)"
               r"|(?:(?:yo\s+|ahora\s+)*trabajo|yo\s+(?:ahora\s+)?trabaja)\s+(?:ahora\s+)?(?:en|para))\s+(?P<value>[^.;,!?]+)"),
    re.compile(r"(?i)^(?P<slot>(?:mein|meine|unser|unsere|der|die|das)\s+[\w-]+(?:\s+[\w-]+)?\s+(?:ist|sind"
               r"|heißt|lautet|beginnt|endet))\s+(?:(?:jetzt|nun|um|am)\s+)*(?P<value>[^.;!?]+)"),
    re.compile(r"(?i)^(?P<slot>j(?:['’]|e\s+)habite\s+(?:maintenant\s+)?(?:à|en|au)"
               r"|j['’]ai\s+déménagé\s+(?:à|en|au)"
               r"|je\s+vi[st]\s+(?:maintenant\s+)?(?:à|en|au))\s+(?P<value>[^.;,!?]+)"),
    re.compile(r"(?i)^(?P<slot>(?:maintenant\s+)?je\s+travaille\s+(?:maintenant\s+)?(?:chez"
               r"|pour))\s+(?P<value>[^.;,!?]+)"),
    re.compile(r"(?i)^(?P<slot>(?:mon|ma|notre|le|la)\s+(?:(?:nouve(?:au|l|lle)"
               r"|nouvelle)\s+)?\w+(?:\s+d(?:e\s+la\s+|e\s+|u\s+|['’])\w+)?\s+(?:est|s['’]appelle|commence"
               r"|finit|coûte))\s+(?:(?:maintenant|le|la|à)\s+)*(?P<value>[^.;!?]+)"),
    re.compile(r"(?i)^(?P<slot>(?:mi|mis|nuestro|nuestra|el"
               r"|la)\s+(?:nuev[oa]s?\s+)?\w+(?:\s+del?(?:\s+la)?\s+\w+)?\s+(?:es|son|se\s+llama|empieza"
               r"|termina|vence))\s+(?:(?:ahora|el|la|a\s+las?)\s+)*(?P<value>[^.;!?]+)"),
)  # fmt: skip

_NEW = re.compile(r"nuev[ao]?|nouve(?:au|l|ll|lle)")
# What somebody says before they put something right, and which is no part of what they say.
PREFACE = re.compile(
    r"(?i)^(?:(?:actually|correction|sorry|no|wait|oops|update|(?:it\s+)?turns\s+out(?:\s+that)?"
    r"|i\s+was\s+wrong|in\s+fact"
    r"|eigentlich|korrektur|nein|moment|en\s+realidad|corrección|perdón)\s*[,:;.–—-]\s*)+"
)
_NAMED = {
    0: "home",
    1: "work",
    8: "home",
    9: "work",
    11: "home",
    12: "work",
}  # of the forms above: those that are put in several ways
_SINGLE = (0, 1, 2, 4)  # of the forms above: one lives in one place, and has one way of doing a thing
_NAMES_OF_OURS = 5  # of the forms above: "Alex is my brother"
# States of which somebody has one at a time, by what they are states of.
STATES = {
    **dict.fromkeys(("single", "engaged", "married", "divorced", "widowed", "separated"), "married"),
    **dict.fromkeys(("ledig", "verlobt", "verheiratet", "geschieden", "verwitwet"), "married"),
    **dict.fromkeys(("vegetarian", "vegan", "pescatarian", "pescetarian", "flexitarian", "omnivore"), "diet"),
    **dict.fromkeys(("vegetarier", "vegetarierin", "veganer", "veganerin"), "diet"),
}
_STATE = re.compile(
    r"(?i)^(?P<who>(?:i|we|ich|wir|(?:my|mein|meine)\s+\w+|[A-ZÄÖÜ]\w+))(?:\s+(?:am|are|is|be|got|bin|ist"
    r"|sind)|['’](?:m|re|s))"
    r"\s+(?:(?:now|currently|still|a|an|jetzt|inzwischen|ein|eine)\s+)*(?P<state>"
    + "|".join(STATES)
    + r")(?=\s*(?:[.,;!]|$|\b(?:to|since|again|now|for|and|but|mit|seit|wieder"
    r"|und)\b))(?!\s+to\s+my\s+(?:work|job)\b)"
)


@cache
def attributes(name: str) -> frozenset[str]:
    """The attributes as keys of slots in the language of that name have them: those of English, and its
    own.
    """
    stems = terms(_ATTRIBUTE_WORDS[name])
    return frozenset((*terms(_ATTRIBUTE_WORDS["en"]), *stems, *(sexless(term, name) for term in stems)))


_WITHIN = re.compile(
    r"(?i)\s(?:(?:on|at|in|during|over)\s+(?:the\s+)?(?:week(?:end|day)?s?"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)days?|mornings?|afternoons?|evenings?|nights?"
    r"|spring|summers?|autumn|winters?|work|home|school)|to\s+(?:work|school)"
    r"|los\s+(?:lunes|martes|miércoles|jueves|viernes|sábados|domingos)"
    r"|le\s+(?:(?:lun|mar|mercre|jeu|vendre|same)di|dimanche)"
    r"|(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag)s)\b"
)

# For what, where or for whom a value is the one: "12 minutes on Linux".
_CIRCUMSTANCE = re.compile(
    r"(?i)(?<=[\w.,!%€$£])\s+(?P<how>(?:up|down)stairs|(?:in|out)(?:side|doors)|abroad|on|in|at|for"
    r"|with(?:in|out)?|under|from|to|per|before|after|during|against"
    r"|bei|unter|für|auf|im|an|am|vor|nach|zu[mr]?|ab|mit|ohne|pour|dans|sur|sous|avant|après|à|chez|avec"
    r"|sans|para|en|con|bajo|sin)\b(?:\s+(?P<what>[^,;]+))?$"
)
_PURPOSES = frozenset(("for", "für", "pour", "para"))
_OPPOSED = frozenset(("before", "after", "with", "without", "vor", "nach", "mit", "ohne", "avant", "après"))
MEASURES = frozenset(("number", "time", "day"))
_BARE_NUMBER = re.compile(r"\d[\d.,:]*(?![\w-])")
_DEFINITE = re.compile(r"(?i)(?:the|der|die|das|dem|den|el|la|los|las|le|les)\s+|l['’]")
_INDEFINITE = re.compile(
    r"(?i)(?:an?|my|our|his|her|their|one|eine[mnrs]?|meine[mnrs]?|una?|mi|une?|mon|ma)\s"
)


_NUMBER_TERMS = NUMBER_TERMS | {sexless(term, "es") for term in NUMBER_TERMS}


class Slot(NamedTuple):
    """What a statement gives a value to, and the value; `types` are the kinds of value it looks like.
    `single`: whatever the value is, there is one at a time. `of_attribute`: it is named by what everybody has
    one of, a number, an address. `shared`: it may be said of several at once, as of one's brothers."""

    key: tuple[str, ...]
    value: str
    types: frozenset[str]
    single: bool
    of_attribute: bool = False
    shared: bool = False

    @property
    def lasting(self) -> bool:
        """Whether what fills it stays a while: where one lives, a name, a preference; not how a build goes
        just now."""
        return self.single or self.of_attribute

    @property
    def within(self) -> str:
        """When, or on which way, the value is the one: "at weekends"; "" where it always is."""
        match = _WITHIN.search(self.value)
        return "" if match is None else match[0].strip().casefold()


_UNTOLD = frozenset(("now", "currently", "is", "are", "the", "our", "my", "be", "i", "am"))


def slot(text: str) -> Slot | None:
    """The slot that a text fills, where it has the form of such a statement."""
    sentence = PREFACE.sub("", first_person(text).strip()).rstrip(".!")
    if state := _STATE.match(sentence):
        group = STATES[state["state"].casefold()]
        return Slot((group, *terms(state["who"])), state["state"], frozenset(("state",)), True)
    for number, pattern in enumerate(_SLOTS):
        match = pattern.match(sentence)
        if match is not None:
            return _filled(number, match, sentence, text)
    return None


def _filled(number: int, match: re.Match[str], sentence: str, text: str) -> Slot | None:
    """The slot of a sentence that has the form of that number; None where it names none or no value."""
    value = match["value"].strip()
    if name := _named_slot(number, match["slot"]):
        shared = not _is_name(value, text) or match["slot"].endswith("with")
        return Slot((name,), value, frozenset(), True, shared=shared)
    tongue = language(sentence)
    key = _key(match, sentence, tongue)
    types = frozenset(name for name, form in VALUE_TYPES.items() if form.search(" " + value))
    if tongue == "de":  # where all nouns have a capital
        types -= {"name"}
    of_attribute = not attributes(tongue).isdisjoint(key)
    named = types == {"name"} or (not types and tongue == "de")
    shared = named and not of_attribute and _may_be_shared(number, match["slot"], key)
    return Slot(key, value, types, number in _SINGLE, of_attribute, shared) if key and value else None


def _key(match: re.Match[str], sentence: str, tongue: str) -> tuple[str, ...]:
    """The terms that name a slot: not what says nothing by itself, whose it is, or that it is new."""
    silent = silent_terms(sentence)
    purpose = match["purpose"] if "purpose" in match.re.groupindex else ""
    return tuple(
        sexless(word, tongue)
        for word in terms(f"{match['slot']} {purpose}")
        if word not in _UNTOLD and word not in silent and not _NEW.fullmatch(word)
    )


def _named_slot(number: int, words: str) -> str:
    """The name of a slot that is put in several ways: "I live in", "I'm based in"; else ""."""
    return "" if "stay" in words.casefold() else _NAMED.get(number, "")  # in a hotel, for a week


def _is_name(value: str, text: str) -> bool:
    """Whether a value is the name of a place or an employer, and not "a shared flat" or "night"; as far as
    the text that it is of spells names with capitals.
    """
    word = _DEFINITE.sub("", value)[:1]
    return not _INDEFINITE.match(value) and (word.isupper() or not text.lstrip()[:1].isupper())


def _may_be_shared(number: int, words: str, key: Iterable[str]) -> bool:
    """Whether more than one may be that: "our client", "the tester"; not "my wife"."""
    if one_of_a_kind(key):
        return False
    return number == _NAMES_OF_OURS or several(key) or words.casefold().startswith(("my ", "our "))


def same_slot(earlier: Slot | None, later: Slot | None) -> bool:
    """Whether both fill one slot, with values of one kind that differ."""
    if earlier is None or later is None or not _same_key(earlier, later):
        return False
    if terms(earlier.value) == terms(later.value):
        return False
    if later.within not in ("", earlier.within):
        return False  # who lives elsewhere at weekends has not moved
    if _for_another(earlier, later):
        return False
    return earlier.lasting or bool(earlier.types & later.types)


def _same_key(earlier: Slot, later: Slot) -> bool:
    """Whether two slots are named alike; of two numbers one need not be called so: "my phone" beside "my
    phone number".
    """
    if earlier.key == later.key:
        return True
    numbers = "number" in earlier.types & later.types and earlier.of_attribute and later.of_attribute
    keys = ([term for term in slot.key if term not in _NUMBER_TERMS] for slot in (earlier, later))
    return numbers and next(keys) == next(keys) != []


def _circumstance(value: str) -> tuple[str, str]:
    """ "on", "Linux" of "12 minutes on Linux"; two empty texts where there is none."""
    match = _CIRCUMSTANCE.search(value)
    return ("", "") if match is None else (match["how"].casefold(), match["what"] or "")


def _for_another(earlier: Slot, later: Slot) -> bool:
    """Whether the value of a slot is said to be of something of which the earlier one is not: "12 minutes on
    Linux" and "19 minutes on macOS".
    """
    manner, noun = _circumstance(earlier.value)
    later_manner, later_noun = _circumstance(later.value)
    if not later_manner:
        return False
    if later_manner in _PURPOSES and manner not in _PURPOSES:
        return True  # of a part only: "with N26 for travel"
    measured = later_manner in _PURPOSES or bool(earlier.types & later.types & MEASURES)
    if not manner or not measured:
        return False
    if manner != later_manner and {manner, later_manner} <= _OPPOSED:
        return True
    content, later_content = _content(manner, noun), _content(later_manner, later_noun)
    # A time is a value itself: what was at nine on Monday is at ten on Tuesday, and "9 to 5" is one.
    return not (_timed(noun) or _timed(later_noun)) and bool(
        content - later_content and later_content - content
    )


def _timed(text: str) -> bool:
    return any(form.search(text) for form in (VALUE_TYPES["time"], VALUE_TYPES["day"])) or (
        _BARE_NUMBER.match(text) is not None
    )


def _content(how: str, what: str) -> frozenset[str]:
    return frozenset(terms(what or how)) - STOP_WORDS - silent_terms(what)


def told_by_slot(earlier: Slot | None, later: Slot | None) -> bool:
    """Whether two statements fill one slot so plainly that the rest of their words need not be alike."""
    if earlier is None or later is None or not same_slot(earlier, later):
        return False
    return "state" in earlier.types or bool(earlier.of_attribute and earlier.types & later.types & MEASURES)


@cache
def named_clues() -> dict[tuple[str, ...], frozenset[str]]:
    """What stands in the statements of a slot that is put in several ways."""
    return {
        ("home",): frozenset(
            terms(
                "home live lives lived living reside resides based located situated wohne wohnt lebe lebt "
                "vivo vive habite vis vit déménagé"
            )
        ),
        ("work",): frozenset(terms("work works working employed arbeite arbeitet trabajo trabaja travaille")),
    }
