"""What is shown of a text: where the query's words stand in it, and the window that holds most of them.

Texts are looked through by hand: `re` would be 4 ms of a search from the command line, an eighth of it.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from operator import itemgetter

from ctx import analyze
from ctx.markup import plain, without_asides
from ctx.text import Joined
from ctx.types import ChunkRow

SNIPPET_CHARS = 240
_STOPS, _FULL_STOPS = ".!?…", "。！？"  # the first end a sentence where a space follows
_CLOSERS = "\"'’”)]"
_LEAD_CHARS = 60  # shown before the first matching word at most, where no sentence begins nearer
# From Thai on scripts put no spaces between words, or are cut like those that do not.
_FIRST_UNSPACED = "\u0e00"
# From so many on a query with punctuation may be a line that was copied; without it, of twice as many.
_LINE_WORDS = 3
# Of what it says, which a text has at least that has the line: not every part of a name stands alone in it.
_LINE_SHARE = 0.5
_WORDS = re.compile(r"[^\W_]+")  # as the index parts them

Terms = int  # a set of a query's terms: bit i says that the i-th is in it. A search unites thousands of them


Mark = tuple[int, int, Terms]
"""A word [start, end) of a text that the query has, and which of the query's terms it is: no named tuple, for
these are taken apart in half the time.
"""


Snippet = tuple[str, tuple[tuple[int, int], ...]]
"""What is shown of a chunk, and the spans [start, end) of it that are the query's words."""


class _Shares(dict[Terms, float]):
    """How much of what a query says some of its terms are, in [0, 1]: a rare one is more than a common
    one.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self[0] = 0.0
        self._weights = weights
        self._total = sum(weights) or 1.0

    def __missing__(self, terms: Terms) -> float:
        present = [weight for i, weight in enumerate(self._weights) if terms >> i & 1]
        share = self[terms] = sum(present) / self._total
        return share


class Matcher:
    """Finds a query's terms in texts, fast enough to be done for every chunk that may be shown.

    A stem begins its word but for a last letter (happi, happy), so texts are looked through for beginnings,
    and only the words found so are analysed. `weights` tell how much each term says (its rarity); one that
    they lack counts 1. `phrases` are terms that are asked for side by side, `line` is a query that may have
    been copied from a text.
    """

    def __init__(
        self,
        terms: Sequence[str],
        weights: Mapping[str, float],
        snippet_chars: int = SNIPPET_CHARS,
        phrases: Sequence[Sequence[str]] = (),
        line: str = "",
    ) -> None:
        words = line.lower().split()
        marked = not line.replace(" ", "").replace("?", "").isalnum()
        self.line = " ".join(words) if len(words) >= (_LINE_WORDS if marked else 2 * _LINE_WORDS) else ""
        self.phrases = [list(phrase) for phrase in phrases]
        self.terms = list(dict.fromkeys(terms))
        self._snippet_chars = snippet_chars
        self._bits = {term: 1 << i for i, term in enumerate(self.terms)}
        beginnings = [(bit, analyze.beginning(term)) for term, bit in self._bits.items()]
        self._beginnings = [(bit, part, f" {part}") for bit, part in beginnings]
        self._parts = sorted({part for _, part in beginnings}, key=len, reverse=True)
        self._terms_of: dict[str, Terms] = {}  # a word of a text -> which terms of the query it is
        self.shares = _Shares([weights.get(term, 1.0) for term in self.terms])
        self._terms_of_headings: dict[str, Terms] = {"": 0}

    def terms_in(self, text: str) -> Terms:
        """The terms that words of the text seem to begin with."""
        low = text.lower() if text.isascii() else analyze.folded(text)
        terms = 0
        for bit, part, spaced_part in self._beginnings:
            # Few are in a text, and before most of those a word has ended.
            if part in low and (spaced_part in low or begins_word(low, part, text, low.find(part))):
                terms |= bit
        return terms

    def terms_of(self, texts: list[str]) -> list[Terms]:
        """`terms_in` of each text. They are looked through as one: a search asks of a hundred, and most have
        few of the words.
        """
        all_ascii = all(map(str.isascii, texts))
        of_ascii = texts if all_ascii else [text if text.isascii() else "" for text in texts]
        joined = Joined(list(map(str.lower, of_ascii)))
        terms = [0] * len(texts)
        for bit, part, _ in self._beginnings:
            for position, start in joined.holding(part):
                low, text = joined.texts[position], of_ascii[position]
                if begins_word(low, part, text, start):
                    terms[position] |= bit
        if not all_ascii:  # of others the places may differ in lower case
            for position, text in enumerate(texts):
                if not text.isascii():
                    terms[position] = self.terms_in(text)
        return terms

    @property
    def verbatim(self) -> bool:
        """Whether the query may ask for words as they were written."""
        return bool(self.phrases or self.line)

    def quotes(self, text: str, terms: Terms) -> bool:
        """Whether a text that has these terms says the query, or a phrase of it, as it was written."""
        if not self.phrases and self.shares[terms] < _LINE_SHARE:
            return False
        return self.phrase_at(" ".join(text.split())) is not None

    def phrase_at(self, text: str) -> int | None:
        """Where a text on one line says the query, or a phrase that it has in quotes; None where it does
        not.
        """
        position = text.lower().find(self.line) if self.line else -1
        if position >= 0:
            return position
        if not self.phrases:
            return None
        stems = analyze.words(text)
        places = [match.start() for match in _WORDS.finditer(text)]
        if len(places) != len(stems):  # a word that is too long for the index is none of its terms
            return None
        for phrase in self.phrases:
            for i in range(len(stems) - len(phrase) + 1):
                if stems[i : i + len(phrase)] == phrase:
                    return places[i]
        return None

    def terms_of_heading(self, heading: str) -> Terms:
        """`terms_in` of a heading, or a path of them, which many chunks have."""
        terms = self._terms_of_headings.get(heading)
        if terms is None:
            terms = self._terms_of_headings[heading] = self.terms_in(heading)
        return terms

    def listed(self, terms: Terms) -> list[str]:
        """The terms of a set, in the query's order."""
        return [term for term, bit in self._bits.items() if terms & bit]

    def marks(self, text: str) -> list[Mark]:
        """Where the words stand, in order and apart."""
        low, origins = _folded(text)
        spaced = low.isascii()
        marks: list[Mark] = []
        read_to = 0
        for start, end in _places(low, self._parts):
            unspaced = not spaced and max(low[start:end]) >= _FIRST_UNSPACED
            if start < read_to and not (unspaced and end > read_to):
                continue
            begin, end = _word(low, start, end, read_to, spaced)
            first, last = (begin, end) if origins is None else (origins[begin], origins[end])
            word = text[first:last]
            terms = self._terms_of.get(word)
            if terms is None:
                terms = self._terms_of[word] = self._terms_of_word(word)
            if not terms:
                # All of the word was looked at: from each of its letters it would be looked at again.
                read_to = read_to if unspaced else end
                continue
            # The pairs of a run overlap: together they are what the query has of it.
            if unspaced and 0 < begin <= read_to and low[read_to - 1] >= _FIRST_UNSPACED:
                opening, _, terms_before = marks.pop()
                first, terms = opening, terms_before | terms
            marks.append((first, last, terms))
            read_to = end
        return sorted(marks + self._snakes(text, low, marks)) if "_" in text else marks

    def _terms_of_word(self, word: str) -> Terms:
        terms = 0
        for term in analyze.terms_of_word(word):
            terms |= self._bits.get(term, 0)
        return terms

    def _snakes(self, text: str, low: str, marks: list[Mark]) -> list[Mark]:
        """Identifiers with underscores that the query has without them, where no part of one is marked
        already.
        """
        absent = [part for part in self._parts if part not in low]
        if not absent:
            return []
        squeezed = low.replace("_", "")
        if not any(part in squeezed for part in absent):
            return []
        snakes = []
        position = 0  # of the first mark that does not end before the identifier
        for start, end in analyze.snake_spans(text):
            while position < len(marks) and marks[position][1] <= start:
                position += 1
            if position < len(marks) and marks[position][0] < end:
                continue
            terms = self._terms_of_word(text[start:end].replace("_", ""))
            if terms:
                snakes.append((start, end, terms))
        return snakes

    def snippets(self, sections: Sequence[tuple[ChunkRow, str]]) -> list[Snippet]:
        """About `snippet_chars` of each chunk, whole words, around most of the query's words; and where those
        stand in it.

        With each comes how its section goes on, for a chunk that is shorter than that. Every step is taken
        for all before the next, as in `evidence.choices_of`.
        """
        lines = self._shown([chunk for chunk, _ in sections])
        windows = [self._window(text, marks) for text, marks in lines]
        snippets = []
        for (chunk, further), (text, marks), (start, end) in zip(sections, lines, windows, strict=True):
            if further and end == len(text) < self._snippet_chars:
                text, marks, end = self._longer(chunk, further, text, marks)
            lead = "…" if start else ""
            snippet = lead + text[start:end] + ("…" if end < len(text) else "")
            shift = len(lead) - start
            inside = [
                (first + shift, last + shift) for first, last, _ in marks if first >= start and last <= end
            ]
            snippets.append((snippet, tuple(inside)))
        return snippets

    def _longer(
        self, chunk: ChunkRow, further: str, text: str, marks: list[Mark]
    ) -> tuple[str, list[Mark], int]:
        """What is shown of a chunk that is shown whole, and until where: with more of its section, unless
        words of the query would go.
        """
        longer, longer_marks = self._shown([chunk._replace(text=f"{chunk.text}\n{further}")])[0]
        end = _window_end(longer, longer_marks, self._snippet_chars)
        if end > len(text) and not _terms_of(marks) & ~_terms_of(longer_marks, end):
            return longer, longer_marks, end
        return text, marks, len(text)

    def _shown(self, chunks: Sequence[ChunkRow]) -> list[tuple[str, list[Mark]]]:
        """Chunks on one line each with the query's words: without the notes beside their text, unless one of
        the words is in these alone.
        """
        texts = list(map(plain, chunks))
        lines = list(zip(texts, map(self.marks, texts), strict=True))
        for i, main in enumerate(map(without_asides, chunks)):
            if main is not chunks[i]:
                text = plain(main)
                marks = self.marks(text)
                if _terms_of(marks) == _terms_of(lines[i][1]):
                    lines[i] = text, marks
        return lines

    def _window(self, text: str, marks: list[Mark]) -> tuple[int, int]:
        """[start, end) of the `snippet_chars` characters that say most of the query, begun at a sentence
        where one is near.
        """
        if len(text) <= self._snippet_chars:
            return 0, len(text)
        phrase = self.phrase_at(text)
        first, until = self._densest(marks) if phrase is None else (phrase, phrase)
        space = text.find(" ", until, until + _LEAD_CHARS)
        until = until if space < 0 else space  # a window ends between words, and a name may go on
        start = 0
        if first > self._snippet_chars // 2:
            sentences = _sentences(text, max(0, first - 2 * _LEAD_CHARS), first)
            begins = [begin for begin in sentences if until - begin <= self._snippet_chars]
            start = begins[0] if begins else text.find(" ", max(0, first - _LEAD_CHARS), first) + 1
            start = start or first
        elif until > self._snippet_chars:  # what is asked for ends beyond the first ones
            start = text.find(" ", until - self._snippet_chars, first) + 1 or first
        return start, _window_end(text, marks, self._snippet_chars, start)

    def _densest(self, marks: list[Mark]) -> tuple[int, int]:
        """Where the words begin that say most together within a window, and until where each was said once;
        of several equals the first.
        """
        densest = 0, 0
        highest, room, last = 0.0, self._snippet_chars - _LEAD_CHARS, 0
        counts: dict[Terms, int] = {}  # of the words in the window, by what terms they are
        terms = 0
        for i, (start, _, leaving) in enumerate(marks):
            while last < len(marks) and marks[last][0] < start + room:
                coming = marks[last][2]
                counts[coming] = counts.get(coming, 0) + 1
                terms |= coming
                last += 1
            value = self.shares[terms] + 0.001 * (last - i)
            if value > highest:
                densest, highest = (i, last), value
            if last == len(marks):  # what begins later has less of the same
                break
            counts[leaving] -= 1
            if not counts[leaving]:
                del counts[leaving]
                terms = 0
                for present in counts:
                    terms |= present
        shown = marks[slice(*densest)]
        terms = until = 0
        for _, end, of_word in shown:
            if of_word & ~terms:
                terms, until = terms | of_word, end
        return (shown[0][0] if shown else 0), until


def _terms_of(marks: Sequence[Mark], end: int = sys.maxsize) -> Terms:
    """The terms that are marked before `end`."""
    terms = 0
    for _, marked_to, of_word in marks:
        if marked_to <= end:
            terms |= of_word
    return terms


def begins_word(low: str, part: str, text: str, start: int) -> bool:
    """Whether some word of a text (`low`: folded, as long as the text or not) begins with `part`: also a
    hump, or an ideograph.

    `start` is where the part is found first.
    """
    while start >= 0:
        if start == 0 or not low[start - 1].isalnum() or low[start] >= _FIRST_UNSPACED:
            return True
        if len(low) == len(text) and text[start].isupper():
            return True
        start = low.find(part, start + 1)
    return False


def _folded(text: str) -> tuple[str, list[int] | None]:
    """The text in lower case without accents; and, where that is not as long, where each of its characters
    comes from.
    """
    if text.isascii():
        return text.lower(), None
    low = analyze.folded(text)
    if len(low) == len(text):
        return low, None
    origins = [i for i, char in enumerate(text) for _ in analyze.folded(char)]
    return low, [*origins, len(text)]


def _places(text: str, parts: Sequence[str]) -> list[tuple[int, int]]:
    """[start, end) of every part in the text, in order; of those of one start, the one that comes first in
    `parts`.
    """
    places: list[tuple[int, int]] = []
    for part in parts:
        start = text.find(part) if part in text else -1  # few are, which `in` tells in a third of the time
        while start >= 0:
            places.append((start, start + len(part)))
            start = text.find(part, start + 1)
    return sorted(places, key=itemgetter(0))


def _word(low: str, start: int, end: int, read_to: int, spaced: bool) -> tuple[int, int]:
    """The whole word around [start, end), where its script has such; `spaced`: all of the text is of one that
    has.
    """
    if spaced:
        while start > read_to and low[start - 1].isalnum():
            start -= 1
        while end < len(low) and low[end].isalnum():
            end += 1
        return start, end
    if max(low[start:end]) >= _FIRST_UNSPACED:
        return start, end
    while start > read_to and low[start - 1].isalnum() and low[start - 1] < _FIRST_UNSPACED:
        start -= 1
    while end < len(low) and low[end].isalnum() and low[end] < _FIRST_UNSPACED:
        end += 1
    return start, end


def _window_end(text: str, marks: list[Mark], size: int, start: int = 0) -> int:
    end = min(len(text), start + size)
    if end == len(text):
        return end
    sentences = _sentences(text, start + size * 2 // 3, end)
    covered = max([marked_to for _, marked_to, _ in marks if marked_to <= end], default=0)
    if sentences and sentences[-1] >= covered:
        end = sentences[-1]
    else:
        space = text.rfind(" ", start + size // 2, end + 1)
        end = space if space > 0 else end
    return start + len(text[start:end].rstrip(" "))


def _abbreviates(text: str, position: int) -> bool:
    """Whether the full stop there stands behind a letter alone, as in `i.e.` and `J. Smith`."""
    return position > 1 and text[position - 1].isalpha() and not text[position - 2].isalnum()


def _sentences(text: str, start: int, end: int) -> list[int]:
    """Where sentences begin behind one that ends in [start, end) of a text on one line, at most at `end`."""
    begins = []
    for stop in _STOPS:
        i = text.find(stop, start, end) + 1
        while i:
            closed = i
            while closed < end and text[closed] in _CLOSERS:
                closed += 1
            if closed < end and text[closed] == " " and not _abbreviates(text, i - 1):
                begins.append(closed + 1)
            i = text.find(stop, i, end) + 1
    if not text.isascii():
        begins += [i for i in range(start + 1, end + 1) if text[i - 1] in _FULL_STOPS]
    return sorted(begins)
