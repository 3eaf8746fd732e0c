"""Embeds the chunks that have no embedding yet."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ctx.connectors.base import Progress
from ctx.embed import Embedder
from ctx.errors import BadRequest
from ctx.store.base import Catalog, Projection
from ctx.store.record import PendingChunk

if TYPE_CHECKING:  # numpy takes 70 ms to import
    import numpy as np

EMBED_BATCH = 256  # texts per transaction; a crash loses at most one batch, about two seconds of work
PROGRESS_EVERY = 32  # texts between two progress reports
CLAIM_S = 300.0  # how long a machine reserves the texts of a batch; embedding a batch takes a few seconds


class EmbedReport(NamedTuple):
    embedded: int
    pending: int
    duration_s: float


def priority(chunk: PendingChunk) -> tuple[bool, int, int, int]:
    """The sort key of a chunk; chunks with a lower key are embedded first.

    Sources and pages come before tests, examples and change logs. Then come the openings of all documents,
    then their second chunks, then the third and fourth, then the fifth to eighth and so on. In each round,
    documents that changed last come first.
    """
    return chunk.secondary, chunk.ordinal.bit_length(), -chunk.updated_ms, chunk.chunk_no


class EmbeddingQueue:
    """The numbers of the chunks to embed. Chunks added later come first, so a changed document is embedded
    before a large backlog.

    The queue is only in memory. `backwards` reverses the order, for a second process that embeds the same
    chunks.
    """

    def __init__(self, *, backwards: bool = False) -> None:
        self.newest = 0  # the highest chunk number ever added
        self._backwards = backwards
        self._numbers: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, chunks: Iterable[PendingChunk]) -> None:
        numbers = [chunk.chunk_no for chunk in sorted(chunks, key=priority, reverse=not self._backwards)]
        self.newest = max([self.newest, *numbers])
        self._numbers.extendleft(numbers)

    def take(self, count: int) -> list[int]:
        """Removes and returns the next `count` numbers, or all if there are fewer. Another process may have
        embedded some of them.
        """
        return [self._numbers.popleft() for _ in range(min(count, len(self._numbers)))]


@dataclass(eq=False, kw_only=True)
class EmbeddingRun:
    """Embeds chunks in the order of a queue, at most `limit`.

    `writing()` holds the index's lock and yields the index; it is entered once per batch. `working(done,
    total)` is called after each text, and `progress` after every `PROGRESS_EVERY` texts and each batch.
    """

    catalog: Catalog
    model: str
    queue: EmbeddingQueue
    open_embedder: Callable[[], Embedder | None]
    writing: Callable[[], AbstractContextManager[Projection]]
    working: Callable[[int, int], None]
    limit: int | None
    progress: Progress | None
    stop: threading.Event | None
    count: int = 0  # number of embedded texts

    def run(self) -> int:
        """Embeds until nothing is pending. Returns the number of embedded texts. Raises the embedder's
        errors.
        """
        embedder = None
        while not self._stopped():
            left = EMBED_BATCH if self.limit is None else self.limit - self.count
            texts = self._next_texts(min(EMBED_BATCH, left))
            if not texts:
                break
            embedder = embedder or self.open_embedder()
            if embedder is None:
                break
            # Embed outside the lock, so that another process can index meanwhile. If that process changes a
            # document, these vectors are still right, because they are stored by the hash of the text.
            vectors = self._vectors(embedder, texts)
            with self.writing() as index:
                self.catalog.put_embeddings(self.model, vectors)
                index.catch_up(self.catalog)
            self.count += len(vectors)
            if self.progress:
                total = self.count + self.catalog.pending_count(self.model)
                self.progress("embed", self.count, total)
        return self.count

    def _stopped(self) -> bool:
        return self.stop is not None and self.stop.is_set()

    def _vectors(
        self, embedder: Embedder, texts: Sequence[tuple[bytes, str]]
    ) -> "list[tuple[bytes, np.ndarray]]":
        """(hash, vector) of each text; if `stop` is set, only of the first few texts."""
        vectors = []
        total = self.count + self.catalog.pending_count(self.model)
        embeddings = embedder.embed([text for _, text in texts], stop=self.stop)
        for vector, (digest, _) in zip(embeddings, texts, strict=False):
            vectors.append((digest, vector))
            done = self.count + len(vectors)
            self.working(done, max(done, total))
            if self.progress and len(vectors) % PROGRESS_EVERY == 0 and len(vectors) < len(texts):
                self.progress("embed", done, max(done, total))
        if len(vectors) < len(texts) and not self._stopped():
            raise BadRequest(f"the embedder gave {len(vectors)} vectors for {len(texts)} texts")
        return vectors

    def _next_texts(self, size: int) -> list[tuple[bytes, str]]:
        """(hash, text) of the next texts to embed, at most `size`; empty if nothing is pending."""
        if size <= 0:
            return []
        self.queue.add(self.catalog.pending_chunks(self.model, self.queue.newest))
        texts = self._queued_texts(size)
        if not texts:
            # A chunk with an old number can become pending again (`ctx embed rebuild` in another process), so
            # read all pending chunks. Do this only once, not in a loop: chunks that another machine has
            # reserved stay pending until it has embedded them.
            self.queue.add(self.catalog.pending_chunks(self.model))
            texts = self._queued_texts(size)
        return texts

    def _queued_texts(self, size: int) -> list[tuple[bytes, str]]:
        texts: list[tuple[bytes, str]] = []
        while not texts and len(self.queue):
            numbers = self.catalog.claim(self.model, self.queue.take(size), CLAIM_S)
            texts = self.catalog.pending_texts(self.model, numbers)
        return texts
