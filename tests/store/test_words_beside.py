"""A hybrid question of a large index: words are searched for while the question's vector is made."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import PATIENCE_S
from store_tree import DIM, MODEL, embed_pending, tree, vector_of

from ctx.errors import EmbedderError
from ctx.store import local as local_module
from ctx.store.local import LocalIndex
from ctx.store.sqlite_catalog import SqliteCatalog
from ctx.types import Filters, Hit

ALL = Filters()


class PatientIndex(LocalIndex):
    """Searches for words only once the question's vector is in the making."""

    began: threading.Event

    def keyword(self, *args: Any, **options: Any) -> list[Hit]:
        assert self.began.wait(PATIENCE_S), "the vector is made only behind the words"
        return super().keyword(*args, **options)


@pytest.fixture
def filled(tmp_path: Path) -> tuple[SqliteCatalog, str]:
    """A catalog with the first tree, and the folder of an index that has it."""
    catalog = SqliteCatalog(str(tmp_path / "ctx.db"))
    catalog.put_documents(list(tree(0).values()))
    embed_pending(catalog)
    folder = str(tmp_path / "index")
    with LocalIndex(folder, lambda: (MODEL, DIM), writable=True) as index:
        index.catch_up(catalog)
    return catalog, folder


@pytest.mark.parametrize("passages", [0, 10**9], ids=["beside", "before"])
def test_both_are_what_each_gives(
    filled: tuple[SqliteCatalog, str], monkeypatch: pytest.MonkeyPatch, passages: int
) -> None:
    monkeypatch.setattr(local_module, "BESIDE_PASSAGES", passages)
    with filled[0], LocalIndex(filled[1], lambda: (MODEL, DIM)) as index:
        for query in ("kingfisher", "the otter swims", "kingf", "nothingness"):
            vector = vector_of(query.encode())
            expected = index.keyword(query, ALL, 9, prefix=True), index.semantic(vector, ALL, 5)
            assert expected[1]
            assert index.both(query, lambda made=vector: made, ALL, (9, 5), prefix=True) == expected


@pytest.mark.parametrize("passages", [0, 10**9], ids=["beside", "before"])
def test_an_embedder_that_fails_is_the_caller_s_to_know(
    filled: tuple[SqliteCatalog, str], monkeypatch: pytest.MonkeyPatch, passages: int
) -> None:
    def fail() -> np.ndarray:
        raise EmbedderError("the model is away")

    monkeypatch.setattr(local_module, "BESIDE_PASSAGES", passages)
    with filled[0], LocalIndex(filled[1], lambda: (MODEL, DIM)) as index:
        words = index.keyword("kingfisher", ALL, 9)
        with pytest.raises(EmbedderError, match="away"):
            index.both("kingfisher", fail, ALL, (9, 5))
        assert index.keyword("kingfisher", ALL, 9) == words != []


def test_words_are_searched_for_while_the_vector_is_made(
    filled: tuple[SqliteCatalog, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_module, "BESIDE_PASSAGES", 0)
    with filled[0], PatientIndex(filled[1], lambda: (MODEL, DIM)) as index:
        index.began = threading.Event()
        index.vocabulary(["kingfisher"], [])  # as a search begins: it opens the index of words

        def make() -> np.ndarray:
            index.began.set()
            return vector_of(b"q")

        assert all(index.both("kingfisher", make, ALL, (9, 5)))
