"""The vector matrix: nearest neighbours over rows in a file, exact below LEAD_ROWS.

Files of one generation, of which only the ends grow:

    N.vectors   float32 rows of unit length
    N.codes     the same in 8 bits, in whole blocks (lanes.py); the rows behind the last one are in none yet
    N.leads-M   from LEAD_ROWS on: the dimensions that say most, and the rows in those, in blocks likewise
    N.rows      beside each: chunk_no, document_no, updated_ms, source
    N.patches   what happened to rows since: (row, new updated_ms), or (row, DEAD)

and `state`, replaced at once, which says how much of them counts. What lies beyond is of a writer at work, or
of one that died. So a reader sees one state or the next and never half of one, and no file is ever changed
where a reader may look. When more than a fifth of the rows are dead, the living are copied into a new
generation; readers keep the old files open until they look again.

Searching is one product of the codes with the query, and an exact look at all rows that could be among the
best by it. A few thousand rows are multiplied as they are. From LEAD_ROWS on the product is that of the
leads, a quarter as long, and the exact look is at the LEAD_CANDIDATES best by it: nearly always all that
belong to the answer (docs/decisions/0012-leads.md has the figures).
"""

import ctypes
import mmap
import os
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ctx import files
from ctx.errors import StoreError
from ctx.store import lanes
from ctx.store.statefile import OPEN_TRIES, Stamp, read_state, stamp
from ctx.types import Filters, Hit

FORMAT = 3
# Of a checksum of vectors: 6 MB at 384 dimensions, the most that is read to check the growing end.
BLOCK_ROWS = 4096
GATHER_SHARE = 0.08  # below this share of rows wanted, picking them out is faster than multiplying all codes
# From here on the codes come first: below, all rows take two milliseconds, and onnxruntime 0.13 s to load.
CODED_ROWS = 16_384
LEAD_ROWS = 131_072  # from here on the leads do: below, the codes take 3 ms at most
# Looked at exactly for LEAD_MOST hits or fewer: of a million, recall@10 .994 (docs/decisions/0012-leads.md).
LEAD_CANDIDATES = 1536
LEAD_MOST = 512  # for more hits the codes come first whatever the size
LEAD_GATHER_SHARE = 0.02  # as GATHER_SHARE, where the leads come first
_PICKED_SHARE = 0.15  # as GATHER_SHARE, where all vectors would be multiplied
# Vectors picked out before the file is let go: the system maps up to a megabyte for each.
_TOUCHED_ROWS = 1024
_GATHER_ROWS = 2048  # picked out at once: 3 MB, which stay in the cache
_SHARED_ROWS = 1024  # from here on two threads pick them out: 2.6 ms for 3,072 of a million, where one took 4
# From so many on the highest are looked for above what every 64th says.
_SAMPLED_ROWS, _SAMPLE_STEP = 65_536, 64
_NEAR = 1e-5  # the product of two equal rows differs by less, depending on where in the matrix they stand
_UNIT = 0.01  # how far from unit length a row may be before it must be damaged

# Share a search with the thread that asks, and let go of files behind its back. What they do asks for no
# other of them, so none waits for ever.
HELPERS = ThreadPoolExecutor(thread_name_prefix="ctx-vectors")
_madvise = getattr(ctypes.CDLL(None), "madvise", None) if os.name == "posix" else None

DEAD = np.iinfo(np.int64).min

ROW = np.dtype([("chunk_no", "<i8"), ("document_no", "<i8"), ("updated_ms", "<i8"), ("source", "<i4")])
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
    code_sums: tuple[int, ...]  # of the blocks of codes
    leads: "Leads"


class Leads(NamedTuple):
    """What there is of leads: which file, of how many rows when its dimensions were told, and the checksums:
    of these, and of its blocks.
    """

    number: int = 0  # 0: there are none
    sampled: int = 0
    basis_sum: int = 0
    sums: tuple[int, ...] = ()


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
            Leads(
                int(fields["leads"]),
                int(fields["leads_sampled"]),
                int(fields["basis_sum"], 16),
                _sums(fields["lead_sums"]),
            ),
        )
    except (KeyError, ValueError) as error:
        raise VectorsDamaged(_DAMAGED) from error
    blocks = state.rows // lanes.ROWS
    if (
        len(state.block_sums) != -(-state.rows // BLOCK_ROWS)
        or len(state.code_sums) != blocks
        or (state.leads.number and len(state.leads.sums) != blocks)
    ):
        raise VectorsDamaged(_DAMAGED)
    return state


def _sums(words: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in words.split())


_DAMAGED = "the vector index is damaged: run `ctx index`, which builds it anew without embedding again"


class _Mapping:
    """A growing file of one generation, mapped. Lives as long as an array over it."""

    def __init__(self, path: str) -> None:
        self._descriptor = files.open_file(path, os.O_RDONLY)
        size = self.size_now()
        self.capacity = size
        self._map = mmap.mmap(self._descriptor, size, prot=mmap.PROT_READ) if size else None

    def size_now(self) -> int:
        """The size of the file as it is: touching pages beyond it would kill the process."""
        return os.fstat(self._descriptor).st_size

    def of_file_at(self, path: str) -> bool:
        """Whether this is of the file that is there now, and not of one that was there.
        Raises `FileNotFoundError`.
        """
        return os.path.samestat(os.fstat(self._descriptor), os.lstat(path))

    def array(self, dtype: npt.DTypeLike, count: int, offset: int = 0) -> npt.NDArray[Any]:
        """(count,), not copied, from `offset` bytes on."""
        if self._map is None or count == 0:
            return np.empty(0, dtype=dtype)
        return np.frombuffer(self._map, dtype=dtype, count=count, offset=offset)

    def release(self) -> None:
        """Gives the pages that were read back to the system, which has them in its cache as long as it has
        room. Without Python's lock, which `mmap.madvise` would hold: it takes a millisecond for a gigabyte.
        """
        if self._map is not None and _madvise is not None:
            beginning = self.array(np.uint8, 1).ctypes.data
            _madvise(ctypes.c_void_p(beginning), ctypes.c_size_t(len(self._map)), mmap.MADV_DONTNEED)

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is not None:
            os.close(descriptor)


def _mapped(path: str, needed: int, earlier: "_Mapping | None") -> _Mapping:
    """The file, which must have `needed` bytes; the earlier mapping of it where that has them.
    Raises `VectorsDamaged`, `OSError`.
    """
    mapping = earlier
    # A store that somebody put in the place of another has files of the same names.
    if mapping is None or mapping.capacity < needed or not mapping.of_file_at(path):
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
        self._vectors_file: _Mapping = _mapped(
            paths.vectors, 4 * state.rows * state.dim, earlier._vectors_file if earlier else None
        )
        self.vectors: Floats = self._vectors_file.array("<f4", state.rows * state.dim).reshape(
            state.rows, state.dim
        )
        blocks = state.rows // lanes.ROWS
        size = blocks * lanes.block_bytes(state.dim)
        self._codes_file: _Mapping = _mapped(paths.codes, size, earlier._codes_file if earlier else None)
        self._codes = self._codes_file.array(np.uint8, size)
        self.codes = lanes.Blocks(self._codes, state.dim)
        self._leads_file: _Mapping | None = None
        self._leads: lanes.Bytes = np.empty(0, np.uint8)
        if state.leads.number:
            begin = lanes.basis_bytes(state.dim)
            size = blocks * lanes.block_bytes(lanes.LEAD_DIMS)
            path = lead_path(folder, state.generation, state.leads.number)
            self._leads_file = _mapped(path, begin + size, earlier._leads_file if earlier else None)
            self._leads = self._leads_file.array(np.uint8, size, begin)
            self._leads_behind: Floats | None = None  # of the rows behind the last block, once asked for
            self.leads = lanes.Blocks(self._leads, lanes.LEAD_DIMS)
            self.basis = lanes.basis_of(self._leads_file.array(np.uint8, begin).tobytes(), state.dim)
            if zlib.crc32(self.basis.data) != state.leads.basis_sum:
                raise VectorsDamaged(_DAMAGED)
        self._touched = 0  # rows of vectors that were picked out since their pages were given back
        self._check_blocks(slice(-1, None))
        table = _read_records(paths.rows, ROW, state.rows, state.rows_sum)
        patches = _read_records(paths.patches, PATCH, state.patches, state.patches_sum)
        # Copies, for a field of the table steps over the others.
        self.chunk_nos: Ints = table["chunk_no"].copy()
        self.document_nos: Ints = table["document_no"].copy()
        self.source_codes = table["source"].copy()
        self.updated_ms: Ints = table["updated_ms"].copy()
        self.alive = np.ones(state.rows, dtype=np.bool_)
        if state.patches:
            rows = patches["row"]
            if int(rows.min()) < 0 or int(rows.max()) >= state.rows:
                raise VectorsDamaged(_DAMAGED)
            self.updated_ms[rows] = patches["updated_ms"]  # the last of several for a row counts
            self.alive[self.updated_ms == DEAD] = False
        self.all_alive = bool(self.alive.all())

    def check(self) -> None:
        """Reads every vector and compares the checksums: 0.5 s for a million rows of 384.
        Raises `VectorsDamaged`.
        """
        self._check_blocks(slice(None))

    def _check_blocks(self, blocks: slice) -> None:
        dim = self.state.dim
        for array, size, sums in (
            (self.vectors, BLOCK_ROWS, self.state.block_sums),
            (self._codes, lanes.block_bytes(dim), self.state.code_sums),
            (self._leads, lanes.block_bytes(lanes.LEAD_DIMS), self.state.leads.sums),
        ):
            for block in range(len(sums))[blocks]:
                if zlib.crc32(array[block * size : (block + 1) * size].data) != sums[block]:
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
        if k <= 0:
            return []
        self._check_sizes()
        mask = self.wanted(filters)
        rows = None if mask is None else np.flatnonzero(mask)
        if rows is not None and not len(rows):
            return []
        candidates = self._candidates(query, rows, k)
        candidate_vectors = np.take(self.vectors, candidates, axis=0)
        if not (
            np.abs(np.sqrt(np.einsum("ij,ij->i", candidate_vectors, candidate_vectors)) - 1) <= _UNIT
        ).all():
            raise VectorsDamaged(_DAMAGED)
        exact = (candidate_vectors * query).sum(axis=1, dtype=np.float64)
        self._give_back(len(candidates))
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

    def _check_sizes(self) -> None:
        """Raises `VectorsDamaged` where a file is shorter than what is mapped of it."""
        for file, size in (
            (self._vectors_file, self.vectors.nbytes),
            (self._codes_file, self._codes.nbytes),
            (self._leads_file, self._leads.nbytes),
        ):
            if file is not None and file.size_now() < size:
                raise VectorsDamaged(_DAMAGED)

    def _give_back(self, picked: int) -> None:
        """Lets a large file of vectors go where many were picked out: two searches would else have all of a
        million mapped.
        """
        self._touched += picked
        if self._leads_file is not None and self._touched > _TOUCHED_ROWS:
            self._touched = 0
            HELPERS.submit(self._vectors_file.release)

    def _candidates(self, query: Floats, rows: Ints | None, k: int) -> Ints:
        """Rows among which the k nearest of `rows` (None: of all) are, in order."""
        # The rows of a source mostly stand together, so the span from first to last is often all that is
        # asked for.
        span = slice(0, self.state.rows) if rows is None else slice(int(rows[0]), int(rows[-1]) + 1)
        width = span.stop - span.start
        if width < CODED_ROWS:
            if rows is not None and len(rows) < _PICKED_SHARE * width:
                return self._nearest(query, rows, k)
            scores = _products(self.vectors[span], query)
            best = _best(scores if rows is None else scores[rows - span.start], k)
            return best if rows is None else rows[best]
        by_leads = self._leads_file is not None and self.state.rows >= LEAD_ROWS and k <= LEAD_MOST
        share = LEAD_GATHER_SHARE if by_leads else GATHER_SHARE
        if rows is not None and len(rows) < share * width:
            return self._nearest(query, rows, k)
        candidates = self._by_leads(query, span, rows) if by_leads else self._by_codes(query, span, rows, k)
        return self._nearest(query, candidates, k)

    def _by_codes(self, query: Floats, span: slice, rows: Ints | None, k: int) -> Ints:
        """Rows among which the k nearest of `rows`, all within a span, surely are."""
        first, last = self.codes.around(span)
        start, coded = first * lanes.ROWS, min(last * lanes.ROWS, span.stop)
        scores, margins = self.codes.estimate(query, first, last)
        scores, margins = scores[: coded - start], margins[: coded - start]
        if coded < span.stop:
            behind = _products(self.vectors[coded : span.stop], query)
            scores = np.concatenate([scores, behind])
            margins = np.concatenate([margins, np.full(len(behind), _NEAR, np.float32)])
        if rows is not None:
            places = rows - start
            scores, margins = scores[places], margins[places]
        nearest = _highest(scores, k)
        if len(nearest) < len(scores):
            # So near are k rows at least: whatever could be as near is looked at.
            products = _products(self.vectors[nearest if rows is None else rows[nearest]], query)
            if not (np.abs(products - scores[nearest]) <= margins[nearest] + _NEAR).all():
                raise VectorsDamaged(_DAMAGED)
            nearest = np.flatnonzero(scores + margins >= products.min() - _NEAR)
        return nearest if rows is None else rows[nearest]

    def _by_leads(self, query: Floats, span: slice, rows: Ints | None) -> Ints:
        """Rows among which the LEAD_MOST nearest of `rows` (None: of all), all in a span, very likely are."""
        first, last = self.leads.around(span)
        middle = (first + last) // 2
        lead_query = query @ self.basis
        # A thread also puts its half in order, which onnxruntime's own threads do not.
        second_half = HELPERS.submit(self._leading, lead_query, middle, last, rows)
        first_half = self._leading(lead_query, first, middle, rows)
        behind = self._leading_behind(lead_query, rows)
        parts = (first_half, second_half.result(), behind)
        leading = np.concatenate([part_rows for part_rows, _ in parts])
        return leading[_highest(np.concatenate([scores for _, scores in parts]), LEAD_CANDIDATES)]

    def _leading(self, lead_query: Floats, first: int, last: int, rows: Ints | None) -> tuple[Ints, Floats]:
        """Those of `rows` (None: of all) in the blocks `[first, last)` whose leads are nearest, and their
        products.
        """
        products = self.leads.scores(lead_query, first, last)
        return _highest_rows(products, first * lanes.ROWS, rows)

    def _leading_behind(self, lead_query: Floats, rows: Ints | None) -> tuple[Ints, Floats]:
        """As `_leading`, of the rows that no block has yet."""
        if self._leads_behind is None:
            self._leads_behind = self.vectors[self.leads.rows :] @ self.basis
        return _highest_rows(_products(self._leads_behind, lead_query), self.leads.rows, rows)

    def _nearest(self, query: Floats, rows: Ints, k: int) -> Ints:
        """The k nearest of some rows, and those that cannot be told from them, in order, by their vectors."""
        if len(rows) <= k:
            return rows
        self._touched += len(rows)
        if len(rows) < _SHARED_ROWS:
            return rows[_best(self._picked_products(rows, query), k)]
        # What takes the time is that the system maps the pages, and it does so for two threads at once.
        first_half, second_half = np.array_split(rows, 2)
        second_scores = HELPERS.submit(self._picked_products, second_half, query)
        scores = [self._picked_products(first_half, query), second_scores.result()]
        return rows[_best(np.concatenate(scores), k)]

    def _picked_products(self, rows: Ints, query: Floats) -> Floats:
        """The products of some rows with a query, float32 (n,)."""
        scores = np.empty(len(rows), np.float32)
        for start in range(0, len(rows), _GATHER_ROWS):
            part = slice(start, start + _GATHER_ROWS)
            scores[part] = _products(np.take(self.vectors, rows[part], axis=0), query)
        return scores


def _products(vectors: Floats, query: Floats) -> Floats:
    """Not `@`: the threads of a BLAS turn on the spot for a while after each product, however small."""
    products: Floats = np.einsum("ij,j->i", vectors, query)
    return products


def _highest_rows(scores: Floats, start: int, rows: Ints | None) -> tuple[Ints, Floats]:
    """Of scores of all rows from `start` on: those of `rows`, in order (None: of all), that are highest, and
    their scores.
    """
    if rows is not None:
        begin, end = np.searchsorted(rows, (start, start + len(scores)))
        rows = rows[begin:end]
        scores = scores[rows - start]
    highest = _highest(scores, LEAD_CANDIDATES)
    return highest + start if rows is None else rows[highest], scores[highest]


def _highest(scores: Floats, count: int) -> Ints:
    """Where the highest are, so many or those that are as high as the last of them too, in order."""
    if count >= len(scores):
        return np.arange(len(scores))
    if len(scores) >= _SAMPLED_ROWS:
        sample = scores[::_SAMPLE_STEP]
        leading = np.flatnonzero(scores >= _nth_highest(sample, 2 * count // _SAMPLE_STEP + 16))
        if len(leading) >= count:  # nearly always: they hold the highest, and are few
            among = scores[leading]
            return leading[among >= _nth_highest(among, count)]
    return np.flatnonzero(scores >= _nth_highest(scores, count))


def _nth_highest(scores: Floats, n: int) -> np.float32:
    """The n-th highest, counted from 1; the lowest where there are fewer.
    Raises `VectorsDamaged` where so many are no numbers.
    """
    position = max(0, len(scores) - n)
    threshold: np.float32 = np.partition(scores, position)[position]
    if not np.isfinite(threshold):
        raise VectorsDamaged(_DAMAGED)
    return threshold


def _best(scores: Floats, k: int) -> Ints:
    """Where the k highest are, at least, if each score is within `_NEAR` of the true one. In order.
    Raises `VectorsDamaged`.
    """
    if k >= len(scores):
        return np.arange(len(scores))
    return np.flatnonzero(scores + _NEAR >= _nth_highest(scores - _NEAR, k))


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


def lead_path(folder: str, generation: int, number: int) -> str:
    return os.path.join(folder, f"{generation}.leads-{number}")


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
    for tries_left in reversed(range(OPEN_TRIES)):
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
        """The k nearest chunks by cosine, best first; equal ones by chunk number. [] where nothing is
        published.

        `query` is float32 (dim,) of unit length. Raises `StoreError`, also where the files turn out to be
        damaged.
        """
        snapshot = self._current()
        if snapshot is None or not snapshot.state.rows:
            return []
        if query.shape != (snapshot.state.dim,):
            raise StoreError(
                f"the query has {query.size} dimensions, the index {snapshot.state.dim}: run `ctx embed "
                "rebuild`"
            )
        return snapshot.search(np.ascontiguousarray(query, dtype=np.float32), filters, k)

    def hold(self) -> bool:
        """Whether there are vectors in hand, of what is published or was: `search` then has them, whatever is
        published next.
        """
        return self._current() is not None

    def _current(self) -> Snapshot | None:
        current_stamp = stamp(self._state_path)
        if current_stamp != self._seen:
            with self._lock:
                if current_stamp != self._seen:
                    self._snapshot = (
                        None
                        if current_stamp is None
                        # Where another model's have taken their place, the ones in hand answer to the end.
                        else open_snapshot(self._folder, self.model, self._snapshot) or self._superseded()
                    )
                    # Taken before the state was read: a newer one is then seen next time.
                    self._seen = current_stamp
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
