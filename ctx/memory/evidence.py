"""What a reflection stands on: memories found for a question, their sentences, and how alike they are."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ctx.analyze import STOP_WORDS, beginning, folded, query_terms, terms
from ctx.memory.calendar_words import MONTHS
from ctx.memory.language import silent_terms
from ctx.memory.records import iso
from ctx.types import JSON

MAX_CLAIM_CHARS = 240
MAX_READ_CHARS = 4_000  # of one memory: of a longer one those parts in which the question's words stand
_PART_CHARS = 800
_MAX_PARTS = 5
_MAX_TERMS = 64  # of a question that are looked for, the longest
_MAX_MATCHES = 10_000  # of the question's words in one text
SILENT = STOP_WORDS | {"user"}  # half of all memories begin with it

# A full stop ends no sentence after the number of a day ("am 15. Februar") or a title.
_SENTENCE = re.compile(
    r"(?<=[.!?。！？])(?<!\b\d\.)(?<!\b\d\d\.)(?<!\b(?:Dr|Mr|Ms|St|Hr|Fr|Nr)\.)(?<!\b(?:Mrs)\.)(?<!\bProf\.)\s+"
    r"|\n+"
)

Vector = dict[str, float]


class Evidence(NamedTuple):
    """A memory found for a question; `score` is the search's, in [0, 1]. `replaced` are the statements whose
    place it took: id, text and when each was said."""

    id: str
    text: str
    context: str | None
    event_ms: int | None
    uttered_ms: int
    score: float
    flags: tuple[str, ...] = ()
    replaced: tuple[tuple[str, str, int], ...] = ()

    @property
    def when_ms(self) -> int:
        return self.uttered_ms if self.event_ms is None else self.event_ms

    def cited(self) -> JSON:
        """The entry of a reply."""
        return {
            "id": self.id,
            "text": shortened(self.text),
            "context": self.context,
            "event_date": None if self.event_ms is None else day(self.event_ms),
            "said": day(self.uttered_ms),
            "score": round(self.score, 4),
        }


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text."""
    return [sentence.strip() for sentence in _SENTENCE.split(text) if sentence.strip()]


def bearing(text: str, query: str) -> str:
    """Those parts of a long text in which the question's words stand, the one with most of them first and
    each part a paragraph of its own; a text without any begins it. A short text is given whole."""
    if len(text) <= MAX_READ_CHARS:
        return text
    places = _places(text, query)
    parts: list[str] = []
    while places and len(parts) < _MAX_PARTS:
        start, stop, words = _fullest(places)
        parts.append(_whole_sentences(text, start, stop))
        places = [(offset, word) for offset, word in places if word not in words]
    return "\n\n".join(parts) or text[:MAX_READ_CHARS]


def _places(text: str, query: str) -> list[tuple[int, str]]:
    """Where a text holds the question's words, and which."""
    silences = SILENT | silent_terms(query)
    asked_terms = {beginning(term) for term in query_terms(query) if term not in silences}
    pattern = "|".join(re.escape(term) for term in sorted(asked_terms, key=len, reverse=True)[:_MAX_TERMS])
    folded_text = folded(text)  # as the terms are
    searched_text = folded_text if len(folded_text) == len(text) else text
    matches = re.finditer(rf"(?i)\b(?:{pattern})", searched_text) if pattern else iter(())
    return [(match.start(), match[0].casefold()) for match in itertools.islice(matches, _MAX_MATCHES)]


def _fullest(places: Sequence[tuple[int, str]]) -> tuple[int, int, set[str]]:
    """Where the first stretch of a part's length begins and ends that holds most of the words, and these."""
    best: tuple[int, int, set[str]] = (0, 0, set())
    counts: Counter[str] = Counter()
    first = 0
    for offset, word in places:
        counts[word] += 1
        while offset - places[first][0] > _PART_CHARS:
            counts[places[first][1]] -= 1
            first += 1
        present = {word for word, count in counts.items() if count}
        if len(present) > len(best[2]):
            best = places[first][0], offset + len(word), present
    return best


def _whole_sentences(text: str, start: int, stop: int) -> str:
    """A stretch of a text from the beginning of its first sentence to the end of its last, where those are
    near."""
    before, after = text[max(0, start - _PART_CHARS) : start], text[stop : stop + _PART_CHARS]
    head = max((match.end() for match in _SENTENCE.finditer(before)), default=0)
    tail = _SENTENCE.search(after)
    return before[head:] + text[start:stop] + (after if tail is None else after[: tail.start()])


def shortened(text: str) -> str:
    """A text as a claim: one line, not too long."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_CLAIM_CHARS else text[: MAX_CLAIM_CHARS - 1].rstrip() + "…"


def day(ms: int) -> str:
    """A day in ISO 8601."""
    moment = iso(ms)
    return "an unknown date" if moment is None else moment[:10]


def in_words(iso_day: str) -> str:
    """A day in ISO 8601 as one says it, `3 May 2026`; what is none is given back."""
    year, _, month_and_day = iso_day.partition("-")
    month, _, number = month_and_day.partition("-")
    return f"{int(number)} {MONTHS[int(month) - 1].capitalize()} {year}" if number else iso_day


def weighed(texts: Sequence[str]) -> list[Vector]:
    """Unit vectors of tf-idf over these texts; terms in all of them weigh little, stop words nothing."""
    silences = [SILENT | silent_terms(text) for text in texts]
    counts = [
        Counter(term for term in terms(text) if term not in silence and len(term) > 1)
        for text, silence in zip(texts, silences, strict=True)
    ]
    spread = Counter(term for count in counts for term in count)
    rarity = {term: math.log(1 + len(texts) / number) for term, number in spread.items()}
    return [
        _of_unit_length(
            {term: (1 + math.log(number)) * rarity[term] for term, number in sorted(count.items())}
        )
        for count in counts
    ]


def _of_unit_length(vector: Vector) -> Vector:
    length = math.sqrt(sum(weight * weight for weight in vector.values())) or 1.0
    return {term: weight / length for term, weight in vector.items()}


def alike(vector: Vector, second: Vector) -> float:
    """The cosine of two weighed texts."""
    shorter, longer = sorted((vector, second), key=len)
    return sum(weight * longer[term] for term, weight in shorter.items() if term in longer)


def unspoken(query: str, evidence: Sequence[Evidence]) -> list[str]:
    """The question's own words that no evidence holds, in order."""
    texts = [
        text
        for entry in evidence
        for text in (entry.text, entry.context or "", *(older for _, older, _ in entry.replaced))
    ]
    held_terms = {term for text in texts for term in terms(text)} | silent_terms(query)
    words = dict.fromkeys(word.lower() for word in re.findall(r"[^\W_][\w'’-]*", query))
    spoken = [word for word in words if word not in SILENT]
    return [word for word in spoken if (parts := query_terms(word)) and held_terms.isdisjoint(parts)]
