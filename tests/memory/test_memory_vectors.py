"""The vectors in memory, held to plain arithmetic over what the file says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx.memory.packed import pack, unpack


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([8, 64, 384, 1024]), st.floats(1e-6, 1e6))
def test_a_packed_vector_keeps_its_direction(seed: int, dim: int, length: float) -> None:
    random = np.random.default_rng(seed)
    vector, query = random.standard_normal((2, dim)).astype(np.float32)
    packed = pack(vector * np.float32(length))
    assert len(packed) == 4 + dim
    cosine = vector @ query / np.linalg.norm(vector) / np.linalg.norm(query)
    assert unpack(packed) @ query / np.linalg.norm(query) == pytest.approx(
        cosine, abs=0.01 if dim < 64 else 0.003
    )
