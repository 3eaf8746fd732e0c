"""The one writer of the vector matrix (vectors.py says what the files are)."""

import logging
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ctx import files
from ctx.errors import StoreError
from ctx.store import lanes
from ctx.store.rows import VectorBatch
from ctx.store.statefile import Stamp, stamp, write_state
from ctx.store.vectors import (
    BLOCK_ROWS,
    DEAD,
    FORMAT,
    LEAD_ROWS,
    PATCH,
    ROW,
    Floats,
    Ints,
    Leads,
    Mask,
    Snapshot,
    VectorsDamaged,
    lead_path,
    open_snapshot,
    paths_of,
    published_model,
)

logger = logging.getLogger(__name__)

COMPACT_DEAD_SHARE = 0.2  # each dead row costs a search as much as a living one
COMPACT_MIN_DEAD = 1024  # below that it costs a search less than is worth a new generation
# The file of vectors is lengthened in such steps (sparse), so that a reader's mapping serves many states.
_GROW_BYTES = 16 << 20

# Times as many rows: the dimensions of leads are then told anew, for the later rows may be of other texts.
_SAMPLE_GROWTH = 4

_T = TypeVar("_T", bound=np.generic)
_verified: dict[str, tuple[int, Stamp | None]] = {}
"""folder -> (generation, stamp of its vectors) as this process last wrote or checked them.
Others' changes show in the stamp.
"""


@contextmanager
def _writing() -> Iterator[None]:
    """A block, or a method, whose `OSError` is raised as ours."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the vector index cannot be written: {error.strerror}; what was published stays as it is"
        ) from error


class VectorWriter:
    """Changes the matrix. One at a time (`WriterLock`); nothing is seen by readers before `publish`.

    Opens what is published, after checking it in full once per process (and again when it is `suspect`), or
    starts over where that is damaged or of another model: `applied` is 0 then. Raises `StoreError`.
    """

    def __init__(self, folder: str, model: str, *, suspect: bool = False, beneath: str | None = None) -> None:
        """`beneath`: the folder of the store, below which no link is followed; None: this one."""
        self._folder = folder
        self._beneath = beneath or folder
        self._model = model
        self._rows_fd = self._vectors_fd = self._codes_fd = self._patches_fd = self._leads_fd = -1
        try:
            self._open(suspect=suspect)
        except BaseException:
            self.close()
            raise

    @_writing()
    def _open(self, *, suspect: bool) -> None:
        files.make_folder(self._folder, beneath=self._beneath)
        snapshot = None
        try:
            snapshot = open_snapshot(self._folder, self._model)
            if snapshot is not None and (
                suspect or _verified.get(self._folder) != self._mark(snapshot.state.generation)
            ):
                snapshot.check()
        except VectorsDamaged as error:
            logger.warning("vectors are built anew reason=%s", error.message)
            snapshot = None
        # Readers keep what another model has published until this one's vectors are whole.
        self.replaces = snapshot is None and published_model(self._folder) not in (None, self._model)
        if snapshot is None:
            self._begin()
        else:
            self._resume(snapshot)

    def _mark(self, generation: int) -> tuple[int, Stamp | None]:
        return generation, stamp(paths_of(self._folder, generation).vectors)

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
        self._code_sums: list[int] = []  # one for each block that is written
        self._leads = Leads()
        self._basis: Floats = np.empty((0, lanes.LEAD_DIMS), np.float32)
        self._capacity = 0  # rows that the file of vectors has room for
        self._changed = True  # that it is empty is to be published too
        self._open_files(os.O_CREAT | os.O_TRUNC)

    def _resume(self, snapshot: Snapshot) -> None:
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
        self._leads = state.leads
        self._basis = snapshot.basis if state.leads.number else np.empty((0, lanes.LEAD_DIMS), np.float32)
        self._changed = False
        self._open_files(0)
        self._capacity = os.fstat(self._vectors_fd).st_size // (4 * self.dim) if self.dim else 0

    def _open_files(self, flags: int) -> None:
        self._close_files()
        flags |= os.O_RDWR
        paths = paths_of(self._folder, self._generation)
        self._rows_fd = files.open_file(paths.rows, flags, beneath=self._beneath)
        self._vectors_fd = files.open_file(paths.vectors, flags, beneath=self._beneath)
        self._codes_fd = files.open_file(paths.codes, flags, beneath=self._beneath)
        self._patches_fd = files.open_file(paths.patches, flags, beneath=self._beneath)
        if self._leads.number:
            self._open_leads(self._leads.number, flags)

    def _open_leads(self, number: int, flags: int) -> None:
        if self._leads_fd >= 0:
            os.close(self._leads_fd)
            self._leads_fd = -1
        path = lead_path(self._folder, self._generation, number)
        self._leads_fd = files.open_file(path, flags, beneath=self._beneath)

    def _descriptors(self) -> tuple[int, ...]:
        return self._rows_fd, self._vectors_fd, self._codes_fd, self._patches_fd, self._leads_fd

    # -- changes ---------------------------------------------------------------------------------------------
    @_writing()
    def start_over(self) -> None:
        """Empties the matrix. Readers keep what is published until the next `publish`."""
        self._begin()

    @_writing()
    def retain(self, documents: Mapping[int, Sequence[int]]) -> None:
        """Of each document (by number) keeps the rows of the given chunks only: none of them where it was
        deleted.
        """
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
            self._patch(rows, np.full(len(rows), DEAD, dtype=np.int64))

    @_writing()
    def put(self, batch: VectorBatch) -> None:
        """Adds chunks, in place of rows with their numbers.
        Raises `VectorsDamaged` where the dimensions are others now.
        """
        count, dim = batch.vectors.shape
        if not count:
            return
        if dim != self.dim and self.row_count:
            # Nothing here compares with them.
            raise VectorsDamaged(f"the embeddings have {dim} dimensions now, the index {self.dim}")
        self.dim = dim
        added = self._new_rows(batch)
        self._append(
            batch.vectors[added],
            batch.chunk_nos[added],
            batch.document_nos[added],
            batch.updated_ms[added],
            np.array([self._code(batch.sources[i]) for i in added.tolist()], dtype=np.int32),
        )

    def _new_rows(self, batch: VectorBatch) -> Ints:
        """Which of a batch are to be appended.
        Rows that are here already are brought up to date, or retired for a new one.
        """
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
        vectors = np.ascontiguousarray(vectors, dtype="<f4")
        table = np.zeros(count, dtype=ROW)
        table["chunk_no"], table["document_no"], table["updated_ms"], table["source"] = (
            chunk_nos,
            document_nos,
            updated_ms,
            sources,
        )
        _write_all(self._vectors_fd, vectors, n * 4 * self.dim)
        _write_all(self._rows_fd, table, n * ROW.itemsize)
        self._rows_sum = zlib.crc32(table.data, self._rows_sum)
        _extend_sums(self._block_sums, n, vectors)
        self._chunk_nos = _grown(self._chunk_nos, n, chunk_nos)
        self._document_nos = _grown(self._document_nos, n, document_nos)
        self._updated_ms = _grown(self._updated_ms, n, updated_ms)
        self._alive = _grown(self._alive, n, np.ones(count, dtype=np.bool_))
        self._max_chunk_no = max(self._max_chunk_no, int(chunk_nos.max()))
        self.row_count += count
        self.alive_count += count
        self._changed = True
        while (len(self._code_sums) + 1) * lanes.ROWS <= self.row_count:
            self._append_block(len(self._code_sums))

    def _append_block(self, number: int) -> None:
        """Writes the codes of rows that fill a block now, and their leads where there are such.
        Raises `OSError`.
        """
        vectors = self._stored(number * lanes.ROWS, lanes.ROWS)
        block = lanes.encode_block(vectors)
        _write_all(self._codes_fd, block, number * len(block))
        self._code_sums.append(zlib.crc32(block.data))
        if self._leads.number:
            self._append_leads(vectors)

    def _append_leads(self, vectors: Floats) -> None:
        block = lanes.encode_block(vectors @ self._basis)
        offset = lanes.basis_bytes(self.dim) + len(self._leads.sums) * len(block)
        _write_all(self._leads_fd, block, offset)
        self._leads = self._leads._replace(sums=(*self._leads.sums, zlib.crc32(block.data)))

    def _renew_leads(self) -> None:
        """Tells the dimensions of leads from the rows there are, and writes the leads of all blocks, in a new
        file. Raises `OSError`.
        """
        number, rows = self._leads.number + 1, len(self._code_sums) * lanes.ROWS
        sample = [
            self._stored(row, 1)
            for row in np.linspace(0, rows - 1, min(rows, lanes.SAMPLE_ROWS)).astype(np.int64).tolist()
        ]
        self._basis = lanes.lead_basis(np.concatenate(sample))
        self._open_leads(number, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        _write_all(self._leads_fd, self._basis.astype("<f4"), 0)
        self._leads = Leads(number, rows, zlib.crc32(self._basis.astype("<f4").data))
        for block in range(len(self._code_sums)):
            self._append_leads(self._stored(block * lanes.ROWS, lanes.ROWS))
        logger.info("leads made rows=%d", rows)

    def _lacks_leads(self) -> bool:
        rows = len(self._code_sums) * lanes.ROWS
        return (
            self.dim > 2 * lanes.LEAD_DIMS
            and self.row_count >= LEAD_ROWS
            and (not self._leads.number or rows >= _SAMPLE_GROWTH * self._leads.sampled)
        )

    def _stored(self, first: int, count: int) -> Floats:
        """Rows as they were written. Raises `OSError`."""
        size = 4 * self.dim
        data = os.pread(self._vectors_fd, count * size, first * size)
        return np.frombuffer(data, "<f4").reshape(count, self.dim)

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

    # -- publishing ------------------------------------------------------------------------------------------
    def _state_fields(self, applied: int, history: str) -> dict[str, str | int]:
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
            "block_sums": _words(self._block_sums),
            "code_sums": _words(self._code_sums),
            "leads": self._leads.number,
            "leads_sampled": self._leads.sampled,
            "basis_sum": f"{self._leads.basis_sum:x}",
            "lead_sums": _words(self._leads.sums),
            "sources": len(self._sources),
        }
        return fields | {f"source.{code}": name for name, code in self._sources.items()}

    @_writing()
    def publish(self, applied: int, history: str) -> None:
        """Makes all changes durable and visible at once, as the state of the catalog's `applied`.
        Nothing where none is new.
        """
        if not self._changed and (applied, history) == (self.applied, self.history):
            return
        dead_count = self.row_count - self.alive_count
        if dead_count >= COMPACT_MIN_DEAD and dead_count > COMPACT_DEAD_SHARE * self.row_count:
            self._compact()
        if self._lacks_leads():
            self._renew_leads()
        if self._changed:
            for descriptor in self._descriptors():
                if descriptor >= 0:
                    os.fsync(descriptor)
        write_state(os.path.join(self._folder, "state"), self._state_fields(applied, history))
        self._delete_other_generations()
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
        paths = [*paths_of(self._folder, self._generation)]
        if self._leads.number:
            paths.append(lead_path(self._folder, self._generation, self._leads.number))
        current_files = {os.path.basename(path) for path in paths}
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
        self._rows_fd = self._vectors_fd = self._codes_fd = self._patches_fd = self._leads_fd = -1

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


def _words(sums: Sequence[int]) -> str:
    return " ".join(f"{number:x}" for number in sums)


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
