"""Which memories of a bank a new one plainly takes the place of.

What may be replaced holds certain words, and most often few memories do: these are compared one by one,
whatever else is stored beside them. Only where they are too many the nearest of the whole bank are looked at
instead, for which every vector is read.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ctx.memory.change import Clues, clues, replaces
from ctx.memory.columns import Memory
from ctx.memory.embedding import Embedding
from ctx.memory.filters import Condition, same
from ctx.memory.legs import nearest, neighbours
from ctx.memory.packed import unpack
from ctx.memory.reader import Candidate, Reader, visible
from ctx.memory.statement import MAX_CHARS, Statement

NEIGHBOURS = 20  # of a new memory, at most, whose place it may take
MAX_HOLDERS = 200  # memories looked at one by one; of more the nearest are as quickly found
MAX_ENTRIES = 2_000  # of the word index, read for that: 2 us each

Replaced = tuple[Candidate, str]


def predecessors(
    view: Reader, embedding: Embedding, memory: Memory, packed: Sequence[bytes], now_ms: int
) -> list[Replaced]:
    """The current memories whose place a new one plainly takes, nearest first and each with the reason: of
    the same label and folder, if it has such. `packed`: its vectors, as they will be stored.

    What holds in one project says nothing of another, and what holds for a while puts nothing out of the way.
    """
    statement = Statement.of(memory.text)
    if memory.kind != "fact" or memory.expires_ms is not None or not statement.short:
        return []
    traces = clues(statement)
    if not (traces.every or traces.some):
        return []
    conditions = [visible(now_ms), same("m.label", memory.label), same("m.folder", memory.folder)]
    holders = _holders(view, traces, conditions)
    candidates: list[tuple[Candidate, float | None]]
    if holders is None:
        candidates = _nearest(view, embedding, memory, conditions)
    elif embedding.model is None:
        candidates = [(holder, None) for holder in holders]
    else:  # nearer than equal is none of them
        nearest = _replaced(memory, statement, [(holder, 1.0) for holder in holders])
        outdated = [holder for holder, _ in nearest]
        cosines = _cosines(view, embedding.model, packed, [row.no for row in outdated])
        candidates = _with_cosines(outdated, cosines)
    return _replaced(memory, statement, candidates)[:NEIGHBOURS]


def _nearest(
    view: Reader, embedding: Embedding, memory: Memory, conditions: Sequence[Condition]
) -> list[tuple[Candidate, float | None]]:
    """The nearest memories of the whole bank, by words alone where there is no embedder."""
    if embedding.model is None:
        return neighbours(view, embedding, memory.text, "keyword", conditions, NEIGHBOURS)
    vectors, vector = embedding.of_bank(view), embedding.query_vector(memory.text[:MAX_CHARS])
    if vectors is None or vector is None:
        return []
    nos = nearest(view, vectors, vector, conditions, NEIGHBOURS, superseded=False)
    return _with_cosines(view.candidates(nos).values(), vectors.cosines(vector, nos))


def _cosines(view: Reader, model: str, packed: Sequence[bytes], nos: Sequence[int]) -> dict[int, float]:
    """How near the best passage of each of these memories is to a text with these vectors, as they are
    stored: the vectors of the bank need not be in memory."""
    model_no = view.model_no(model) if nos and packed else None
    if model_no is None:
        return {}
    vector, cosines = unpack(packed[0]), dict[int, float]()
    for no, stored in view.vectors(model_no, nos):
        if len(stored) == len(packed[0]):
            cosines[no] = max(cosines.get(no, -1.0), float(np.dot(unpack(stored), vector)))
    return cosines


def _with_cosines(
    candidates: Iterable[Candidate], cosines: Mapping[int, float]
) -> list[tuple[Candidate, float | None]]:
    """Candidates with their cosine, nearest first; without those that have none."""
    scored = [candidate for candidate in candidates if candidate.no in cosines]
    scored.sort(key=lambda candidate: (-cosines[candidate.no], candidate.id))
    return [(candidate, round(cosines[candidate.no], 6)) for candidate in scored]


def _holders(view: Reader, traces: Clues, conditions: Sequence[Condition]) -> list[Candidate] | None:
    """The memories that hold what those must that are replaced; None where they are too many to look at."""
    frequencies = view.frequencies(traces.some.union(*traces.every))
    chosen = {term: frequencies[term] for term in traces.some if term in frequencies}
    groups = [sorted(group & frequencies.keys()) for group in traces.every]
    if groups and all(groups):
        rarest = min(groups, key=lambda group: (sum(frequencies[term] for term in group), group))
        chosen |= {term: frequencies[term] for term in rarest}
    if sum(chosen.values()) > MAX_ENTRIES:
        return None
    nos = view.by_words(chosen, conditions, MAX_HOLDERS + 1)
    return None if len(nos) > MAX_HOLDERS else list(view.candidates(nos).values())


def _replaced(
    memory: Memory, statement: Statement, candidates: Iterable[tuple[Candidate, float | None]]
) -> list[Replaced]:
    """Of candidates with their cosine those that the memory takes the place of."""
    return [
        (candidate, reason)
        for candidate, cosine in candidates
        if candidate.kind == memory.kind
        and candidate.uttered_ms <= memory.uttered_ms
        and (reason := replaces(Statement.of(candidate.text), statement, cosine)) is not None
    ]
