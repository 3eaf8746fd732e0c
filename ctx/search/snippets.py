"""Find a query's words in chunks, and choose the part of a chunk to show."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_

from ctx.models import ChunkRow
from ctx.search.markup import CELL_MARK, plain, without_asides
from ctx.search.query import has_version
from ctx.text import analyze

SNIPPET_CHARS = 240
SHOWN_LINES = 5  # lines of code to show for a result
MAX_LINE_CHARS = 240  # a longer line of code is cut, because it is minified code or data
_LEAD_CHARS = 60  # characters shown before the first matching word of a cut line
_WHOLE = 1.5  # sentences and lines up to this many times the configured length are shown whole
# A query with punctuation and at least this many words may be a line copied from a text. A query without
# punctuation needs twice as many words.
_LINE_WORDS = 3
# A text is searched for the copied line only if it has at least this share of the query's weight.
_LINE_SHARE = 0.5

_VERSION_GOES_ON = re.compile(r"\.?\w")
_INDEX_WORD = re.compile(r"[^\W_]+")  # splits words as the index does
_RUN = re.compile(rf"(?:\w|[{analyze.UNSEEN}])+")
_WORD = rf"(?:[^\W_{analyze.UNSPACED}]+[{analyze.UNSEEN}]*)+"
# The end of a line, or the end of a sentence with the space after it; not the period in `i.e.`, `J. Smith`
# or `3.`.
_UNIT_END = re.compile(r"""\n|(?:(?<![\W_][^\W\d_])(?<!\s\d)(?<!^\d)\.|[!?…])["'’”)\]]* |[。！？]""")

Terms = int
"""A set of the query's terms: bit i is the i-th term."""

Mark = tuple[int, int, Terms]
"""A word of a text that matches the query: its start, its end (exclusive), and the terms it matches."""

Snippet = tuple[str, tuple[tuple[int, int], ...]]
"""The text to show of a chunk, and the spans [start, end) in it that match words of the query."""


class _Shares(dict[Terms, float]):
    """A cache: set of terms -> their share of the query's total weight, in [0, 1]."""

    def __init__(self, weights: Sequence[float]) -> None:
        self[0] = 0.0
        self._weights = weights
        self._total = sum(weights) or 1.0

    def __missing__(self, terms: Terms) -> float:
        share = self[terms] = sum(w for i, w in enumerate(self._weights) if terms >> i & 1) / self._total
        return share


class Matcher:
    """Finds a query's terms in texts.

    A stem is the beginning of its word, except perhaps for its last letter (happi, happy). So only words that
    contain the beginning of a term are analysed. `weights` are the terms and their rarity. `phrases` are
    lists of terms that must be adjacent. `line` is the query, which may be a line copied from a text.
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        snippet_chars: int = SNIPPET_CHARS,
        phrases: Sequence[Sequence[str]] = (),
        line: str = "",
    ) -> None:
        words = line.lower().split()
        marked = not line.replace(" ", "").replace("?", "").isalnum()
        self.line = " ".join(words) if len(words) >= (_LINE_WORDS if marked else 2 * _LINE_WORDS) else ""
        self.phrases = [list(phrase) for phrase in phrases]
        self._query = line.strip().rstrip("?").casefold()
        self.exact = analyze.exact_words(line)
        self.terms = list(weights)
        self.shares = _Shares(list(weights.values()))
        self._snippet_chars = snippet_chars
        self._bits = {term: 1 << i for i, term in enumerate(self.terms)}
        self._beginnings = [(bit, analyze.beginning(term)) for term, bit in self._bits.items()]
        parts = sorted({part for _, part in self._beginnings}, key=len, reverse=True)
        unspaced = "|".join(re.escape(part) for part in parts if analyze.unspaced_runs(part))
        self._unspaced = re.compile(f"(?=({unspaced}))") if unspaced else None
        self._parts = re.compile("|".join(map(re.escape, parts)) or "(?!)")
        self._marks_in: dict[str, list[Mark]] = {}  # cache: run of letters -> its marks

    def terms_in(self, text: str) -> Terms:
        """The terms that some word of the text begins with. Fast and approximate: words are not stemmed."""
        text = analyze.signed(text)
        low = analyze.folded(text)
        return sum(bit for bit, part in self._beginnings if part in low and _begins_word(low, part, text))

    def share_in(self, text: str) -> float:
        """The share of the query's weight that the words of a text have, in [0, 1]."""
        return self.shares[self.terms_in(text)]

    @property
    def verbatim(self) -> bool:
        """Whether the query may ask for its exact wording: it has quotes, or may be a copied line."""
        return bool(self.phrases or self.line or self.exact)

    def has_exactly(self, text: str) -> bool:
        """Whether a text contains the quoted words of the query exactly as written."""
        return analyze.has_exactly(text, self.exact)

    def is_whole(self, heading: str) -> bool:
        """Whether a heading equals the query. If the query is a version, more may follow: `0.115.0
        (2024-09-17)`.
        """
        query = self._query.removeprefix("v")
        text = heading.casefold().removeprefix("v")
        if has_version(query):
            return text.startswith(query) and not _VERSION_GOES_ON.match(text, len(query))
        return bool(query) and text == query

    def quotes(self, text: str, terms: Terms) -> bool:
        """Whether a text that has these terms contains the query, or a quoted phrase of it, word for word."""
        if self.exact:
            return self.has_exactly(text)
        if not self.phrases and self.shares[terms] < _LINE_SHARE:
            return False
        return self.phrase_at(" ".join(text.split())) is not None

    def phrase_at(self, text: str) -> int | None:
        """The position where a text of one line contains the query, or a quoted phrase of the query, word for
        word; None if it does not.
        """
        position = text.lower().find(self.line) if self.line else -1
        if position >= 0:
            return position
        if not self.phrases:
            return None
        stems = analyze.words(text)
        places = [match.start() for match in _INDEX_WORD.finditer(text)]
        # Some words have no stem, because the index drops words that are too long.
        if len(places) != len(stems):
            return None
        for phrase in self.phrases:
            for i in range(len(stems) - len(phrase) + 1):
                if stems[i : i + len(phrase)] == phrase:
                    return places[i]
        return None

    def listed(self, terms: Terms) -> list[str]:
        """The terms in a set, in the query's order."""
        return [term for term, bit in self._bits.items() if terms & bit]

    def marks(self, text: str) -> list[Mark]:
        """The words of a text that match the query, in order, without overlaps."""
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
        words = _INDEX_WORD.finditer(run) if run.isascii() else re.finditer(_WORD, run)
        marks = [(*match.span(), self._terms_of_word(match[0])) for match in words]
        marks = [mark for mark in marks if mark[2]]
        if self._unspaced and not run.isascii():
            marks = sorted(marks + self._marks_without_spaces(run))
        identifier = run.strip("_")
        if not marks and "_" in identifier:  # the query getusername finds `get_user_name`
            start = run.index(identifier)
            terms = self._terms_of_word(identifier.replace("_", ""))
            marks = [(start, start + len(identifier), terms)] if terms else []
        return marks

    def _marks_without_spaces(self, run: str) -> list[Mark]:
        """The matches in a word of a script without spaces. Adjacent and overlapping matches are merged."""
        marks: list[Mark] = []
        for match in self._unspaced.finditer(run) if self._unspaced else ():
            (start, end), terms = match.span(1), self._terms_of_word(match[1])
            if marks and start <= marks[-1][1]:
                first, last, terms_before = marks.pop()
                start, end, terms = first, max(last, end), terms_before | terms
            marks.append((start, end, terms))
        return marks

    def _terms_of_word(self, word: str) -> Terms:
        if not self._parts.search(analyze.folded(word)):
            return 0
        return _union(self._bits.get(term, 0) for term in analyze.terms_of_word(word))

    def snippet(self, chunk: ChunkRow, further: str) -> Snippet:
        """The sentences, list items, table rows or lines of a chunk that match most of the query, about
        `snippet_chars` long, and the spans of the matching words.

        `further` is the text that follows in the same section. It is used if the chunk is shorter than a
        snippet.
        """
        text, marks = self._shown(chunk)
        if further and len(text) < self._snippet_chars:
            text, marks = self._shown(chunk._replace(text=f"{chunk.text}\n{further}"))
        snippet, highlights = "", list[tuple[int, int]]()
        for start, end in self._spans(text, marks):
            snippet += "\n" if snippet else ""
            snippet += "…" if start and text[start - 1] != "\n" else ""
            shift = len(snippet) - start
            snippet += text[start:end]
            highlights += [(a + shift, b + shift) for a, b, _ in marks if a >= start and b <= end]
            snippet += "…" if text[end:] and text[end] != "\n" else ""
        return snippet, tuple(highlights)

    def source_lines(self, chunk: ChunkRow, named: Sequence[int] = ()) -> tuple[int, list[str], int]:
        """(number of the first line, the lines, number of the best line) of the `SHOWN_LINES` adjacent lines
        of a code chunk that match most of the query. Lines are unchanged, but very long ones are cut.

        Lines whose number is in `named` define a name of the query and are preferred.
        """
        lines = chunk.text.split("\n")
        terms = [self.terms_in(line) for line in lines]
        phrase = [
            chunk.start_line + number in named
            or (self.verbatim and self.phrase_at(" ".join(line.split())) is not None)
            for number, line in enumerate(lines)
        ]
        count = min(SHOWN_LINES, len(lines))
        best, start = -1.0, 0
        for first in range(len(lines) - count + 1):
            together = _union(terms[first : first + count])
            value = self.shares[together] + any(phrase[first : first + count])
            if value > best and lines[first].strip():
                best, start = value, first
        passage = lines[start : start + count]
        while len(passage) > 1 and not passage[-1].strip():
            passage.pop()
        shares = [self.shares[each] + told for each, told in zip(terms[start:], phrase[start:], strict=True)]
        place = max(range(len(passage)), key=lambda i: (shares[i], -i))
        first_line = chunk.start_line + start
        return first_line, list(map(self._cut_line, passage)), first_line + place

    def _cut_line(self, line: str) -> str:
        """A line; if it is very long, only the part around its first match."""
        if len(line) <= MAX_LINE_CHARS:
            return line
        marks = self.marks(line)
        start = max(0, marks[0][0] - _LEAD_CHARS) if marks else 0
        end = start + MAX_LINE_CHARS
        return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")

    def _shown(self, chunk: ChunkRow) -> tuple[str, list[Mark]]:
        """A chunk's text without markup, and its matches. Notes and warnings are left out unless only they
        match a word.
        """
        text = plain(chunk)
        marks = self.marks(text)
        main = without_asides(chunk)
        if main is not chunk:
            main_text = plain(main)
            main_marks = self.marks(main_text)
            if _union(terms for _, _, terms in main_marks) == _union(terms for _, _, terms in marks):
                return main_text, main_marks
        return text, marks

    def _spans(self, text: str, marks: list[Mark]) -> list[tuple[int, int]]:
        """The spans of a text to show: the adjacent units (sentences or lines) that match most of the query.
        If the length allows, also the header of their table, the line that introduces them, and the text
        after them.
        """
        size = self._snippet_chars
        if len(text) <= size:
            return [(0, len(text))]
        units = _units(text, size)
        first, last = self._best_units(text, units, self._terms_of_units(units, marks))
        room = size - (units[last][1] - units[first][0])
        head = _table_head(text, units, first)
        if head is not None:
            room -= units[head][1] - units[head][0]
        elif first and text[: units[first][0]].rstrip().endswith(":") and _length(units[first - 1]) <= room:
            first -= 1
            room -= _length(units[first])
        while last + 1 < len(units) and _length(units[last + 1]) <= room:
            last += 1
            room -= _length(units[last])
        while first and head is None and _length(units[first - 1]) <= room:
            first -= 1
            room -= _length(units[first])
        start, end = units[first][0], len(text[: units[last][1]].rstrip())
        if head is None or head == first:
            return [(start, end)]
        return [(units[head][0], len(text[: units[head][1]].rstrip())), (start, end)]

    def _terms_of_units(self, units: Sequence[tuple[int, int]], marks: list[Mark]) -> list[Terms]:
        terms = [0] * len(units)
        number = 0
        for start, _, of_word in marks:
            while number + 1 < len(units) and units[number][1] <= start:
                number += 1
            terms[number] |= of_word
        return terms

    def _best_units(
        self, text: str, units: Sequence[tuple[int, int]], terms: Sequence[Terms]
    ) -> tuple[int, int]:
        """The indexes of the first and last unit (sentence or line) of the shortest run of adjacent units
        that matches most of the query.
        """
        phrase = self.phrase_at(text)
        if phrase is not None:
            number = max(i for i, (start, _) in enumerate(units) if start <= phrase)
            return number, number
        best, highest, shortest = (0, 0), 0.0, 0
        for i, (start, _) in enumerate(units):
            together = 0
            for j in range(i, len(units)):
                length = units[j][1] - start
                if (j > i and length > self._snippet_chars) or not terms[i]:
                    break
                together |= terms[j]
                value = self.shares[together]
                if value > highest or (value == highest and length < shortest):
                    best, highest, shortest = (i, j), value, length
        return best


def _union(sets: Iterable[Terms]) -> Terms:
    return reduce(or_, sets, 0)


def _begins_word(low: str, part: str, text: str) -> bool:
    """Whether a word of a text (`low` is the folded text) begins with `part`. A word may also begin at a
    capital letter inside an identifier, or at any character of a script without spaces.
    """
    start = low.find(part)
    while start >= 0:
        if start == 0 or not low[start - 1].isalnum() or analyze.unspaced_runs(low[start]):
            return True
        if len(low) == len(text) and text[start].isupper():
            return True
        start = low.find(part, start + 1)
    return False


def _units(text: str, size: int) -> list[tuple[int, int]]:
    """The spans of a text's sentences and lines. Very long ones are split."""
    units: list[tuple[int, int]] = []
    start = 0
    for end in [*(match.end() for match in _UNIT_END.finditer(text)), len(text)]:
        while end - start > size * _WHOLE:
            space = text.rfind(" ", start + 1, start + size // 3)
            piece = space + 1 if space > 0 else start + size // 3
            units.append((start, piece))
            start = piece
        if end > start:
            units.append((start, end))
        start = end
    return units


def _length(unit: tuple[int, int]) -> int:
    return unit[1] - unit[0]


def _table_head(text: str, units: Sequence[tuple[int, int]], number: int) -> int | None:
    """The index of the first row of the table that unit `number` is a row of; None if it is in no table."""
    head = None
    while number >= 0 and CELL_MARK in text[slice(*units[number])]:
        head = number
        number -= 1
    return head
