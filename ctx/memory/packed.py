"""Vectors of memories in 8 bits, as the tables keep them."""

from collections.abc import Sequence

import numpy as np

from ctx.store.int8 import Codes, Floats, decode, encode

_STEP_BYTES = 4


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
