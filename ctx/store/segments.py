"""The files that hold vectors (segments), and the 8-bit quantisation of vectors.

A segment holds float32 vectors. From `CODED_ROWS` rows on, it also holds the same vectors quantised to 8 bits
(codes), which take a quarter of the memory and use fast integer instructions.
"""

import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ctx import files
from ctx.embed import load_onnxruntime
from ctx.store.folder import IndexDamaged

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]  # a component of a vector is `step * (code - ZERO)`
Signed = npt.NDArray[np.int8]  # codes minus ZERO, the form that `multiply` takes
Products = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

ZERO = 128
# The codes of a query are 1 to 127, with QUERY_ZERO in the middle. Processors without VNNI add two products
# in 16 bits, and 2 * 127 * 127 still fits.
QUERY_ZERO, QUERY_MOST = 64, 63
_MAX_THREADS = 4  # more threads do not make memory faster
BLOCK_ROWS = 4096  # rows per block of codes; measured as the fastest size from 1,024 to 8,192
CODED_ROWS = 8192  # smaller segments have no codes: multiplying their float32 vectors takes a millisecond
# If a filter keeps a smaller share of the rows, gathering their vectors is faster than multiplying all codes.
GATHER_SHARE = 0.06
_DEVIATIONS = 6.0  # the largest assumed error of an estimate, in standard deviations
_STRIDES = 64  # see `kth_highest`
_ROUNDING = 1e-5  # above the rounding error of a float32 product over some hundred dimensions
VECTORS_DAMAGED = "the vector index is damaged: run `ctx index` to rebuild it; nothing is embedded again"

# An ONNX model with one node, `MatMulInteger(rows: uint8, columns: int8) -> products: int32`, of any shapes.
_GRAPH = (
    b'\x08\x05:d\n(\n\x04rows\n\x07columns\x12\x08products"\rMatMulInteger\x12\x07productZ\x0c\n\x04rows\x12'
    b"\x04\n\x02\x08\x02"
    b"Z\x0f\n\x07columns\x12\x04\n\x02\x08\x03b\x10\n\x08products\x12\x04\n\x02\x08\x06B\x04\n\x00\x10\n"
)


@cache
def _session() -> Any:
    onnxruntime = load_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = min(_MAX_THREADS, os.cpu_count() or 1)
    options.inter_op_num_threads = 1
    # Idle threads would spin for a while and slow down the rest of the search.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(_GRAPH, options, providers=["CPUExecutionProvider"])


def multiply(row: Codes, columns: Signed) -> Products:
    """Matrix product of uint8 (1, k) with int8 (k, n) or (blocks, k, n). Returns int32 (1, n) or
    (blocks, 1, n). Releases the GIL.
    """
    products: Products = _session().run(None, {"rows": row, "columns": columns})[0]
    return products


def encode(vectors: Floats) -> tuple[Codes, Floats]:
    """Quantises float32 vectors (n, dim). Returns (codes, uint8 (n, dim); steps, float32 (n,))."""
    steps = np.abs(vectors).max(axis=1) / np.float32(127)
    steps[steps == 0] = 1
    return (np.rint(vectors / steps[:, None]) + ZERO).astype(np.uint8), steps


def decode(codes: Codes, steps: Floats) -> Floats:
    """The vectors, float32 (n, dim), from codes (n, dim) and steps (n,). Each component is off by at most
    half a step.
    """
    vectors: Floats = (codes.astype(np.float32) - np.float32(ZERO)) * steps[:, None]
    return vectors


def signed(codes: Codes) -> Signed:
    centred: Signed = (codes ^ np.uint8(ZERO)).view(np.int8)
    return centred


def query_codes(query: Floats) -> tuple[Floats, np.float32]:
    """Quantises a query, float32 (dim,). Returns (whole steps, float32 (dim,); the size of a step)."""
    step = np.float32((float(np.abs(query).max()) or 1.0) / QUERY_MOST)
    values: Floats = np.rint(query / step)
    return values, step


def query_row(values: Floats) -> Codes:
    return (values + QUERY_ZERO).astype(np.uint8)[None]


# -- segments ------------------------------------------------------------------------------------------------


ROW = np.dtype(
    [
        ("chunk_no", "<i8"),
        ("document_no", "<i8"),
        ("updated_ms", "<i8"),
        ("source", "<i4"),  # index into the state's list of sources
        ("zero", "<i4"),  # the part of the codes' product that comes from the query's zero point
        ("step", "<f4"),  # the scale of the codes
    ]
)


class Rows(NamedTuple):
    """n vectors with their numbers."""

    table: npt.NDArray[Any]  # ROW (n,)
    vectors: Floats  # (n, dim)

    def take(self, index: Any) -> "Rows":
        return Rows(self.table[index], self.vectors[index])


@dataclass(frozen=True)
class Segment:
    """A segment file, mapped into memory."""

    name: str
    data: mmap.mmap  # the mapped file
    rows: Rows  # a view of `data`
    codes: Signed  # a view of `data`, (blocks, dim, BLOCK_ROWS), transposed; no blocks below CODED_ROWS rows
    columns: dict[str, npt.NDArray[Any]]  # a copy of the table as contiguous columns

    @property
    def count(self) -> int:
        return len(self.rows.table)

    def estimate(self, query: Floats, wanted: Mask | None) -> "_Estimate":
        """Estimated scores for the query, float32 (dim,), of the rows where `wanted` (count,) is true; None
        means all rows.
        """
        if self.data.size() < len(self.data):
            # the file was truncated: reading beyond its end would kill the process
            raise IndexDamaged(VECTORS_DAMAGED)
        rows = None if wanted is None else np.flatnonzero(wanted)
        if not len(self.codes) or (rows is not None and len(rows) <= GATHER_SHARE * self.count):
            rows = np.arange(self.count) if rows is None else rows
            return _Estimate(
                self.rows, rows, exact_products(self.rows.vectors, rows, query), np.float32(_ROUNDING)
            )
        values, step = query_codes(query)
        products = multiply(query_row(values), self.codes).reshape(-1)[: self.count]
        products -= self.columns["zero"]
        scores = products.astype(np.float32)
        scores *= self.columns["step"]
        scores *= step
        # Each component is off by at most half a step. The errors of many components cancel out: multiplied
        # with a unit vector, they have a standard deviation of step / sqrt(12).
        deviations = min(_DEVIATIONS / 12**0.5, len(query) ** 0.5 / 2)
        margin = np.float32(deviations) * (step + self.columns["step"].max()) + _ROUNDING
        return _Estimate(self.rows, rows, scores if rows is None else scores[rows], margin)


class _Estimate(NamedTuple):
    """Estimated scores of some rows of a segment. Each is within `margin` of the exact score."""

    segment: Rows
    rows: Ints | None  # row numbers (n,); None means all rows
    scores: Floats
    margin: np.float32

    def above(self, threshold: np.float32) -> Ints:
        """The numbers of the rows whose estimated score is at least `threshold`."""
        index = np.flatnonzero(self.scores >= threshold)
        return index if self.rows is None else self.rows[index]


def exact_products(vectors: Floats, rows: Ints, query: Floats) -> Floats:
    """The exact products of some rows of `vectors` with a query: float32 (len(rows),).

    Uses einsum instead of `@`, because BLAS threads keep spinning for a while after each product.
    """
    parts = [
        np.einsum("ij,j->i", np.take(vectors, rows[first : first + BLOCK_ROWS], axis=0), query)
        for first in range(0, len(rows), BLOCK_ROWS)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.float32)


def kth_highest(scores: Floats, k: int) -> np.float32:
    """The k-th highest of n scores, with 0 < k <= n. Raises `IndexDamaged` if this score is not finite."""
    width = len(scores) // _STRIDES
    if width > 4 * k:
        # The k-th highest of these maxima is a lower bound, because the maxima are different scores.
        maxima = scores[: width * _STRIDES].reshape(_STRIDES, width).max(axis=0)
        scores = scores[scores >= np.partition(maxima, -k)[-k]]
    if len(scores) < k or not np.isfinite(threshold := np.partition(scores, -k)[-k]):
        raise IndexDamaged(VECTORS_DAMAGED)
    return np.float32(threshold)


def segment_sizes(count: int, dim: int) -> tuple[int, int, int]:
    """The sizes in bytes of a segment's table, vectors and codes, which follow each other in the file."""
    blocks = -(-count // BLOCK_ROWS) if count >= CODED_ROWS else 0
    return ROW.itemsize * count, 4 * count * dim, blocks * dim * BLOCK_ROWS


def map_segment(path: str, count: int, dim: int) -> Segment:
    """Maps a segment file of `count` rows into memory. Raises `IndexDamaged` if the file has the wrong size,
    and `OSError`.
    """
    sizes = segment_sizes(count, dim)
    with open(files.open_file(path, os.O_RDONLY), "rb") as file:
        if not count or os.fstat(file.fileno()).st_size != sum(sizes):
            raise IndexDamaged(VECTORS_DAMAGED)
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    table = np.frombuffer(data, ROW, count)
    vectors = np.frombuffer(data, "<f4", count * dim, sizes[0]).reshape(count, dim)
    codes = np.frombuffer(data, np.int8, sizes[2], sizes[0] + sizes[1]).reshape(-1, dim, BLOCK_ROWS)
    columns = {name: table[name].copy() for name in ROW.names or ()}
    return Segment(os.path.basename(path), data, Rows(table, vectors), codes, columns)


def write_segment(path: str, beneath: str, pieces: Iterator[Rows], count: int, dim: int) -> Segment:
    """Writes a segment of `count` rows to `path`, syncs it to disk, and maps it. Raises `OSError`."""
    table_size, vectors_size, codes_size = segment_sizes(count, dim)
    descriptor = files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, beneath=beneath)
    with open(descriptor, "r+b") as file:
        for number, block in enumerate(_blocks(pieces)):
            table, vectors = block.table.copy(), np.ascontiguousarray(block.vectors, "<f4")
            if codes_size:
                codes, table["step"] = encode(vectors)
                table["zero"] = QUERY_ZERO * signed(codes).sum(axis=1, dtype=np.int32)
                columns = np.zeros((dim, BLOCK_ROWS), np.int8)
                columns[:, : len(codes)] = signed(codes).T
                file.seek(table_size + vectors_size + number * columns.nbytes)
                file.write(columns.data)
            file.seek(number * BLOCK_ROWS * ROW.itemsize)
            file.write(table.data)
            file.seek(table_size + number * BLOCK_ROWS * 4 * dim)
            file.write(vectors.data)
        file.flush()
        os.fsync(descriptor)
    return map_segment(path, count, dim)


def _blocks(pieces: Iterator[Rows]) -> Iterator[Rows]:
    """Regroups rows into pieces of BLOCK_ROWS rows; the last piece may be shorter."""
    rest = next(pieces)
    for piece in pieces:
        rest = joined([rest, piece])
        while len(rest.table) >= BLOCK_ROWS:
            yield rest.take(slice(BLOCK_ROWS))
            rest = rest.take(slice(BLOCK_ROWS, None))
    while len(rest.table):
        yield rest.take(slice(BLOCK_ROWS))
        rest = rest.take(slice(BLOCK_ROWS, None))


def joined(pieces: Sequence[Rows]) -> Rows:
    return Rows(np.concatenate([p.table for p in pieces]), np.concatenate([p.vectors for p in pieces]))
