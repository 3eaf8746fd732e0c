"""A vector as it lies in the file: its step (float32) and a code for each dimension (ctx/store/codes.py), 388
bytes at 384 dimensions.

The error of a cosine is below 0.002.
"""

from collections.abc import Sequence

import numpy as np

from ctx.store import codes

_STEP_BYTES = 4


def pack(vector: codes.Floats) -> bytes:
    """A vector of any length as its direction: the step, then a code for each dimension."""
    length = float(np.linalg.norm(vector))
    unit = vector / np.float32(length) if length > 0 else vector
    rows, steps = codes.encode(unit[None, :].astype(np.float32))
    packed: bytes = steps.astype("<f4").tobytes() + rows.tobytes()
    return packed


def unpack(packed: bytes) -> codes.Floats:
    """The unit vector again, to 8 bits."""
    rows, steps = unpacked([packed])
    vector: codes.Floats = codes.decode(rows, steps)[0]
    return vector


def unpacked(batch: Sequence[bytes]) -> tuple[codes.Codes, codes.Floats]:
    """The codes, uint8 (n, dim), and steps, float32 (n,), of packed vectors of one length."""
    raw = np.frombuffer(b"".join(batch), np.uint8).reshape(len(batch), -1)
    steps = np.ascontiguousarray(raw[:, :_STEP_BYTES]).view("<f4")[:, 0].astype(np.float32)
    return raw[:, _STEP_BYTES:], steps


def recoded(packed: bytes) -> bytes:
    """A vector as version 1 of the tables kept it (signed bytes), as it is kept now (unsigned ones)."""
    rows = np.frombuffer(packed, np.uint8, offset=_STEP_BYTES) ^ np.uint8(0x80)
    converted: bytes = packed[:_STEP_BYTES] + rows.tobytes()
    return converted
