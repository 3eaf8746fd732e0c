"""How a memory's text is cut for the two legs: into passages of about a paragraph.

A memory is usually one passage. A retained session is many, and is found by its best one: an embedder reads a few hundred
tokens, and a query's words mean something only where they stand together.
"""

import re

MAX_PASSAGE_CHARS = 900  # about 200 tokens: below the 256 that MiniLM reads
MAX_PASSAGES = 256  # of one text; what follows is found by its words only in the last passage

_BREAKS = (re.compile(r"\n\s*\n"), re.compile(r"\n"), re.compile(r"(?<=[.!?。！？])\s+"), re.compile(r"\s+"))


def passages(text: str) -> list[str]:
    """The text in order, cut at the strongest break near the limit; `[text]` where it is short."""
    if len(text) <= MAX_PASSAGE_CHARS:
        return [text]
    found: list[str] = []
    start = 0
    while len(text) - start > MAX_PASSAGE_CHARS and len(found) < MAX_PASSAGES - 1:
        end = _break(text, start)
        piece = text[start:end].strip()
        if piece:
            found.append(piece)
        start = end
    rest = text[start:].strip()
    if rest:
        found.append(rest)
    return found or [text]


def _break(text: str, start: int) -> int:
    stop = start + MAX_PASSAGE_CHARS
    window = text[start:stop]
    for pattern in _BREAKS:
        last = 0
        for match in pattern.finditer(window):
            last = match.end()
        if last > MAX_PASSAGE_CHARS // 3:  # an earlier break would leave a crumb
            return start + last
    return stop
