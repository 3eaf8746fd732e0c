"""In which order texts are embedded."""

from collections import deque
from collections.abc import Iterable

from ctx.store.rows import PendingChunk


def priority(chunk: PendingChunk) -> tuple[bool, int, int, int]:
    """Chunks with a lower value are embedded first.

    Sources and pages come before tests, examples and change logs. Then breadth first: the opening of each
    document, its second chunk, the third and fourth, the fifth to eighth and so on; in each round the
    documents that changed last come first.
    """
    return chunk.secondary, chunk.ordinal.bit_length(), -chunk.updated_ms, chunk.chunk_no


class EmbeddingQueue:
    """The numbers of the chunks that wait for an embedding. What is added later comes before the rest, so a
    changed document is embedded while a large backlog waits.

    Nothing of it is stored: it is made of what is pending. `backwards` starts from the end, for a second
    process that embeds the same chunks.
    """

    def __init__(self, *, backwards: bool = False) -> None:
        self.newest = 0  # the highest number ever added
        self._backwards = backwards
        self._numbers: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, chunks: Iterable[PendingChunk]) -> None:
        numbers = [chunk.chunk_no for chunk in sorted(chunks, key=priority, reverse=not self._backwards)]
        self.newest = max([self.newest, *numbers])
        self._numbers.extendleft(numbers)

    def take(self, count: int) -> list[int]:
        """The next `count` numbers, or all there are. One may have been embedded meanwhile."""
        return [self._numbers.popleft() for _ in range(min(count, len(self._numbers)))]
