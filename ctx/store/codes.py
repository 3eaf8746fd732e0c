"""Vectors in 8 bits: a quarter of what a search has to read, and a bound on what that can hide.

A row is `step * (code - 128)` for each component, off by half a step at most. So its product with a unit vector is off by half a
step times the square root of the dimensions at most, and whoever looks again, exactly, at all rows that could be among the best by
that bound has found the best ones: nothing is approximate in the end.

The product of codes is onnxruntime's, single instructions over bytes where the processor has them. A float32 product reads four
times as much: 12 to 16 ms for 93 000 rows of 384 beside other work on two cores, and 4 ms on quiet ones, where this takes 2.5 ms.
"""

import os
import threading
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ctx.onnx import load_onnxruntime

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]
Signed = npt.NDArray[np.int8]
Products = npt.NDArray[np.int32]

ZERO = 128  # the code of 0
# Of the query. Processors without VNNI add two products in 16 bits and clip: 2 x 255 x 64 fits (docs/decisions/0003-seven-bits.md).
_MOST = 64
_FINE = 128  # steps of the query's second column in one of its first
_MAX_THREADS = 4  # memory is no faster for more

# One node, `MatMulInteger(rows: uint8, columns: int8) -> products: int32`, of any shapes; tests compare it with onnx's own writing.
_GRAPH = (
    b'\x08\x05:d\n(\n\x04rows\n\x07columns\x12\x08products"\rMatMulInteger\x12\x07productZ\x0c\n\x04rows\x12\x04\n\x02\x08\x02'
    b"Z\x0f\n\x07columns\x12\x04\n\x02\x08\x03b\x10\n\x08products\x12\x04\n\x02\x08\x06B\x04\n\x00\x10\n"
)


class Estimate(NamedTuple):
    """The products of rows with a query: each is within `margins` of the true one. float32 (n,) both."""

    scores: Floats
    margins: Floats


def encode(vectors: Floats) -> tuple[Codes, Floats]:
    """The codes, uint8 (n, dim), and steps, float32 (n,), of float32 (n, dim)."""
    steps = np.abs(vectors).max(axis=1) / np.float32(127)
    steps[steps == 0] = 1
    return (np.rint(vectors / steps[:, None]) + ZERO).astype(np.uint8), steps


def decode(codes: Codes, steps: Floats) -> Floats:
    """The vectors again, float32 (n, dim), each component off by half a step at most."""
    vectors: Floats = (codes.astype(np.float32) - np.float32(ZERO)) * steps[:, None]
    return vectors


def estimate(codes: Codes, steps: Floats, query: Floats) -> Estimate:
    """The products of encoded rows of unit length with a query of unit length, float32 (dim,)."""
    # The query in two columns, the second what the first leaves over: so its own error is next to none. The second is free,
    # since the product is computed for several columns at once anyway.
    step = (float(np.abs(query).max()) or 1.0) / _MOST
    coarse = np.rint(query / step)
    fine = np.rint((query / step - coarse) * _FINE)
    columns = np.stack([coarse, fine], axis=1).astype(np.int8)
    products = multiply(codes, columns, shared=True).astype(np.float32)
    scores: Floats = products[:, 1] / np.float32(_FINE)
    scores += products[:, 0]
    scores -= ZERO * np.float32(columns.sum(axis=0, dtype=np.int64) @ [1, 1 / _FINE])
    scores *= steps
    scores *= np.float32(step)
    half_diagonal = np.sqrt(len(query)) / 2
    margins = steps * np.float32(half_diagonal)
    margins += np.float32(1.1 * half_diagonal * step / _FINE + _ROUNDING)
    return Estimate(scores, margins)


_ROUNDING = 1e-5  # of float32 arithmetic over some hundred components

_loading = threading.Lock()
_loaded: dict[int, Any] = {}  # by threads


def multiply(rows: Codes, columns: Signed, shared: bool) -> Products:
    """Rows of bytes, uint8 (m, k), times int8 (k, n), or each of int8 (blocks, k, n): int32 (m, n), or (blocks, m, n).

    Without the lock of Python, in the caller's thread, or `shared` among some.
    """
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
                # Idle threads would else turn on the spot for a while, and take from the rest of the search what they gave.
                options.add_session_config_entry("session.intra_op.allow_spinning", "0")
                _loaded[threads] = onnxruntime.InferenceSession(
                    _GRAPH, options, providers=["CPUExecutionProvider"]
                )
    return _loaded[threads]
