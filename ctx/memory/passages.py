"""What the keyword and the vector search read of a memory: passages of about a paragraph, and its context.

A memory is usually one passage. A retained session is many, and is found by its best one: an embedder reads a
few hundred tokens, and a query's words mean something only close together.
"""

import re
from collections.abc import Sequence

from ctx.identity import embedding_text
from ctx.memory.columns import Memory
from ctx.memory.gist import first_person
from ctx.memory.records import all_contexts
from ctx.text.analyze import terms

MAX_STATEMENT_CHARS = 300  # two or three sentences
# How a turn of a conversation begins when it is stored with its speaker.
_TURN = re.compile(r"\s*[A-ZÄÖÜ][\w.'’-]{0,30}(?:\s[A-ZÄÖÜ][\w.'’-]{0,30})?:\s+(?=\S)")
# Of a word in label, heading, context or tags: +0.01 NDCG@10 on cacm and cranfield, where a title is the
# heading.
ABOUT_WEIGHT = 2
NO_CONTEXT = ("general",)  # categories that say nothing: not words to be found by
_HEADING = re.compile(r"\s*(?:#{1,6}[ \t]+([^\n]{1,200})|([^\n]{1,120})\n[ \t]*\n)")
MAX_PASSAGE_CHARS = 900  # about 200 tokens: below the 256 that MiniLM reads
MAX_PASSAGES = 256  # of one text; what follows is found by its words only in the last passage

_BREAKS = (re.compile(r"\n\s*\n"), re.compile(r"\n"), re.compile(r"(?<=[.!?。！？])\s+"), re.compile(r"\s+"))


def passages(text: str, size: int = MAX_PASSAGE_CHARS) -> list[str]:
    """The text in order, cut at the strongest break before `size` characters; `[text]` where it is short."""
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
        if last > size // 3:  # an earlier break would leave a crumb
            return start + last
    return stop


def segments(memory: Memory) -> list[list[str]]:
    """The terms a memory is found by: first those of its label, heading, contexts and tags, then those of
    each passage.
    """
    about = [
        memory.label if memory.label and memory.label != memory.text else "",
        *(context for context in all_contexts(memory) if context not in NO_CONTEXT),
        *memory.tags,
        heading(memory.text),
    ]
    return [terms(" ".join(about)), *(terms(passage) for passage in passages(memory.text))]


def weighed_length(parts: Sequence[Sequence[str]]) -> int:
    """How many terms a memory counts for in BM25: what it is about weighs `ABOUT_WEIGHT` times."""
    return sum(map(len, parts)) + (ABOUT_WEIGHT - 1) * len(parts[0])


def embedding_texts(text: str) -> list[str]:
    """What the embedder reads of a memory: its passages, those after the first under its heading, in the
    first person.

    A long talk is read in passages of a statement's length: it goes from one matter to the next, turn by
    turn, and the vector of a long passage would be the mean of them all.
    """
    size = MAX_STATEMENT_CHARS if _is_long_talk(text) else MAX_PASSAGE_CHARS
    first, *others_of_text = passages(first_person(text), size)
    head = heading(text)
    return [first, *(embedding_text(head, "", passage) for passage in others_of_text)]


def heading(text: str) -> str:
    """The first line if it is a marked heading or a short separate line, else ""."""
    match = _HEADING.match(text)
    return (match[1] or match[2]) if match else ""


def _is_long_talk(text: str) -> bool:
    """Whether a text is more than a passage of a conversation, turn by turn, each with its speaker."""
    lines = text.strip().split("\n") if len(text) > MAX_PASSAGE_CHARS else []
    return len(lines) > 1 and sum(_TURN.match(line) is not None for line in lines) * 2 > len(lines)
