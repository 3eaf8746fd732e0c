"""A question's vector is made when a leg asks for it, and once."""

import numpy as np

from ctx.evidence import QueryVector


class CountingEmbedder:
    """Counts the questions that it embeds."""

    model = "test/4"
    dim = 4

    def __init__(self) -> None:
        self.questions: list[str] = []

    def embed_query(self, text: str) -> np.ndarray:
        self.questions.append(text)
        return np.eye(1, self.dim, dtype=np.float32)[0]


def test_a_question_is_embedded_when_asked_for_and_once_however_deep_a_search_goes() -> None:
    embedder = CountingEmbedder()
    vector = QueryVector(embedder, "where is the lantern")  # type: ignore[arg-type]
    assert vector.model == "test/4"
    assert embedder.questions == []
    assert vector.values().tolist() == vector.values().tolist() == [1, 0, 0, 0]
    assert embedder.questions == ["where is the lantern"]
