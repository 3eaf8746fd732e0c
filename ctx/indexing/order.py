"""In which order texts are embedded: what tells most comes first, and nothing waits for ever."""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from ctx.store.rows import PendingChunk

ASKED_AT_MOST = 4096  # chunks of the last questions: a minute of work, and older ones lose their turn


class Asked:
    """The chunks that the last questions led to and that have no embedding yet. Safe from several threads."""

    def __init__(self) -> None:
        self._numbers: deque[int] = deque(maxlen=ASKED_AT_MOST)

    def note(self, chunk_nos: Sequence[int]) -> None:
        """Puts the chunks of a question, best first, before those of the questions before it."""
        self._numbers.extendleft(reversed(chunk_nos[:ASKED_AT_MOST]))

    def take(self, count: int) -> list[int]:
        """The first `count` of them, no longer kept here."""
        return _taken(self._numbers, count)


class EmbeddingOrder:
    """The chunks that await an embedding, best first.

    Breadth first: of each document its opening, then its second chunk, the third and fourth, the fifth to
    eighth and so on; within such a round the documents that changed last come first. What questions led to,
    and what was written since the first `add`, comes before all that, but takes three quarters of a batch at
    most: what stands there longest always moves on. A function of what is pending alone, so that nothing of
    it has to be stored: after a crash the same order is made again. A million chunks take 8 MB and a second
    to sort.

    `backwards`, what stands and what is new come from their ends: for whoever embeds what another one embeds
    from the beginning.
    """

    def __init__(self, asked: Asked, *, backwards: bool = False) -> None:
        self.newest = 0  # the highest number of a chunk that was ever added
        self._asked = asked
        self._backwards = backwards
        self._recent: deque[int] = deque()
        self._standing = array("q")
        self._next = 0  # of those that stand

    def __len__(self) -> int:
        return len(self._standing) - self._next + len(self._recent)

    def add(self, chunks: Iterator[PendingChunk]) -> None:
        """Takes in chunks: what comes while others stand is news."""
        first = next(chunks, None)
        if first is None:
            return
        numbers = _sorted(chain([first], chunks))
        if self._backwards:
            numbers.reverse()
        self.newest = max(self.newest, max(numbers))
        if self._next < len(self._standing):
            self._recent.extendleft(reversed(numbers))
        else:
            self._standing, self._next = numbers, 0

    def take(self, count: int) -> list[int]:
        """The next `count` chunk numbers, or all there are; one may come twice, or have been embedded
        meanwhile.
        """
        reserved = min(len(self._standing) - self._next, max(1, count // 4), count)
        numbers = self._asked.take(count - reserved)
        numbers += _taken(self._recent, count - reserved - len(numbers))
        end = self._next + count - len(numbers)
        numbers += self._standing[self._next : end].tolist()
        self._next = min(end, len(self._standing))
        return numbers


def _sorted(chunks: Iterable[PendingChunk]) -> "array[int]":
    """The numbers of the chunks in the order of their turn."""
    import numpy as np  # 70 ms, and a run that finds nothing changed has nothing to sort

    row = np.dtype([("chunk_no", np.int64), ("ordinal", np.int64), ("updated_ms", np.int64)])
    rows = np.fromiter(chunks, row)
    rounds = np.frexp(rows["ordinal"])[1]  # 0, 1, 2, 2, 3, 3, 3, 3, ...: the length of the number in bits
    turns = np.lexsort((rows["chunk_no"], -rows["updated_ms"], rounds))
    numbers = array("q")
    numbers.frombytes(rows["chunk_no"][turns].tobytes())
    return numbers


def _taken(numbers: deque[int], count: int) -> list[int]:
    """The first of a queue, removed from it.
    Another thread may add to it meanwhile, and so push out its last.
    """
    first: list[int] = []
    try:
        while len(first) < count:
            first.append(numbers.popleft())
    except IndexError:
        pass
    return first
