"""Helpers: a clock that stands still, and an embedder whose space is words."""

import hashlib
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ctx.memory.bank import MemoryBank
from ctx.text.analyze import query_terms

START_MS = 1_760_000_000_000  # 2025-10-09T08:53:20Z
SECOND_MS = 1000
DAY_MS = 86_400_000
WORDS = [
    "tea",
    "coffee",
    "green",
    "cup",
    "river",
    "boat",
    "Anna",
    "Bruno",
    "moved",
    "bought",
    "sold",
    "lives",
    "works",
    "Berlin",
    "Paris",
    "small",
    "über",
    "日本",
    "7",
    "2024",
]
"""What made memories are written of."""


class Clock:
    """Milliseconds since the epoch that pass only when told to."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms


class WordEmbedder:
    """Texts of the same words are near, in a space where every word has a direction of its own: no model, no
    download.
    """

    def __init__(self, model: str = "words-64", dim: int = 64) -> None:
        self.model = model
        self.dim = dim

    def embed(
        self, texts: Sequence[str], stop: threading.Event | None = None
    ) -> Iterator[npt.NDArray[np.float32]]:
        for text in texts:
            yield self.embed_query(text)

    def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        vector = np.full(self.dim, 1e-3, np.float32)
        for term in query_terms(text):
            seed = int.from_bytes(hashlib.sha256(term.encode()).digest()[:8], "big")
            vector += np.random.default_rng(seed).standard_normal(self.dim).astype(np.float32)
        unit: npt.NDArray[np.float32] = vector / np.linalg.norm(vector)
        return unit

    def close(self) -> None:
        pass


def texts(bank: MemoryBank, query: str, **options: object) -> list[str]:
    """The texts a search answers with, in order."""
    return [result["record"]["text"] for result in bank.search(query, **options)["results"]]  # type: ignore[arg-type]
