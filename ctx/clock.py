"""Times as the outside writes them."""

import time
from datetime import UTC, date, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN_EPOCH = _EPOCH.replace(tzinfo=None)  # counted from in half the time
DAY_MS = 86_400_000
# Of the years 1 to 9999, which ISO 8601 writes in four digits.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def iso_utc(ms: int) -> str:
    """ISO 8601 in UTC with `Z`; milliseconds only where there are any. 0 gives `1970-01-01T00:00:00Z`.

    Raises `OverflowError` for what is no time of the years 1 to 9999.
    """
    moment = _PLAIN_EPOCH + timedelta(0, 0, 0, ms)
    return moment.isoformat("T", "milliseconds" if ms % 1000 else "seconds") + "Z"


def told_ms(ms: int) -> int:
    """The nearest moment that `iso_utc` can tell: file systems and git keep whatever number one was given."""
    return min(max(ms, _FIRST_MS), _LAST_MS)


def parse_ms(text: str, *, end_of_day: bool = False) -> int:
    """Milliseconds since the epoch of an ISO 8601 date or time; a time without a zone is UTC.

    A bare date is its first millisecond, or its last with `end_of_day`. Raises `ValueError`, also for what
    is no time of the years 1 to 9999 in UTC.
    """
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    if end_of_day and _is_day(text.strip()):
        ms += DAY_MS - 1
    if not _FIRST_MS <= ms <= _LAST_MS:
        raise ValueError("a time before the year 1 or behind 9999 in UTC")
    return ms


def _is_day(text: str) -> bool:
    """Whether a date stands alone, in any of its forms: `2026-01-31`, `20260131`, `2026-W05-6`."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def ahead_of_utc_ms(text: str) -> int:
    """By how many milliseconds clocks are ahead of UTC where an ISO 8601 time was written; 0 where it does
    not say. Raises `ValueError`.
    """
    offset = datetime.fromisoformat(text.strip()).utcoffset()
    return 0 if offset is None else offset // timedelta(milliseconds=1)


def now_ms() -> int:
    """The time of day in milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000
