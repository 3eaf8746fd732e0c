"""Names in a text, by rule: capitalised spans, identifiers, paths, @mentions, #tags, e-mail addresses.

No model and no list of names: what starts a sentence is a name only if it is spelt like one elsewhere in it.
"""

import re

MAX_ENTITIES = 40  # of one text
_STRUCTURED = re.compile(
    r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}"  # an e-mail address
    r"|(?<!\w)[@#][A-Za-z][\w-]{1,60}"
    r"|(?<!\w)(?:~|\.{1,2})?/(?:[\w.-]{1,80}/){0,8}[\w.-]{1,80}\b"  # a path
    r"|\b(?:[\w-]{1,60}/){1,8}[\w-]{1,60}\.\w{1,5}\b"
    r"|\b[A-Za-z]\w{0,60}(?:_\w{1,60}|(?<=[a-z0-9])[A-Z]\w{0,60})\b"  # snake_case, camelCase
    r"|\b\w{1,40}\.(?:py|js|ts|rs|go|md|toml|json|ya?ml|java|c|h|cpp|lua|sql|sh|html|css)\b"
)
_CAPITALS = re.compile(
    r"\b(?:[A-Z][\w+#]{0,40}(?:[-.][A-Za-z0-9]{1,20}){0,3})(?:\s+(?:of\s+|the\s+"
    r"|de\s+)?[A-Z0-9][\w+#.-]{0,40}){0,3}"
)
_COMMON_WORDS = """
a an the this that these those i we you he she it they my our your his her its their what which who when where
why how do does did is are was were will would should could can may might must has have had if in on at by for
from to and or but not no yes user users based after before since during because while please let there here
also then now today yesterday monday tuesday wednesday thursday friday saturday sunday january february march
april june july august september october november december
"""
_COMMON = frozenset(_COMMON_WORDS.split())


def entities(text: str) -> list[str]:
    """Names in order of first appearance, each once whatever its case; leading common words are cut off."""
    matches: dict[str, tuple[int, str]] = {}
    text = text[:20_000]
    spans: list[tuple[int, int]] = []
    for match in _STRUCTURED.finditer(text):
        matches.setdefault(match[0].lower(), (match.start(), match[0]))
        spans.append(match.span())
    for match in _CAPITALS.finditer(text):
        if any(first <= match.start() < last for first, last in spans):
            continue
        start, name = _uncommon(match)
        if len(name) > 1:
            matches.setdefault(name.lower(), (start, name))
    return [name for _, name in sorted(matches.values())][:MAX_ENTITIES]


def _uncommon(match: re.Match[str]) -> tuple[int, str]:
    """A run of capitals without the common words around it, and where that begins."""
    words = match[0].rstrip(".").split()
    start = match.start()
    while words and words[0].lower() in _COMMON:
        start += len(words.pop(0)) + 1
    while words and words[-1].lower() in _COMMON:
        words.pop()
    return start, " ".join(words)
