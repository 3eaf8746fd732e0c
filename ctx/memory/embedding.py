"""Embeds memories and queries, and caches the vectors of recently searched banks.

Without an embedder, or if it fails, memories are still stored and found by their words, and embedded later.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np

from ctx.errors import CtxError
from ctx.memory.language import first_person
from ctx.memory.reader import Reader
from ctx.memory.scores import MAX_PASSAGE_CHARS, embedding_texts
from ctx.memory.vectors import BankVectors, Floats, pack

logger = logging.getLogger(__name__)

VECTOR_CACHE_MB = 1536
# A text of this length takes the embedder about a second. A longer one is stored without vectors, found by
# its words, and embedded in the background.
MAX_CHARS_AT_ONCE = 24 * MAX_PASSAGE_CHARS


class Embedder(Protocol):
    """A model that turns texts into vectors (ctx/embed/base.py)."""

    @property
    def model(self) -> str: ...

    def embed(self, texts: Sequence[str], stop: threading.Event | None = None) -> Iterable[Floats]:
        """Yields a vector for each text, in order. Ends early when `stop` is set."""
        ...

    def embed_query(self, text: str) -> Floats: ...


class Embedding:
    """The embedder of a store, if it has one, and the cached vectors of its banks. Thread-safe."""

    def __init__(
        self,
        embedder: Embedder | None,
        cache_mb: int = VECTOR_CACHE_MB,
        deferred: Callable[[], None] = lambda: None,
    ) -> None:
        """`deferred` is called after a memory was stored without vectors."""
        self.embedder = embedder
        self._deferred = deferred
        self._cache_bytes = cache_mb << 20
        self._banks: OrderedDict[int, BankVectors] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def model(self) -> str | None:
        return self.embedder.model if self.embedder else None

    def close(self) -> None:
        with self._lock:
            self._banks.clear()

    def packed(
        self, texts: Sequence[str], *, patient: bool = False, stop: threading.Event | None = None
    ) -> list[list[bytes]]:
        """For each text, the packed vectors of its passages.

        All lists are empty without an embedder, if it failed, or if `stop` was set meanwhile. The list of a
        very long text is empty unless `patient`.
        """
        if self.embedder is None or not texts:
            return [[] for _ in texts]
        passages = [
            embedding_texts(text) if patient or len(text) <= MAX_CHARS_AT_ONCE else [] for text in texts
        ]
        listed = [passage for entry in passages for passage in entry]
        try:
            vectors = [pack(np.asarray(vector, np.float32)) for vector in self.embedder.embed(listed, stop)]
        except CtxError as error:
            # The memories must be stored anyway.
            logger.warning("memory=embed outcome=%s texts=%d", error.word, len(texts))
            vectors = []
        if len(vectors) < len(listed):
            return [[] for _ in texts]  # the embedder failed or was stopped
        packed = iter(vectors)
        return [[next(packed) for _ in entry] for entry in passages]

    def stored(self, vectors: Sequence[Sequence[bytes]]) -> None:
        """Call it after memories were stored, with their vectors. Memories without vectors are then embedded
        in the background.
        """
        if self.embedder is not None and not all(vectors):
            self._deferred()

    def query_vector(self, query: str) -> Floats | None:
        """The unit vector of a query; None without an embedder or on failure."""
        if self.embedder is None:
            return None
        try:
            vector = np.asarray(self.embedder.embed_query(first_person(query)), np.float32)
        except CtxError as error:
            logger.warning("memory=embed_query outcome=%s", error.word)
            return None
        length = float(np.linalg.norm(vector))
        return vector / np.float32(length) if length else None

    def of_bank(self, reader: Reader) -> BankVectors | None:
        """The cached vectors of a bank, brought up to date; None if the model has embedded none."""
        if self.model is None or (model_no := reader.model_no(self.model)) is None:
            return None
        with self._lock:
            vectors = self._banks.setdefault(reader.bank_no, BankVectors())
            self._banks.move_to_end(reader.bank_no)
            while (
                len(self._banks) > 1
                and sum(bank.size_bytes for bank in self._banks.values()) > self._cache_bytes
            ):
                self._banks.popitem(last=False)
        vectors.refresh(reader, model_no)
        return vectors
