"""Cuts documents into chunks that fit an embedder and are about one topic.

A document is a tree of headings. A subtree that fits becomes one chunk; small adjacent sections under one
parent are joined; a longer section is split into even pieces, each at the best boundary near the ideal point.
Sizes are in wordpieces (the tokens of the built-in embedding model). They are estimated, because the
tokenizer reads 3 MB/s and the estimate 300 MB/s.
"""

import re
import string
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from ctx.formats.table import PAGED
from ctx.models import Chunk, Extracted, Heading, embedding_text, text_hash
from ctx.text.filetypes import is_prose

# Tokens of title, heading path and text; MiniLM reads 256, and an estimate may be a fifth too low.
MAX_TOKENS = 200
SMALL_SHARE = 0.4  # pieces below this share of a chunk's size are joined with a neighbour if possible
MAX_PATH_CHARS = 200  # a longer heading path loses its outer parts, to leave space for text
MAX_LEVEL = 12  # deeper headings count as this level, which limits the recursion
LONG_LINE = 5000  # characters; longer lines are minified code, one-line data or an embedded image
# Maximum chunks for all long lines of a document together. If the lines are even longer, the chunks get
# larger, not more.
MAX_LONG_LINE_CHUNKS = 200

# Hundredths of a wordpiece per character, fitted by least squares to 4350 samples of Markdown,
# reStructuredText, Python, Go, C, JavaScript and plain text. WordPiece makes a token of each punctuation mark
# and, in this vocabulary, of each character outside Latin. A blank costs a little so that long runs of blanks
# are split, too.
_UNIT = 100
# After the costs of this many bytes were summed, importing numpy saves time.
_NUMPY_BYTES = 1 << 20
_LOWER, _UPPER, _DIGIT, _MARK, _BLANK, _OTHER = 24, 30, 60, 120, 1, 100
# The tokenizer splits a Hangul syllable into its letters. This mark replaces a syllable while costs are
# summed.
_HANGUL, _HANGUL_MARK, _HANGUL_COST = "[\uac00-\ud7a3]", "\x01", 250
_LABEL_CHAR, _LABEL_WIDE_CHAR = 30, 100  # cost per character of a title or path, which is mostly words

_SENTENCE = re.compile(r"[.!?…][\"'’”)\]]*\s|[。！？]")
_ITEM = re.compile(r"\n(?=[ \t]{0,40}(?:[-*+|•]|\d{1,3}[.)])[ \t])")
_INDENT = re.compile(r"\n+([ \t]*)")
_LINE_WITH_LETTERS = re.compile(r"[^\W_][^\n]*")
_NON_BLANK = re.compile(r"\S")


def _costs() -> bytes:
    costs = bytearray([_MARK]) * 256
    for codes, cost in (
        (b"\0", 0),
        (b" \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0", _BLANK),
        (string.ascii_lowercase.encode(), _LOWER),
        (string.ascii_uppercase.encode(), _UPPER),
        (bytes(range(0xC0, 0x100)), _UPPER),  # the tokenizer removes accents
        (string.digits.encode(), _DIGIT),
        (b"?", _OTHER),
        (_HANGUL_MARK.encode(), _HANGUL_COST),
    ):
        for code in codes:
            costs[code] = cost
    return bytes(costs)


_COSTS = _costs()  # cost of each character, by its Latin-1 code


def chunk(
    extracted: Extracted, title: str, *, max_tokens: int = MAX_TOKENS, overlap_tokens: int = 0
) -> list[Chunk]:
    """Cuts a document into chunks, ordered by their start. No chunk spans two pages (slides, sheets,
    messages).

    Without overlap, each non-blank character of the body is in exactly one chunk. `max_tokens` (estimated
    wordpieces) limits title, heading path and text together; only documents with very many lines over
    LONG_LINE may exceed it. When a section is split, each piece repeats the last `overlap_tokens` of the
    piece before. A document without text gets one chunk with an empty span, so that its title and path can be
    found.
    """
    body = extracted.body
    if not body or body.isspace():
        return [Chunk(0, 0, 0, 1, 1, "", text_hash(embedding_text(title, "", "")))]
    cutter = _Cutter(
        extracted, title, max(16, max_tokens) * _UNIT, max(0, min(overlap_tokens, max_tokens // 2)) * _UNIT
    )
    cutter.pack_document()
    return cutter.chunks(title)


class _Group(NamedTuple):
    """Adjacent sections that will be one chunk. `intro` is True while the group has only the text between a
    heading and its first subheading.
    """

    start: int
    end: int
    path: str
    intro: bool


class _Cutter:
    """Cuts one document. `pieces` collects (start, end, heading path), in order."""

    __slots__ = ("atoms", "body", "coarse_room", "continued", "costs", "ends", "limit", "long_lines",
                 "overlap", "pages", "paths", "pieces", "prose", "rooms", "small", "starts",
                 "title_room")  # fmt: skip

    def __init__(self, extracted: Extracted, title: str, limit: int, overlap: int) -> None:
        self.body = extracted.body
        self.atoms = extracted.atoms
        self.costs = costs = _cumulative(self.body)
        self.limit = limit
        self.overlap = overlap
        self.small = int(limit * SMALL_SHARE)
        self.prose = is_prose(extracted.media_type)
        paged = extracted.media_type in PAGED
        self.pages = frozenset(
            heading.start for heading in extracted.headings if paged and heading.level == 1
        )
        self.pieces: list[tuple[int, int, str]] = []
        self.long_lines = _long_lines(self.body) if len(self.body) > LONG_LINE else []
        self.coarse_room = (
            sum(costs[end] - costs[start] for start, end in self.long_lines) // MAX_LONG_LINE_CHUNKS
        )
        self._measure_sections(extracted.headings, title)

    def _measure_sections(self, headings: tuple[Heading, ...], title: str) -> None:
        """Computes for each heading the start of its section, its path, the cost left for text under it, and
        the index after its last subsection.
        """
        count = len(headings)
        self.starts = starts = [heading.start for heading in headings]
        self.ends = ends = [count] * count
        self.paths: list[str] = []
        self.continued: dict[str, str] = {}  # path of a definition -> path for its second and later pieces
        self.rooms: list[int] = []
        # A long title or path takes at most half of the space.
        half = self.limit // 2
        title_room = self.limit - _label_cost(title)
        self.title_room = max(half, title_room)
        # (level, index, path) of the headings that enclose the current one
        open_: list[tuple[int, int, str]] = []
        for i, (_, level, name, signature) in enumerate(headings):
            level = min(level, MAX_LEVEL)
            while open_ and open_[-1][0] >= level:
                ends[open_.pop()[1]] = i
            path = open_[-1][2] if open_ else ""
            # The first heading is usually the title, which is part of every chunk anyway.
            if name and (i or not self.prose or name.casefold() != title.casefold()):
                if signature:
                    self.continued[_path_to(path, name)] = _path_to(path, signature)
                path = _path_to(path, name)
            open_.append((level, i, path))
            self.paths.append(path)
            self.rooms.append(max(half, title_room - _label_cost(path)))
        starts.append(len(self.body))

    def pack_document(self) -> None:
        count = len(self.paths)
        if count == 1 and not self.body[: self.starts[0]].strip():
            intro = (0, 0)
            self.starts[0] = 0
        else:
            intro = (0, self.starts[0])
        self._pack(0, count, "", self.title_room, intro)

    def _bare(self, start: int, end: int) -> bool:
        """Whether a span is a heading with nothing under it: only one of its lines has letters."""
        return end - start < 400 and len(_LINE_WITH_LETTERS.findall(self.body, start, end)) < 2

    def _pack(self, first: int, last: int, path: str, room: int, intro: tuple[int, int]) -> None:
        """Packs the sections `first..last` under `path` into pieces, after the parent's own text `intro`."""
        costs, starts = self.costs, self.starts
        group: _Group | None = _Group(*intro, path, True)  # a section may still be added to this group
        if _NON_BLANK.search(self.body, *intro) is None:
            group = None
        elif costs[intro[1]] - costs[intro[0]] > room:
            self._split(*intro, path, room)
            group = None
        i = first
        while i < last:
            j = self.ends[i]
            start, end, own_room = starts[i], starts[j], self.rooms[i]
            if group is not None:
                opens_page = start in self.pages  # a hit names its page, so no chunk spans two pages
                joined = None if opens_page else self._joined(group, i, path, room)
                if joined is not None:
                    group, i = joined, j
                    continue
                if not opens_page and self._needs_next(group):
                    start = group.start
                else:
                    self.pieces.append((group.start, group.end, group.path))
                group = None
            if costs[end] - costs[start] <= own_room:
                group = _Group(start, end, self.paths[i], False)
            elif j == i + 1:
                self._split(start, end, self.paths[i], own_room)
            else:
                self._pack(i + 1, j, self.paths[i], own_room, (start, starts[i + 1]))
            i = j
        if group is not None:
            self._add_last(group.start, group.end, group.path)

    def _joined(self, group: "_Group", section: int, path: str, room: int) -> "_Group | None":
        """The group with a section added, if one of them is small and both fit together; else None."""
        costs = self.costs
        start, end = self.starts[section], self.starts[self.ends[section]]
        group_cost, cost = costs[start] - costs[group.start], costs[end] - costs[start]
        if (group_cost >= self.small and cost >= self.small) or group_cost + cost > room:
            return None
        # A heading alone says little: use the path of the section below it.
        alone = (
            group.intro and self._bare(group.start, group.end) and group_cost + cost <= self.rooms[section]
        )
        return _Group(group.start, end, self.paths[section] if alone else path, False)

    def _needs_next(self, group: "_Group") -> bool:
        """Whether a group is so small that it is joined with the next section although that section has a
        longer heading path.
        """
        cost = self.costs[group.end] - self.costs[group.start]
        if cost >= self.small:
            return False
        return (group.intro and cost * 2 < self.small) or self._bare(group.start, group.end)

    def _add_last(self, start: int, end: int, path: str) -> None:
        """Adds the last group of a parent. If the group is only a heading, joins it to the previous piece,
        which may then be an eighth too large.
        """
        if start not in self.pages and self.pieces and self.pieces[-1][1] == start and self._bare(start, end):
            before_start, _, before_path = self.pieces[-1]
            room = self.limit - min(self.limit - self.title_room + _label_cost(before_path), self.limit // 2)
            if self.costs[end] - self.costs[before_start] <= room + self.limit // 8:
                self.pieces[-1] = (before_start, end, before_path)
                return
        self.pieces.append((start, end, path))

    def _split(self, start: int, end: int, path: str, room: int) -> None:
        """Splits text without headings into even pieces, and its long lines into larger pieces.

        The first piece of a definition has its first line; the other pieces get its signature in their
        heading path.
        """
        continued = self.continued.get(path, path)
        room = max(self.limit // 2, room - max(0, _label_cost(continued) - _label_cost(path)))
        i = bisect_left(self.long_lines, (start, start))
        while i < len(self.long_lines) and self.long_lines[i][0] < end:
            line_start, line_end = self.long_lines[i]
            path = self._cut_evenly(start, line_start, path, continued, room)
            start = min(line_end, end)
            path = self._cut_evenly(line_start, start, path, continued, max(room, self.coarse_room))
            i += 1
        self._cut_evenly(start, end, path, continued, room)

    def _cut_evenly(self, start: int, end: int, path: str, continued: str, room: int) -> str:
        """Splits text into even pieces, the first with the heading path `path`, the others with `continued`.
        Returns the path for the text that follows.
        """
        costs, body, pieces, overlap = self.costs, self.body, self.pieces, min(self.overlap, room // 2)
        first = start
        while True:
            begin = self._reach_back(first, start, overlap)
            remainder = costs[end] - costs[start]
            if remainder <= room:
                pieces.append((begin, end, path))
                return continued if end > start else path
            step = room - overlap if start > first else room
            high = bisect_right(costs, costs[start] + step, start, min(end, start + step)) - 1
            if high <= start:  # a single character costs more than a chunk
                high = start + 1
            even = remainder // -(-remainder // step)
            ideal = min(bisect_left(costs, costs[start] + even, start, high), high)
            border = self._cut(start, ideal, high, room)
            pieces.append((begin, border, path))
            path = continued
            start = border
            if body[start].isspace():
                match = _NON_BLANK.search(body, start, end)
                if match is None:
                    return path
                # Drop blank lines; keep the first line's indentation.
                start = max(start, body.rfind("\n", start, match.start()) + 1)

    def _reach_back(self, first: int, start: int, overlap: int) -> int:
        """The start of a piece including its overlap with the previous piece: at a line if possible, else at
        a word.
        """
        if not overlap:
            return start
        low = bisect_left(self.costs, self.costs[start] - overlap, first, start)
        if low <= first:
            return first
        line = self.body.find("\n", low, start - 1)
        if line >= 0:
            return line + 1
        word = self.body.find(" ", low, start - 1)
        return word + 1 if word >= 0 else low

    def _cut(self, start: int, ideal: int, high: int, room: int) -> int:
        """The best end for a piece in (start, high]: the kind of boundary counts first, then the distance to
        `ideal`.
        """
        low = start + (high - start) // 3
        whole, inside = self._atoms_near(start, high, room) if self.atoms else ((), False)
        border = self._border_by_atoms(start, low, ideal, high, room, whole) if whole else None
        if border is None and not whole:
            border = self._border_by_lines("\n\n", low, ideal + 1, ideal, high)
        if border is None:
            prose = self.prose and not inside
            border = (
                self._border_in_prose(low, ideal, high) if prose else self._border_in_code(low, ideal, high)
            )
        if border is None:
            word = max(self.body.rfind(" ", low, high), self.body.rfind("\t", low, high))
            border = word + 1 if word > start else high
        return border

    def _border_by_lines(self, end: str, low: int, before_stop: int, ideal: int, high: int) -> int | None:
        """The boundary after the line end nearest to `ideal`, or after the first of the two line ends of a
        blank line; None if there is none.
        """
        before = self.body.rfind(end, low, before_stop)
        after = self.body.find(end, ideal, high)
        if before >= 0 and (after < 0 or ideal - before < after - ideal):
            return before + 1
        return after + 1 if after >= 0 else None

    def _border_by_atoms(
        self, start: int, low: int, ideal: int, high: int, room: int, whole: Sequence[tuple[int, int]]
    ) -> int | None:
        """The boundary nearest to `ideal` that is an end of a block to keep whole, or a blank line outside
        such blocks; None if there is none.
        """
        borders = [border for span in whole for border in span if low < border <= high]
        position = self.body.find("\n\n", low, high)
        while position >= 0:
            if not any(a < position + 1 < b for a, b in whole):
                borders.append(position + 1)
            position = self.body.find("\n\n", position + 2, high)
        if borders:
            return min(borders, key=lambda border: abs(border - ideal))
        # If a block would be cut but fits into one chunk, leave it for the next chunk.
        for a, _ in whole:
            if start < a <= low and (self.costs[a] - self.costs[start]) * 10 > room:
                return a
        return None

    def _border_in_prose(self, low: int, ideal: int, high: int) -> int | None:
        for mark in (_ITEM, _SENTENCE):
            ends = [match.end() for match in mark.finditer(self.body, low, high)]
            if ends:
                return min(ends, key=lambda border: abs(border - ideal))
        return self._border_by_lines("\n", low, ideal, ideal, high)

    def _border_in_code(self, low: int, ideal: int, high: int) -> int | None:
        """The start of the least indented line, nearest to `ideal` among equals; None if there is no line
        end.
        """
        lines = [
            (len(match[1]), abs(match.start(1) - ideal), match.start(1))
            for match in _INDENT.finditer(self.body, low, high)
        ]
        return min(lines)[2] if lines else None

    def _atoms_near(self, start: int, high: int, room: int) -> tuple[list[tuple[int, int]], bool]:
        """The blocks to keep whole that overlap (start, high) and fit into one chunk, and whether a block
        that does not fit spans `high`.
        """
        atoms, costs = self.atoms, self.costs
        whole, inside = [], False
        i = bisect_left(atoms, (start, start))
        if i and atoms[i - 1][1] > start:
            i -= 1
        while i < len(atoms) and atoms[i][0] < high:
            a, b = atoms[i]
            if costs[b] - costs[a] <= room:
                whole.append((a, b))
            elif b >= high:
                inside = True
            i += 1
        return whole, inside

    def chunks(self, title: str) -> list[Chunk]:
        body = self.body
        chunks: list[Chunk] = []
        line, counted = 1, 0  # `line` is the line of character `counted`
        label, label_path = embedding_text(title, "", ""), ""
        for start, end, path in self.pieces:
            text = body[start:end].rstrip()
            if not text:
                continue
            if text[0].isspace():
                indented = text.lstrip()
                start += text.rfind("\n", 0, len(text) - len(indented)) + 1
                text = body[start:end].rstrip()
            if path is not label_path:
                label, label_path = embedding_text(title, path, ""), path
            # With overlap a piece may start before the end of the previous one.
            line += (
                body.count("\n", counted, start) if start >= counted else -body.count("\n", start, counted)
            )
            counted = start + len(text)
            last = line + text.count("\n")
            chunks.append(Chunk(len(chunks), start, counted, line, last, path, text_hash(label + text)))
            line = last
        return chunks


def _path_to(path: str, name: str) -> str:
    """The path of a heading under another path. If it gets too long, it loses its outer parts."""
    path = f"{path} > {name}" if path else name
    while len(path) > MAX_PATH_CHARS and " > " in path:
        path = path.partition(" > ")[2]
    return path


def _label_cost(label: str) -> int:
    return len(label) * (_LABEL_CHAR if label.isascii() else _LABEL_WIDE_CHAR)


def _long_lines(body: str) -> list[tuple[int, int]]:
    """The spans (start, end) of the lines over LONG_LINE characters, in order."""
    stride = LONG_LINE // 2
    spans: list[tuple[int, int]] = []
    size = len(body)
    position = 0
    while position + stride <= size:  # a line of 2 * stride characters contains one of these windows
        end = body.find("\n", position, position + stride)
        if end < 0:
            start = body.rfind("\n", 0, position) + 1
            end = body.find("\n", position + stride)
            end = size if end < 0 else end
            if end - start > LONG_LINE:
                spans.append((start, end))
            position = end - stride
        position += stride
    return spans


_bytes_summed = 0


def _cumulative(body: str) -> memoryview:
    """The cumulative cost: element i is the cost of body[:i], in hundredths of a wordpiece. The estimate is
    within 20% of the real number for prose and 25% for code.
    """
    if not body.isascii():
        body = re.sub(_HANGUL, _HANGUL_MARK, body)
    # One byte per character; what Latin-1 lacks becomes "?". The leading NUL makes element 0 zero.
    costs = (b"\0" + body.encode("latin-1", "replace")).translate(_COSTS)
    global _bytes_summed
    _bytes_summed += len(costs)
    if _bytes_summed < _NUMPY_BYTES:
        return memoryview(array("q", accumulate(costs)))
    import numpy as np  # takes 85 ms to import, which is too long for a few changed files

    return np.cumsum(np.frombuffer(costs, np.uint8), dtype=np.int64).data
