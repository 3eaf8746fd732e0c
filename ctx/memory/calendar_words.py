"""Words for dates and times in English, German, Spanish and French.

`in_english` translates them to the English words and digits that `dates` parses. `tense` tells whether a text
is about the future or the past. German words that are also English words ("am", "war") are not translated.
"""

import re

from ctx.memory.language import language
from ctx.text.analyze import composed

_NAMES = """
    january february march april may june july august september october november december
    januar februar märz april mai juni juli august september oktober november dezember
    monday tuesday wednesday thursday friday saturday sunday
    one two three four five six seven eight nine ten eleven twelve
"""
MONTHS, GERMAN_MONTHS, WEEKDAYS, _COUNTS = (tuple(line.split()) for line in _NAMES.strip().splitlines())
NUMBERS = {name: count for count, name in enumerate(_COUNTS, 1)} | dict.fromkeys(("a", "an"), 1)
NUMBERS |= dict.fromkeys(("couple of", "a couple of"), 2) | dict.fromkeys(("several", "few", "a few"), 3)
NUMBER = r"(?P<count>\d{1,4}|" + "|".join(sorted(NUMBERS, key=len, reverse=True)) + ")"

_ORDINALS = """
    first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth
    fifteenth sixteenth seventeenth eighteenth nineteenth twentieth twenty-first twenty-second twenty-third
    twenty-fourth twenty-fifth twenty-sixth twenty-seventh twenty-eighth twenty-ninth thirtieth thirty-first
"""
_NAMED_MONTH = "|".join(MONTHS)
_DAY_OF = {name: str(day) for day, name in enumerate(_ORDINALS.split(), 1)}
_ordinal = "|".join(sorted(_DAY_OF, key=len, reverse=True))
# "The third of March" and "March the third", but not "March the third week".
_SPELT_DAY = re.compile(
    rf"\b(?:(?P<day>{_ordinal})(?=\s+of\s+(?:{_NAMED_MONTH}))"
    rf"|(?P<month>{_NAMED_MONTH})\s+the\s+(?P<later>{_ordinal})(?!\s+(?:time|day|week|part|of)\b))\b"
)
# German words, in lower case, with their English translations.
_ENGLISH_OF = {
    "vorgestern": "the day before yesterday", "gestern": "yesterday", "heute": "today",
    "übermorgen": "the day after tomorrow",
    **dict(zip(GERMAN_MONTHS, MONTHS, strict=True)),
    "montag": "monday", "dienstag": "tuesday", "mittwoch": "wednesday", "donnerstag": "thursday",
    "freitag": "friday", "samstag": "saturday", "sonntag": "sunday",
    "letzten": "last", "letzte": "last", "letzter": "last", "letztes": "last", "vorigen": "last",
    "vorige": "last", "voriges": "last", "vergangenen": "last", "vergangene": "last",
    "diesen": "this", "diese": "this", "dieser": "this", "dieses": "this", "diesem": "this",
    "nächsten": "next", "nächste": "next", "nächstes": "next", "kommenden": "next", "kommende": "next",
    "kommendes": "next", "anfang": "early", "mitte": "mid", "ende": "late",
    "woche": "week", "wochen": "weeks", "monat": "month", "monaten": "months", "jahr": "year",
    "jahren": "years", "jahres": "year", "stunden": "hours", "tagen": "days", "einem tag": "one day",
    "im": "in", "seit": "since", "zwischen": "between", "und": "and", "frühling": "spring",
    "frühjahr": "spring", "sommer": "summer", "herbst": "autumn",
    "letzten tagen": "last few days", "letzten wochen": "last few weeks",
    "letzten monaten": "last few months",
    "wochenende": "weekend", "ein": "one", "einem": "one", "einer": "one", "zwei": "two", "drei": "three",
    "vier": "four", "fünf": "five", "sechs": "six", "sieben": "seven", "acht": "eight", "neun": "nine",
    "zehn": "ten", "elf": "eleven", "zwölf": "twelve",
}  # fmt: skip
_GERMAN = re.compile(r"\b(?:" + "|".join(sorted(_ENGLISH_OF, key=len, reverse=True)) + r")\b")
# Spanish and French words, each followed by its translation. A table is used only for texts in its language,
# because some of the words are English too ("mars").
_SPANISH = """
    enero january febrero february marzo march abril april mayo may junio june julio july agosto august
    septiembre september octubre october noviembre november diciembre december lunes monday martes tuesday
    miércoles wednesday jueves thursday viernes friday sábado saturday domingo sunday hoy today ayer yesterday
    anoche yesterday mañana tomorrow semana week semanas weeks mes month meses months año year años years
    día day días days hora hour horas hours pasado last pasada last último last última last próximo next
    próxima next este this esta this en in desde since entre between y and un one una one dos two tres three
    cuatro four cinco five seis six siete seven ocho eight nueve nine diez ten primavera spring verano summer
    otoño autumn invierno winter
"""
_FRENCH = """
    janvier january février february mars march avril april mai may juin june juillet july août august
    septembre september octobre october novembre november décembre december lundi monday mardi tuesday
    mercredi wednesday jeudi thursday vendredi friday samedi saturday dimanche sunday hier yesterday
    demain tomorrow semaine week semaines weeks mois month an year ans years année year jour day jours days
    heure hour heures hours dernier last dernière last passé last passée last prochain next prochaine next
    ce this cette this en in dans in depuis since entre between et and un one une one deux two trois three
    quatre four cinq five six six sept seven huit eight neuf nine dix ten printemps spring été summer
    automne autumn hiver winter
"""
_PHRASES = {
    "es": {
        "antes de ayer": "the day before yesterday",
        "anteayer": "the day before yesterday",
        "pasado mañana": "the day after tomorrow",
        "la mañana": "the morning",
        "esta mañana": "today",
        "esta tarde": "today",
        "esta noche": "today",
        "dentro de": "in",
    },
    "fr": {
        "avant-hier": "the day before yesterday",
        "après-demain": "the day after tomorrow",
        "ce matin": "today",
        "cet après-midi": "today",
        "ce soir": "today",
        "aujourd'hui": "today",
        "aujourd’hui": "today",
    },
}


def _romance(words: str, phrases: dict[str, str]) -> tuple[re.Pattern[str], dict[str, str]]:
    listed = words.split()
    english = dict(zip(listed[::2], listed[1::2], strict=True)) | phrases
    return re.compile(rf"\b(?:{'|'.join(sorted(english, key=len, reverse=True))})\b"), english


# Language -> calendar words that only this language has. A short text may have no other sign of its
# language.
_ONLY_IN = {
    "es": re.compile(
        r"\b(?:ayer|anoche|anteayer|hoy|mañana|hace|dentro de|enero|febrero|junio|julio|septiembre|octubre"
        r"|noviembre|diciembre|lunes|martes|miércoles|jueves|viernes|sábado)\b"
    ),
    "fr": re.compile(
        r"\b(?:demain|aujourd['’]hui|avant-hier|il y a|janvier|février|avril|juillet|août|septembre|octobre"
        r"|novembre|décembre|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche)\b"
    ),
}
# "Morgen" is "tomorrow", but not in "am Morgen", "heute Morgen" or "Montag Morgen".
_MORGEN = re.compile(
    r"(?<!\bam )(?<!\bguten )(?<!\bjeden )(?<!\bdiesen )(?<!\bde[rnm] )(?<!\bheute )(?<!\bgestern )(?<!tag )"
    r"(?<!woch )\bmorgen\b"
)
_ROMANCE = {"es": _romance(_SPANISH, _PHRASES["es"]), "fr": _romance(_FRENCH, _PHRASES["fr"])}
# Patterns for word orders that are still not English after translation ("il y a three days"), and their
# replacements.
_ROMANCE_ORDER = (
    (re.compile(rf"\b(?:hace|il y a)\s+({NUMBER.replace('?P<count>', '?:')}\s+[a-z]+)"), r"\1 ago"),
    (re.compile(rf"\b(week|month|year|{'|'.join(WEEKDAYS)})\s+(last|next)\b"), r"\2 \1"),
    (re.compile(rf"(?<=\d)(?:er)?\s+(?:de\s+)?(?=(?:{'|'.join(MONTHS)})\b)"), " "),
    (re.compile(rf"\b({'|'.join(MONTHS)})\s+del?\s+(?=\d{{4}}\b)"), r"\1 "),
    (re.compile(rf"\bel\s+(?=(?:{'|'.join(WEEKDAYS)})\b)"), "on "),
)
# "Between 1 and 10 November", with the month once or twice.
_day = r"(\d{1,2})(?:st|nd|rd|th|\.)?\s+(?:of\s+)?"
_RANGE = re.compile(
    rf"\b(between|from)\s+(?:the\s+)?{_day}({_NAMED_MONTH})?\s*(and|to|until|till)\s+(?:the\s+)?{_day}"
    rf"({_NAMED_MONTH})\b"
)
_DAY_AND_MONTH = re.compile(r"\b(am|vom|seit|bis|zum)\s+(\d{1,2})\.\s?(\d{1,2})\.(?!\s?\d)")
_SLASHES = re.compile(r"(?<![\w/])(\d{1,4})/(\d{1,2})/(\d{1,4})(?![\w/])")
_DAY_MONTH_YEAR = re.compile(r"\b(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{4})\b")


# Words that show whether a text is about the future or the past. The first table with a match decides:
# _WILL_BE (future), then _WAS (past), then _IS (future).
_WILL_BE = {
    "en": "will shall 'll postponed rescheduled extended upcoming",
    "de": "wird werden verschoben verlegt verlängert",
    "es": "será serán aplazado aplazada",
    "fr": "sera seront reporté reportée",
}
_WAS = {
    "en": """
        was were had did been done ago yesterday missed ran met saw came went got gave took made said told
        left bought sold sent spent won lost paid found felt kept held led wrote began broke flew drove ate
        drank spoke taught thought heard built brought caught chose fell grew knew rode sang slept stood swam
        wore became
    """,
    "de": "war waren hatte hatten wurde wurden worden gestern kam kamen ging gingen gab sah traf fuhr fand",
    "es": "fue fueron era estaba estuvo había ayer fui pasó hice vi llegué nací compré salí venció",
    "fr": "était étaient étais fut eut hier né née allé allée parti partie fait venu venue passé",
}
_IS = {
    "en": """
        is are 'm 're have has must should need needs due deadline until till appointment expires booked
        scheduled planned plan plans remind remember forget starts begins ends opens closes leaves departs
        arrives going
    """,
    "de": """
        ist sind bin habe haben hat muss müssen soll sollen fällig frist abgabe termin bis beginnt endet
        geplant
    """,
    "es": "es son está vence vencen plazo hasta cita tengo tenemos hay empieza termina",
    "fr": "est sont ai avons doit dois commence finit échéance prévu prévue jusqu",
}
# "-ed", the German participle, the Spanish preterite (but not the future in -ré) and the French perfect.
# German nouns begin with a capital and do not match.
_WAS_FORMS = {
    "en": r"|\b[a-z]{3,}ed\b",
    "de": r"|\b[a-zäöüß]*(?:ge|ver|be|er|ent|zer)[a-zäöüß]{2,}(?:t|en)\b|\b[a-zäöüß]+iert\b",
    "es": r"|\b(?!aquí|así|allí|ahí|café)\w{2,}(?<![aei]r)[éíó]\b|\b\w+(?:aron|ieron)\b",
    "fr": r"|\b(?:ai|as|a|avons|avez|ont)\s+"
    r"(?:\w+ée?s?|vu|lu|eu|reçu|perdu|vendu|dit|fait|mis|pris|écrit|fini)\b",
}


def _any_of(words: str, forms: str = "") -> re.Pattern[str]:
    listed = "|".join(sorted(words.split(), key=len, reverse=True)).replace("'", "['’]")
    return re.compile(rf"(?:(?<!\w)(?=\w)|(?=['’]))(?i:{listed})\b{forms}")


_TENSES = {
    name: (
        _any_of(_WILL_BE[name]),
        _any_of(_WAS[name], _WAS_FORMS.get(name, "")),
        _any_of(_IS[name]),
    )
    for name in _WAS
}
# Words for recurring events: "every Friday" is not a single day.
RECURRING = re.compile(
    r"(?i)\b(?:every|each|always|usually|weekly|daily|monthly|yearly|annually|jeden|jede|jedes|immer|cada|todos"
    r"|chaque|tous|toutes)\b"
)


def tense(text: str) -> str | None:
    """Whether a text is about the future ("ahead") or the past ("past"); None if it does not say."""
    will_be, was, present = _TENSES[_calendar_language(text.lower())]
    if will_be.search(text):
        return "ahead"
    # "booked" and "beginnt" look like past forms but are about the present, so they do not count as past.
    if any(not present.fullmatch(match[0]) for match in was.finditer(text)):
        return "past"
    return "ahead" if present.search(text) else None


def _calendar_language(text: str) -> str:
    """The language of a text, which must be in lower case. If in doubt, its calendar words decide."""
    name = language(text)
    matches = (other for other, words in _ONLY_IN.items() if name == "en" and words.search(composed(text)))
    return next(matches, name)


def in_english(text: str) -> str:
    """Translates the words for dates and times in a text to English. The text must be in lower case."""
    text = _DAY_MONTH_YEAR.sub(lambda day: f"{day[3]}-{int(day[2]):02d}-{int(day[1]):02d}", composed(text))
    text = _SLASHES.sub(_with_dashes, text)
    text = _SPELT_DAY.sub(_in_digits, text)
    text = _DAY_AND_MONTH.sub(_with_month, text)
    name = _calendar_language(text)
    if name in _ROMANCE:
        form, words = _ROMANCE[name]
        text = form.sub(lambda match: words[match[0]], text)
        for order, english in _ROMANCE_ORDER:
            text = order.sub(english, text)
    else:
        text = _MORGEN.sub("tomorrow", text) if name == "de" else text
        text = _GERMAN.sub(lambda match: _ENGLISH_OF[match[0]], text)
    return _RANGE.sub(_of_two_days, text)


def _with_dashes(match: re.Match[str]) -> str:
    """A date with slashes as an ISO date; unchanged if day and month are ambiguous ("11/03/2026")."""
    first, second, third = map(int, match.groups())
    if first > 999:
        year, month, day = first, second, third
    else:
        year, month, day = (third, second, first) if first > len(MONTHS) else (third, first, second)
    is_clear = year > 999 and (year == first or max(first, second) > len(MONTHS))
    return f"{year}-{month:02d}-{day:02d}" if is_clear else match[0]


def _in_digits(match: re.Match[str]) -> str:
    return _DAY_OF[match["day"]] if match["day"] else f"{match['month']} {_DAY_OF[match['later']]}"


def _with_month(match: re.Match[str]) -> str:
    month = int(match[3])
    return f"{match[1]} {match[2]} {MONTHS[month - 1]}" if 1 <= month <= len(MONTHS) else match[0]


def _of_two_days(match: re.Match[str]) -> str:
    side, first, month, between, last, last_month = match.groups()
    return f"{side} {month or last_month} {first} {between} {last_month} {last}"
