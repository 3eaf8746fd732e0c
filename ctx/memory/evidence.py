"""What a reflection stands on: memories found for a question, their sentences, and how alike they are."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ctx.analyze import STOP_WORDS, query_terms, terms
from ctx.clock import iso_utc
from ctx.memory.language import silent_terms
from ctx.types import JSON

MAX_CLAIM_CHARS = 240
SILENT = STOP_WORDS | {"user"}  # half of all memories begin with it

# A full stop ends no sentence after the number of a day ("am 15. Februar") or a title.
_SENTENCE = re.compile(
    r"(?<=[.!?。！？])(?<!\b\d\.)(?<!\b\d\d\.)(?<!\b(?:Dr|Mr|Ms|St|Hr|Fr|Nr)\.)(?<!\b(?:Mrs)\.)(?<!\bProf\.)\s+|\n+"
)
_MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905

Vector = dict[str, float]


class Evidence(NamedTuple):
    """A memory found for a question; `score` is the search's, in [0, 1]. `replaced` are the statements whose place it took: id, text
    and when each was said."""

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


def shortened(text: str) -> str:
    """A text as a claim: one line, not too long."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_CLAIM_CHARS else text[: MAX_CLAIM_CHARS - 1].rstrip() + "…"


def day(ms: int) -> str:
    """A day in ISO 8601."""
    try:
        return iso_utc(ms)[:10]
    except OverflowError:
        return "an unknown date"


def day_in_words(ms: int) -> str:
    """A day as one says it: `3 May 2026`."""
    year, _, month_and_day = day(ms).partition("-")
    month, _, number = month_and_day.partition("-")
    return f"{int(number)} {_MONTHS[int(month) - 1]} {year}" if number else day(ms)


def weighed(texts: Sequence[str]) -> list[Vector]:
    """Unit vectors of tf-idf over these texts; terms in all of them weigh little, stop words nothing."""
    silences = [SILENT | silent_terms(text) for text in texts]
    counts = [
        Counter(term for term in terms(text) if term not in silence and len(term) > 1)
        for text, silence in zip(texts, silences, strict=True)
    ]
    spread = Counter(term for count in counts for term in count)
    vectors = []
    for count in counts:
        vector = {
            term: (1 + math.log(number)) * math.log(1 + len(texts) / spread[term])
            for term, number in sorted(count.items())
        }
        length = math.sqrt(sum(weight * weight for weight in vector.values())) or 1.0
        vectors.append({term: weight / length for term, weight in vector.items()})
    return vectors


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
    words: list[str] = []
    for match in re.finditer(r"[^\W_][\w'’-]*", query):
        word = match[0].lower()
        word_terms = query_terms(word)
        if word in SILENT or not word_terms or held_terms.intersection(word_terms) or word in words:
            continue
        words.append(word)
    return words
