"""The vector matrix: exact nearest neighbours over rows in a file.

Four files of one generation, of which only the ends grow:

    N.vectors   float32 rows of unit length
    N.codes     the same in 8 bits (codes.py)
    N.rows      beside each: chunk_no, document_no, updated_ms, source, the step of its codes
    N.patches   what happened to rows since: (row, new updated_ms), or (row, DEAD)

and `state`, replaced at once, which says how much of them counts. What lies beyond is of a writer at work, or of one that died.
So a reader sees one state or the next and never half of one, and no file is ever changed where a reader may look. When more than
a fifth of the rows are dead, the living are copied into a new generation; readers keep the old files open until they look again.

Searching is one product of the codes with the query, and an exact look at the rows that could be among the best by it: 2.5 ms for
93 000 rows of 384 on one core, 27 ms for a million. A few thousand rows are multiplied as they are.
"""

import mmap
import os
import threading
import zlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ctx import files
from ctx.errors import StoreError
from ctx.store import codes
from ctx.store.statefile import Stamp, read_state, stamp
from ctx.types import Filters, Hit

FORMAT = 2
BLOCK_ROWS = 4096  # of a checksum: 6 MB at 384 dimensions, the most that is read to check the growing end
GATHER_SHARE = 0.15  # below this share of rows wanted, picking them out is faster than multiplying all
CODED_ROWS = 16_384  # from here on the codes come first: below, all rows take a millisecond, and onnxruntime 0.13 s to load
_GATHER_ROWS = 8192  # picked out at once: 12 MB
_NEAR = 1e-5  # the product of two equal rows differs by less, depending on where in the matrix they stand
_UNIT = 0.01  # how far from unit length a row may be before it must be damaged
_OPEN_TRIES = 5  # a generation may be deleted between reading its name and opening it

DEAD = np.iinfo(np.int64).min

ROW = np.dtype(
    [("chunk_no", "<i8"), ("document_no", "<i8"), ("updated_ms", "<i8"), ("source", "<i4"), ("step", "<f4")]
)
PATCH = np.dtype([("row", "<i8"), ("updated_ms", "<i8")])

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class VectorsDamaged(StoreError):
    """The files are not what was written. A writer builds them anew from the catalog."""


class _State(NamedTuple):
    """What `state` says."""

    generation: int
    model: str
    dim: int
    rows: int
    patches: int
    applied: int
    history: str
    sources: tuple[str, ...]  # a row names its source by the place in here
    rows_sum: int
    patches_sum: int
    block_sums: tuple[int, ...]  # of the vectors, BLOCK_ROWS at a time; the last block may be short
    code_sums: tuple[int, ...]  # of the codes, likewise


def _load_state(folder: str) -> _State | None:
    """None where there is none. Raises `VectorsDamaged`."""
    fields = read_state(os.path.join(folder, "state"))
    if fields is None:
        return None
    try:
        if int(fields["format"]) != FORMAT:
            raise VectorsDamaged("the vector index is of another format: run `ctx index`")
        sources = tuple(fields[f"source.{code}"] for code in range(int(fields["sources"])))
        state = _State(
            int(fields["generation"]),
            fields["model"],
            int(fields["dim"]),
            int(fields["rows"]),
            int(fields["patches"]),
            int(fields["applied"]),
            fields["history"],
            sources,
            int(fields["rows_sum"], 16),
            int(fields["patches_sum"], 16),
            _sums(fields["block_sums"]),
            _sums(fields["code_sums"]),
        )
    except (KeyError, ValueError) as error:
        raise VectorsDamaged(_DAMAGED) from error
    if not len(state.block_sums) == len(state.code_sums) == -(-state.rows // BLOCK_ROWS):
        raise VectorsDamaged(_DAMAGED)
    return state


def _sums(words: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in words.split())


_DAMAGED = "the vector index is damaged: run `ctx index`, which builds it anew without embedding again"


class _Mapping:
    """A growing file of one generation, mapped. Lives as long as an array over it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = files.open_file(path, os.O_RDONLY)
        size = self.size_now()
        self.capacity = size
        self._map = mmap.mmap(self._descriptor, size, prot=mmap.PROT_READ) if size else None

    def size_now(self) -> int:
        """The size of the file as it is: touching pages beyond it would kill the process."""
        return os.fstat(self._descriptor).st_size

    def array(self, dtype: npt.DTypeLike, rows: int, dim: int) -> npt.NDArray[Any]:
        """(rows, dim), not copied."""
        if self._map is None or rows == 0:
            return np.empty((0, dim), dtype=dtype)
        return np.frombuffer(self._map, dtype=dtype, count=rows * dim).reshape(rows, dim)

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is not None:
            os.close(descriptor)


def _mapped(path: str, needed: int, earlier: "_Mapping | None") -> _Mapping:
    """The file, which must have `needed` bytes; the earlier mapping of it where that has them. Raises `VectorsDamaged`, `OSError`."""
    mapping = earlier
    if mapping is None or mapping.path != path or mapping.capacity < needed:
        mapping = _Mapping(path)
    if min(mapping.capacity, mapping.size_now()) < needed:
        raise VectorsDamaged(_DAMAGED)
    return mapping


class Snapshot:
    """One published state, opened. Never changes."""

    def __init__(self, folder: str, state: _State, earlier: "Snapshot | None") -> None:
        """Raises `VectorsDamaged`, and `FileNotFoundError` where the generation is gone already."""
        self.state = state
        paths = paths_of(folder, state.generation)
        size = state.rows * state.dim
        self._vectors_file: _Mapping = _mapped(
            paths.vectors, 4 * size, earlier._vectors_file if earlier else None
        )
        self._codes_file: _Mapping = _mapped(paths.codes, size, earlier._codes_file if earlier else None)
        self.vectors: Floats = self._vectors_file.array("<f4", state.rows, state.dim)
        self.codes: codes.Codes = self._codes_file.array(np.uint8, state.rows, state.dim)
        self._check_blocks(slice(-1, None))
        table = _read_records(paths.rows, ROW, state.rows, state.rows_sum)
        patches = _read_records(paths.patches, PATCH, state.patches, state.patches_sum)
        self.chunk_nos = table["chunk_no"]
        self.document_nos = table["document_no"]
        self.source_codes = np.ascontiguousarray(table["source"])
        self.steps = np.ascontiguousarray(table["step"])
        self.updated_ms = table["updated_ms"].copy()
        self.alive = np.ones(state.rows, dtype=np.bool_)
        if state.patches:
            rows = patches["row"]
            if int(rows.min()) < 0 or int(rows.max()) >= state.rows:
                raise VectorsDamaged(_DAMAGED)
            self.updated_ms[rows] = patches["updated_ms"]  # the last of several for a row counts
            self.alive[self.updated_ms == DEAD] = False
        self.all_alive = bool(self.alive.all())

    def check(self) -> None:
        """Reads every vector and compares the checksums: 0.5 s for a million rows of 384. Raises `VectorsDamaged`."""
        self._check_blocks(slice(None))

    def _check_blocks(self, blocks: slice) -> None:
        for array, sums in ((self.vectors, self.state.block_sums), (self.codes, self.state.code_sums)):
            for block in range(len(sums))[blocks]:
                if zlib.crc32(array[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS].data) != sums[block]:
                    raise VectorsDamaged(_DAMAGED)

    def wanted(self, filters: Filters) -> Mask | None:
        """Which rows a search may find; None for all."""
        mask = None if self.all_alive else self.alive
        if filters.sources is not None:
            admitted = np.array(
                [name in filters.sources for name in self.state.sources] or [False], dtype=np.bool_
            )
            mask = _both(mask, admitted[self.source_codes])
        if filters.documents is not None:
            numbers = np.fromiter(filters.documents, dtype=np.int64, count=len(filters.documents))
            mask = _both(mask, np.isin(self.document_nos, numbers))
        if filters.since_ms is not None:
            mask = _both(mask, self.updated_ms >= filters.since_ms)
        if filters.until_ms is not None:
            mask = _both(mask, self.updated_ms <= filters.until_ms)
        return mask

    def search(self, query: Floats, filters: Filters, k: int) -> list[Hit]:
        if k <= 0 or not self.state.rows:
            return []
        if (
            self._vectors_file.size_now() < self.vectors.nbytes
            or self._codes_file.size_now() < self.codes.nbytes
        ):
            raise VectorsDamaged(_DAMAGED)
        mask = self.wanted(filters)
        rows = None if mask is None else np.flatnonzero(mask)
        if rows is not None and not len(rows):
            return []
        candidates = self._candidates(query, rows, k)
        candidate_vectors = self.vectors[candidates]
        if not (
            np.abs(np.sqrt(np.einsum("ij,ij->i", candidate_vectors, candidate_vectors)) - 1) <= _UNIT
        ).all():
            raise VectorsDamaged(_DAMAGED)
        exact = (candidate_vectors * query).sum(axis=1, dtype=np.float64)
        order = np.lexsort((self.chunk_nos[candidates], -exact))[:k]
        return [
            Hit(chunk_no, document_no, score)
            for chunk_no, document_no, score in zip(
                self.chunk_nos[candidates][order].tolist(),
                self.document_nos[candidates][order].tolist(),
                exact[order].tolist(),
                strict=True,
            )
        ]

    def _candidates(self, query: Floats, rows: Ints | None, k: int) -> Ints:
        """Rows among which the k nearest of `rows` (None: of all) are, in order."""
        # The rows of a source mostly stand together, so the span from first to last is often all that is asked for.
        span = slice(0, self.state.rows) if rows is None else slice(int(rows[0]), int(rows[-1]) + 1)
        within = slice(None) if rows is None else rows - span.start
        width = span.stop - span.start
        gathered = rows if rows is not None and len(rows) < GATHER_SHARE * width else None
        if gathered is None and width >= CODED_ROWS:
            scores, margins = codes.estimate(self.codes[span], self.steps[span], query)
            nearest = _best(scores[within], margins[within], k)
            if len(nearest) < GATHER_SHARE * width:  # else so many are alike that the codes do not part them
                gathered = nearest if rows is None else rows[nearest]
        if gathered is None:
            best = _best((self.vectors[span] @ query)[within], _NEAR, k)
            return best if rows is None else rows[best]
        parts = (gathered[start : start + _GATHER_ROWS] for start in range(0, len(gathered), _GATHER_ROWS))
        # Not `@`: the threads of a BLAS turn on the spot for a while after each product, however small.
        return gathered[
            _best(
                np.concatenate([np.einsum("ij,j->i", self.vectors[part], query) for part in parts]), _NEAR, k
            )
        ]


def _best(scores: Floats, margins: Floats | float, k: int) -> Ints:
    """Where the k highest are, at least, if each score is within its margin of the true one. In order. Raises `VectorsDamaged`."""
    if k >= len(scores):
        return np.arange(len(scores))
    threshold = np.partition(scores - margins, len(scores) - k)[len(scores) - k]
    if not np.isfinite(threshold):
        raise VectorsDamaged(_DAMAGED)
    return np.flatnonzero(scores + margins >= threshold)


def _both(one: Mask | None, other: Mask) -> Mask:
    return other if one is None else one & other


class _Paths(NamedTuple):
    """The files of a generation."""

    rows: str
    vectors: str
    codes: str
    patches: str


def paths_of(folder: str, generation: int) -> _Paths:
    return _Paths(*(os.path.join(folder, f"{generation}.{kind}") for kind in _Paths._fields))


def _read_records(path: str, dtype: np.dtype[np.void], count: int, checksum: int) -> npt.NDArray[np.void]:
    """The first `count` records of a file, checked. Raises `VectorsDamaged`."""
    with open(files.open_file(path, os.O_RDONLY), "rb") as file:
        data = file.read(count * dtype.itemsize)
    if len(data) != count * dtype.itemsize or zlib.crc32(data) != checksum:
        raise VectorsDamaged(_DAMAGED)
    return np.frombuffer(data, dtype=dtype)


def published_model(folder: str) -> str | None:
    """The model whose vectors are published; None where there are none, or damaged ones."""
    return (read_state(os.path.join(folder, "state")) or {}).get("model")


def open_snapshot(folder: str, model: str, earlier: Snapshot | None = None) -> Snapshot | None:
    """The published state; None where there is none of this model. Raises `VectorsDamaged`, `StoreError`."""
    for tries_left in reversed(range(_OPEN_TRIES)):
        state = _load_state(folder)
        if state is None or state.model != model:
            return None
        try:
            return Snapshot(folder, state, earlier)
        except FileNotFoundError as error:  # a writer went on to the next generation meanwhile
            if not tries_left:
                raise VectorsDamaged(_DAMAGED) from error
        except OSError as error:
            raise StoreError(
                f"the vector index cannot be read: {error.strerror}; check its folder"
            ) from error
    raise AssertionError("unreachable")


class VectorReader:
    """Searches what a writer, here or in another process, has published last. Safe from several threads."""

    def __init__(self, folder: str, model: str) -> None:
        self._folder = folder
        self.model = model
        self._state_path = os.path.join(folder, "state")
        self._lock = threading.Lock()
        self._seen: Stamp | None = None
        self._snapshot: Snapshot | None = None

    def search(self, query: Floats, filters: Filters, k: int) -> list[Hit]:
        """The k nearest chunks by cosine, best first; equal ones by chunk number. [] where nothing is published.

        `query` is float32 (dim,) of unit length. Raises `StoreError`, also where the files turn out to be damaged.
        """
        snapshot = self._current()
        if snapshot is None or not snapshot.state.rows:
            return []
        if query.shape != (snapshot.state.dim,):
            raise StoreError(
                f"the query has {query.size} dimensions, the index {snapshot.state.dim}: run `ctx embed rebuild`"
            )
        return snapshot.search(np.ascontiguousarray(query, dtype=np.float32), filters, k)

    def hold(self) -> bool:
        """Whether there are vectors in hand, of what is published or was: `search` then has them, whatever is published next."""
        return self._current() is not None

    def _current(self) -> Snapshot | None:
        current_stamp = stamp(self._state_path)
        if current_stamp != self._seen or current_stamp is None:
            with self._lock:
                if current_stamp != self._seen or current_stamp is None:
                    self._snapshot = (
                        None
                        if current_stamp is None
                        # Where another model's have taken their place, the ones in hand answer to the end.
                        else open_snapshot(self._folder, self.model, self._snapshot) or self._superseded()
                    )
                    self._seen = (
                        current_stamp  # taken before the state was read: a newer one is then seen next time
                    )
        return self._snapshot

    def _superseded(self) -> Snapshot | None:
        return self._snapshot if published_model(self._folder) not in (None, self.model) else None


def check_vectors(folder: str, model: str) -> list[str]:
    """What is wrong with the vectors of a model, a line each, after reading all of them. Changes nothing."""
    try:
        snapshot = open_snapshot(folder, model)
        if snapshot is None:
            return [f"there are no vectors of '{model}' yet"]
        snapshot.check()
    except StoreError as error:
        return [error.message]
    return []
