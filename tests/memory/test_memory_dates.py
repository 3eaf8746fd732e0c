"""Dates and periods named in a sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx.clock import iso_utc, parse_ms
from ctx.memory.dates import Window, happened, window

NOW_MS = parse_ms("2026-03-15T12:00:00Z")  # a Sunday


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("what happened on 2025-03-04?", "2025-03-04", "2025-03-04"),
        ("deployed at 2025-03-04T10:30:00Z", "2025-03-04T10:30:00Z", "2025-03-04T10:30:00Z"),
        ("in 2025-03", "2025-03-01", "2025-03-31"),
        ("decisions of March 2025", "2025-03-01", "2025-03-31"),
        ("March 5, 2025", "2025-03-05", "2025-03-05"),
        ("It slipped to September 30 (2026)", "2026-09-30", "2026-09-30"),
        ("on the first of March", "2026-03-01", "2026-03-01"),
        ("on March the third", "2026-03-03", "2026-03-03"),
        ("two Tuesdays ago", "2026-03-03", "2026-03-03"),
        ("between 1 and 10 March", "2026-03-01", "2026-03-10"),
        ("since Monday", "2026-03-09", None),
        ("in February", "2026-02-01", "2026-02-28"),
        ("in 2024", "2024-01-01", "2024-12-31"),
        ("yesterday's meeting", "2026-03-14", "2026-03-14"),
        ("today", "2026-03-15", "2026-03-15"),
        ("last week", "2026-03-02", "2026-03-08"),
        ("last tuesday", "2026-03-10", "2026-03-10"),
        ("3 days ago", "2026-03-12", "2026-03-12"),
        ("two years ago", "2024-01-01", "2024-12-31"),
        ("between January and March 2025", "2025-01-01", "2025-03-31"),
        ("from 2025-01-01 to 2025-02-01", "2025-01-01", "2025-02-01"),
        ("since 2025-01-01", "2025-01-01", None),
        ("before May 2024", None, "2024-04-30"),
        ("after 2025-01-31", "2025-02-01", None),
        ("until 2025-01-31", None, "2025-01-31"),
        ("the day before yesterday", "2026-03-13", "2026-03-13"),
        ("on 29 February", "2028-02-29", "2028-02-29"),
        ("It broke on 29 February", "2024-02-29", "2024-02-29"),
        ("next sunday", "2026-03-22", "2026-03-22"),
        ("am kommenden Freitag", "2026-03-20", "2026-03-20"),
        ("vor zehn Tagen", "2026-03-05", "2026-03-05"),
        ("¿Qué pasó el 29 de octubre?", "2025-10-29", "2025-10-29"),
        ("Nos reunimos la semana pasada", "2026-03-02", "2026-03-08"),
        ("¿Qué hice el martes pasado?", "2026-03-10", "2026-03-10"),
        ("Llegué a la casa hace tres días", "2026-03-12", "2026-03-12"),
        ("Mañana voy al dentista", "2026-03-16", "2026-03-16"),
        ("Qu'est-ce qui s'est passé le 29 octobre ?", "2025-10-29", "2025-10-29"),
        ("Je suis arrivé il y a trois jours", "2026-03-12", "2026-03-12"),
        ("Qu'ai-je fait mardi dernier ?", "2026-03-10", "2026-03-10"),
    ],
)
def test_a_time_is_read(text: str, first: str | None, last: str | None) -> None:
    results = window(text, NOW_MS)
    assert results is not None
    assert results.first_ms == (None if first is None else parse_ms(first)), results.first_ms and iso_utc(
        results.first_ms
    )
    assert results.last_ms == (None if last is None else parse_ms(last, end_of_day=True)), (
        results.last_ms and iso_utc(results.last_ms)
    )


@pytest.mark.parametrize(
    "text",
    [
        "where do we go in the summer holidays",
        "",
        "Voy al mercado por la mañana",
        "Le mardi je chante dans la chorale",
        "31 February",
        "what do we do",
        "may I march forward",
        "on the second day",
        "version 2024 of it",
        "2025-02-31",
        "port 8080",
        "9999 years ago",
        "mark said so",
        "sun and moon",
    ],
)
def test_other_text_is_not_read_as_a_time(text: str) -> None:
    assert window(text, NOW_MS) is None


FRAGMENTS = [
    "last",
    "this",
    "between",
    "and",
    "since",
    "31",
    "february",
    "2025",
    "9999",
    "-02-",
    "0000",
    "ago",
    "days",
    "a",
    "few",
    "years",
    "12:99",
    "may",
]


@given(st.one_of(st.text(max_size=200), st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(" ".join)))
def test_no_text_raises(text: str) -> None:
    window(text, NOW_MS)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("The tax return is due on 9 January", "2027-01-09"),
        ("Dentist appointment on 20 May", "2026-05-20"),
        ("Die Abgabe ist am 1. April", "2026-04-01"),
        ("The exam will be on 4 March 2025", "2025-03-04"),
        ("I ran the marathon on 20 May", "2025-05-20"),
        ("The report was due on 9 January", "2026-01-09"),
        ("The boat trip yesterday will be remembered", "2026-03-14"),
        ("I will meet Ana on Friday", "2026-03-20"),
        ("Der Termin ist am Freitag", "2026-03-20"),
        ("I met Ana on Friday", "2026-03-13"),
        ("I have to call Ana on Friday", "2026-03-20"),
        ("I have called Ana on Friday", "2026-03-13"),
        ("Am Freitag habe ich Zahnarzt", "2026-03-20"),
        ("Am Freitag habe ich Ana getroffen", "2026-03-13"),
        ("Am Freitag ist der Server abgestürzt", "2026-03-13"),
        ("La fiesta es el viernes", "2026-03-20"),
        ("La fête est le 9 janvier", "2027-01-09"),
        ("Elle est née le 9 janvier", "2026-01-09"),
        ("Team offsite on 20 May", "2026-05-20"),
        ("El 20 de mayo conocí a Ana", "2025-05-20"),
        ("Le 20 mai j'ai rencontré Ana", "2025-05-20"),
        ("Le 20 mai j'ai trois rendez-vous", "2026-05-20"),
        ("The rent is due on the 3rd", "2026-04-03"),
        ("I paid the rent on the 31st", "2026-01-31"),
        ("The meeting is Friday", "2026-03-20"),
        ("We met Friday evening", "2026-03-13"),
        ("Day before yesterday I met Ana", "2026-03-13"),
        ("This afternoon I met Ana", "2026-03-15"),
        ("Morgen treffe ich Ana", "2026-03-16"),
        ("Heute Morgen traf ich Ana", "2026-03-15"),
        ("Ce matin j'ai rencontré Ana", "2026-03-15"),
        ("Ayer llamó Ana", "2026-03-14"),
        ("Hace tres días llamó Ana", "2026-03-12"),
        ("Dentro de dos semanas viene Ana", "2026-03-29"),
        ("We met on 28/11/2025", "2025-11-28"),
        ("We met on 2025/11/28", "2025-11-28"),
        ("We saw the eclipse on 20 May", "2025-05-20"),
    ],
)
def test_a_day_without_a_year_is_the_nearest_the_next_in_a_plan_the_latest_in_the_past(
    text: str, day: str
) -> None:
    assert happened(text, NOW_MS) == Window(parse_ms(day), parse_ms(day, end_of_day=True))


def test_a_range_without_years_lies_ahead_in_a_plan() -> None:
    said_ms = parse_ms("2026-11-28T09:00:00Z")
    assert happened("Deploy freeze from Dec 20 to Jan 3.", said_ms) == Window(
        parse_ms("2026-12-20"), parse_ms("2027-01-03", end_of_day=True)
    )
    assert happened("The kiosk was closed from Dec 20 to Jan 3.", said_ms) == Window(
        parse_ms("2025-12-20"), parse_ms("2026-01-03", end_of_day=True)
    )


@pytest.mark.parametrize(
    ("question", "day"),
    [
        ("What is on Friday?", "2026-03-20"),
        ("What will I do on Friday?", "2026-03-20"),
        ("What did I do on Friday?", "2026-03-13"),
        ("Was ist am Freitag?", "2026-03-20"),
        ("Was war am Freitag?", "2026-03-13"),
        ("Who is on call today?", "2026-03-15"),
    ],
)
def test_a_question_for_what_is_to_come_means_the_day_ahead(question: str, day: str) -> None:
    assert window(question, NOW_MS) == Window(parse_ms(day), parse_ms(day, end_of_day=True))
