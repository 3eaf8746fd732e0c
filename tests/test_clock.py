"""Times as ISO 8601 text."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from ctx.clock import iso_utc, parse_ms


def test_times_are_those_of_the_calendar_in_utc() -> None:
    chance = random.Random(4)
    first, last = parse_ms("0001-01-01"), parse_ms("9999-12-31", end_of_day=True)
    for ms in [first, last, 0, -1, 999, *(chance.randint(first, last) for _ in range(2_000))]:
        text = iso_utc(ms)
        told = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
        assert datetime.fromisoformat(text) == told
        assert text.endswith("Z")
        assert ("." in text) == bool(ms % 1000)
        assert parse_ms(text) == ms
    for beyond in (first - 1, last + 1, 10**18):
        with pytest.raises(OverflowError):
            iso_utc(beyond)
