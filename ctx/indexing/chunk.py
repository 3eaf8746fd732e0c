"""Chunks: where a document is cut, so that each piece is read whole by the embedder and says one thing.

A document is a tree of headings. A subtree that fits in one chunk is one; small neighbours under one parent
are joined; what does not fit is cut at the best border near the point that makes the pieces even. Sizes are
estimates in wordpieces: the real tokenizer reads 3 MB/s, and the estimate 300.
"""

import re
import string
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from ctx.formats.table import PAGED
from ctx.identity import embedding_text, text_hash
from ctx.items import Chunk, Extracted, Heading
from ctx.text.filetypes import is_prose

MAX_TOKENS = 200  # title, heading path and text; MiniLM reads 256, and an estimate may be a fifth too low
SMALL_SHARE = 0.4  # a piece below this share of a chunk is joined with its neighbour where it can be
MAX_PATH_CHARS = 200  # a longer heading path loses its outermost parts: it must not crowd out the text
MAX_LEVEL = 12  # deeper headings count as this deep; bounds the recursion
LONG_LINE = 5000  # characters; longer lines are minified code, one-line data or an embedded image
# All long lines of a document together; they are cut coarser rather than more often.
MAX_LONG_LINE_CHUNKS = 200

# Hundredths of a wordpiece by character, fitted by least squares to 4350 samples of Markdown,
# reStructuredText, Python, Go, C, JavaScript and plain text (measured how well they
# hold). WordPiece makes a token of every punctuation mark and, in this vocabulary, of every character outside
# Latin. A blank costs a little so that a desert of them is cut too.
_UNIT = 100
_NUMPY_BYTES = 16_384  # above it numpy is faster, import included
_LOWER, _UPPER, _DIGIT, _MARK, _BLANK, _OTHER = 24, 30, 60, 120, 1, 100
# A Hangul syllable is split into its letters. While costs are counted this character stands for one.
_HANGUL, _HANGUL_MARK, _HANGUL_COST = re.compile("[\uac00-\ud7a3]"), "\x01", 250
_HEAD_CHAR, _HEAD_WIDE_CHAR = 30, 100  # a title or path, by its length alone: it is mostly words

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
        (bytes(range(0xC0, 0x100)), _UPPER),  # accented letters lose their accents
        (string.digits.encode(), _DIGIT),
        (b"?", _OTHER),
        (_HANGUL_MARK.encode(), _HANGUL_COST),
    ):
        for code in codes:
            costs[code] = cost
    return bytes(costs)


_COSTS = _costs()  # by Latin-1 code


def chunk(
    extracted: Extracted, title: str, *, max_tokens: int = MAX_TOKENS, overlap_tokens: int = 0
) -> list[Chunk]:
    """Cuts a document into chunks, in order of their start; none reaches over two pages (slides, sheets,
    messages).

    Without overlap every non-blank character of the body is in exactly one chunk. `max_tokens` (estimated
    wordpieces) bounds title, heading path and text together; only lines over LONG_LINE may exceed it, where a
    document has a great many of them. `overlap_tokens` are repeated from the piece before when one section is
    cut in several. A document without text has one chunk with an empty span, so that its title and path can
    be found.
    """
    body = extracted.body
    if not body or body.isspace():
        return [Chunk(0, 0, 0, 1, 1, "", text_hash(embedding_text(title, "", "")))]
    cutter = _Cutter(
        extracted, title, max(16, max_tokens) * _UNIT, max(0, min(overlap_tokens, max_tokens // 2)) * _UNIT
    )
    cutter.pack_document()
    return cutter.chunks(title)


def estimate_tokens(text: str) -> int:
    """About how many wordpieces a text has: within a fifth for prose, a quarter for code."""
    return _cumulative(text)[len(text)] // _UNIT if text else 0


class _Group(NamedTuple):
    """Neighbouring sections that go into one chunk; `lead`: the parent's own text, and nothing else yet."""

    start: int
    end: int
    path: str
    lead: bool


class _Cutter:
    """One document on the bench. `pieces` grows by (start, end, heading path), in order."""

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
        self._lay_out(extracted.headings, title)

    def _lay_out(self, headings: tuple[Heading, ...], title: str) -> None:
        """Per heading: where its section starts, its path, the room under it, and the index after the last
        section below it.
        """
        count = len(headings)
        self.starts = starts = [heading.start for heading in headings]
        self.ends = ends = [count] * count
        self.paths: list[str] = []
        self.continued: dict[str, str] = {}  # path of a definition -> the path of its later pieces
        self.rooms: list[int] = []
        # A long title or path takes half the room at most.
        half = self.limit // 2
        title_room = self.limit - _head_cost(title)
        self.title_room = max(half, title_room)
        open_: list[tuple[int, int, str]] = []  # (level, index, path) of the headings above
        for i, (_, level, name, signature) in enumerate(headings):
            level = min(level, MAX_LEVEL)
            while open_ and open_[-1][0] >= level:
                ends[open_.pop()[1]] = i
            path = open_[-1][2] if open_ else ""
            # The first heading is the title more often than not, and the title is read with every chunk
            # anyway.
            if name and (i or not self.prose or name.casefold() != title.casefold()):
                if signature:
                    self.continued[_path_to(path, name)] = _path_to(path, signature)
                path = _path_to(path, name)
            open_.append((level, i, path))
            self.paths.append(path)
            self.rooms.append(max(half, title_room - _head_cost(path)))
        starts.append(len(self.body))

    def pack_document(self) -> None:
        count = len(self.paths)
        if count == 1 and not self.body[: self.starts[0]].strip():
            lead = (0, 0)
            self.starts[0] = 0
        else:
            lead = (0, self.starts[0])
        self._pack(0, count, "", self.title_room, lead)

    def _bare(self, start: int, end: int) -> bool:
        """A heading and nothing under it: one line with letters, the others adornment."""
        return end - start < 400 and len(_LINE_WITH_LETTERS.findall(self.body, start, end)) < 2

    def _pack(self, first: int, last: int, path: str, room: int, lead: tuple[int, int]) -> None:
        """Packs the sections `first..last` that lie under `path`, after the parent's own text `lead`."""
        costs, starts = self.costs, self.starts
        group: _Group | None = _Group(*lead, path, True)  # what waits for a neighbour
        if _NON_BLANK.search(self.body, *lead) is None:
            group = None
        elif costs[lead[1]] - costs[lead[0]] > room:
            self._split(*lead, path, room)
            group = None
        i = first
        while i < last:
            j = self.ends[i]
            start, end, own_room = starts[i], starts[j], self.rooms[i]
            if group is not None:
                opens_page = start in self.pages  # a hit names its page: no chunk reaches over two
                joined = None if opens_page else self._joined(group, i, path, room)
                if joined is not None:
                    group, i = joined, j
                    continue
                if not opens_page and self._goes_on(group):
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
            self._flush(group.start, group.end, group.path)

    def _joined(self, group: "_Group", section: int, path: str, room: int) -> "_Group | None":
        """The group with a section, where they are small neighbours that fit together."""
        costs = self.costs
        start, end = self.starts[section], self.starts[self.ends[section]]
        group_cost, cost = costs[start] - costs[group.start], costs[end] - costs[start]
        if (group_cost >= self.small and cost >= self.small) or group_cost + cost > room:
            return None
        # A heading alone says nothing of its own: what it goes with gives the path.
        alone = group.lead and self._bare(group.start, group.end) and group_cost + cost <= self.rooms[section]
        return _Group(group.start, end, self.paths[section] if alone else path, False)

    def _goes_on(self, group: "_Group") -> bool:
        """Whether a group cannot stand alone and goes with what follows it, though under a deeper path than
        its own.
        """
        cost = self.costs[group.end] - self.costs[group.start]
        if cost >= self.small:
            return False
        return (group.lead and cost * 2 < self.small) or self._bare(group.start, group.end)

    def _flush(self, start: int, end: int, path: str) -> None:
        """The last group of a parent; a heading alone joins the piece before it, which it may make an eighth
        too large.
        """
        if start not in self.pages and self.pieces and self.pieces[-1][1] == start and self._bare(start, end):
            before_start, _, before_path = self.pieces[-1]
            room = self.limit - min(self.limit - self.title_room + _head_cost(before_path), self.limit // 2)
            if self.costs[end] - self.costs[before_start] <= room + self.limit // 8:
                self.pieces[-1] = (before_start, end, before_path)
                return
        self.pieces.append((start, end, path))

    def _split(self, start: int, end: int, path: str, room: int) -> None:
        """Cuts a stretch without headings into even pieces; its long lines apart and more coarsely.

        The first piece of a definition has its first line; the others have its signature in their path.
        """
        continued = self.continued.get(path, path)
        room = max(self.limit // 2, room - max(0, _head_cost(continued) - _head_cost(path)))
        i = bisect_left(self.long_lines, (start, start))
        while i < len(self.long_lines) and self.long_lines[i][0] < end:
            line_start, line_end = self.long_lines[i]
            path = self._cut_evenly(start, line_start, path, continued, room)
            start = min(line_end, end)
            path = self._cut_evenly(line_start, start, path, continued, max(room, self.coarse_room))
            i += 1
        self._cut_evenly(start, end, path, continued, room)

    def _cut_evenly(self, start: int, end: int, path: str, continued: str, room: int) -> str:
        """Cuts a stretch into even pieces, the first under `path`; the path for what follows."""
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
            if high <= start:  # one character dearer than a chunk
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
                # Blank lines go, the first line's indentation stays.
                start = max(start, body.rfind("\n", start, match.start()) + 1)

    def _reach_back(self, first: int, start: int, overlap: int) -> int:
        """Where a piece that begins at `start` begins with its overlap: at a line, else at a word."""
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
        """The best place in (start, high] to end a piece, by kind of border first, then by nearness to
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
        """Behind the nearest line end, or behind the first of the two of a blank line."""
        before = self.body.rfind(end, low, before_stop)
        after = self.body.find(end, ideal, high)
        if before >= 0 and (after < 0 or ideal - before < after - ideal):
            return before + 1
        return after + 1 if after >= 0 else None

    def _border_by_atoms(
        self, start: int, low: int, ideal: int, high: int, room: int, whole: Sequence[tuple[int, int]]
    ) -> int | None:
        """At an end of a block that is to stay whole, or at a blank line outside of them."""
        borders = [border for span in whole for border in span if low < border <= high]
        position = self.body.find("\n\n", low, high)
        while position >= 0:
            if not any(a < position + 1 < b for a, b in whole):
                borders.append(position + 1)
            position = self.body.find("\n\n", position + 2, high)
        if borders:
            return min(borders, key=lambda border: abs(border - ideal))
        # A block that would fit a chunk of its own crosses the end: leave it whole for the next.
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
        """At the line that is indented least."""
        lines = [
            (len(match[1]), abs(match.start(1) - ideal), match.start(1))
            for match in _INDENT.finditer(self.body, low, high)
        ]
        return min(lines)[2] if lines else None

    def _atoms_near(self, start: int, high: int, room: int) -> tuple[list[tuple[int, int]], bool]:
        """The atoms that meet (start, high) and would fit a chunk of their own; and whether a bigger one
        spans `high`.
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
        line, counted = 1, 0  # the line at character `counted`
        head, head_path = embedding_text(title, "", ""), ""
        for start, end, path in self.pieces:
            text = body[start:end].rstrip()
            if not text:
                continue
            if text[0].isspace():
                indented = text.lstrip()
                start += text.rfind("\n", 0, len(text) - len(indented)) + 1
                text = body[start:end].rstrip()
            if path is not head_path:
                head, head_path = embedding_text(title, path, ""), path
            # With overlap a piece may begin before the last one ended.
            line += (
                body.count("\n", counted, start) if start >= counted else -body.count("\n", start, counted)
            )
            counted = start + len(text)
            last = line + text.count("\n")
            chunks.append(Chunk(len(chunks), start, counted, line, last, path, text_hash(head + text)))
            line = last
        return chunks


def _path_to(path: str, name: str) -> str:
    """The path of a heading below that of another; of one too long the end."""
    path = f"{path} > {name}" if path else name
    while len(path) > MAX_PATH_CHARS and " > " in path:
        path = path.partition(" > ")[2]
    return path


def _head_cost(head: str) -> int:
    return len(head) * (_HEAD_CHAR if head.isascii() else _HEAD_WIDE_CHAR)


def _long_lines(body: str) -> list[tuple[int, int]]:
    """The spans of lines over LONG_LINE, in order."""
    stride = LONG_LINE // 2
    spans: list[tuple[int, int]] = []
    size = len(body)
    position = 0
    while position + stride <= size:  # a line of 2 * stride characters holds one of these windows whole
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


def _cumulative(body: str) -> memoryview:
    """Element i is the cost of body[:i], in hundredths of a token."""
    if not body.isascii():
        body = _HANGUL.sub(_HANGUL_MARK, body)
    # One byte a character: what Latin-1 lacks becomes "?". The NUL before it makes element 0 zero.
    costs = (b"\0" + body.encode("latin-1", "replace")).translate(_COSTS)
    if len(costs) < _NUMPY_BYTES:
        return memoryview(array("q", accumulate(costs)))
    import numpy as np  # 85 ms, and a search counts the tokens of short texts only

    return memoryview(np.cumsum(np.frombuffer(costs, np.uint8), dtype=np.int64))
