"""What the indexer is doing, for whoever asks: one snapshot, no locks to hold."""

from ctx.lean import NamedTuple


class Activity(NamedTuple):
    """What is going on now. `phase` is idle | waiting | indexing | embedding; `source` names the one at work."""

    phase: str = "idle"
    source: str | None = None
    done: int = 0
    total: int | None = None
    watching: str = "off"  # off | native | polling
    degraded: tuple[str, ...] = ()  # sentences: what does not work as it should, and why


IDLE = Activity()
