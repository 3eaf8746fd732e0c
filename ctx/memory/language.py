"""The gist, the language and the sentences of a text, and those of its sentences that are worth remembering.

The gist is a hash of the words of a text, without capitals, punctuation, articles and the speaker ("I", "the
user"). Two statements with the same gist count as the same memory. The rule is narrow on purpose: another
word, number or tense, or a "not", gives another gist.
"""

import hashlib
import re
import unicodedata
from bisect import bisect_right
from functools import lru_cache

from ctx.models import TEXT_HASH_BYTES
from ctx.text.analyze import STOP_WORDS, composed, terms

_SELF = re.compile(
    r"(?i)\b(?:(?P<verb>is|does|has)\s+)?(?:(?:the\s+)?user(?P<of>['’]s)?(?=\s|$)|the\s+user\b)"
)
# "The user" in German, Spanish and French, each with its replacement. "Die Nutzer" is plural and left out.
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
    """The words of a text in lower case, without articles and the speaker, and with unified verb forms."""
    words: list[str] = []
    third_person = False
    for raw in unicodedata.normalize("NFKC", text).casefold().split():
        word = raw.strip(_EDGES) or raw
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
    """The first person of a verb: `prefer` for `prefers`, `go` for `goes`, `study` for `studies`."""
    if len(verb) < 4 or not verb.endswith("s") or verb.endswith("ss"):
        return verb
    if verb.endswith("ies"):
        return verb[:-3] + "y"
    if verb.endswith(("ches", "shes", "sses", "xes", "oes")):
        return verb[:-2]
    return verb[:-1]


def gist(text: str) -> str:
    """32 hexadecimal digits, equal for texts with the same `normal_words`."""
    words = " ".join(normal_words(text)) or " ".join(text.split())
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[: 2 * TEXT_HASH_BYTES]


def first_person(text: str) -> str:
    """Rewrites a text to the first person, as in most memories: "Where does the user live?" becomes "Where do
    I live?". In German, Spanish and French the verb is not changed.
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


_GERMAN = """
    der die das dem den des ein eine einen einem einer eines und oder aber ist sind bin bist wird werden wurde
    wurden hat habe haben hatte ich du er sie wir ihr mich dich uns euch mir dir ihm ihn ihnen mein meine
    meinen meinem meiner meines dein deine unser unsere unseren unserem unserer sein seine seinen seinem
    seiner ihre ihren ihrem ihrer nicht kein keine keinen keinem keiner wer wo wann wie warum wieso woher
    wohin wem wen welche welcher welches welchen welchem von vom zu zum zur mit nach bei beim aus auf für im
    ins um über unter seit ab bis durch gegen ohne wenn weil dass ob noch schon nur sehr jetzt mehr auch mag
    heiße heißt heißen
"""
_SPANISH = """
    el la los las un una unos unas y o pero es soy eres somos está estoy están ha han hay fue yo tú él ella
    nosotros ellos mi mis tu tus su sus nuestro nuestra nuestros nuestras se te le les lo nos no ni que qué
    quién quiénes cuál cuáles cuándo cuánto cuántos dónde cómo adónde por para con sin de del al en desde
    hasta sobre entre muy más ya ahora también este esta estos estas
"""
_FRENCH = """
    le la les un une des du de au aux et ou mais est sont suis es sommes êtes était je j tu il elle on nous
    vous ils elles mon ma mes ton ta tes son sa ses notre nos votre vos leur leurs ce cet cette ces qui que qu
    quoi quel quelle quels quelles où quand comment combien pourquoi pas ne n plus pour par avec sans dans sur
    sous chez entre vers depuis jusqu très déjà encore aussi maintenant ai as a avons avez ont c d l s m t à y
"""
_FUNCTION_WORDS = {
    "de": frozenset(_GERMAN.split()),
    "es": frozenset(_SPANISH.split()),
    "fr": frozenset(_FRENCH.split()),
}
_BOTH = "a am an as d he in m me no on plus s so son t was will y"  # English words too
_AMBIGUOUS = frozenset(_BOTH.split())
_ENGLISH = (STOP_WORDS | {"i", "user"}) - _AMBIGUOUS
_ENGLISH_SILENT = "now nowadays currently"  # ignored in questions, in addition to the stop words
_WORD = re.compile(r"[^\W\d_]+")
_JUDGED_CHARS = 1000


def language(text: str) -> str:
    """The language of a text: `de`, `es`, `fr` or `en`.

    The language with the most function words in the first 1000 characters; English in doubt.
    """
    return _language(text[:_JUDGED_CHARS])


@lru_cache(maxsize=256)
def _language(beginning: str) -> str:
    words = frozenset(_WORD.findall(composed(beginning).casefold()))
    counts = {name: len(words & known - _AMBIGUOUS) for name, known in _FUNCTION_WORDS.items()}
    name = max(counts, key=lambda name: counts[name])
    return name if counts[name] > len(words & _ENGLISH) else "en"


def silent_terms(text: str) -> frozenset[str]:
    """The function words of a text's language as terms, to ignore in a question.

    For English only a few: its stop words are not indexed.
    """
    return _silent_terms(language(text))


@lru_cache
def _silent_terms(name: str) -> frozenset[str]:
    known = _FUNCTION_WORDS.get(name)
    return frozenset(terms(" ".join(sorted(known)) if known else _ENGLISH_SILENT))


# A full stop does not end a sentence after a title or the number of a day ("am 15. Februar").
_SENTENCE = re.compile(
    r"(?<=[.!?。！？])(?<!\b\d\.)(?<!\b\d\d\.)(?<!\b(?:Dr|Mr|Ms|St|Hr|Fr|Nr)\.)(?<!\b(?:Mrs)\.)(?<!\bProf\.)\s+"
    r"|\n+"
)


def sentences(text: str) -> list[str]:
    """Splits a text into sentences, also at line breaks. Empty ones are left out."""
    return [sentence.strip() for sentence in _SENTENCE.split(text) if sentence.strip()]


# -- what is worth remembering -------------------------------------------------------------------------------

MIN_WORDS = 3
MAX_CHARS = 300  # of a sentence; longer ones are not wishes
MAX_CAPTURED = 20  # sentences of one message; longer lists were probably pasted

_CODE = re.compile(r"```[\s\S]*?(?:```|\Z)")
_BEGINNING = re.compile(r"<([a-z][\w-]*)\b[^<>]*>")
_END = re.compile(r"</([a-z][\w-]*)>")
_FOREIGN_LINE = re.compile(r"^[ \t]*>.*$|^(?: {4}|\t).*$", re.MULTILINE)
_REMEMBER = re.compile(
    r"(?i)^(?:please\s+|bitte\s+)?(?:(?:can|could|will)\s+you\s+(?:please\s+)?)?"
    r"(?:remember|memori[sz]e|keep\s+in\s+mind|note|(?:don['’]t|do\s+not)\s+forget|merke?\s+dir|vergiss\s+nicht)"
    r"\b[\s,:]*(?:that\s+|dass\s+|to\s+)?(?P<what>\S.*)$"
)
_STANDING = re.compile(
    r"(?i)^(?:please\s+|bitte\s+)?"
    r"(?:always|never(?!\s+mind)|from\s+now\s+on|by\s+default|immer|niemals|ab\s+(?:jetzt|sofort)|in\s+zukunft)\b"
    r"|,\s*(?:always|never|immer|nie)\W*$"
    r"|^(?:i|we)\s+(?:now\s+|really\s+)?(?:prefer|love|hate|dislike|live|speak|no\s+longer)\b"
    r"|^(?:i|we)\s+(?:always|never|usually)\b(?!\s+(?:get|see|run\s+into|forget)\b)"
    r"|^(?:i|we)\s+(?:don['’]t|do\s+not)\s+(?:like|eat|drink|speak)\b"
    r"|^i(?:\s+am|['’]m)\s+(?:allergic|vegetarian|vegan|colou?r-?blind|left-handed)\b"
    r"|^(?:my|our)\s+[\w\s-]{2,40}?\s+(?:is|are)\s+(?:called|named)\s"
    r"|^(?:my|our)\s+(?:favou?rite|preferred)\s"
    r"|^ich\s+(?:bevorzuge|mag|hasse|wohne|bin\s+allergisch)\b"
)
_POINTING = re.compile(r"(?i)\b(?:this|that|these|those|it|here|dies\w*|das|hier)\W*$")
_ASKED = re.compile(r"\?\s*$")


def lasting(text: str) -> list[str]:
    """The sentences of a user's message that are worth remembering, in order, without duplicates: requests to
    remember something, lasting wishes, and facts about the user.

    The rules match the words of a sentence and use no model. They miss many sentences, but invent nothing.
    Code, quotations and text that a client adds are ignored.
    """
    captured: dict[str, None] = {}
    for sentence in sentences(_FOREIGN_LINE.sub("\n", _without_elements(_CODE.sub("\n", text)))):
        statement = _lasting_sentence(sentence.strip(" -*•\t"))
        if statement:
            captured[statement] = None
        if len(captured) == MAX_CAPTURED:
            break
    return list(captured)


def _without_elements(text: str) -> str:
    """Removes the markup elements of a text: from each start tag to the next end tag of the same name.

    All end tags are found first, for speed: a pasted page may have thousands of start tags without one.
    """
    ends: dict[str, list[int]] = {}
    for match in _END.finditer(text):
        ends.setdefault(match[1], []).append(match.end())
    parts, position = [], 0
    for match in _BEGINNING.finditer(text):
        positions = ends.get(match[1], [])
        index = bisect_right(positions, match.end())
        if match.start() >= position and index < len(positions):
            parts.append(text[position : match.start()])
            position = positions[index]
    return "\n".join([*parts, text[position:]])


def _lasting_sentence(sentence: str) -> str | None:
    if len(sentence) > MAX_CHARS:
        return None
    request = _REMEMBER.match(sentence)
    if request is not None:
        statement = request["what"].strip().rstrip("?")
        return statement[:1].upper() + statement[1:] if _is_clear(statement) else None
    standing = _STANDING.search(sentence) and not _ASKED.search(sentence)
    return sentence if standing and _is_clear(sentence) else None


def _is_clear(statement: str) -> bool:
    """Whether a statement can be understood without the rest of the conversation."""
    return len(statement.split()) >= MIN_WORDS and not _POINTING.search(statement)
