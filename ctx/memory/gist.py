"""The gist of a text: its words without capitals, punctuation, spacing, articles and the speaker ("I", "the
user").

Two statements with the same gist are one memory. The rule is narrow on purpose: another word, number or
tense, or a "not", makes another gist.
"""

import hashlib
import re
import unicodedata

from ctx.identity import TEXT_HASH_BYTES

_SELF = re.compile(
    r"(?i)\b(?:(?P<verb>is|does|has)\s+)?(?:(?:the\s+)?user(?P<of>['’]s)?(?=\s|$)|the\s+user\b)"
)
# The same in German, Spanish and French, with its replacement. "Die Nutzer" is plural and left out.
_SELF_ABROAD = (
    (re.compile(r"(?i)\bdes\s+(?:be)?nutzers\b"), "von mir"),
    (re.compile(r"(?i)\b(?:(?:der|dem|den)\s+(?:be)?nutzer|(?:die|der)\s+(?:be)?nutzerin)\b"), "ich"),
    (re.compile(r"(?i)\b(?:del\s+usuario|de\s+la\s+usuaria)\b"), "de mí"),
    (re.compile(r"(?i)\b(?:(?:el|al)\s+usuario|la\s+usuaria)\b"), "yo"),
    (re.compile(r"(?i)\bde\s+l['’]utilisat(?:eur|rice)\b"), "de moi"),
    (re.compile(r"(?i)\bl['’]utilisat(?:eur|rice)\b"), "je"),
)
_VERBS_OF_SELF = {"is": "am", "does": "do", "has": "have"}
_THIRD_PERSON = {"is": "be", "was": "was", "has": "have", "does": "do"}
_WORD = re.compile(r"\S+")
_EDGES = " \t.,;:!?\"“”„«»()[]…’'"
_BE = {
    "am": "be",
    "is": "be",
    "are": "be",
    "i'm": "be",
    "i’m": "be",
    "we're": "be",
    "isn't": "be not",
    "i've": "have",
}
_ARTICLES = frozenset(("the", "a", "an"))
_SPEAKER = frozenset(("i", "my", "we", "our", "user", "user's", "user’s", "users"))


def normal_words(text: str) -> list[str]:
    """The words of a text, folded, without articles and the speaker."""
    words: list[str] = []
    third_person = False
    for match in _WORD.finditer(unicodedata.normalize("NFKC", text).casefold()):
        word = match[0].strip(_EDGES) or match[0]
        if word in _SPEAKER:
            third_person = word == "user"
            continue
        if word in _ARTICLES:
            continue
        if third_person:
            word = _THIRD_PERSON.get(word, _first_person(word))
            third_person = False
        words += _BE.get(word, word).split()
    return words


def _first_person(verb: str) -> str:
    """`prefer` of `prefers`, `go` of `goes`, `study` of `studies`."""
    if len(verb) < 4 or not verb.endswith("s") or verb.endswith("ss"):
        return verb
    if verb.endswith("ies"):
        return verb[:-3] + "y"
    if verb.endswith(("ches", "shes", "sses", "xes", "oes")):
        return verb[:-2]
    return verb[:-1]


def gist(text: str) -> str:
    """32 hexadecimal digits that are equal for texts that say the same."""
    words = " ".join(normal_words(text)) or " ".join(text.split())
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[: 2 * TEXT_HASH_BYTES]


def first_person(text: str) -> str:
    """The text in the first person: "Where does the user live?" becomes "Where do I live?", because memories
    of the user say "I". In German, Spanish and French the verb is not changed.
    """
    for pattern, self in _SELF_ABROAD:
        text = pattern.sub(self, text)
    return _SELF.sub(_as_self, text)


def _as_self(match: re.Match[str]) -> str:
    verb = match["verb"] or ""
    if match["of"]:
        return f"{verb} my".lstrip()
    agreeing = _VERBS_OF_SELF.get(verb.casefold(), "")
    return f"{agreeing.capitalize() if verb[:1].isupper() else agreeing} I".lstrip()
