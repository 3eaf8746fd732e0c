"""When a memory was said, holds, and happened: what follows for its columns from a text and its moment."""

from ctx.clock import DAY_MS, ahead_of_utc_ms
from ctx.errors import BadRequest
from ctx.memory.columns import Memory
from ctx.memory.dates import happened
from ctx.memory.filters import Condition
from ctx.memory.reader import UNDELETED
from ctx.memory.writer import Writer
from ctx.models import JSON


def zone_ms(timestamp: JSON) -> int:
    """By how much clocks are ahead of UTC where a moment was given; 0 where it does not name a zone."""
    return ahead_of_utc_ms(timestamp) if isinstance(timestamp, str) else 0


def read_times(text: str, said_ms: int, ahead_ms: int) -> dict[str, JSON]:
    """When what a text tells of happened, as the columns of it; none where it does not say. `ahead_ms`: of
    UTC, where it was said.
    """
    span = happened(text, said_ms, ahead_ms)
    return {} if span is None else {"event_ms": span.first_ms, "event_last_ms": span.last_ms}


_NO_TIMES: dict[str, JSON] = {"event_ms": None, "event_last_ms": None}
_HOUR_MS = 3_600_000
# Everywhere it is the day of UTC, the next one or the one before: these zones stand for all.
_ZONES_MS = (0, 14 * _HOUR_MS, -12 * _HOUR_MS)


def _zone_of(memory: Memory) -> int | None:
    """By how much a zone in which a memory's days were read from its text is ahead of UTC; None: they were
    given. The zone itself is not kept.
    """
    times = {"event_ms": memory.event_ms, "event_last_ms": memory.event_last_ms}
    for ahead_ms in _ZONES_MS:
        if _NO_TIMES | read_times(memory.text, memory.uttered_ms, ahead_ms) == times:
            return ahead_ms
    return None


def followed(memory: Memory, changes: dict[str, JSON], timestamp: JSON) -> dict[str, JSON]:
    """Changes with those that follow from them. Raises `BadRequest` for a span that ends before it begins."""
    if "context" in changes and "contexts" not in changes:
        changes["contexts"] = [name for name in memory.contexts if name != changes["context"]]
    changes |= _following_times(memory, changes, timestamp)
    if "event_ms" in changes or "event_last_ms" in changes:
        revised = memory._replace(**changes)
        check_span(revised.event_ms, revised.event_last_ms)
    return changes


def _following_times(memory: Memory, changes: dict[str, JSON], timestamp: JSON) -> dict[str, JSON]:
    """The changes to an event's time that follow from other changes: a given day clears the last day, and a
    time read from the text is read again. `timestamp`: the moment as the caller gave it.
    """
    if "event_ms" in changes:
        return {} if "event_last_ms" in changes else {"event_last_ms": None}
    if "event_last_ms" in changes or changes.keys().isdisjoint(("text", "said_ms")):
        return {}
    ahead_ms = _zone_of(memory)
    if ahead_ms is None:
        return {}
    corrected_memory = memory._replace(**changes)
    named_ms = zone_ms(timestamp)
    if named_ms or changes.get("said_ms", memory.uttered_ms) != memory.uttered_ms:
        ahead_ms = named_ms
    times = _NO_TIMES | read_times(corrected_memory.text, corrected_memory.uttered_ms, ahead_ms)
    return {name: value for name, value in times.items() if getattr(memory, name) != value}


def said_by_now(columns: dict[str, JSON], now_ms: int) -> dict[str, JSON]:
    """The columns, with a said time more than a day in the future moved to the event's time."""
    said_ms = columns.get("said_ms")
    if said_ms is None or said_ms <= now_ms + DAY_MS:
        return columns
    others = {name: value for name, value in columns.items() if name != "said_ms"}
    return {**others, "event_ms": columns.get("event_ms") or said_ms}


def check_span(first_ms: int | None, last_ms: int | None) -> None:
    if first_ms is not None and last_ms is not None and last_ms < first_ms:
        raise BadRequest("event_end: must not be before event_date")


def hold_since(writer: Writer, memory: Memory, said_ms: int) -> dict[str, JSON]:
    """The validity of a memory whose said time was corrected. Also sets the end of the memory it replaced."""
    if memory.valid_from_ms != memory.uttered_ms and said_ms > memory.valid_from_ms:
        return {}  # it was said before, too
    outdated = Condition("m.superseded_by = ?", (memory.id,))
    for older in list(writer.select([UNDELETED, outdated])):
        writer.patch(older, {"valid_to_ms": max(said_ms, older.valid_from_ms)})
    following: dict[str, JSON] = {"valid_from_ms": said_ms}
    successor = writer.row(memory.superseded_by) if memory.superseded_by else None
    if successor is not None:
        following["valid_to_ms"] = max(successor.valid_from_ms, said_ms)
    return following
