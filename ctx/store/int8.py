"""8-bit vectors, and their product with a query."""

import os
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from ctx.embed.base import load_onnxruntime

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]  # a component of a vector is `step * (code - ZERO)`
Signed = npt.NDArray[np.int8]  # codes minus ZERO, as `multiply` takes them
Products = npt.NDArray[np.int32]

ZERO = 128
# A query has codes 1 to 127 around QUERY_ZERO: processors without VNNI add two products in 16 bits, and 2 *
# 127 * 127 still fits.
QUERY_ZERO, QUERY_MOST = 64, 63
_MAX_THREADS = 4  # more threads do not make memory faster

# An ONNX model with one node, `MatMulInteger(rows: uint8, columns: int8) -> products: int32`, of any shapes.
_GRAPH = (
    b'\x08\x05:d\n(\n\x04rows\n\x07columns\x12\x08products"\rMatMulInteger\x12\x07productZ\x0c\n\x04rows\x12'
    b"\x04\n\x02\x08\x02"
    b"Z\x0f\n\x07columns\x12\x04\n\x02\x08\x03b\x10\n\x08products\x12\x04\n\x02\x08\x06B\x04\n\x00\x10\n"
)
_session: Any = None
_loading = threading.Lock()


def multiply(row: Codes, columns: Signed) -> Products:
    """uint8 (1, k) times int8 (k, n) or (blocks, k, n): int32 (1, n) or (blocks, 1, n). Releases the GIL."""
    global _session
    if _session is None:
        with _loading:
            if _session is None:
                onnxruntime = load_onnxruntime()
                options = onnxruntime.SessionOptions()
                options.intra_op_num_threads = min(_MAX_THREADS, os.cpu_count() or 1)
                options.inter_op_num_threads = 1
                # Idle threads would spin for a while and slow down the rest of the search.
                options.add_session_config_entry("session.intra_op.allow_spinning", "0")
                _session = onnxruntime.InferenceSession(_GRAPH, options, providers=["CPUExecutionProvider"])
    products: Products = _session.run(None, {"rows": row, "columns": columns})[0]
    return products


def encode(vectors: Floats) -> tuple[Codes, Floats]:
    """Codes, uint8 (n, dim), and steps, float32 (n,), of float32 (n, dim)."""
    steps = np.abs(vectors).max(axis=1) / np.float32(127)
    steps[steps == 0] = 1
    return (np.rint(vectors / steps[:, None]) + ZERO).astype(np.uint8), steps


def decode(codes: Codes, steps: Floats) -> Floats:
    """The vectors, float32 (n, dim); each component is off by half a step at most."""
    vectors: Floats = (codes.astype(np.float32) - np.float32(ZERO)) * steps[:, None]
    return vectors


def signed(codes: Codes) -> Signed:
    centred: Signed = (codes ^ np.uint8(ZERO)).view(np.int8)
    return centred


def query_codes(query: Floats) -> tuple[Floats, np.float32]:
    """A query, float32 (dim,), in whole steps, float32 (dim,), and the size of a step."""
    step = np.float32((float(np.abs(query).max()) or 1.0) / QUERY_MOST)
    values: Floats = np.rint(query / step)
    return values, step


def query_row(values: Floats) -> Codes:
    return (values + QUERY_ZERO).astype(np.uint8)[None]
