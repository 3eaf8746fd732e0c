"""Vectors of memories in 8 bits: as the tables keep them, and their products with a query."""

from collections.abc import Sequence

import numpy as np

from ctx.store.int8 import (
    QUERY_ZERO,
    Codes,
    Floats,
    Products,
    Signed,
    decode,
    encode,
    multiply,
    query_codes,
    query_row,
)

_FINE = 128  # `cosines` multiplies what the query's codes leave over in steps of 1/128
_STEP_BYTES = 4


def cosines(columns: Signed, sums: Products, steps: Floats, query: Floats) -> Floats:
    """The products of coded unit vectors with a unit query, float32 (dim,): float32 (n,).

    `columns`, int8 (dim, n): a vector in each; `sums`, int32 (n,), of them. A second product adds what the
    query's codes leave over, so the query's own error is next to none.
    """
    values, step = query_codes(query)
    fine = np.rint((query / step - values) * _FINE)
    zeros = QUERY_ZERO * sums
    scores, remainders = (
        (multiply(query_row(part), columns)[0] - zeros).astype(np.float32) for part in (values, fine)
    )
    scores += remainders / np.float32(_FINE)
    scores *= steps * step
    return np.asarray(scores, np.float32)


def pack(vector: Floats) -> bytes:
    """A vector of any length as its direction: the step (float32), then a code for each dimension."""
    length = float(np.linalg.norm(vector))
    unit = vector / np.float32(length) if length > 0 else vector
    codes, steps = encode(unit[None, :].astype(np.float32))
    packed: bytes = steps.astype("<f4").tobytes() + codes.tobytes()
    return packed


def unpack(packed: bytes) -> Floats:
    """The unit vector again, to 8 bits."""
    vector: Floats = decode(*unpacked([packed]))[0]
    return vector


def unpacked(batch: Sequence[bytes]) -> tuple[Codes, Floats]:
    """The codes, uint8 (n, dim), and steps, float32 (n,), of packed vectors of one length."""
    raw = np.frombuffer(b"".join(batch), np.uint8).reshape(len(batch), -1)
    steps = np.ascontiguousarray(raw[:, :_STEP_BYTES]).view("<f4")[:, 0].astype(np.float32)
    return raw[:, _STEP_BYTES:], steps


def recoded(packed: bytes) -> bytes:
    """A vector packed by the first version of the memory tables (signed bytes) in today's form."""
    codes = np.frombuffer(packed, np.uint8, offset=_STEP_BYTES) ^ np.uint8(0x80)
    converted: bytes = packed[:_STEP_BYTES] + codes.tobytes()
    return converted
