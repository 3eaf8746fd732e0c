"""Find a query's words in chunks, and cut the part of a chunk to show."""

import re
import sys
from collections.abc import Mapping, Sequence

from ctx.models import ChunkRow
from ctx.search.markup import plain, without_asides
from ctx.text import analyze

SNIPPET_CHARS = 240
SHOWN_LINES = 5  # of code
MAX_LINE_CHARS = 240  # of a line of code; a longer one is minified, or data
_LEAD_CHARS = 60  # shown at most before the first matching word if no sentence starts nearer
# A query with punctuation and so many words may be a line copied from a text; without punctuation, with twice
# as many.
_LINE_WORDS = 3
_LINE_SHARE = 0.5  # a text with that line has at least so much of the query

_INDEX_WORD = re.compile(r"[^\W_]+")  # as the index splits words
_RUN = re.compile(rf"(?:\w|[{analyze.UNSEEN}])+")
_WORD = re.compile(rf"[^\W_{analyze.UNSPACED}](?:[^\W_{analyze.UNSPACED}]|[{analyze.UNSEEN}])*")
_UNSPACED = re.compile(f"[{analyze.UNSPACED}]")
# The end of a sentence and the space after it; not the full stop of `i.e.` or `J. Smith`.
_SENTENCE_END = re.compile(r"""(?:(?<![\W_][^\W\d_])\.|[!?…])["'’”)\]]* |[。！？]""")

Terms = int
"""A set of the query's terms: bit i stands for the i-th term."""

Mark = tuple[int, int, Terms]
"""A word [start, end) of a text that the query has, and its terms."""

Snippet = tuple[str, tuple[tuple[int, int], ...]]
"""The text shown of a chunk, and the spans [start, end) of it that are words of the query."""


class _Shares(dict[Terms, float]):
    """Set of terms -> their share of the query's total weight, in [0, 1]."""

    def __init__(self, weights: Sequence[float]) -> None:
        self[0] = 0.0
        self._weights = weights
        self._total = sum(weights) or 1.0

    def __missing__(self, terms: Terms) -> float:
        share = self[terms] = sum(w for i, w in enumerate(self._weights) if terms >> i & 1) / self._total
        return share


class Matcher:
    """Finds a query's terms in texts.

    A stem is the beginning of its word except for a last letter (happi, happy), so only words that contain
    the beginning of a term are analysed. `weights` are the terms' rarity, 1 if missing. `phrases` are terms
    to find next to each other, `line` is a query that may be copied from a text.
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
        self.exact = analyze.exact_words(line)
        self.terms = list(dict.fromkeys(terms))
        self.shares = _Shares([weights.get(term, 1.0) for term in self.terms])
        self._snippet_chars = snippet_chars
        self._bits = {term: 1 << i for i, term in enumerate(self.terms)}
        self._beginnings = [(bit, analyze.beginning(term)) for term, bit in self._bits.items()]
        parts = sorted({part for _, part in self._beginnings}, key=len, reverse=True)
        unspaced = "|".join(re.escape(part) for part in parts if _UNSPACED.search(part))
        self._unspaced = re.compile(f"(?=({unspaced}))") if unspaced else None
        self._parts = re.compile("|".join(map(re.escape, parts)) or "(?!)")
        self._marks_in: dict[str, list[Mark]] = {}  # of runs of letters that occurred

    def terms_in(self, text: str) -> Terms:
        """The terms that words of the text seem to begin with."""
        text = analyze.signed(text)
        low = analyze.folded(text)
        terms = 0
        for bit, part in self._beginnings:
            if part in low and _begins_word(low, part, text):
                terms |= bit
        return terms

    def share_in(self, text: str) -> float:
        """The share of the query's weight that words of a text have, in [0, 1]."""
        return self.shares[self.terms_in(text)]

    @property
    def verbatim(self) -> bool:
        """Whether the query may ask for its exact wording."""
        return bool(self.phrases or self.line or self.exact)

    def has_exactly(self, text: str) -> bool:
        """Whether a text has the very words of a query in quotes."""
        return analyze.has_exactly(text, self.exact)

    def quotes(self, text: str, terms: Terms) -> bool:
        """Whether a text with these terms has the query, or a phrase of it, word for word."""
        if self.exact:
            return self.has_exactly(text)
        if not self.phrases and self.shares[terms] < _LINE_SHARE:
            return False
        return self.phrase_at(" ".join(text.split())) is not None

    def phrase_at(self, text: str) -> int | None:
        """Where a text on one line has the query, or a phrase it has in quotes, word for word; None if
        nowhere.
        """
        position = text.lower().find(self.line) if self.line else -1
        if position >= 0:
            return position
        if not self.phrases:
            return None
        stems = analyze.words(text)
        places = [match.start() for match in _INDEX_WORD.finditer(text)]
        if len(places) != len(stems):  # the index drops words that are too long
            return None
        for phrase in self.phrases:
            for i in range(len(stems) - len(phrase) + 1):
                if stems[i : i + len(phrase)] == phrase:
                    return places[i]
        return None

    def listed(self, terms: Terms) -> list[str]:
        """The terms of a set, in the query's order."""
        return [term for term, bit in self._bits.items() if terms & bit]

    def marks(self, text: str) -> list[Mark]:
        """The words of the query in a text, in order, without overlaps."""
        marks: list[Mark] = []
        for match in _RUN.finditer(analyze.signed(text)):
            run, start = match[0], match.start()
            inside = self._marks_in.get(run)
            if inside is None:
                inside = self._marks_in[run] = self._marks_of_run(run)
            if inside:
                marks += [(start + first, start + last, terms) for first, last, terms in inside]
        return marks

    def _marks_of_run(self, run: str) -> list[Mark]:
        if "_" not in run and not self._parts.search(analyze.folded(run)):
            return []
        marks = [(*match.span(), self._terms_of_word(match[0])) for match in _WORD.finditer(run)]
        marks = [mark for mark in marks if mark[2]]
        if self._unspaced and not run.isascii():
            marks = sorted(marks + self._marks_without_spaces(run))
        identifier = run.strip("_")
        if not marks and "_" in identifier:  # `get_user_name` for getusername
            start = run.index(identifier)
            terms = self._terms_of_word(identifier.replace("_", ""))
            marks = [(start, start + len(identifier), terms)] if terms else []
        return marks

    def _marks_without_spaces(self, run: str) -> list[Mark]:
        """The parts of words in scripts without spaces; adjacent and overlapping ones as one."""
        marks: list[Mark] = []
        for match in self._unspaced.finditer(run) if self._unspaced else ():
            (start, end), terms = match.span(1), self._terms_of_word(match[1])
            if marks and start <= marks[-1][1]:
                first, last, terms_before = marks.pop()
                start, end, terms = first, max(last, end), terms_before | terms
            marks.append((start, end, terms))
        return marks

    def _terms_of_word(self, word: str) -> Terms:
        terms = 0
        if self._parts.search(analyze.folded(word)):
            for term in analyze.terms_of_word(word):
                terms |= self._bits.get(term, 0)
        return terms

    def snippet(self, chunk: ChunkRow, further: str) -> Snippet:
        """About `snippet_chars` of a chunk, whole words, with most of the query's words, and where these are.

        `further` is the text that follows in the same section, for a chunk that is shorter than that.
        """
        text, marks = self._shown(chunk)
        start, end = self._window(text, marks)
        if further and end == len(text) < self._snippet_chars:
            text, marks, end = self._longer(chunk, further, text, marks)
        lead = "…" if start else ""
        snippet = lead + text[start:end] + ("…" if end < len(text) else "")
        shift = len(lead) - start
        inside = [(first + shift, last + shift) for first, last, _ in marks if first >= start and last <= end]
        return snippet, tuple(inside)

    def source_lines(self, chunk: ChunkRow) -> tuple[int, list[str], int]:
        """(first line's number, the lines, the best line's number): the `SHOWN_LINES` neighbouring lines of a
        chunk of code that have most of the query, as they are; only a very long one is cut.
        """
        lines = chunk.text.split("\n")
        terms = [self.terms_in(line) for line in lines]
        phrase = [self.verbatim and self.phrase_at(" ".join(line.split())) is not None for line in lines]
        count = min(SHOWN_LINES, len(lines))
        best, start = -1.0, 0
        for first in range(len(lines) - count + 1):
            together = 0
            for each in terms[first : first + count]:
                together |= each
            value = self.shares[together] + any(phrase[first : first + count])
            if value > best and lines[first].strip():
                best, start = value, first
        shown = lines[start : start + count]
        while len(shown) > 1 and not shown[-1].strip():
            shown.pop()
        shares = [self.shares[each] + told for each, told in zip(terms[start:], phrase[start:], strict=True)]
        place = max(range(len(shown)), key=lambda i: (shares[i], -i))
        first_line = chunk.start_line + start
        return first_line, list(map(self._cut_line, shown)), first_line + place

    def _cut_line(self, line: str) -> str:
        """A line, if very long the part around its first word of the query."""
        if len(line) <= MAX_LINE_CHARS:
            return line
        marks = self.marks(line)
        start = max(0, marks[0][0] - _LEAD_CHARS) if marks else 0
        end = start + MAX_LINE_CHARS
        return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")

    def _longer(
        self, chunk: ChunkRow, further: str, text: str, marks: list[Mark]
    ) -> tuple[str, list[Mark], int]:
        """A short chunk with more of its section, unless words of the query would be lost; its marks and
        where to cut it.
        """
        longer, longer_marks = self._shown(chunk._replace(text=f"{chunk.text}\n{further}"))
        end = _window_end(longer, longer_marks, self._snippet_chars)
        if end > len(text) and not _terms_of(marks) & ~_terms_of(longer_marks, end):
            return longer, longer_marks, end
        return text, marks, len(text)

    def _shown(self, chunk: ChunkRow) -> tuple[str, list[Mark]]:
        """A chunk on one line, and its marks; without notes unless only they have one of the words."""
        text = plain(chunk)
        marks = self.marks(text)
        main = without_asides(chunk)
        if main is not chunk:
            main_text = plain(main)
            main_marks = self.marks(main_text)
            if _terms_of(main_marks) == _terms_of(marks):
                return main_text, main_marks
        return text, marks

    def _window(self, text: str, marks: list[Mark]) -> tuple[int, int]:
        """[start, end) of the `snippet_chars` characters with most of the query, from the start of a sentence
        if one is near.
        """
        if len(text) <= self._snippet_chars:
            return 0, len(text)
        phrase = self.phrase_at(text)
        first, until = self._densest(marks) if phrase is None else (phrase, phrase)
        space = text.find(" ", until, until + _LEAD_CHARS)
        until = until if space < 0 else space
        start = 0
        if first > self._snippet_chars // 2:
            sentences = _sentences(text, max(0, first - 2 * _LEAD_CHARS), first)
            begins = [begin for begin in sentences if until - begin <= self._snippet_chars]
            start = begins[0] if begins else text.find(" ", max(0, first - _LEAD_CHARS), first) + 1
            start = start or first
        elif until > self._snippet_chars:
            start = text.find(" ", until - self._snippet_chars, first) + 1 or first
        return start, _window_end(text, marks, self._snippet_chars, start)

    def _densest(self, marks: list[Mark]) -> tuple[int, int]:
        """Where the words begin that have most of the query within a window, and where each has occurred
        once; the first of several equals.
        """
        densest = 0, 0
        highest, room, last = 0.0, self._snippet_chars - _LEAD_CHARS, 0
        counts: dict[Terms, int] = {}  # of the words in the window, by their terms
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
            if last == len(marks):  # later windows hold fewer of the same words
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
    """The terms of the marks before `end`."""
    terms = 0
    for _, marked_to, of_word in marks:
        if marked_to <= end:
            terms |= of_word
    return terms


def _begins_word(low: str, part: str, text: str) -> bool:
    """Whether a word of a text (`low`: folded) begins with `part`; a word may also begin at a hump or at a
    character of a script without spaces.
    """
    start = low.find(part)
    while start >= 0:
        if start == 0 or not low[start - 1].isalnum() or _UNSPACED.match(low, start):
            return True
        if len(low) == len(text) and text[start].isupper():
            return True
        start = low.find(part, start + 1)
    return False


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


def _sentences(text: str, start: int, end: int) -> list[int]:
    """Where sentences begin after one that ends in [start, end)."""
    return [match.end() for match in _SENTENCE_END.finditer(text, start, end)]
