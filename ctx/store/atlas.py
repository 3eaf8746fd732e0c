"""A picture of the index in two dimensions: each document a point, near in the picture where near in meaning.

A document is the mean of its chunks' embeddings; the two directions in which the means differ most (their
first principal components) are the axes. 50,000 documents of 384 dimensions take some seconds, most of them
to read, and 200 MB while it is drawn (benchmarks/map.py).
"""

import math
import threading
import time
from typing import NamedTuple

import numpy as np

from ctx.store.base import Catalog

MAX_POINTS = 50_000
SCALE = 10_000  # coordinates are whole numbers in [0, SCALE]: four digits are more than a screen has
# How many times as long as it took to make a drawing is kept although the catalog moved on: it moves all the
# time in a run, and one core may not be busy drawing.
KEPT_SHARE = 20.0

_SPREAD = 99.5  # percentile of the middle, which has half of the picture at least (`squash`)
_SAMPLE = 10_000  # documents that the axes are taken from: more move them by less than a pixel
_STRIDE = 500  # documents whose titles are read at once


class Atlas(NamedTuple):
    """Points in parallel columns, in order of the documents' numbers. `source` counts into `sources`.

    `documents` is how many the catalog has: more than there are points where some have no embedding yet, or
    where there are more than `MAX_POINTS` (then every n-th is a point).
    """

    sources: tuple[str, ...]
    ids: tuple[str, ...]
    titles: tuple[str, ...]
    source: tuple[int, ...]
    x: tuple[int, ...]
    y: tuple[int, ...]
    documents: int


class _Drawing(NamedTuple):
    """An atlas, of what, and for how long (monotonic) it does although the catalog moved on."""

    atlas: Atlas
    model: str
    seq: int
    kept_until_s: float


class AtlasRoom:
    """Keeps the last drawing. Safe from several threads: one draws, the others wait for it."""

    def __init__(self, kept_share: float = KEPT_SHARE) -> None:
        self._kept_share = kept_share
        self._lock = threading.Lock()
        self._drawing: _Drawing | None = None

    def atlas(self, catalog: Catalog, model: str) -> Atlas:
        """The picture of what the catalog holds, or held a moment ago. Raises `StoreError`."""
        with self._lock:
            began_s, seq, last = time.monotonic(), catalog.seq(), self._drawing
            if last and last.model == model and (last.seq == seq or began_s < last.kept_until_s):
                return last.atlas
            atlas = draw(catalog, model)
            ended_s = time.monotonic()
            self._drawing = _Drawing(atlas, model, seq, ended_s + self._kept_share * (ended_s - began_s))
            return atlas


def draw(catalog: Catalog, model: str, max_points: int = MAX_POINTS) -> Atlas:
    """The picture of a catalog as it is now. Raises `StoreError`."""
    document_nos, chunk_nos, means = _means(catalog, model)
    stride = max(1, math.ceil(len(document_nos) / max_points))
    document_nos, chunk_nos, means = document_nos[::stride], chunk_nos[::stride], means[::stride]
    x, y = flatten(means)
    sources: dict[str, int] = {}
    ids, titles, codes, positions = [], [], [], []
    for start in range(0, len(chunk_nos), _STRIDE):
        stride_nos = chunk_nos[start : start + _STRIDE]
        rows = catalog.chunk_rows(stride_nos)
        for offset, chunk_no in enumerate(stride_nos):
            row = rows.get(chunk_no)
            if row is None:  # deleted meanwhile
                continue
            ids.append(row.id)
            titles.append(row.title)
            codes.append(sources.setdefault(row.source, len(sources)))
            positions.append(start + offset)
    return Atlas(
        tuple(sources),
        tuple(ids),
        tuple(titles),
        tuple(codes),
        tuple(x[positions].tolist()),
        tuple(y[positions].tolist()),
        catalog.stats()["documents"],
    )


def _means(catalog: Catalog, model: str) -> tuple[list[int], list[int], np.ndarray]:
    """(document_nos ascending, a chunk_no of each, float32 (n, dim) means of their vectors)."""
    sums: dict[int, tuple[int, int]] = {}  # document_no -> its row in `totals`, a chunk of it
    totals = np.zeros((0, 0), dtype=np.float32)
    counts = np.zeros(0, dtype=np.float32)
    for batch in catalog.vectors_since(model, 0):
        document_nos = batch.document_nos.tolist()
        for document_no, chunk_no in zip(document_nos, batch.chunk_nos.tolist(), strict=True):
            sums.setdefault(document_no, (len(sums), chunk_no))
        if len(sums) > len(totals):
            size = max(1024, 2 * len(totals), len(sums))
            totals = _grown(totals, size, batch.vectors.shape[1])
            counts = np.concatenate([counts, np.zeros(size - len(counts), dtype=np.float32)])
        rows = np.array([sums[document_no][0] for document_no in document_nos], dtype=np.int64)
        order = np.argsort(rows, kind="stable")  # a document's rows side by side, to be added at once
        row_nos, starts, sizes = np.unique(rows[order], return_index=True, return_counts=True)
        totals[row_nos] += np.add.reduceat(batch.vectors[order], starts)
        counts[row_nos] += sizes
    numbers = sorted(sums)
    by_number = [sums[number][0] for number in numbers]
    means = totals[by_number] / counts[by_number][:, None] if numbers else totals
    return numbers, [sums[number][1] for number in numbers], means


def _grown(totals: np.ndarray, rows: int, dim: int) -> np.ndarray:
    larger = np.zeros((rows, dim), dtype=np.float32)
    larger[: len(totals), : totals.shape[1]] = totals
    return larger


def flatten(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first two principal components of float32 (n, dim), each as int64 (n,) in [0, SCALE].

    The same vectors give the same picture: an axis points to where its largest weight is positive.
    """
    if len(vectors) < 2:
        middle = np.full(len(vectors), SCALE // 2, dtype=np.int64)
        return middle, middle
    centred = vectors - vectors.mean(axis=0)
    sample = centred[:: max(1, len(centred) // _SAMPLE)]
    _, axes = np.linalg.eigh(sample.T @ sample)  # ascending
    columns = []
    for axis in axes[:, ::-1][:, :2].T:
        values = centred @ (axis * np.sign(axis[np.argmax(np.abs(axis))]))
        columns.append(np.rint((squash(values) + 1) * SCALE / 2).astype(np.int64))
    if len(columns) < 2:
        columns.append(np.full(len(vectors), SCALE // 2, dtype=np.int64))
    return columns[0], columns[1]


def squash(values: np.ndarray) -> np.ndarray:
    """float (n,) as float64 (n,) in [-1, 1]: order kept, what differs apart, the farthest from 0 at an edge.

    One stray document must not press all others into a dot, nor a hundred be a wall at the edge:
    `x / (1 + |x|)` gives the middle `_SPREAD` percent half of the width at least, and spreads the rest.
    """
    distances = np.abs(values.astype(np.float64))
    reach = float(np.percentile(distances, _SPREAD)) or float(distances.max()) or 1.0
    shares = values / (reach + distances)
    return np.asarray(shares / (np.abs(shares).max() or 1.0))
