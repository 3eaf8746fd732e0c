"""Persons besides the speaker, by what they are to them."""

import re
from collections.abc import Iterable

# Somebody else than the speaker: their statements do not replace the speaker's own.
_KIN_WORDS = """
    mother father mom mum dad parents sister brother wife husband partner son daughter child children kid
    aunt uncle cousin grandma grandpa grandmother grandfather friend neighbour neighbor boss manager
    colleague roommate girlfriend boyfriend fiance nephew niece
"""
_KIN = frozenset(_KIN_WORDS.split())
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
    r"(?i)(?<!\bmy )(?<!\bour )(?<!\bhis )(?<!\bher )(?<!\btheir )(?<!['’]s )\b(?:manager|boss|partner|colleague)\b"
)
_OWNER = re.compile(r"\b(\w+)['’]s\b")


def relatives(text: str) -> frozenset[str]:
    """The persons besides the speaker, by what they are to them: mum is mother."""
    return _kin(re.findall(r"[a-z]+", _ROLE.sub(" ", text).lower()))


def may_be(relative: str, other: str) -> bool:
    """Whether a word for somebody may mean whom another one means."""
    return relative == other or relative in _GENERAL.get(other, ()) or other in _GENERAL.get(relative, ())


def owners(text: str) -> frozenset[str]:
    """The persons whose something is: of "My wife's phone" the wife."""
    return _kin(_OWNER.findall(text.lower()))


def _kin(words: Iterable[str]) -> frozenset[str]:
    return frozenset(_SAME_KIN.get(word, word) for word in words if word in _KIN)
