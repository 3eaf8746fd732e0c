"""What of a person's words is meant to last: what they ask to remember, their standing wishes, and how things
are with them.

It is told by the form of a sentence, so that the same words give the same answer and nothing is asked of a
model. It rather misses than invents: a task ("fix the parser"), a question, code and what was pasted are
never captured.
"""

import re
from bisect import bisect_right

from ctx.memory.sentences import sentences

MIN_WORDS = 3
MAX_CHARS = 300  # of a sentence: what is longer is a report, not a wish
MAX_CAPTURED = 20  # of one message: who pastes a document did not say it

# What is not the speaker's words: code, quotations, and between two tags what a client adds to a message.
_CODE = re.compile(r"```[\s\S]*?(?:```|\Z)")
_BEGINNING = re.compile(r"<([a-z][\w-]*)\b[^<>]*>")
_END = re.compile(r"</([a-z][\w-]*)>")
_FOREIGN_LINE = re.compile(r"^[ \t]*>.*$|^(?: {4}|\t).*$", re.MULTILINE)
_REMEMBER = re.compile(
    r"(?i)^(?:please\s+|and\s+|also\s+|bitte\s+)?(?:(?:can|could|will)\s+you\s+(?:please\s+)?)?"
    r"(?:remember|memori[sz]e|keep\s+in\s+mind|note|don['’]t\s+forget|do\s+not\s+forget"
    r"|for\s+the\s+(?:record|future)"
    r"|merke?\s+dir|vergiss\s+nicht)\s*(?:[,:]|\s)\s*(?:for\s+(?:later|the\s+future)\s*[,:]?\s*)?(?:that\s+"
    r"|dass\s+|to\s+)?(?P<what>\S.*)$"
)
_RULE = re.compile(
    r"(?i)^(?:please\s+|bitte\s+)?(?:always|never(?!\s+mind)|from\s+now\s+on|in\s+(?:the\s+)?future"
    r"|going\s+forward|by\s+default"
    r"|immer|niemals|ab\s+(?:jetzt|sofort)|in\s+zukunft)\b"
    r"|^(?:i|we)\s+(?:\w+\s+)?(?:always|never|usually|no\s+longer)\b(?!\s+(?:get|see|run\s+into|forget)\b)"
    r"|\bfrom\s+now\s+on\b|\bab\s+(?:jetzt|sofort)\b"
    r"|,\s*(?:always|never|immer|nie)\W*$|^our\s+(?:convention|policy|rule|standard|style)\b.*\b(?:is|are)\s"
    r"|^(?:please\s+)?(?:(?:make|be)\s+sure\s+(?:to|you)\s+(?:always|never)"
    r"|you\s+(?:should|must|may)\s+(?:always|never)|(?:do\s+not|don['’]t)\s+ever)\b"
)
# What is asked for always or everywhere.
_WISH = re.compile(
    r"(?i)^(?:please\s+)?(?:make\s+sure|be\s+sure|ensure|you\s+(?:should|must|may|can|are\s+to)|do\s+not"
    r"|don['’]t)\b.*\b(?:always|never|ever|every\s+time|whenever)\b"
    r"|^bitte\b.*\b(?:immer|nie(?:mals)?|stets)\b"
    r"|^(?:please\s+)?(?:use|write|keep|put|add|avoid|prefer|name|format|do\s+not"
    r"|don['’]t)\b.*\b(?:in\s+(?:all|every|any)\b|everywhere\b"
    r"|in\s+this\s+(?:project|repo(?:sitory)?|codebase)\b)"
    r"|^(?:please\s+)?(?:do\s+not|don['’]t)\s+(?:use|write|add|put)\s+[\w-]+\s+in\s+(?:\w+\s+)?\w+s\W*$"
    r"|^(?:i|we)\s+(?:(?:do\s+not|don['’]t)\s+(?:like|eat|drink|use|speak)"
    r"|can(?:not|['’]t)\s+(?:use|run|install|eat|drink))\b"
    r"|^(?:please\s+)?(?:(?:do\s+not|don['’]t)\s+(?:suggest|recommend|propose)|stick\s+(?:to|with))\b"
    r"|^(?:please\s+)?call\s+me\s+(?-i:[A-ZÄÖÜ])"
    r"|^i(?:['’]d|\s+would)\s+rather\b|^no\s+[\w-]+,?\s+please\b"
    r"|^ich\s+(?:will|möchte)\s+(?:keine?n?|nie|immer|nur)\b"
)
# What points at the work in hand: a wish about that ends with it.
_IN_HAND = re.compile(
    r"(?i)\b(?:(?:this|that)(?!\s+(?:project|repo(?:sitory)?|codebase|machine|computer|laptop)\b)|these"
    r"|those|here|it|the|all\s+(?:two|three|four|\d+)|dies\w*|hier|das)\b"
)
_POINTING = re.compile(
    r"(?i)\b(?:this|that|these|those|it)\b(?!\s+(?:project|repo(?:sitory)?|codebase|machine|computer|laptop"
    r"|when)\b)"
)
_STATE = re.compile(
    r"(?i)^(?:i|we)\s+(?:now\s+|really\s+|currently\s+|much\s+|strongly\s+)?"
    r"(?:prefer|love|hate|dislike|avoid|live|work\s+(?:at|for|as)|use|speak|own)\b(?!-)"
    r"|^(?:i(?:\s+am|['’]m)|we(?:\s+are|['’]re))\s+(?:allergic|colou?r-?blind|blind|deaf|dyslexic"
    r"|left-handed|vegetarian|vegan|new\s+to\s+(?-i:[A-Z])|an?\b(?!\s+(?:bit|little|lot|step|few)\b))"
    r"|^(?:i\s+(?:have\s+)?(?:switched|moved|migrated)"
    r"|we\s+(?:have\s+)?(?:switched|moved|migrated|changed)(?:\s+[\w-]+){0,3})\s+from\s.+\sto\s"
    r"|^(?:my|our)\s+[\w\s-]{2,40}?\s+(?:lives?"
    r"|(?:is|are)\s+(?:kept|stored|hosted|deployed|written))\s+(?:in|on|at|to|with)\s"
    r"|^(?:my|our)\s+[\w\s-]{2,40}?\s+(?:is|are)\s+(?:called|named)\s"
    r"|^(?:my|our)\s+(?:favou?rite|preferred|usual)\s+[\w\s-]{2,40}?\s+(?:is|are)\s"
    r"|^wir\s+(?:arbeiten\s+mit|benutzen|verwenden|nutzen)\b"
    r"|^ich\s+(?:bevorzuge|mag|hasse|wohne|arbeite|heiße|bin\s+allergisch)"
)
_VAGUE = re.compile(
    r"(?i)^\W*(?:this|that|it|these|those|to|the\s+(?:above|following)|dies|das)\b(?:\W*$"
    r"|\s+(?:too|as\s+well|one)\b)"
)
_ASKED = re.compile(
    r"(?i)\?\s*$|^(?:what|who|when|where|why|how|which|is|are|do|does|did|can|could|should|would|will)\b"
)


def lasting(text: str) -> list[str]:
    """The sentences of a person's message that are worth keeping, in order, each once."""
    captured: dict[str, None] = {}
    for sentence in sentences(_FOREIGN_LINE.sub("\n", _without_elements(_CODE.sub("\n", text)))):
        statement = _lasting_sentence(sentence.strip(" -*•\t"))
        if statement:
            captured[statement] = None
        if len(captured) == MAX_CAPTURED:
            break
    return list(captured)


def _without_elements(text: str) -> str:
    """A text without what stands between a tag and the next end of its name.

    One look for all ends: a page that was pasted has thousands of tags without one.
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
        return statement[:1].upper() + statement[1:] if _telling(statement) else None
    if _ASKED.search(sentence) or not _telling(sentence):
        return None
    return sentence if _lasts(sentence) else None


def _lasts(sentence: str) -> bool:
    """Whether it is a wish, a rule, or states what holds."""
    if _WISH.search(sentence) and not _IN_HAND.search(sentence):
        return True
    stated = _STATE.match(sentence) and not _POINTING.search(sentence)
    return bool(_RULE.search(sentence) or stated)


def _telling(sentence: str) -> bool:
    """Whether there is enough in a sentence to be understood when nothing else of the talk is there."""
    return len(sentence.split()) >= MIN_WORDS and not _VAGUE.search(sentence) and "`" * 3 not in sentence
