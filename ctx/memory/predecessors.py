"""Which memories of a bank a new one plainly takes the place of.

They are among its nearest, and looking for those reads every vector of the bank. What may be replaced holds
certain words, though, and most often few memories do: these are read first, and only where one of them would
go is it looked up whether it is among the nearest.
"""

from collections.abc import Iterable, Sequence

from ctx.memory.change import MAX_CHARS, Clues, Statement, clues, replaces
from ctx.memory.columns import Memory
from ctx.memory.embedding import Embedding
from ctx.memory.filters import Condition, same
from ctx.memory.legs import nearest, neighbours
from ctx.memory.reader import Candidate, Reader, visible

NEIGHBOURS = 20  # of a new memory, among which it may take another's place
MAX_HOLDERS = 200  # memories looked at one by one; of more the nearest are as quickly found
MAX_ENTRIES = 2_000  # of the word index, read for that: 2 us each

Replaced = tuple[Candidate, str]


def predecessors(view: Reader, embedding: Embedding, memory: Memory, now_ms: int) -> list[Replaced]:
    """The current memories whose place a new one plainly takes, each with the reason: of the same label and folder,
    if it has such.

    What holds in one project says nothing of another, and what holds for a while puts nothing out of the way.
    """
    statement = Statement.of(memory.text)
    traces = clues(statement)
    if memory.kind != "fact" or memory.expires_ms is not None or not (traces.every or traces.some):
        return []
    conditions = [visible(now_ms), same("m.label", memory.label), same("m.folder", memory.folder)]
    holders = _holders(view, traces, conditions)
    if embedding.model is None:
        if holders is not None and not _replaced(memory, statement, [(holder, None) for holder in holders]):
            return []
        return _replaced(
            memory, statement, neighbours(view, embedding, memory.text, "keyword", conditions, NEIGHBOURS)
        )
    if holders is not None:  # nearer than equal is none of them
        holders = [row for row, _ in _replaced(memory, statement, [(holder, 1.0) for holder in holders])]
    return [] if holders == [] else _nearest(view, embedding, memory, statement, conditions, holders)


def _nearest(
    view: Reader,
    embedding: Embedding,
    memory: Memory,
    statement: Statement,
    conditions: Sequence[Condition],
    holders: Sequence[Candidate] | None,
) -> list[Replaced]:
    """Those among the nearest; `holders` are the only ones that can be, None where that is not known."""
    vectors, vector = embedding.of_bank(view), embedding.query_vector(memory.text[:MAX_CHARS])
    if vectors is None or vector is None:
        return []

    def with_cosines(rows: Iterable[Candidate]) -> list[tuple[Candidate, float | None]]:
        candidates = {row.no: row for row in rows}
        cosines = vectors.cosines(vector, list(candidates))
        order = sorted(cosines, key=lambda no: (-cosines[no], candidates[no].id))
        return [(candidates[no], round(cosines[no], 6)) for no in order]

    if holders is not None:
        cosines = vectors.cosines(
            vector, [row.no for row, _ in _replaced(memory, statement, with_cosines(holders))]
        )
        if not cosines:
            return []
        nearer = vectors.some_nearer(vector, max(cosines.values()), 4 * NEIGHBOURS)
        if len(view.numbers(conditions, nearer)) >= NEIGHBOURS:
            return []  # all of those come before
    nos = nearest(view, vectors, vector, conditions, NEIGHBOURS, superseded=False)
    return _replaced(memory, statement, with_cosines(view.candidates(nos).values()))


def _holders(view: Reader, traces: Clues, conditions: Sequence[Condition]) -> list[Candidate] | None:
    """The memories that hold what those must that are replaced; None where they are too many to look at."""
    frequencies = view.frequencies(traces.every | traces.some)
    chosen = {term: frequencies[term] for term in traces.some if term in frequencies}
    if traces.every and traces.every <= frequencies.keys():
        rarest = min(traces.every, key=lambda term: (frequencies[term], term))
        chosen[rarest] = frequencies[rarest]
    if sum(chosen.values()) > MAX_ENTRIES:
        return None
    nos = view.by_words(chosen, conditions, MAX_HOLDERS + 1)
    return None if len(nos) > MAX_HOLDERS else list(view.candidates(nos).values())


def _replaced(
    memory: Memory, statement: Statement, candidates: Iterable[tuple[Candidate, float | None]]
) -> list[Replaced]:
    """Of candidates with their cosine those that the memory takes the place of."""
    uttered_ms = memory.created_ms if memory.said_ms is None else memory.said_ms
    return [
        (candidate, reason)
        for candidate, cosine in candidates
        if candidate.kind == memory.kind
        and candidate.uttered_ms <= uttered_ms
        and (reason := replaces(Statement.of(candidate.text), statement, cosine)) is not None
    ]
