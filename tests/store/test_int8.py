"""Vectors in 8 bits: products are within their bounds, on every processor."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx.memory import packed
from ctx.store import int8


def units(seed: int, count: int, dim: int) -> int8.Floats:
    chance = np.random.default_rng(seed)
    # Of very different shapes: from one large component to all alike.
    matrix = chance.standard_normal((count, dim)) ** chance.integers(1, 8, (count, 1))
    matrix[np.abs(matrix).max(axis=1) == 0] = 1
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(matrix, np.float32)


def cosines(coded: int8.Codes, steps: int8.Floats, query: int8.Floats) -> int8.Floats:
    signed = int8.signed(coded)
    columns = np.ascontiguousarray(signed.T)
    return packed.cosines(columns, signed.sum(axis=1, dtype=np.int32), steps, query)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), dim=st.sampled_from([1, 2, 3, 8, 63, 384, 1024, 3072]))
def test_cosines_are_those_of_the_codes(seed: int, dim: int) -> None:
    rows, query = units(seed, 50, dim), units(seed + 1, 1, dim)[0]
    coded, steps = int8.encode(rows)
    scores = cosines(coded, steps, query)
    exact = int8.decode(coded, steps).astype(np.float64) @ query.astype(np.float64)
    # Each component of the query is off by half of the finer step at most.
    off = float(np.abs(query).max()) / int8.QUERY_MOST / packed._FINE / 2 * dim**0.5
    assert (np.abs(scores - exact) <= 1.01 * off + 1e-5).all()
    assert scores.dtype == np.float32


def test_products_are_not_clipped_where_they_are_largest() -> None:
    # Two products of bytes in 16 bits, as processors without VNNI add them.
    rows = np.stack([np.full(384, 384**-0.5), np.full(384, -(384**-0.5))]).astype(np.float32)
    coded, steps = int8.encode(rows)
    assert {int(coded.min()), int(coded.max())} == {1, 255}
    for sign in (1, -1):
        query = (sign * rows[0]).astype(np.float32)
        assert cosines(coded, steps, query) == pytest.approx([sign, -sign], abs=1e-3)
