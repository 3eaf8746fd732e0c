"""Vectors in 8 bits, a quarter of what a search has to read, and the product of them with a query.

A row is `step * (code - 128)` for each component, off by half a step at most. So its product with a unit
vector is off by half a step times the square root of the dimensions at most.

The product of codes is onnxruntime's, single instructions over bytes where the processor has them: fastest of
one row, the query, with columns (docs/decisions/0012-leads.md).
"""

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ctx.onnx import load_onnxruntime

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]
Signed = npt.NDArray[np.int8]
Products = npt.NDArray[np.int32]

ZERO = 128  # the code of 0
# The query is codes of 1 to 127 about its zero: two products of 127 x 127 fit in 16 bits, in which processors
# without VNNI add them and clip (docs/decisions/0003-seven-bits.md).
QUERY_ZERO = 64
QUERY_MOST = 63
_STEP_BYTES = 4  # of a vector that is packed
_FINE = 128  # steps of what the query's codes leave over in one of theirs: 128 x 127 twice fits too
_SHARED_COLUMNS = 32_768  # from here on threads share a product: below, it takes half a millisecond
_MAX_THREADS = 4  # memory is no faster for more

# One node, `MatMulInteger(rows: uint8, columns: int8) -> products: int32`, of any shapes; tests compare it
# with onnx's own writing.
_GRAPH = (
    b'\x08\x05:d\n(\n\x04rows\n\x07columns\x12\x08products"\rMatMulInteger\x12\x07productZ\x0c\n\x04rows\x12'
    b"\x04\n\x02\x08\x02"
    b"Z\x0f\n\x07columns\x12\x04\n\x02\x08\x03b\x10\n\x08products\x12\x04\n\x02\x08\x06B\x04\n\x00\x10\n"
)


def encode(vectors: Floats) -> tuple[Codes, Floats]:
    """The codes, uint8 (n, dim), and steps, float32 (n,), of float32 (n, dim)."""
    steps = np.abs(vectors).max(axis=1) / np.float32(127)
    steps[steps == 0] = 1
    return (np.rint(vectors / steps[:, None]) + ZERO).astype(np.uint8), steps


def decode(codes: Codes, steps: Floats) -> Floats:
    """The vectors again, float32 (n, dim), each component off by half a step at most."""
    vectors: Floats = (codes.astype(np.float32) - np.float32(ZERO)) * steps[:, None]
    return vectors


def signed(coded: Codes) -> Signed:
    """Codes less `ZERO`, as products take them: of the same shape."""
    centred: Signed = (coded ^ np.uint8(ZERO)).view(np.int8)
    return centred


def coarse(query: Floats) -> tuple[Floats, float]:
    """A query, float32 (dim,), in steps of whole numbers, float32 (dim,), and the size of a step."""
    step = (float(np.abs(query).max()) or 1.0) / QUERY_MOST
    values: Floats = np.rint(query / np.float32(step))
    return values, step


def query_row(values: Floats) -> Codes:
    """Steps of a query as codes about `QUERY_ZERO`, a row of a product: uint8 (1, dim)."""
    return (values + QUERY_ZERO).astype(np.uint8)[None]


def cosines(columns: Signed, sums: Products, steps: Floats, query: Floats) -> Floats:
    """The products of encoded rows of unit length with a query of unit length, float32 (dim,): float32 (n,).

    `columns`, int8 (dim, n): the codes less `ZERO`, a row in each; `sums`, int32 (n,), of them. The query is
    read twice, the second time what the first leaves over: so its own error is next to none.
    """
    values, step = coarse(query)
    fine = np.rint((query / np.float32(step) - values) * _FINE)
    zeros = QUERY_ZERO * sums
    scores, remainders = (
        (multiply(query_row(part), columns)[0] - zeros).astype(np.float32) for part in (values, fine)
    )
    scores += remainders / np.float32(_FINE)
    scores *= steps
    scores *= np.float32(step)
    return np.asarray(scores, np.float32)


def pack(vector: Floats) -> bytes:
    """A vector of any length as its direction, as a file keeps it alone: the step (float32), then a code for
    each dimension, 388 bytes at 384. The error of a cosine is below 0.002.
    """
    length = float(np.linalg.norm(vector))
    unit = vector / np.float32(length) if length > 0 else vector
    rows, steps = encode(unit[None, :].astype(np.float32))
    packed: bytes = steps.astype("<f4").tobytes() + rows.tobytes()
    return packed


def unpack(packed: bytes) -> Floats:
    """The unit vector again, to 8 bits."""
    rows, steps = unpacked([packed])
    vector: Floats = decode(rows, steps)[0]
    return vector


def unpacked(batch: Sequence[bytes]) -> tuple[Codes, Floats]:
    """The codes, uint8 (n, dim), and steps, float32 (n,), of packed vectors of one length."""
    raw = np.frombuffer(b"".join(batch), np.uint8).reshape(len(batch), -1)
    steps = np.ascontiguousarray(raw[:, :_STEP_BYTES]).view("<f4")[:, 0].astype(np.float32)
    return raw[:, _STEP_BYTES:], steps


def recoded(packed: bytes) -> bytes:
    """A packed vector of the first memory tables (signed bytes), as it is kept now (unsigned ones)."""
    rows = np.frombuffer(packed, np.uint8, offset=_STEP_BYTES) ^ np.uint8(0x80)
    converted: bytes = packed[:_STEP_BYTES] + rows.tobytes()
    return converted


_loading = threading.Lock()
_loaded: dict[int, Any] = {}  # by threads


def multiply(rows: Codes, columns: Signed, *, share: bool = True) -> Products:
    """Rows of bytes, uint8 (m, k), times int8 (k, n), or each of int8 (blocks, k, n): int32 (m, n), or
    (blocks, m, n).

    Without the lock of Python, in the caller's thread, or shared among some where there are many columns and
    the caller does not `share` them itself.
    """
    shared = share and columns.size >= _SHARED_COLUMNS * rows.shape[1]
    threads = min(_MAX_THREADS, os.cpu_count() or 1) if shared else 1
    products: Products = _session(threads).run(None, {"rows": rows, "columns": columns})[0]
    return products


def _session(threads: int) -> Any:
    """The product, loaded once for the process."""
    if threads not in _loaded:
        with _loading:
            if threads not in _loaded:
                onnxruntime = load_onnxruntime()
                options = onnxruntime.SessionOptions()
                options.intra_op_num_threads = threads
                options.inter_op_num_threads = 1
                # Idle threads would else turn on the spot for a while, and take from the rest of the search
                # what they gave.
                options.add_session_config_entry("session.intra_op.allow_spinning", "0")
                _loaded[threads] = onnxruntime.InferenceSession(
                    _GRAPH, options, providers=["CPUExecutionProvider"]
                )
    return _loaded[threads]
