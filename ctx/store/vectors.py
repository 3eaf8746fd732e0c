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

import logging
import mmap
import os
import threading
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ctx import files
from ctx.errors import StoreError
from ctx.store import codes
from ctx.store.base import VectorBatch
from ctx.store.statefile import Stamp, read_state, stamp, write_state
from ctx.types import Filters, Hit

logger = logging.getLogger(__name__)

FORMAT = 2
BLOCK_ROWS = 4096  # of a checksum: 6 MB at 384 dimensions, the most that is read to check the growing end
COMPACT_DEAD_SHARE = 0.2  # each dead row costs a search as much as a living one
COMPACT_MIN_DEAD = 1024  # below that it costs a search less than is worth a new generation
GATHER_SHARE = 0.15  # below this share of rows wanted, picking them out is faster than multiplying all
CODED_ROWS = 16_384  # from here on the codes come first: below, all rows take a millisecond, and onnxruntime 0.13 s to load
_GATHER_ROWS = 8192  # picked out at once: 12 MB
_GROW_BYTES = (
    16 << 20
)  # the file of vectors is lengthened in such steps (sparse), so that a reader's mapping serves many states
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
_T = TypeVar("_T", bound=np.generic)


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


class _Snapshot:
    """One published state, opened. Never changes."""

    def __init__(self, folder: str, state: _State, earlier: "_Snapshot | None") -> None:
        """Raises `VectorsDamaged`, and `FileNotFoundError` where the generation is gone already."""
        self.state = state
        paths = _paths(folder, state.generation)
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


def _paths(folder: str, generation: int) -> _Paths:
    return _Paths(*(os.path.join(folder, f"{generation}.{kind}") for kind in _Paths._fields))


def _read_records(path: str, dtype: np.dtype[np.void], count: int, checksum: int) -> npt.NDArray[np.void]:
    """The first `count` records of a file, checked. Raises `VectorsDamaged`."""
    with open(files.open_file(path, os.O_RDONLY), "rb") as file:
        data = file.read(count * dtype.itemsize)
    if len(data) != count * dtype.itemsize or zlib.crc32(data) != checksum:
        raise VectorsDamaged(_DAMAGED)
    return np.frombuffer(data, dtype=dtype)


def _open_snapshot(folder: str, model: str, earlier: _Snapshot | None = None) -> _Snapshot | None:
    """The published state; None where there is none of this model. Raises `VectorsDamaged`, `StoreError`."""
    for tries_left in reversed(range(_OPEN_TRIES)):
        state = _load_state(folder)
        if state is None or state.model != model:
            return None
        try:
            return _Snapshot(folder, state, earlier)
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
        self._model = model
        self._state_path = os.path.join(folder, "state")
        self._lock = threading.Lock()
        self._seen: Stamp | None = None
        self._snapshot: _Snapshot | None = None

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

    def _current(self) -> _Snapshot | None:
        current_stamp = stamp(self._state_path)
        if current_stamp != self._seen or current_stamp is None:
            with self._lock:
                if current_stamp != self._seen or current_stamp is None:
                    self._snapshot = (
                        None
                        if current_stamp is None
                        else _open_snapshot(self._folder, self._model, self._snapshot)
                    )
                    self._seen = (
                        current_stamp  # taken before the state was read: a newer one is then seen next time
                    )
        return self._snapshot


_verified: dict[str, tuple[int, Stamp | None]] = {}
"""folder -> (generation, stamp of its vectors) as this process last wrote or checked them. Others' changes show in the stamp."""


def check_vectors(folder: str, model: str) -> list[str]:
    """What is wrong with the vectors of a model, a line each, after reading all of them. Changes nothing."""
    try:
        snapshot = _open_snapshot(folder, model)
        if snapshot is None:
            return [f"there are no vectors of '{model}' yet"]
        snapshot.check()
    except StoreError as error:
        return [error.message]
    return []


class VectorWriter:
    """Changes the matrix. One at a time (`WriterLock`); nothing is seen by readers before `publish`.

    Opens what is published, after checking it in full once per process (and again when it is `suspect`), or starts over where that
    is damaged or of another model: `applied` is 0 then. Raises `StoreError`.
    """

    def __init__(self, folder: str, model: str, *, suspect: bool = False, beneath: str | None = None) -> None:
        """`beneath`: the folder of the store, below which no link is followed; None: this one."""
        self._folder = folder
        self._beneath = beneath or folder
        self._model = model
        self._rows_fd = self._vectors_fd = self._codes_fd = self._patches_fd = -1
        try:
            files.make_folder(folder, beneath=self._beneath)
            snapshot = None
            try:
                snapshot = _open_snapshot(folder, model)
                if snapshot is not None and (
                    suspect or _verified.get(folder) != self._mark(snapshot.state.generation)
                ):
                    snapshot.check()
            except VectorsDamaged as error:
                logger.warning("vectors are built anew reason=%s", error.message)
                snapshot = None
            if snapshot is None:
                self._begin()
            else:
                self._resume(snapshot)
        except OSError as error:
            self.close()
            raise _unwritable(error) from error
        except BaseException:
            self.close()
            raise

    def _mark(self, generation: int) -> tuple[int, Stamp | None]:
        return generation, stamp(_paths(self._folder, generation).vectors)

    def _begin(self) -> None:
        """An empty matrix under a number that no file here bears."""
        numbers = [
            int(name.split(".")[0]) for name in os.listdir(self._folder) if name.split(".")[0].isdigit()
        ]
        self._generation = max(numbers, default=0) + 1
        self.dim = 0  # known with the first vector
        self.applied = 0
        self.history = ""
        self.row_count = 0
        self.alive_count = 0
        self._patch_count = 0
        self._max_chunk_no = 0
        self._chunk_nos: Ints = np.empty(0, dtype=np.int64)
        self._document_nos: Ints = np.empty(0, dtype=np.int64)
        self._updated_ms: Ints = np.empty(0, dtype=np.int64)
        self._alive: Mask = np.empty(0, dtype=np.bool_)
        self._sources: dict[str, int] = {}
        self._rows_sum = self._patches_sum = 0
        self._block_sums: list[int] = []
        self._code_sums: list[int] = []
        self._capacity = 0  # rows that the files of vectors and codes have room for
        self._changed = True  # that it is empty is to be published too
        self._open_files(os.O_CREAT | os.O_TRUNC)

    def _resume(self, snapshot: _Snapshot) -> None:
        state = snapshot.state
        self._generation, self.dim = state.generation, state.dim
        self.applied, self.history = state.applied, state.history
        self.row_count = len(snapshot.chunk_nos)
        self._patch_count = state.patches
        self._chunk_nos = snapshot.chunk_nos.copy()
        self._document_nos = snapshot.document_nos.copy()
        self._updated_ms = snapshot.updated_ms
        self._alive = snapshot.alive
        self.alive_count = int(snapshot.alive.sum())
        self._max_chunk_no = int(self._chunk_nos.max()) if self.row_count else 0
        self._sources = {name: code for code, name in enumerate(state.sources)}
        self._rows_sum, self._patches_sum = state.rows_sum, state.patches_sum
        self._block_sums, self._code_sums = list(state.block_sums), list(state.code_sums)
        self._changed = False
        self._open_files(0)
        sizes = os.fstat(self._vectors_fd).st_size // 4, os.fstat(self._codes_fd).st_size
        self._capacity = min(sizes) // self.dim if self.dim else 0

    def _open_files(self, flags: int) -> None:
        self._close_files()
        flags |= os.O_RDWR
        paths = _paths(self._folder, self._generation)
        self._rows_fd = files.open_file(paths.rows, flags, beneath=self._beneath)
        self._vectors_fd = files.open_file(paths.vectors, flags, beneath=self._beneath)
        self._codes_fd = files.open_file(paths.codes, flags, beneath=self._beneath)
        self._patches_fd = files.open_file(paths.patches, flags, beneath=self._beneath)

    def _descriptors(self) -> tuple[int, int, int, int]:
        return self._rows_fd, self._vectors_fd, self._codes_fd, self._patches_fd

    # -- changes -------------------------------------------------------------------------------------------------
    def start_over(self) -> None:
        """Empties the matrix. Readers keep what is published until the next `publish`."""
        try:
            self._begin()
        except OSError as error:
            raise _unwritable(error) from error

    def retain(self, documents: Mapping[int, Sequence[int]]) -> None:
        """Of each document (by number) keeps the rows of the given chunks only: none of them where it was deleted."""
        n = self.row_count
        if not n or not documents:
            return
        nos = np.fromiter(documents, dtype=np.int64, count=len(documents))
        rows = np.flatnonzero(self._alive[:n] & np.isin(self._document_nos[:n], nos))
        if len(rows):
            chunk_numbers = np.array(
                [no for chunk_nos in documents.values() for no in chunk_nos], dtype=np.int64
            )
            rows = rows[~np.isin(self._chunk_nos[rows], chunk_numbers)]
            try:
                self._patch(rows, np.full(len(rows), DEAD, dtype=np.int64))
            except OSError as error:
                raise _unwritable(error) from error

    def put(self, batch: VectorBatch) -> None:
        """Adds chunks, in place of rows with their numbers. Raises `VectorsDamaged` where the dimensions are others now."""
        count, dim = batch.vectors.shape
        if not count:
            return
        if dim != self.dim and self.row_count:
            raise VectorsDamaged(
                f"the embeddings have {dim} dimensions now, the index {self.dim}"
            )  # nothing here compares with them
        self.dim = dim
        try:
            added = self._new_rows(batch)
            self._append(
                batch.vectors[added],
                batch.chunk_nos[added],
                batch.document_nos[added],
                batch.updated_ms[added],
                np.array([self._code(batch.sources[i]) for i in added.tolist()], dtype=np.int32),
            )
        except OSError as error:
            raise _unwritable(error) from error

    def _new_rows(self, batch: VectorBatch) -> Ints:
        """Which of a batch are to be appended. Rows that are here already are brought up to date, or retired for a new one."""
        position = {no: i for i, no in enumerate(batch.chunk_nos.tolist())}  # of several the last counts
        n = self.row_count
        if n and int(batch.chunk_nos.min()) <= self._max_chunk_no:
            rows = np.flatnonzero(self._alive[:n] & np.isin(self._chunk_nos[:n], batch.chunk_nos))
            updated_ms = np.full(len(rows), DEAD, dtype=np.int64)
            for index, row in enumerate(rows.tolist()):
                i = position[int(self._chunk_nos[row])]
                stored = os.pread(self._vectors_fd, self.dim * 4, row * self.dim * 4)
                if stored == batch.vectors[i].astype("<f4", copy=False).tobytes():
                    updated_ms[index] = batch.updated_ms[i]
                    del position[int(self._chunk_nos[row])]
            self._patch(rows, updated_ms)
        return np.fromiter(position.values(), dtype=np.int64, count=len(position))

    def _code(self, source: str) -> int:
        return self._sources.setdefault(source, len(self._sources))

    def _append(
        self,
        vectors: Floats,
        chunk_nos: Ints,
        document_nos: Ints,
        updated_ms: Ints,
        sources: npt.NDArray[np.int32],
    ) -> None:
        count = len(vectors)
        if not count:
            return
        n = self.row_count
        if n + count > self._capacity:
            self._capacity = max(
                n + count, self._capacity + max(_GROW_BYTES // (4 * self.dim), self._capacity // 4)
            )
            os.ftruncate(self._vectors_fd, 4 * self.dim * self._capacity)
            os.ftruncate(self._codes_fd, self.dim * self._capacity)
        vectors = np.ascontiguousarray(vectors, dtype="<f4")
        coded, steps = codes.encode(vectors)
        table = np.zeros(count, dtype=ROW)
        table["chunk_no"], table["document_no"], table["updated_ms"], table["source"] = (
            chunk_nos,
            document_nos,
            updated_ms,
            sources,
        )
        table["step"] = steps
        _write_all(self._vectors_fd, vectors, n * 4 * self.dim)
        _write_all(self._codes_fd, coded, n * self.dim)
        _write_all(self._rows_fd, table, n * ROW.itemsize)
        self._rows_sum = zlib.crc32(table.data, self._rows_sum)
        _extend_sums(self._block_sums, n, vectors)
        _extend_sums(self._code_sums, n, coded)
        self._chunk_nos = _grown(self._chunk_nos, n, chunk_nos)
        self._document_nos = _grown(self._document_nos, n, document_nos)
        self._updated_ms = _grown(self._updated_ms, n, updated_ms)
        self._alive = _grown(self._alive, n, np.ones(count, dtype=np.bool_))
        self._max_chunk_no = max(self._max_chunk_no, int(chunk_nos.max()))
        self.row_count += count
        self.alive_count += count
        self._changed = True

    def _patch(self, rows: Ints, updated_ms: Ints) -> None:
        """Gives living rows another time, or DEAD. Raises `OSError`."""
        changed = self._updated_ms[rows] != updated_ms
        rows, updated_ms = rows[changed], updated_ms[changed]
        if not len(rows):
            return
        patches = np.zeros(len(rows), dtype=PATCH)
        patches["row"], patches["updated_ms"] = rows, updated_ms
        _write_all(self._patches_fd, patches, self._patch_count * PATCH.itemsize)
        self._patches_sum = zlib.crc32(patches.data, self._patches_sum)
        self._patch_count += len(rows)
        self._updated_ms[rows] = updated_ms
        dead_rows = rows[updated_ms == DEAD]
        self._alive[dead_rows] = False
        self.alive_count -= len(dead_rows)
        self._changed = True

    # -- publishing ----------------------------------------------------------------------------------------------
    def publish(self, applied: int, history: str) -> None:
        """Makes all changes durable and visible at once, as the state of the catalog's `applied`. Nothing where none is new."""
        if not self._changed and (applied, history) == (self.applied, self.history):
            return
        try:
            dead_count = self.row_count - self.alive_count
            if dead_count >= COMPACT_MIN_DEAD and dead_count > COMPACT_DEAD_SHARE * self.row_count:
                self._compact()
            if self._changed:
                for descriptor in self._descriptors():
                    os.fsync(descriptor)
            fields: dict[str, str | int] = {
                "format": FORMAT,
                "generation": self._generation,
                "model": self._model,
                "dim": self.dim,
                "rows": self.row_count,
                "patches": self._patch_count,
                "applied": applied,
                "history": history,
                "rows_sum": f"{self._rows_sum:x}",
                "patches_sum": f"{self._patches_sum:x}",
                "block_sums": " ".join(f"{block_sum:x}" for block_sum in self._block_sums),
                "code_sums": " ".join(f"{code_sum:x}" for code_sum in self._code_sums),
                "sources": len(self._sources),
            }
            fields.update((f"source.{code}", name) for name, code in self._sources.items())
            write_state(os.path.join(self._folder, "state"), fields)
            self._delete_other_generations()
        except OSError as error:
            raise _unwritable(error) from error
        self.applied, self.history = applied, history
        self._changed = False
        _verified[self._folder] = self._mark(self._generation)

    def _compact(self) -> None:
        """Copies the living rows into a new generation."""
        alive_rows = np.flatnonzero(self._alive[: self.row_count])
        source_fd = os.dup(self._vectors_fd)
        rows_fd = os.dup(self._rows_fd)
        dim, sources, old_count = self.dim, self._sources, self.row_count
        chunk_nos, document_nos, updated_ms = self._chunk_nos, self._document_nos, self._updated_ms
        logger.info("vectors compacted rows=%d living=%d", self.row_count, len(alive_rows))
        try:
            self._begin()
            self.dim, self._sources = dim, sources
            for rows in np.split(
                alive_rows, np.searchsorted(alive_rows, np.arange(BLOCK_ROWS, old_count, BLOCK_ROWS))
            ):
                if not len(rows):
                    continue
                first, last = int(rows[0]), int(rows[-1]) + 1
                vectors = np.frombuffer(
                    os.pread(source_fd, (last - first) * dim * 4, first * dim * 4), dtype="<f4"
                ).reshape(-1, dim)
                table = np.frombuffer(
                    os.pread(rows_fd, (last - first) * ROW.itemsize, first * ROW.itemsize), dtype=ROW
                )
                self._append(
                    vectors[rows - first],
                    chunk_nos[rows],
                    document_nos[rows],
                    updated_ms[rows],
                    table["source"][rows - first],
                )
        finally:
            os.close(source_fd)
            os.close(rows_fd)

    def _delete_other_generations(self) -> None:
        current_files = {os.path.basename(path) for path in _paths(self._folder, self._generation)}
        for name in os.listdir(self._folder):
            if name.split(".")[0].isdigit() and name not in current_files:
                os.unlink(os.path.join(self._folder, name))

    def close(self) -> None:
        """Lets the files go. What was not published is lost."""
        self._close_files()

    def _close_files(self) -> None:
        for descriptor in self._descriptors():
            if descriptor >= 0:
                os.close(descriptor)
        self._rows_fd = self._vectors_fd = self._codes_fd = self._patches_fd = -1

    def __enter__(self) -> "VectorWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _extend_sums(sums: list[int], used: int, added: npt.NDArray[Any]) -> None:
    """Carries the checksums of blocks on over rows that follow the `used` first."""
    summed, filled = 0, used % BLOCK_ROWS
    while summed < len(added):
        part = added[summed : summed + BLOCK_ROWS - filled]
        if filled:
            sums[-1] = zlib.crc32(part.data, sums[-1])
        else:
            sums.append(zlib.crc32(part.data))
        summed += len(part)
        filled = 0


def _grown(array: npt.NDArray[_T], used: int, added: npt.NDArray[_T]) -> npt.NDArray[_T]:
    """The array with values after its `used` first; its room doubles when it is full."""
    if used + len(added) > len(array):
        wider = np.empty(max(used + len(added), 2 * len(array)), dtype=array.dtype)
        wider[:used] = array[:used]
        array = wider
    array[used : used + len(added)] = added
    return array


def _write_all(descriptor: int, data: npt.NDArray[np.generic], offset: int) -> None:
    view = data.view(np.uint8).reshape(-1).data
    while view:
        count = os.pwrite(descriptor, view, offset)
        view, offset = view[count:], offset + count


def _unwritable(error: OSError) -> StoreError:
    return StoreError(
        f"the vector index cannot be written: {error.strerror}; what was published stays as it is"
    )
