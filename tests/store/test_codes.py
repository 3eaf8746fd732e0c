"""Vectors in 8 bits: what they say is within what they promise, on every processor."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx.store import codes


def units(seed: int, count: int, dim: int) -> codes.Floats:
    chance = np.random.default_rng(seed)
    # Of very different shapes: from one large component to all alike.
    matrix = chance.standard_normal((count, dim)) ** chance.integers(1, 8, (count, 1))
    matrix[np.abs(matrix).max(axis=1) == 0] = 1
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(matrix, np.float32)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), dim=st.sampled_from([1, 2, 3, 8, 63, 384, 1024, 3072]))
def test_an_estimate_is_within_its_margin(seed: int, dim: int) -> None:
    rows, query = units(seed, 50, dim), units(seed + 1, 1, dim)[0]
    estimate = codes.estimate(*codes.encode(rows), query)
    off = np.abs(estimate.scores - rows.astype(np.float64) @ query.astype(np.float64))
    assert (off <= estimate.margins).all()
    assert estimate.scores.dtype == estimate.margins.dtype == np.float32


def test_the_margins_are_small_enough_to_part_rows() -> None:
    estimate = codes.estimate(*codes.encode(units(1, 100, 384)), units(2, 1, 384)[0])
    even = codes.estimate(*codes.encode(np.full((1, 384), 384**-0.5, np.float32)), units(2, 1, 384)[0])
    assert estimate.margins.min() < 0.02
    assert even.margins[0] < 0.005


def test_products_are_not_clipped_where_they_are_largest() -> None:
    # Two products of bytes in 16 bits, as processors without VNNI add them.
    rows = np.stack([np.full(384, 384**-0.5), np.full(384, -(384**-0.5))]).astype(np.float32)
    coded, steps = codes.encode(rows)
    assert {int(coded.min()), int(coded.max())} == {1, 255}
    for sign in (1, -1):
        query = (sign * rows[0]).astype(np.float32)
        assert codes.estimate(coded, steps, query).scores == pytest.approx([sign, -sign], abs=1e-3)


def test_a_row_without_length_is_encoded_too() -> None:
    coded, steps = codes.encode(np.zeros((1, 8), np.float32))
    assert codes.estimate(coded, steps, units(1, 1, 8)[0]).scores[0] == pytest.approx(0, abs=1e-5)


def test_the_graph_is_what_onnx_writes() -> None:
    from onnx import TensorProto, helper

    def value(name: str, kind: int) -> object:
        return helper.make_tensor_value_info(name, kind, None)

    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["rows", "columns"], ["products"])],
        "product",
        [value("rows", TensorProto.UINT8), value("columns", TensorProto.INT8)],
        [value("products", TensorProto.INT32)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=5)
    assert model.SerializeToString() == codes._GRAPH
