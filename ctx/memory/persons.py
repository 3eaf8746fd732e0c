"""Persons besides the speaker, by what they are to them."""

import re
from collections.abc import Iterable

from ctx.analyze import terms
from ctx.memory.language import sexless

# Somebody else than the speaker: their statements do not replace the speaker's own.
_KIN_WORDS = """
    mother father mom mum dad parents sister brother wife husband partner son daughter child children kid
    aunt uncle cousin grandma grandpa grandmother grandfather friend neighbour neighbor boss manager
    colleague roommate girlfriend boyfriend fiance nephew niece
"""
_KIN = frozenset(_KIN_WORDS.split())
# Of whom one has one at a time, and of whom (and of what that has a name) one may have several.
_ONE_WORDS = "mother father mom mum dad wife husband partner girlfriend boyfriend fiance spouse"
_SEVERAL_WORDS = """
    sister brother sibling son daughter child kid aunt uncle cousin grandma grandpa grandmother grandfather
    grandson granddaughter grandchild nephew niece godchild godson goddaughter godfather godmother twin friend
    neighbour neighbor colleague coworker roommate flatmate housemate teammate classmate client customer pupil
    student teacher assistant cat dog pet horse rabbit bird medication medicine drug hobby allergy schwester
    bruder sohn tochter kind tante onkel cousine enkel enkelin neffe nichte freund freundin nachbar nachbarin
    kollege kollegin mitbewohner mitbewohnerin kunde kundin schüler schülerin katze hund haustier hermana
    hermano hijo hija tía tío primo prima nieto nieta sobrino sobrina amigo amiga vecino vecina colega gato
    gata perro perra sœur frère fils fille tante oncle cousine neveu nièce ami amie voisin voisine collègue
    chat chatte chien chienne
"""
_SAME_KIN = {
    "mom": "mother",
    "mum": "mother",
    "dad": "father",
    "grandma": "grandmother",
    "grandpa": "grandfather",
    "kid": "child",
    "children": "child",
    "neighbor": "neighbour",
}
# What may be said of any of several: whoever asks for the children is answered with the son.
_GENERAL = {
    "child": frozenset(("son", "daughter")),
    "parents": frozenset(("mother", "father")),
    "partner": frozenset(("wife", "husband", "girlfriend", "boyfriend", "fiance")),
}
# "As a manager" is what the speaker does; "my manager" is somebody else.
_ROLE = re.compile(
    r"(?i)(?<!\bmy )(?<!\bour )(?<!\bhis )(?<!\bher )(?<!\btheir )(?<!['’]s )\b(?:manager|boss|partner"
    r"|colleague)\b"
)
_ONE = frozenset(terms(_ONE_WORDS))
_SEVERAL = frozenset(
    form
    for term in terms(_SEVERAL_WORDS)
    for form in (term, *(sexless(term, name) for name in ("de", "es", "fr")))
)
_OWNER = re.compile(r"\b(\w+)['’]s\b")
_RELATION = re.compile(
    rf"(?i)\b(?:my|our|(?:the\s+)?(?P<whose>[\w-]+)['’]s)\s+(?:[\w-]+\s+)?(?:{'|'.join(_KIN_WORDS.split())})s?\b"
)


def relatives(text: str) -> frozenset[str]:
    """The persons besides the speaker, by what they are to them: mum is mother."""
    return _kin(re.findall(r"[a-z]+", _ROLE.sub(" ", text).lower()))


def may_be(relative: str, other: str) -> bool:
    """Whether a word for somebody may mean whom another one means."""
    return relative == other or relative in _GENERAL.get(other, ()) or other in _GENERAL.get(relative, ())


def several(words: Iterable[str]) -> bool:
    """Whether terms name whom or what one may have several of: a sister, a dog."""
    return not _SEVERAL.isdisjoint(words)


def one_of_a_kind(words: Iterable[str]) -> bool:
    """Whether terms name somebody of whom one has one: a wife."""
    return not _ONE.isdisjoint(words)


def owners(text: str) -> frozenset[str]:
    """The persons whose something is: of "My wife's phone" the wife."""
    return _kin(_OWNER.findall(text.lower()))


def kin_of(text: str) -> str:
    """A text without whose relative somebody is: of "Sang at the wedding of Ana's brother" the wedding."""
    return _RELATION.sub(" ", text)


def relations_of(text: str) -> list[str]:
    """Whose relative somebody is, where that is no pronoun: of "the landlord's wife" the landlord."""
    return [match["whose"] for match in _RELATION.finditer(text) if match["whose"]]


def _kin(words: Iterable[str]) -> frozenset[str]:
    return frozenset(_SAME_KIN.get(word, word) for word in words if word in _KIN)
