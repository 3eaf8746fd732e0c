"""The contract of every catalog for embeddings: pending texts and stored vectors."""

import numpy as np
import pytest
from store_tree import DIM, MODEL, embed_pending, make, pending_texts, vector_of

from ctx.errors import StoreError
from ctx.models import embedding_text, text_hash
from ctx.store.base import Catalog


def test_pending_texts_come_once_each_and_oldest_first(catalog: Catalog) -> None:
    catalog.put_documents(
        [
            make("filesystem", "a", ["same", "first"], title="t"),
            make("filesystem", "b", ["same", "x"], title="t"),
        ]
    )
    expected = [
        embedding_text("t", "", "same"),
        embedding_text("t", "Part 1", "first"),
        embedding_text("t", "Part 1", "x"),
    ]
    assert catalog.pending_count(MODEL) == 4
    assert pending_texts(catalog, MODEL, 10) == [(text_hash(text), text) for text in expected]
    hashed = text_hash(expected[0])
    catalog.put_embeddings(MODEL, [(hashed, vector_of(hashed))])
    assert catalog.pending_count(MODEL) == 2
    assert [text for _, text in pending_texts(catalog, MODEL, 10)] == expected[1:]


def test_pending_chunks_say_whether_their_document_is_a_test_an_example_or_a_change_log(
    catalog: Catalog,
) -> None:
    paths = ("src/app.py", "tests/test_app.py", "examples/app.py", "guide.md", "CHANGELOG.md")
    catalog.put_documents([make("s", path, [path]) for path in paths])
    secondary = [chunk.secondary for chunk in catalog.pending_chunks(MODEL)]
    assert secondary == [False, True, True, False, True]


def test_a_text_that_was_embedded_once_is_not_pending_wherever_it_comes_again(catalog: Catalog) -> None:
    catalog.put_documents([make("filesystem", "a", ["same"], title="t")])
    embed_pending(catalog)
    catalog.delete_documents("filesystem", ["a"])
    catalog.put_documents([make("git:x", "elsewhere", ["same", "new"], title="t")])
    assert catalog.pending_count(MODEL) == 1
    assert [text for _, text in pending_texts(catalog, MODEL, 9)] == ["t > Part 1\nnew"]


def test_models_do_not_share_embeddings(catalog: Catalog) -> None:
    catalog.put_documents([make("filesystem", "a", ["one", "two"])])
    embed_pending(catalog, model="one")
    assert catalog.pending_count("one") == 0
    assert catalog.pending_count("two") == 2
    embed_pending(catalog, model="two")
    catalog.put_documents([make("filesystem", "b", ["three"])])
    assert (catalog.pending_count("one"), catalog.pending_count("two")) == (1, 1)
    assert catalog.forget_embeddings("one") == 2
    assert (catalog.pending_count("one"), catalog.pending_count("two")) == (3, 1)
    assert catalog.stats()["embeddings"] == 2
    assert catalog.forget_embeddings("never used") == 0


def test_what_is_held_of_each_model_is_counted_and_can_be_dropped_alone(catalog: Catalog) -> None:
    catalog.put_documents([make("filesystem", "a", ["one", "two"])])
    embed_pending(catalog, model="elder")
    embed_pending(catalog, model="younger")
    assert catalog.model_shares(["younger", "never used"]) == catalog.model_shares()[:1]
    (share,) = catalog.model_shares(["younger"])
    assert (share.model, share.embeddings, share.filling) == ("elder", 2, False)
    assert 2 * 2 * DIM < share.size_bytes < 1000
    seq = catalog.seq()
    assert catalog.forget_embeddings("elder") == 2
    assert catalog.seq() > seq, "who follows the catalog is told"
    catalog.vacuum()
    assert [(share.model, share.embeddings) for share in catalog.model_shares()] == [("younger", 2)]
    assert (catalog.pending_count("younger"), catalog.pending_count("elder")) == (0, 2)
    assert sum(len(batch.sources) for batch in catalog.vectors_since("younger", 0)) == 2


def test_vectors_come_back_with_their_chunks_to_a_thousandth_of_cosine(catalog: Catalog) -> None:
    catalog.put_documents(
        [make("filesystem", f"{n}", [f"text {n}", "shared"], title="t", updated_ms=n) for n in range(300)]
    )
    embed_pending(catalog)
    catalog.put_documents([make("git:x", "late", ["not embedded"])])
    rows: dict[int, tuple[int, str, int, np.ndarray]] = {}
    for batch in catalog.vectors_since(MODEL, 0):
        assert batch.vectors.dtype == np.float32
        assert batch.vectors.shape == (len(batch.sources), DIM)
        assert np.allclose(np.linalg.norm(batch.vectors, axis=1), 1, atol=1e-6)
        fields = zip(
            batch.chunk_nos, batch.document_nos, batch.sources, batch.updated_ms, batch.vectors, strict=True
        )
        for chunk_no, document_no, source, updated_ms, vector in fields:
            rows[int(chunk_no)] = (int(document_no), source, int(updated_ms), vector)
    assert len(rows) == 600
    for stored in catalog.export():
        if stored.document.source == "git:x":
            continue
        for chunk, chunk_no in zip(stored.chunks, stored.chunk_nos, strict=True):
            document_no, source, updated_ms, vector = rows[chunk_no]
            assert (document_no, source, updated_ms) == (
                stored.document_no,
                "filesystem",
                stored.document.updated_ms,
            )
            assert float(vector @ vector_of(chunk.text_hash)) > 0.999


@pytest.mark.parametrize(
    "vector",
    [
        np.full(DIM, np.nan, np.float32),
        np.zeros(DIM, np.float32),
        np.ones(DIM, np.float32),
        np.full(DIM, np.inf, np.float32),
    ],
    ids=["not a number", "zero", "too long", "infinite"],
)
def test_an_invalid_vector_is_refused(catalog: Catalog, vector: np.ndarray) -> None:
    catalog.put_documents([make("filesystem", "a", ["one", "two"])])
    (sound_row, _), (unsound_row, _) = pending_texts(catalog, MODEL, 2)
    with pytest.raises(StoreError, match="unit length"):
        catalog.put_embeddings(MODEL, [(sound_row, vector_of(sound_row)), (unsound_row, vector)])
    assert catalog.pending_count(MODEL) == 2
