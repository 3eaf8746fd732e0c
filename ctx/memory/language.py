"""Analyses the text of a memory: its gist, its language, its sentences, the sentences that are worth
remembering, and flags for texts that look like secrets or like instructions to a model.

The gist is a hash of the words of a text, without capitals, punctuation, articles and the speaker ("I", "the
user"). Two statements with the same gist count as the same memory. The rule is narrow on purpose: a different
word, number or tense, or an added "not", gives a different gist.
"""

import hashlib
import re
import unicodedata
from bisect import bisect_right
from functools import lru_cache

from ctx.errors import BadRequest
from ctx.models import JSON, TEXT_HASH_BYTES
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
_BE = dict.fromkeys(("am", "is", "are", "i'm", "i’m", "we're"), "be") | {"isn't": "be not", "i've": "have"}
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
    return verb[:-2] if verb.endswith(("ches", "shes", "sses", "xes", "oes")) else verb[:-1]


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
_WORDS = {"de": _GERMAN, "es": _SPANISH, "fr": _FRENCH}
_FUNCTION_WORDS = {name: frozenset(listed.split()) for name, listed in _WORDS.items()}
# Words of the lists above that are English too.
_BOTH = "a am an as d he in m me no on plus s so son t was will y"
_AMBIGUOUS = frozenset(_BOTH.split())
_ENGLISH = (STOP_WORDS | {"i", "user"}) - _AMBIGUOUS
_ENGLISH_SILENT = ("now", "nowadays", "currently")  # in questions these are ignored, like the stop words
_WORD = re.compile(r"[^\W\d_]+")


def language(text: str) -> str:
    """The language of a text: `de`, `es`, `fr` or `en`.

    It is the language with the most function words in the first 1000 characters; if in doubt, English.
    """
    return _language(text[:1000])


@lru_cache(maxsize=256)
def _language(beginning: str) -> str:
    words = frozenset(_WORD.findall(composed(beginning).casefold()))
    counts = {name: len(words & known - _AMBIGUOUS) for name, known in _FUNCTION_WORDS.items()}
    name = max(counts, key=lambda name: counts[name])
    return name if counts[name] > len(words & _ENGLISH) else "en"


def silent_terms(text: str) -> frozenset[str]:
    """The function words of a text's language as index terms, which a search ignores in a question.

    For English these are only a few, because English stop words are not indexed at all.
    """
    return _silent_terms(language(text))


@lru_cache
def _silent_terms(name: str) -> frozenset[str]:
    return frozenset(terms(" ".join(sorted(_FUNCTION_WORDS.get(name, _ENGLISH_SILENT)))))


# A full stop after a title ("Dr.") or after the number of a day ("am 15. Februar") does not end a sentence.
_SENTENCE = re.compile(
    r"(?<=[.!?。！？])(?<!\b\d\.)(?<!\b\d\d\.)(?<!\b(?:Dr|Mr|Ms|St|Hr|Fr|Nr)\.)(?<!\b(?:Mrs)\.)(?<!\bProf\.)\s+"
    r"|\n+"
)


def sentences(text: str) -> list[str]:
    """Splits a text into sentences, also at line breaks. Empty sentences are left out."""
    return [sentence.strip() for sentence in _SENTENCE.split(text) if sentence.strip()]


# -- what is worth remembering -------------------------------------------------------------------------------

MIN_WORDS = 3
MAX_CHARS = 300  # a longer sentence is not worth remembering
MAX_CAPTURED = 20  # at most this many sentences of one message; a longer list was probably pasted

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


def lasting(text: str) -> list[str]:
    """The sentences of a user's message that are worth remembering, in order, without duplicates: requests to
    remember something, lasting wishes, and facts about the user.

    The rules match the words of a sentence and use no model. They miss many sentences, but invent nothing.
    Code, quotations and text that a client adds are ignored.
    """
    own_text = _FOREIGN_LINE.sub("\n", _without_elements(_CODE.sub("\n", text)))
    statements = (_lasting_sentence(sentence.strip(" -*•\t")) for sentence in sentences(own_text))
    return list(dict.fromkeys(filter(None, statements)))[:MAX_CAPTURED]


def _without_elements(text: str) -> str:
    """Removes the markup elements of a text: from each start tag to the next end tag of the same name.

    For speed, all end tags are found first: a pasted page may have thousands of start tags without an end
    tag.
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
    if request := _REMEMBER.match(sentence):
        statement = request["what"].strip().rstrip("?")
        return statement[:1].upper() + statement[1:] if _is_clear(statement) else None
    standing = _STANDING.search(sentence) and not sentence.rstrip().endswith("?")
    return sentence if standing and _is_clear(sentence) else None


def _is_clear(statement: str) -> bool:
    """Whether a statement can be understood without the rest of the conversation."""
    return len(statement.split()) >= MIN_WORDS and not _POINTING.search(statement)


# -- secrets and instructions --------------------------------------------------------------------------------

# The flags are guesses from patterns. By default a flagged memory is stored, and its flags warn the readers.
POLICIES = ("flag", "redact", "refuse", "off")
INSTRUCTION = "instruction_like"
SCREENED = ("text", "metadata", "label", "context", "contexts", "tags")
"""The columns of a memory that are checked for secrets and instructions."""

_SECRETS = {
    "private_key": re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[\s\S]{0,8000}?-----END [A-Z ]*PRIVATE KEY-----)?"
    ),
    "aws_access_key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "github_token": re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{40,255})\b"),
    "gitlab_token": re.compile(r"\bglpat-[A-Za-z0-9_-]{20,64}\b"),
    "slack_token": re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,250}"),
    "google_api_key": re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b"),
    "stripe_key": re.compile(r"\b[rs]k_live_[0-9A-Za-z]{16,128}\b"),
    "api_key": re.compile(r"\bsk-(?:proj-|ant-|or-)?[A-Za-z0-9_-]{20,200}\b"),
    "jwt": re.compile(r"\beyJ[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,1000}\b"),
    "url_password": re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,100}:[^\s/@]{3,200}@"),
    "password": re.compile(
        r"(?i)\b(?:password|passwd|passphrase|secret[_ -]?key|api[_ -]?key|access[_ -]?token"
        r"|auth[_ -]?token)\s{0,3}(?:is|:=?|=)\s{0,3}"
        r"[\"']?(?=[^\s\"']{0,200}\d)[^\s\"']{8,200}"
    ),
}
_REDACTED = rf"\[redacted:({'|'.join(_SECRETS)})\]"
_COMMANDS = (
    r"(?i)\b(?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+|the\s+|your\s+|of\s+){0,3}(?:previous"
    r"|prior|above|earlier|preceding|other|system)\b"
    r"|\byou\s+(?:are\s+now|must\s+now|will\s+now)\b"
    r"|\b(?:reveal|print|repeat|output)\s+(?:your|the)\s+(?:system\s+)?(?:prompt|instructions)\b"
    r"|\b(?:do\s+not|don't|never)\s+(?:tell|inform|mention\s+(?:this|it)\s+to)\s+the\s+user\b"
    r"|\bnew\s+(?:system\s+)?instructions?\s*:"
    r"|<\s*/?\s*(?:system|instructions?|im_start|im_end)\s*>|<\|im_(?:start|end)\|>|\[/?INST\]"
)


def redacted(text: str) -> str:
    """The text with each secret replaced by `[redacted:<kind>]`."""
    for kind, pattern in _SECRETS.items():
        text = pattern.sub(f"[redacted:{kind}]", text)
    return text


def screen_json(value: JSON, policy: str) -> tuple[JSON, set[str]]:
    """Returns the value to store, and the flags of all texts in it (`secret:<kind>`, `instruction_like`).

    `redact` replaces a secret by `[redacted:<kind>]`. `refuse` raises `BadRequest`, which names the kind but
    not the secret.
    """
    if isinstance(value, str):
        kinds: list[str] = []
        if policy != "off":
            kinds = [kind for kind, pattern in _SECRETS.items() if pattern.search(value)]
            if kinds and policy == "refuse":
                reason = f"the text seems to contain a secret ({kinds[0]})"
                raise BadRequest(f"{reason}; remove it and store the rest")
            value = redacted(value) if policy == "redact" else value
            kinds += re.findall(_REDACTED, value)
        commands = {INSTRUCTION} if re.search(_COMMANDS, value) else set()
        return value, commands | {f"secret:{kind}" for kind in kinds}
    if isinstance(value, list):
        pairs = [screen_json(entry, policy) for entry in value]
        return [entry for entry, _ in pairs], set().union(*(flags for _, flags in pairs))
    if isinstance(value, dict):
        names, flags_of_names = screen_json(list(value), policy)
        entries, flags = screen_json(list(value.values()), policy)
        return dict(zip(names, entries, strict=True)), flags_of_names | flags
    return value, set()
