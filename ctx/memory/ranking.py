"""Steps on ranked hits: a time window as a lift, age, and replaced memories as the ones that replaced them.

Each takes hits best first, gives hits best first, and notes what it did in their signals.
"""

from collections.abc import Mapping, Sequence

from ctx.clock import DAY_MS
from ctx.memory.dates import Window
from ctx.memory.legs import MemoryHit, rank_key
from ctx.memory.reader import Candidate
from ctx.memory.vectors import BankVectors
from ctx.models import JSON

RECENCY_SPAN = 0.1  # the most that age moves a rank, up or down
# A memory whose own time is in the window that the question names goes above all others, whose best has 1.
NAMED_TIME_LIFT = 1.01
STORED_TIME_LIFT = 0.3  # of one that was merely stored then
NAMED_TIME_SCORE = 0.75  # such a memory counts as evidence
MOSTLY = 0.5  # of its time has to be in the window for that
NEAR_TWIN = 0.75  # cosine; LoCoMo facts have one earlier memory that near on average
MAX_NEWER = 3
_STRENGTHS = ("fused", "bm25", "cosine", "nameless", "lexical", "semantic")


def aged(hits: Sequence[MemoryHit], half_life_days: float, now_ms: int) -> list[MemoryHit]:
    """Ranks moved by age, by a tenth at most."""
    moved = []
    for hit in hits:
        age_days = max(0.0, (now_ms - hit.memory.when_ms) / DAY_MS)
        factor = 1 + RECENCY_SPAN * (2 * 0.5 ** (age_days / half_life_days) - 1)
        moved.append(_with_signals(hit, fused=hit.signals["fused"] * factor))
    return sorted(moved, key=rank_key)


def timely(hits: Sequence[MemoryHit], window: Window) -> list[MemoryHit]:
    """Memories of the window come first; those that were merely stored then are lifted."""
    lifted = []
    for hit in hits:
        if not _in_window(hit.memory, window):
            lifted.append(hit)
        elif hit.memory.event_ms is None and hit.memory.said_ms is None:
            lifted.append(_with_signals(hit, fused=hit.signals["fused"] * (1 + STORED_TIME_LIFT)))
        else:
            share = _share_within(hit.memory, window)
            if share >= MOSTLY:
                hit = _with_signals(hit._replace(score=max(hit.score, NAMED_TIME_SCORE)), in_window=True)
            lift = NAMED_TIME_LIFT * (1 + share) / 2
            lifted.append(_with_signals(hit, fused=max(0.0, hit.signals["fused"]) + lift))
    return sorted(lifted, key=rank_key)


def _in_window(memory: Candidate, window: Window) -> bool:
    first_ms = memory.when_ms
    last_ms = first_ms if memory.event_ms is None or memory.event_last_ms is None else memory.event_last_ms
    return (window.first_ms is None or last_ms >= window.first_ms) and (
        window.last_ms is None or first_ms <= window.last_ms
    )


def _share_within(memory: Candidate, window: Window) -> float:
    """The share of a memory's time that is in the window: "in November" is mostly not on one day of it."""
    if memory.event_ms is None or memory.event_last_ms is None or memory.event_last_ms <= memory.event_ms:
        return 1.0
    first_ms = max(memory.event_ms, memory.event_ms if window.first_ms is None else window.first_ms)
    last_ms = min(memory.event_last_ms, memory.event_last_ms if window.last_ms is None else window.last_ms)
    return max(0, last_ms - first_ms) / (memory.event_last_ms - memory.event_ms)


def succeeded(hits: Sequence[MemoryHit], heads: Mapping[str, Candidate | None]) -> list[MemoryHit]:
    """Puts the replacing memories in the place of the replaced ones. `heads`: the last successor by the
    replaced memory's id; None if it must not be shown.
    """
    best: dict[str, MemoryHit] = {}
    for hit in hits:
        if hit.memory.superseded_by is not None and hit.memory.id in heads:
            head = heads[hit.memory.id]
            if head is None:
                continue
            hit = _with_signals(hit._replace(memory=head), through=hit.memory.id)
        earlier = best.get(hit.memory.id)
        best[hit.memory.id] = hit if earlier is None else _stronger(earlier, hit)
    return sorted(best.values(), key=rank_key)


def _stronger(hit: MemoryHit, second: MemoryHit) -> MemoryHit:
    """Merges two hits of one memory, found by its own words or by those of a memory it replaced."""
    signals = {**second.signals, **hit.signals}
    for name in _STRENGTHS:
        strengths = (hit.signals[name], second.signals[name])
        signals[name] = max((strength for strength in strengths if strength is not None), default=None)
    return hit._replace(score=max(hit.score, second.score), signals=signals)


def newer_twins(page: Sequence[MemoryHit], vectors: BankVectors | None) -> dict[str, list[str]]:
    """By the id of each memory of a page those of the page that are later and close in meaning, or that
    replaced it; most alike first. Memories without any are left out.
    """
    cosines = {} if vectors is None else vectors.cosines_among([hit.memory.no for hit in page])
    newer: dict[str, list[str]] = {}
    for memory in (hit.memory for hit in page):
        twins = []
        for other in (hit.memory for hit in page):
            is_later = other.uttered_ms > memory.uttered_ms
            cosine = cosines.get((memory.no, other.no), 0.0) if is_later else 0.0
            if other.id == memory.superseded_by or cosine >= NEAR_TWIN:
                twins.append((other.id == memory.superseded_by, cosine, other.id))
        if twins:
            newer[memory.id] = [id for _, _, id in sorted(twins, reverse=True)[:MAX_NEWER]]
    return newer


def _with_signals(hit: MemoryHit, **signals: JSON) -> MemoryHit:
    return hit._replace(signals={**hit.signals, **signals})
