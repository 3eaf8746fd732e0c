"""Passages, the units of the keyword index: a few neighbouring chunks of one document.

Chunks are as large as an embedder reads. BM25 does better with more text, since the words of a question are
seldom in one paragraph (docs/ranking.md has the figures).
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ctx.store.rows import StoredDocument
from ctx.text import analyze

# About three chunks: of 1000 to 3500, the best size for code and for pages.
PASSAGE_CHARS = 2200


class Passage(NamedTuple):
    """A few neighbouring chunks, from `chunk_no` on.

    `texts` and `heads` are the values of two fields; phrases do not match across values. `names` are the
    names defined in its code, each as one word (`analyze.whole`).
    """

    chunk_no: int
    span: int
    texts: list[str]
    heads: list[str]
    names: list[str]


def passages(stored: StoredDocument) -> Iterator[Passage]:
    """The passages of a document, in order."""
    document = stored.document
    path = document.source_id
    stem = path.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    title = "" if document.title == stem else document.title  # a title made from the path adds nothing
    # A name belongs to the first passage of its line: minified code has thousands on one.
    defined = deque(
        sorted((each.name_line, each.name) for each in document.definitions if each.kind != "impl")
    )
    for first, span in _cuts(stored):
        chunks = stored.chunks[first : first + span]
        start, end = chunks[0].start, chunks[-1].end
        names: list[str] = []
        while defined and defined[0][0] <= chunks[-1].end_line:
            names.append(analyze.whole(defined.popleft()[1]))
        text = analyze.composed(document.body[start:end])
        headings = "\n".join(dict.fromkeys(chunk.heading for chunk in chunks if chunk.heading))
        head = analyze.composed(f"{path}\n{title}\n{headings}")
        yield Passage(
            stored.chunk_nos[first],
            span,
            [text, *filter(None, (analyze.additions(text), title))],
            [head, *filter(None, (analyze.additions(head),))],
            list(dict.fromkeys(names)),
        )


def _cuts(stored: StoredDocument) -> Iterator[tuple[int, int]]:
    """(index of the first chunk, number of chunks): runs of chunks with consecutive numbers, each about
    PASSAGE_CHARS long and of even length.

    The short rest of an uneven split would outrank its longer neighbours.
    """
    chunks, numbers = stored.chunks, stored.chunk_nos
    if not chunks:
        return
    base = chunks[0].start
    chars = chunks[-1].end - base
    target = chars / max(1, round(chars / PASSAGE_CHARS))
    first, position = 0, 0
    for i, chunk in enumerate(chunks):
        middle = (chunk.start + chunk.end) / 2 - base
        if i > first and (middle >= (position + 1) * target or numbers[i] != numbers[i - 1] + 1):
            yield first, i - first
            first = i
        while middle >= (position + 1) * target and target:
            position += 1
    yield first, len(chunks) - first
