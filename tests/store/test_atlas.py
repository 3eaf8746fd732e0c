"""The map of documents: near in meaning is near on the map."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kit import project, workspace

from ctx.store.atlas import SCALE, draw, flatten
from ctx.workspace import Workspace

MODEL = "toy"


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Workspace]:
    files = {f"{topic}{number}.md": f"# {topic} {number}\n" for topic in "ab" for number in range(6)}
    with workspace(project(tmp_path, files)) as opened:
        opened.refresh([])
        yield opened


def _embed(space: Workspace) -> None:
    """Documents on `a` lie about one corner of the space, those on `b` about another."""
    chance = np.random.default_rng(7)
    batch = []
    for digest, text in space.catalog.pending_texts(MODEL, 100):
        vector = chance.normal(0, 0.05, 8).astype(np.float32)
        vector[0 if "a " in text else 1] += 1
        batch.append((digest, vector / np.linalg.norm(vector)))
    space.catalog.put_embeddings(MODEL, batch)


def test_documents_of_one_subject_stand_together(space: Workspace) -> None:
    _embed(space)
    atlas = draw(space.catalog, MODEL)
    assert atlas.sources == ("filesystem:docs",)
    assert (len(atlas.ids), atlas.documents) == (12, 12)
    across = {
        topic: [x for x, title in zip(atlas.x, atlas.titles, strict=True) if title[0] == topic]
        for topic in "ab"
    }
    western, eastern = sorted(across.values(), key=min)
    assert max(western) < SCALE / 2 < min(eastern)
    assert all(0 <= value <= SCALE for value in (*atlas.x, *atlas.y))


def test_a_map_of_what_has_no_embedding_is_empty(space: Workspace) -> None:
    atlas = draw(space.catalog, MODEL)
    assert (atlas.ids, atlas.documents) == ((), 12)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_documents_have_a_place_too(count: int) -> None:
    x, y = flatten(np.eye(3, dtype=np.float32)[:count])
    assert len(x) == len(y) == count
    assert all(0 <= value <= SCALE for value in (*x, *y))
