"""Where somebody lives and works, in whatever words: one place at a time."""

import re

from ctx.analyze import STOP_WORDS, terms
from ctx.memory.gist import first_person
from ctx.memory.persons import relatives

# Who moves house says where they live, in whatever words: a place is named, and nothing that was moved there.
_HOME = re.compile(
    r"(?:(?:\b(?:[Ii]|[Ww]e)(?:['’](?:m|re|ve)|\s+(?:am|are|have))?(?:\s+(?:\w+ly|now|just))?\s+(?:moved"
    r"|moving|relocated|live|lives|living)|^(?:Just\s+|Finally\s+)?[Mm]oved)"
    r"(?:\s+(?:house|from\s+\w+|back|over))*\s+(?:(?:to|in)|(?:in|into)\s+(?:\w+\s+){1,4}?in)\s+(?=[A-ZÄÖÜ])"
    r"|\b(?:rent(?:ed|ing)?|bought|got|found)\s+(?:\w+\s+){1,3}?(?:flat|house|apartment|room|place"
    r"|home)\s+in\s+(?=[A-ZÄÖÜ])"
    r"|\b[Mm]y\s+(?:flat|house|apartment|room|place|home)\s+is\s+in\s+(?=[A-ZÄÖÜ])"
    r"|\b(?:[Ii]ch|[Ww]ir)\b(?=.*\b(?:nach|in\s+(?:die|den|das)"
    r"|ins)\s+[A-ZÄÖÜ]\w+\s+(?:\d\w*\s+)?(?:um)?gezogen\b)"
    r"|\b(?:[Ii]ch|[Ww]ir)\s+(?:(?:wohn|leb)(?:en?|t)\s+(?:\w+\s+)?in\b|ziehen?\s+(?:\w+\s+)?nach\s+[A-ZÄÖÜ])"
    r"|(?i:\b(?:(?:me|nos)\s+(?:he|hemos)\s+mudado|me\s+mudé|nos\s+mudamos)\s+a\b)"
    r"|(?i:\bj['’](?:habite|ai\s+déménagé)\b|\bnous\s+(?:habitons|avons\s+déménagé)\b)"
    r"|^(?:(?i:yo|ahora|nosotros)\s+)*[Vv]iv(?:o|imos)\s+en\b)"
)
# Where somebody or something else is at home: "My mother lives in a bungalow in Whitby", "Laila moved to
# Antwerp".
_RESIDENCE = re.compile(
    r"^(?:(?:My|Our|The)\s+)?(?P<who>[\w'’-]+(?:\s+[A-ZÄÖÜ][\w'’-]+)?)\s+(?:(?:has|have|is|are|now|just"
    r"|finally)\s+)*(?:lives?|living|moved|moving|relocated)"
    r"(?:\s+(?:house|from\s+\w+|back|over))*\s+(?:(?:to|in)|(?:in|into)\s+(?:\w+\s+){1,4}?in)\s+(?=[A-ZÄÖÜ])"
)
# And whom they work for: a name is named.
_EMPLOYED = re.compile(
    r"\b(?:I|We)(?:['’](?:m|ve))?(?:\s+(?:am|have|now|just|recently))*\s+(?:(?:work(?:ed|ing)?"
    r"|start(?:ed|ing)?|employed|hired)\s+(?:(?:as\s+)?an?\s+(?:[\w-]+\s+){1,4}?)?(?:at|for|by|with)"
    r"|joined|(?:an?|the)\s+(?:[\w-]+\s+){1,4}?at)\s+(?=[A-ZÄÖÜ])"
)


def places(text: str) -> frozenset[str]:
    """Whose home a text names, or whose work: "home" and "work" of the speaker, of others the terms of who
    they are."""
    sentence = first_person(text)
    names = frozenset(name for name, form in (("home", _HOME), ("work", _EMPLOYED)) if form.search(sentence))
    residence = _RESIDENCE.match(text)
    if names or residence is None:
        return names
    return (relatives(residence["who"]) or frozenset(terms(residence["who"]))) - STOP_WORDS
