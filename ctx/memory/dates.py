"""Parses the time that a sentence names, in English, German, Spanish or French: dates, months, years,
weekdays, "last week", "three days ago", "since May".

A day or month without a year means the next one in a sentence about the future, the latest one in a sentence
about the past, and otherwise the nearest one. Words that are not clearly a time are ignored; no text raises
an error. A `Window` has its first and last moment in milliseconds since the epoch, UTC.
"""

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import NamedTuple

from ctx.clock import DAY_MS, parse_ms
from ctx.memory.calendar_words import MONTHS, NUMBER, NUMBERS, RECURRING, WEEKDAYS, in_english, tense

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_TEXT = 2000  # only the first characters of a sentence are parsed
LEAP_GAP = 8  # years; the longest gap between two 29ths of February


class Window(NamedTuple):
    """A period of time, both ends included. None for an open end ("since May")."""

    first_ms: int | None
    last_ms: int | None


class Seen(NamedTuple):
    """The moment that times in a text are relative to, and the tense of the text: "ahead" (future), "past",
    or None if unknown.
    """

    now_ms: int
    tense: str | None


_Read = Callable[[re.Match[str], Seen], Window | None]
_month = (
    r"(?P<month>" + "|".join(f"{name}|{name[:3]}\\.?" for name in MONTHS if name != "may") + "|may|sept\\.?)"
)
_unit = r"(?P<unit>minute|hour|day|week|month|year)s?"
_POINT = (
    r"(?:\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
    r"|\d{4}-\d{2}(?![-\d])|(?:(?:\d{1,2}(?:st|nd|rd|th)?\s+)?[a-z]{3,9}\.?(?:\s+\d{1,2}(?:st|nd|rd"
    r"|th)?)?,?\s+)?\d{4}"
    r"|today|yesterday|last\s+[a-z]+|this\s+[a-z]+|[a-z0-9 ]{1,12}\s+[a-z]+\s+ago"
    r"|[a-z]{3,9}(?:\s+\d{1,2}(?:st|nd|rd|th)?)?)"
)


def window(text: str, now_ms: int) -> Window | None:
    """The first period named in a text, relative to `now_ms`; None if it names none."""
    text = text[:MAX_TEXT]
    seen = Seen(now_ms, tense(text))
    text = in_english(text.lower())
    readings = (_reading(pattern, read, text, seen) for pattern, read in _RANGES)
    first = next(filter(None, readings), None)
    return _single(text, seen) if first is None else first[1]


def happened(text: str, said_ms: int, ahead_of_utc_ms: int = 0) -> Window | None:
    """The time of the event in a statement: the first period it names, relative to when it was said.

    None if the text names no period, a period with an open end, or a recurring time. Days are local days of
    the speaker, whose UTC offset is `ahead_of_utc_ms`.
    """
    if RECURRING.search(text[:MAX_TEXT]):
        return None
    span = window(text, said_ms + ahead_of_utc_ms)
    if span is not None and not _is_whole_days(span):
        span = window(text, said_ms)
    return None if span is None or None in span else span


def _is_whole_days(span: Window) -> bool:
    first_ms, after_ms = span.first_ms or 0, (span.last_ms or -1) + 1
    return first_ms % DAY_MS == 0 and after_ms % DAY_MS == 0


def _reading(pattern: re.Pattern[str], read: _Read, text: str, seen: Seen) -> tuple[int, Window] | None:
    """The position and the period of the first valid match of a pattern; None without one."""
    for match in pattern.finditer(text):
        try:
            span = read(match, seen)
        except (ValueError, OverflowError):
            continue  # no such day, such as 31 February
        if span is not None:
            return match.start(), span
    return None


def _single(text: str, seen: Seen) -> Window | None:
    """The first period in a text. Ranges such as "from May to July" are not recognised."""
    readings = [_reading(pattern, read, text, seen) for pattern, read in _SINGLES]
    return min(filter(None, readings), key=itemgetter(0), default=(0, None))[1]


def _moment(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _day(now_ms: int) -> datetime:
    return _moment(now_ms).replace(hour=0, minute=0, second=0, microsecond=0)


def _span(first: datetime, after: datetime) -> Window:
    return Window(_ms(first), _ms(after) - 1)


def _days(first: datetime, count: int = 1) -> Window:
    return _span(first, first + timedelta(days=count))


def _days_from(seen: Seen, days: int) -> Window:
    """The day that is so many days after today."""
    return _days(_day(seen.now_ms) + timedelta(days=days))


def _month_after(first: datetime, months: int = 1) -> datetime:
    index = first.year * 12 + first.month - 1 + months
    return first.replace(year=index // 12, month=index % 12 + 1, day=1)


def _count(match: re.Match[str]) -> int:
    word = " ".join(match["count"].split())
    return int(word) if word.isdigit() else NUMBERS[word]


def _iso(match: re.Match[str], seen: Seen) -> Window:
    moment = match[0].upper().replace(" ", "T")
    return Window(parse_ms(moment), parse_ms(moment, end_of_day=True))


def _named_day_or_month(match: re.Match[str], seen: Seen) -> Window:
    if "day" in match.groupdict():
        return _days(_dated(match, int(match["day"]), seen))
    first = _dated(match, 1, seen)
    return _span(first, _month_after(first))


def _dated(match: re.Match[str], day: int, seen: Seen) -> datetime:
    """A day in the month and the year that a match names.

    Without a year: the next one if the text is about the future, the last one if it is about the past, else
    the nearest. Raises `ValueError` if the day does not exist, such as 31 February.
    """
    month = [name[:3] for name in MONTHS].index(match["month"][:3]) + 1
    if match["year"]:
        return datetime(int(match["year"]), month, day, tzinfo=UTC)
    today, this_year = _day(seen.now_ms), _day(seen.now_ms).year
    candidates = [
        datetime(year, month, day, tzinfo=UTC)
        for year in range(max(this_year - LEAP_GAP, 1), min(this_year + LEAP_GAP, 9998) + 1)
        if day <= monthrange(year, month)[1]
    ]
    if "day" not in match.groupdict():  # only a month is named: compare it with the current month
        today = today.replace(day=1)
    return _nearest(candidates, today, seen.tense)


def _nearest(candidates: list[datetime], today: datetime, tense: str | None) -> datetime:
    """The candidate that is nearest to today, on the side that the tense requires. Raises `ValueError`."""
    if tense is not None:
        candidates = [day for day in candidates if (day >= today if tense == "ahead" else day <= today)]
    return min(candidates, key=lambda candidate: (abs(candidate - today), candidate))


def _day_of_month(match: re.Match[str], seen: Seen) -> Window:
    day, today = int(match["day"]), _day(seen.now_ms)
    months = (_month_after(today, shift) for shift in range(-2, 3))
    days = [first.replace(day=day) for first in months if day <= monthrange(first.year, first.month)[1]]
    return _days(_nearest(days, today, seen.tense))


def _year(match: re.Match[str], seen: Seen) -> Window:
    """The year that a match names, or the month of it if the match has the group `number`."""
    number = match.groupdict().get("number")
    first = datetime(int(match["year"]), int(number or 1), 1, tzinfo=UTC)
    return _span(first, _month_after(first, 1 if number else 12))


def _unit_start(unit: str, now_ms: int) -> datetime:
    today = _day(now_ms)
    if unit == "week":
        return today - timedelta(days=today.weekday())
    return {"month": today.replace(day=1), "year": today.replace(month=1, day=1)}.get(unit, today)


def _calendar(match: re.Match[str], seen: Seen) -> Window:
    unit = match["unit"]
    shift = {"next": 1, "last": -1, "previous": -1}.get(match["which"], 0)
    if unit == "weekend":
        monday = _units_after(_unit_start("week", seen.now_ms), "week", shift)
        return _days(monday + timedelta(days=5), 2)
    first = _units_after(_unit_start(unit, seen.now_ms), unit, shift)
    return _span(first, _units_after(first, unit, 1))


def _units_after(first: datetime, unit: str, count: int) -> datetime:
    """The start of the week, month or year that is `count` units after the one that starts at `first`."""
    if unit == "week":
        return first + timedelta(days=7 * count)
    return _month_after(first, count if unit == "month" else 12 * count)


def _last_weekday(match: re.Match[str], seen: Seen) -> Window:
    ahead = WEEKDAYS.index(match["weekday"]) - _day(seen.now_ms).weekday()
    side = "next" if match["side"] in ("on", "am", "") and seen.tense == "ahead" else match["side"]
    return _days_from(seen, {"next": ahead % 7 or 7, "this": ahead}.get(side, ahead % 7 - 7))


def _bare_weekday(match: re.Match[str], seen: Seen) -> Window | None:
    # Without a tense it could be the next or the last weekday.
    return _last_weekday(match, seen) if seen.tense else None


def _weekdays_ago(match: re.Match[str], seen: Seen) -> Window:
    ahead = WEEKDAYS.index(match["weekday"]) - _day(seen.now_ms).weekday()
    return _days_from(seen, ahead % 7 - 7 * _count(match))


def _season(match: re.Match[str], seen: Seen) -> Window:
    year = int(match["year"] or _moment(seen.now_ms).year)
    first = datetime(year, _SEASONS[match["season"]], 1, tzinfo=UTC)
    if not match["year"] and (
        _ms(first) > seen.now_ms or (match["which"] == "last" and _ms(_month_after(first, 3)) > seen.now_ms)
    ):
        first = first.replace(year=year - 1)
    return _span(first, _month_after(first, 3))


def _ahead(match: re.Match[str], seen: Seen) -> Window:
    count, unit = _count(match), match["unit"]
    if unit in ("month", "year"):
        first = _units_after(_day(seen.now_ms), unit, count)
        return _span(first, _month_after(first))
    return _days(_day(_ms(_moment(seen.now_ms) + timedelta(**{f"{unit}s": count}))))


def _back(moment: datetime, count: int, unit: str) -> datetime:
    if unit in ("month", "year"):
        first = _units_after(moment, unit, -count)
        return first.replace(day=min(moment.day, monthrange(first.year, first.month)[1]))
    return moment - timedelta(**{f"{unit}s": count})


def _ago(match: re.Match[str], seen: Seen) -> Window:
    unit = match["unit"]
    moment = _back(_moment(seen.now_ms), _count(match), unit)
    if unit in ("minute", "hour"):
        hour = moment.replace(minute=0, second=0, microsecond=0)
        return _span(hour, hour + timedelta(hours=1))
    if unit == "week":  # "two weeks ago" is accurate to a few days
        return _days(_day(_ms(moment)) - timedelta(days=3), 7)
    first = _unit_start(unit, _ms(moment))
    return _days(first) if unit == "day" else _span(first, _units_after(first, unit, 1))


def _recent(match: re.Match[str], seen: Seen) -> Window:
    count = _count(match) if "count" in match.groupdict() else 1
    return Window(_ms(_back(_moment(seen.now_ms), count, match["unit"])), seen.now_ms)


_YEAR = re.compile(r"\d{4}")


def _between(match: re.Match[str], seen: Seen) -> Window | None:
    first, last = _single(match["first"], seen), _single(match["last"], seen)
    if first is None or last is None or first.first_ms is None or last.last_ms is None:
        return None
    year = _YEAR.search(match["last"])
    backwards = last.last_ms < first.first_ms
    if year and (backwards or not _YEAR.search(match["first"])):
        # "between January and March 2024": the year applies to both ends.
        first = _single(f"{match['first']} {year[0]}", seen) or first
    elif backwards:
        first = last
    if first.first_ms is None or last.last_ms < first.first_ms:
        return None
    return Window(first.first_ms, last.last_ms)


def _open_ended(match: re.Match[str], seen: Seen) -> Window | None:
    point = _single(match["point"], seen)
    if point is None or point.first_ms is None or point.last_ms is None:
        return None
    return {
        "since": Window(point.first_ms, None),
        "after": Window(point.last_ms + 1, None),
        "before": Window(None, point.first_ms - 1),
        "until": Window(None, point.last_ms),
    }[match["side"]]


_NEAR_DAYS = {
    **dict.fromkeys(("today", "tonight", "this morning", "this afternoon", "this evening"), 0),
    **dict.fromkeys(("yesterday", "last night"), -1),
    **dict.fromkeys(("the day before yesterday", "day before yesterday"), -2),
    "tomorrow": 1,
    **dict.fromkeys(("the day after tomorrow", "day after tomorrow"), 2),
}
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_WEEKDAY = rf"(?P<weekday>{'|'.join(WEEKDAYS)})"


def _compiled(*readings: tuple[str, _Read]) -> tuple[tuple[re.Pattern[str], _Read], ...]:
    return tuple((re.compile(pattern), read) for pattern, read in readings)


_RANGES = _compiled(
    (rf"\bbetween\s+(?P<first>{_POINT})\s+and\s+(?P<last>{_POINT})\b", _between),
    (rf"\bfrom\s+(?P<first>{_POINT})\s+(?:to|until|till)\s+(?P<last>{_POINT})\b", _between),
    # "the day before yesterday" is a single day, not an open end.
    (rf"(?<!\bday )\b(?P<side>since|after|before|until)\s+(?P<point>{_POINT})\b", _open_ended),
)
_SINGLES = _compiled(
    (
        r"\b\d{4}-\d{2}-\d{2}(?:[t ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:z|[+-]\d{2}:?\d{2})?)?(?!\d)",
        _iso,
    ),
    (r"\b(?P<year>\d{4})-(?P<number>\d{2})(?![-\d])", _year),
    (
        rf"\b{_month}\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s+\(?(?P<year>\d{{4}}))?\b",
        _named_day_or_month,
    ),
    (
        rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.)?\s+(?:of\s+)?{_month}(?:,?\s+\(?(?P<year>\d{{4}}))?\b",
        _named_day_or_month,
    ),
    (rf"\b{_month},?\s+(?P<year>\d{{4}})\b", _named_day_or_month),
    # The name of a month may be another word ("march", "may"), so a preposition or the like must precede it.
    (
        rf"\b(?:in|during|of|last|this|early|late|mid|since|next)[ -]{_month}(?P<year>\b)(?!\s+\d)(?![a-z])",
        _named_day_or_month,
    ),
    (
        r"\b(?:in|during|of|year|early|late|mid|since|before|after|until|between|and|from|to)[ -]"
        r"(?P<year>(?:19|20)\d{2})\b(?!-\d)",
        _year,
    ),
    (r"^\s*(?P<year>(?:19|20)\d{2})\s*$", _year),
    (rf"^\s*{_month}(?P<year>\b)\s*$", _named_day_or_month),
    (
        rf"\b(?:{'|'.join(sorted(_NEAR_DAYS, key=len, reverse=True))})\b",
        lambda match, seen: _days_from(seen, _NEAR_DAYS[match[0]]),
    ),
    (r"\b(?P<which>last|previous|this|next)\s+(?P<unit>weekend|week|month|year)\b", _calendar),
    (rf"\b(?P<side>last|on|this|next|am)\s+{_WEEKDAY}\b", _last_weekday),
    (
        r"\b(?P<which>in|last|this|during|over|early|late)\s+(?:the\s+)?"
        r"(?P<season>spring|summer|autumn|fall|winter)(?:\s+(?:of\s+)?\(?(?P<year>\d{4}))?\b"
        # "summer holidays" and the like recur every year.
        r"(?!\s+(?:holidays?|vacations?|break|term|camp|school|sales?)\b)",
        _season,
    ),
    (rf"\b(?:in|within)\s+{NUMBER}\s+{_unit}\b(?!\s+ago)", _ahead),
    (rf"\b{NUMBER}\s+{_unit}\s+(?:ago|back)\b", _ago),
    (rf"\b{NUMBER}\s+{_WEEKDAY}s?\s+ago\b", _weekdays_ago),
    (rf"^\s*(?P<side>){_WEEKDAY}\s*$", _last_weekday),
    (
        rf"(?<!\bto )\b(?P<side>){_WEEKDAY}(?=\s+(?:morning|afternoon|evening|night|at)\b|[.!?]?\s*$)",
        _bare_weekday,
    ),
    (
        r"\b(?:on|by)\s+the\s+(?P<day>[1-9]|[12]\d|3[01])(?:st|nd|rd|th)"
        r"(?=\s*(?:[.,;!?)]|$)|\s+(?:at|in|from|i|we|he|she|they|it|and|my|our)\b)",
        _day_of_month,
    ),
    (r"\b(?:the|this)\s+past\s+(?P<unit>week|month|year)\b", _recent),
    (rf"\bvor\s+{NUMBER}\s+{_unit}\b", _ago),
    (rf"\b(?:past|last|previous)\s+{NUMBER}\s+{_unit}\b", _recent),
)
