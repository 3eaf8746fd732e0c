"""Finds the sentences of a user's message that are worth remembering: requests to remember something, lasting
wishes, and facts about the user.

The rules match the words of a sentence and use no model. They miss many sentences, but invent nothing. Code,
quotations and text that a client adds are ignored.
"""

import re
from bisect import bisect_right

from ctx.memory.language import sentences

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
    """The sentences of a message that are worth keeping, in order, without duplicates."""
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
