"""The map of the index: documents as points, near where near in meaning."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import project, workspace

from ctx.store.atlas import SCALE, AtlasRoom, draw, flatten, squash
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


def test_of_too_many_documents_an_even_share_is_drawn(space: Workspace) -> None:
    _embed(space)
    assert len(draw(space.catalog, MODEL, max_points=5).ids) == 4


def test_the_same_store_is_not_drawn_twice_and_a_changed_one_is(space: Workspace) -> None:
    room = AtlasRoom(kept_share=0)
    assert room.atlas(space.catalog, MODEL).ids == ()
    _embed(space)
    atlas = room.atlas(space.catalog, MODEL)
    assert len(atlas.ids) == 12
    assert room.atlas(space.catalog, MODEL) is atlas


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_documents_have_a_place_too(count: int) -> None:
    x, y = flatten(np.eye(3, dtype=np.float32)[:count])
    assert len(x) == len(y) == count
    assert all(0 <= value <= SCALE for value in (*x, *y))


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, unique=True), st.floats(1e-6, 1e3))
def test_the_picture_keeps_the_order_and_what_differs_apart(numbers: list[int], unit: float) -> None:
    values = np.array(sorted(numbers)) * unit
    places = squash(values)
    assert np.all(np.diff(places) > 0)
    assert np.array_equal(np.sign(places), np.sign(values))
    assert np.abs(places).max() == pytest.approx(float(any(numbers)))


def test_stray_documents_are_no_wall_and_leave_the_middle_half_of_the_picture() -> None:
    spread = np.random.default_rng(3).standard_t(2, size=(5_000, 2)) * [2, 1]  # 0.5 % are far out
    for places, values in zip(flatten(spread.astype(np.float32)), spread.T, strict=True):
        assert np.count_nonzero((places == 0) | (places == SCALE)) == 1
        middle = np.abs(values) <= np.percentile(np.abs(values), 99)
        assert np.ptp(places[middle]) > 0.45 * SCALE
        assert np.ptp(places) > 0.9 * SCALE


def test_the_same_vectors_give_the_same_picture() -> None:
    vectors = np.random.default_rng(1).normal(size=(50, 16)).astype(np.float32)
    first, second = flatten(vectors), flatten(vectors.copy())
    assert np.array_equal(first, second)


def test_a_drawing_is_kept_for_a_while_though_the_store_moves_on(space: Workspace) -> None:
    room = AtlasRoom(kept_share=1e9)
    empty = room.atlas(space.catalog, MODEL)
    _embed(space)
    assert room.atlas(space.catalog, MODEL) is empty
