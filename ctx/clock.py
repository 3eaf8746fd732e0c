"""Converts times between milliseconds since 1970 (UTC) and ISO 8601."""

import time
from datetime import UTC, date, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN_EPOCH = _EPOCH.replace(tzinfo=None)  # arithmetic without a time zone takes half the time
DAY_MS = 86_400_000
# The first and last millisecond of the years 1 to 9999, because years in ISO 8601 have four digits.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def iso_utc(ms: int) -> str:
    """A time in ISO 8601, in UTC with `Z`. Milliseconds are left out if they are zero: 0 gives
    `1970-01-01T00:00:00Z`. Raises `OverflowError` outside the years 1 to 9999.
    """
    moment = _PLAIN_EPOCH + timedelta(0, 0, 0, ms)
    return moment.isoformat("T", "milliseconds" if ms % 1000 else "seconds") + "Z"


def told_ms(ms: int) -> int:
    """The time, moved into the years 1 to 9999 if it is outside them, so that `iso_utc` can write it. Times
    from file systems and git may be outside this range.
    """
    return min(max(ms, _FIRST_MS), _LAST_MS)


def parse_ms(text: str, *, end_of_day: bool = False) -> int:
    """Parses an ISO 8601 date or time to milliseconds since the epoch. A time without a zone is in UTC.

    A date without a time means its first millisecond, or with `end_of_day` its last. Raises `ValueError`,
    also for a time outside the years 1 to 9999 in UTC.
    """
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    if end_of_day and _is_day(text.strip()):
        ms += DAY_MS - 1
    if not _FIRST_MS <= ms <= _LAST_MS:
        raise ValueError("the time is not in the years 1 to 9999 in UTC")
    return ms


def _is_day(text: str) -> bool:
    """Whether the text is a date without a time: `2026-01-31`, `20260131`, `2026-W05-6`."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def ahead_of_utc_ms(text: str) -> int:
    """The UTC offset of an ISO 8601 time, in milliseconds; 0 if the time has no offset. Raises
    `ValueError`.
    """
    offset = datetime.fromisoformat(text.strip()).utcoffset()
    return 0 if offset is None else offset // timedelta(milliseconds=1)


def now_ms() -> int:
    """The current time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
