"""Vectors in 8 bits as a scan reads them fastest: in blocks of ROWS rows, each dimension of a block side by
side.

A product of one row with a matrix is the one that onnxruntime does without laying the matrix out anew, and
reads each byte once: 1.6 ms for 65,000 rows of 384 on one core, where row after row it took 14
(docs/decisions/0012-leads.md). A block is

    codes   int8 (dim, ROWS)    the vectors, of which a row's step is the unit
    zeros   int32 (ROWS)        what the query's own zero adds to the product of a row
    steps   float32 (ROWS)
    errors  float32 (ROWS)      how far a row's codes are from its vector

and is written once, whole: what does not fill a block yet is left to its vectors. Everything is off by a
bound, so whoever looks again at all rows that could be among the best by it has found the best ones.

Leads are the same of fewer dimensions: those in which the vectors differ most, by a sample of them. They hide
something, little of it.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ctx.store import codes
from ctx.store.codes import QUERY_ZERO, Floats

ROWS = 8192  # of a block
LEAD_DIMS = 96  # of 384 they have 80 % of what the vectors of texts differ in
SAMPLE_ROWS = 8192  # from which the dimensions of leads are told

_TAIL = 12  # bytes of a row behind its codes: its zero, step and error
_ROUNDING = 1e-5  # of float32 arithmetic over some hundred components

Bytes = npt.NDArray[np.uint8]


class Estimate(NamedTuple):
    """The products of rows with a query: each is within `margins` of the true one. float32 (n,) both."""

    scores: Floats
    margins: Floats


def block_bytes(dim: int) -> int:
    """The size of a block."""
    return ROWS * (dim + _TAIL)


def encode_block(vectors: Floats) -> Bytes:
    """The block, uint8 (block_bytes,), of float32 (ROWS, dim)."""
    coded, steps = codes.encode(vectors)
    signed = codes.signed(coded)
    zeros = QUERY_ZERO * signed.sum(axis=1, dtype="<i4")
    errors = np.linalg.norm(vectors - codes.decode(coded, steps), axis=1) + np.float32(_ROUNDING)
    parts = (np.ascontiguousarray(signed.T), zeros, steps.astype("<f4"), errors.astype("<f4"))
    return np.concatenate([part.reshape(-1).view(np.uint8) for part in parts])


class Blocks:
    """Whole blocks of vectors of `dim` dimensions over uint8 (count * block_bytes,), not copied."""

    def __init__(self, data: Bytes, dim: int) -> None:
        self.dim = dim
        self._data = data.reshape(-1, block_bytes(dim))

    @property
    def rows(self) -> int:
        return len(self._data) * ROWS

    def around(self, rows: slice) -> tuple[int, int]:
        """The blocks `[first, last)` in which rows of a span are."""
        last = min(-(-rows.stop // ROWS), len(self._data))
        return min(rows.start // ROWS, last), last

    def scores(self, query: Floats, first: int, last: int) -> Floats:
        """The products of the blocks `[first, last)` with a query, float32 (dim,), as near as the codes have
        them. In the caller's thread alone.
        """
        return self._scores(*codes.coarse(query), first, last, share=False)

    def estimate(self, query: Floats, first: int, last: int) -> Estimate:
        """As `scores`, and how far each is from the true one at most. Rows and query are of unit length."""
        values, step = codes.coarse(query)
        remainder = np.float32(np.linalg.norm(query - values * np.float32(step)))
        size = self.dim * ROWS + 8 * ROWS
        errors = np.ascontiguousarray(self._data[first:last, size:]).view("<f4").reshape(-1)
        # |q x - q' x'| <= |q - q'| |x| + |q'| |x - x'|
        margins = errors * (1 + remainder)
        margins += remainder + np.float32(_ROUNDING)
        return Estimate(self._scores(values, step, first, last, share=True), margins)

    def _scores(self, values: Floats, step: float, first: int, last: int, *, share: bool) -> Floats:
        blocks = self._data[first:last]
        if not len(blocks):
            return np.empty(0, np.float32)
        # A block is multiplied with what stands behind its codes too, by zeros: so all blocks are one array
        # as they lie, and one product.
        padded = np.zeros((1, self.dim + _TAIL), np.uint8)
        padded[:, : self.dim] = codes.query_row(values)
        matrices = blocks.view(np.int8).reshape(len(blocks), self.dim + _TAIL, ROWS)
        products = codes.multiply(padded, matrices, share=share)[:, 0]
        begin = self.dim * ROWS
        products -= blocks[:, begin : begin + 4 * ROWS].view("<i4")
        scores: Floats = products.astype(np.float32)
        scores *= blocks[:, begin + 4 * ROWS : begin + 8 * ROWS].view("<f4")
        scores *= np.float32(step)
        return scores.reshape(-1)


def lead_basis(sample: Floats) -> Floats:
    """float32 (dim, LEAD_DIMS), orthonormal: the dimensions in which vectors, float32 (n, dim), are longest.

    Turned among themselves, always in the same way, so that each says about as much: codes of one step then
    lose least.
    """
    moments = sample.T.astype(np.float64) @ sample.astype(np.float64)
    longest = np.linalg.eigh(moments)[1][:, ::-1][:, :LEAD_DIMS]
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((LEAD_DIMS, LEAD_DIMS)))[0]
    basis: Floats = np.ascontiguousarray(longest @ turn, dtype=np.float32)
    return basis


def basis_of(data: Any, dim: int) -> Floats:
    """The basis at the beginning of a file of leads."""
    basis: Floats = np.frombuffer(data, "<f4", count=dim * LEAD_DIMS).reshape(dim, LEAD_DIMS)
    return basis


def basis_bytes(dim: int) -> int:
    """The size of a basis."""
    return 4 * dim * LEAD_DIMS
