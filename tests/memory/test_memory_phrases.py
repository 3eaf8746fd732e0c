"""Words that are compared with one another for a question: each is embedded once, and a failure is not kept."""

import numpy as np
import numpy.typing as npt
from memory_kit import WordEmbedder

from ctx.errors import EmbedderError
from ctx.memory.embedding import Embedding


class FrailEmbedder(WordEmbedder):
    """Counts what it embeds, and fails while it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.failing = False

    def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        if self.failing:
            raise EmbedderError("the model is away")
        self.texts.append(text)
        return super().embed_query(text)


def test_a_word_is_embedded_once() -> None:
    embedder = FrailEmbedder()
    embedding = Embedding(embedder)
    assert embedding.alike("password", "password") > 0.99
    assert embedding.alike("password", "otter") == embedding.alike("otter", "password") < 0.9
    assert sorted(embedder.texts) == ["otter", "password"]


def test_what_could_not_be_embedded_tells_nothing_apart_and_is_tried_again() -> None:
    embedder = FrailEmbedder()
    embedding = Embedding(embedder)
    embedder.failing = True
    assert embedding.alike("password", "otter") == 1.0
    embedder.failing = False
    assert embedding.alike("password", "otter") < 0.9
    assert Embedding(None).alike("password", "otter") == 1.0
