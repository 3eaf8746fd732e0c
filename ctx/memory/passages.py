"""Splits a memory into passages for keyword and vector search.

Most memories are one passage. A stored session is many, and is found by its best one: an embedder reads a few
hundred tokens at most, and a query's words belong together only if they are close to each other.
"""

import re
from collections.abc import Sequence

from ctx.identity import embedding_text
from ctx.memory.columns import Memory
from ctx.memory.gist import first_person
from ctx.memory.records import all_contexts
from ctx.text.analyze import terms

MAX_STATEMENT_CHARS = 300  # two or three sentences
# The start of a conversation's turn that is stored with its speaker.
_TURN = re.compile(r"\s*[A-ZÄÖÜ][\w.'’-]{0,30}(?:\s[A-ZÄÖÜ][\w.'’-]{0,30})?:\s+(?=\S)")
ABOUT_WEIGHT = 2  # of a word in label, heading, context or tags; a word of the text has 1
NO_CONTEXT = ("general",)  # categories that say nothing, and are not indexed
_HEADING = re.compile(r"\s*(?:#{1,6}[ \t]+([^\n]{1,200})|([^\n]{1,120})\n[ \t]*\n)")
MAX_PASSAGE_CHARS = 900  # about 200 tokens: below the 256 that MiniLM reads
MAX_PASSAGES = 256  # of one text; the last one has the rest of the text

_BREAKS = (re.compile(r"\n\s*\n"), re.compile(r"\n"), re.compile(r"(?<=[.!?。！？])\s+"), re.compile(r"\s+"))


def passages(text: str, size: int = MAX_PASSAGE_CHARS) -> list[str]:
    """The text in pieces of at most `size` characters, each cut at the strongest break."""
    if len(text) <= size:
        return [text]
    pieces: list[str] = []
    start = 0
    while len(text) - start > size and len(pieces) < MAX_PASSAGES - 1:
        end = _break(text, start, size)
        if piece := text[start:end].strip():
            pieces.append(piece)
        start = end
    if tail := text[start:].strip():
        pieces.append(tail)
    return pieces or [text]


def _break(text: str, start: int, size: int) -> int:
    stop = start + size
    window = text[start:stop]
    for pattern in _BREAKS:
        last = max((match.end() for match in pattern.finditer(window)), default=0)
        if last > size // 3:  # an earlier break would leave a very short piece
            return start + last
    return stop


def segments(memory: Memory) -> list[list[str]]:
    """The indexed terms of a memory: first those of its label, heading, contexts and tags, then those of each
    passage.
    """
    about = [
        memory.label if memory.label and memory.label != memory.text else "",
        *(context for context in all_contexts(memory) if context not in NO_CONTEXT),
        *memory.tags,
        heading(memory.text),
    ]
    return [terms(" ".join(about)), *(terms(passage) for passage in passages(memory.text))]


def weighed_length(parts: Sequence[Sequence[str]]) -> int:
    """The length of a memory for BM25, in terms; those of label, heading, contexts and tags count twice."""
    return sum(map(len, parts)) + (ABOUT_WEIGHT - 1) * len(parts[0])


def embedding_texts(text: str) -> list[str]:
    """What is embedded of a memory: its passages in the first person, each after the first with its heading.

    A long conversation is split into passages of a statement's length: it moves from one subject to the next
    with every turn, and the vector of a long passage would be the mean of all of them.
    """
    lines = text.strip().split("\n") if len(text) > MAX_PASSAGE_CHARS else []
    is_conversation = len(lines) > 1 and sum(_TURN.match(line) is not None for line in lines) * 2 > len(lines)
    first, *others = passages(
        first_person(text), MAX_STATEMENT_CHARS if is_conversation else MAX_PASSAGE_CHARS
    )
    head = heading(text)
    return [first, *(embedding_text(head, "", passage) for passage in others)]


def heading(text: str) -> str:
    """The first line if it is a marked heading or a short separate line, else ""."""
    match = _HEADING.match(text)
    return (match[1] or match[2]) if match else ""
