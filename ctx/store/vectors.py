"""The vector index: exact nearest-neighbour search by cosine, over memory-mapped files.

The folder holds segments, which never change, and the file `state`, which names the current segments and
their deleted rows. `state` is replaced atomically, so a reader sees either the old or the new version. A
crash only leaves files that no state names. A writer merges small segments, and merges all segments once many
rows are deleted. Readers keep files mapped until they read the state again.

A search first estimates the score of every row from its 8-bit codes (segments.py). Then it computes the exact
scores of all rows that could be among the best, given the largest error of the codes.

All files can be rebuilt from the catalog. If a file is missing or damaged, `IndexDamaged` is raised, and
the next writer rebuilds the index.
"""

import base64
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ctx import files
from ctx.errors import StoreError
from ctx.files import writing
from ctx.models import Filters, Hit
from ctx.store.folder import OPEN_TRIES, VECTORS_FORMAT, IndexDamaged, read_state, write_state
from ctx.store.record import VectorBatch
from ctx.store.segments import (
    BLOCK_ROWS,
    ROW,
    VECTORS_DAMAGED,
    Floats,
    Mask,
    Rows,
    Segment,
    exact_products,
    joined,
    kth_highest,
    map_segment,
    write_segment,
)

logger = logging.getLogger(__name__)

WRITE_ROWS = 65_536  # rows kept in memory before they are written: 100 MB at 384 dimensions
# All segments are rewritten once the share and the number of deleted rows exceed these.
COMPACT_DEAD_SHARE, COMPACT_MIN_DEAD = 0.2, 1024

_UNIT_TOLERANCE = 0.01  # if the length of a vector differs from 1 by more than this, the file is damaged
_NAME = re.compile(r"[0-9a-f]+\.segment")


# -- reading -------------------------------------------------------------------------------------------------
class Snapshot:
    """One published version of the index, with its segments mapped. It never changes."""

    def __init__(self, folder: str, fields: Mapping[str, Any], earlier: "Snapshot | None") -> None:
        """`fields` are the fields of `state`. Segments that `earlier` has already mapped are reused. Raises
        `IndexDamaged`, and `OSError` if a file cannot be opened.
        """
        mapped = {segment.name: segment for segment in earlier.segments} if earlier else {}
        try:
            self.applied, self.history = int(fields["applied"]), str(fields["history"])
            self.dim, self.sources = int(fields["dim"]), [str(name) for name in fields["sources"]]
            self.segments: list[Segment] = []
            self.alive: list[Mask | None] = []  # the rows of each segment that are not deleted; None: all
            for entry in fields["segments"]:
                name, count = str(entry["name"]), int(entry["rows"])
                if not _NAME.fullmatch(name):
                    raise IndexDamaged(VECTORS_DAMAGED)
                self.segments.append(
                    mapped.get(name) or map_segment(os.path.join(folder, name), count, self.dim)
                )
                self.alive.append(_alive_rows(entry["dead"], count))
        except (KeyError, ValueError, TypeError, zlib.error) as error:
            raise IndexDamaged(VECTORS_DAMAGED) from error

    def search(self, query: Floats, filters: Filters, k: int) -> list[Hit]:
        """The k nearest chunks by cosine, best first; chunks with equal scores by number. Raises
        `StoreError`.

        `query` is a float32 unit vector (dim,).
        """
        if not self.segments or k <= 0:
            return []
        if query.shape != (self.dim,):
            raise StoreError(
                f"the query has {query.size} dimensions, the index {self.dim}: run `ctx embed rebuild`"
            )
        query = np.ascontiguousarray(query, dtype=np.float32)
        estimates = [
            segment.estimate(query, self._wanted(segment.columns, alive, filters))
            for segment, alive in zip(self.segments, self.alive, strict=True)
        ]
        floor = np.float32(-np.inf)
        scores = np.concatenate([estimate.scores for estimate in estimates])
        if k < len(scores):
            # At least k rows have an exact score of `floor` or more. A row whose estimate is below `floor` by
            # more than the largest error cannot be among the best k.
            near = kth_highest(scores, k)
            exact = [exact_products(e.segment.vectors, e.above(near), query) for e in estimates]
            floor = kth_highest(np.concatenate(exact), k)
        found = joined([e.segment.take(e.above(floor - e.margin)) for e in estimates])
        lengths = np.sqrt(np.einsum("ij,ij->i", found.vectors, found.vectors))
        if len(lengths) < min(k, len(scores)) or not (np.abs(lengths - 1) <= _UNIT_TOLERANCE).all():
            raise IndexDamaged(VECTORS_DAMAGED)
        cosines = (found.vectors * query).sum(axis=1, dtype=np.float64)
        table = found.table
        best = np.lexsort((table["chunk_no"], -cosines))[:k]
        columns = table["chunk_no"][best], table["document_no"][best], cosines[best]
        return list(map(Hit, *(column.tolist() for column in columns)))

    def _wanted(self, columns: Mapping[str, Any], alive: Mask | None, filters: Filters) -> Mask | None:
        """A mask of the rows that are alive and pass the filters; None means all rows."""
        masks = [] if alive is None else [alive]
        if filters.sources is not None:
            codes = [code for code, name in enumerate(self.sources) if name in filters.sources]
            masks.append(np.isin(columns["source"], codes))
        if filters.documents is not None:
            masks.append(np.isin(columns["document_no"], list(filters.documents)))
        if filters.since_ms is not None:
            masks.append(columns["updated_ms"] >= filters.since_ms)
        if filters.until_ms is not None:
            masks.append(columns["updated_ms"] <= filters.until_ms)
        return np.logical_and.reduce(masks) if masks else None


def _segment_fields(segment: Segment, alive: Mask) -> dict[str, Any]:
    """The entry for a segment in `state`. Its field `dead` encodes the deleted rows; "" means none."""
    dead = "" if alive.all() else base64.b64encode(zlib.compress(np.packbits(~alive).data)).decode()
    return {"name": segment.name, "rows": segment.count, "bytes": len(segment.data), "dead": dead}


def _alive_rows(packed: str, count: int) -> Mask | None:
    if not packed:
        return None
    bits = np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8)
    return ~np.unpackbits(bits, count=count).astype(np.bool_)


def open_snapshot(folder: str, model: str, earlier: Snapshot | None = None) -> Snapshot | None:
    """The published snapshot; None if no snapshot of this model was published. Segments that `earlier` has
    mapped are reused. Raises `IndexDamaged`, `StoreError`.
    """
    for tries_left in reversed(range(OPEN_TRIES)):
        fields = read_state(os.path.join(folder, "state"))
        if fields is None:
            return None
        if fields.get("format") != VECTORS_FORMAT:
            raise IndexDamaged("the vector index is damaged or has another format: run `ctx index`")
        if fields.get("model") != model:
            return None
        try:
            return Snapshot(folder, fields, earlier)
        except FileNotFoundError as error:  # a writer has merged the segment meanwhile
            if not tries_left:
                raise IndexDamaged(VECTORS_DAMAGED) from error
        except OSError as error:
            raise StoreError(
                f"the vector index cannot be read: {error.strerror}; check its folder"
            ) from error
    raise AssertionError("unreachable")


# -- writing -------------------------------------------------------------------------------------------------


class VectorWriter:
    """Changes the vectors of a model. Only one writer may exist at a time (`WriterLock`). Readers see the
    changes after `publish`.

    Opens the published snapshot. Starts with an empty index and `applied` 0 if it is damaged or belongs to
    another model. No link below `beneath`, the store's folder, is followed. Raises `StoreError`.
    """

    def __init__(self, folder: str, model: str, *, beneath: str | None = None) -> None:
        self._folder = folder
        self._beneath = beneath or folder
        self._model = model
        with writing("the vector index", StoreError):
            files.make_folder(folder, beneath=self._beneath)
        try:
            snapshot = open_snapshot(folder, model)
        except IndexDamaged as error:
            logger.warning("vectors are rebuilt reason=%s", error.message)
            snapshot = None
        self.start_from(snapshot)

    def start_from(self, snapshot: Snapshot | None) -> None:
        """Replaces all rows by those of a snapshot, or by none. Readers keep the published snapshot until the
        next `publish`.
        """
        self._sources: dict[str, int] = {}
        self._segments: list[Segment] = []
        self._alive: list[Mask] = []  # the rows of each segment that are not deleted
        self._added: list[Rows] = []  # rows that are not in a segment yet
        self._changed = snapshot is None  # an empty index must be published as well
        self.applied, self.history, self.dim, self._max_chunk_no = 0, "", 0, 0
        if snapshot is not None:
            self.applied, self.history, self.dim = snapshot.applied, snapshot.history, snapshot.dim
            self._sources = {name: code for code, name in enumerate(snapshot.sources)}
            self._segments = snapshot.segments
            self._alive = [
                np.ones(segment.count, np.bool_) if alive is None else alive
                for segment, alive in zip(snapshot.segments, snapshot.alive, strict=True)
            ]
            self._max_chunk_no = max((int(s.columns["chunk_no"].max()) for s in self._segments), default=0)

    @property
    def row_count(self) -> int:
        """The number of rows, including deleted rows."""
        return sum(segment.count for segment in self._segments) + self._added_count

    @property
    def alive_count(self) -> int:
        return sum(int(alive.sum()) for alive in self._alive) + self._added_count

    @property
    def _added_count(self) -> int:
        return sum(len(rows.table) for rows in self._added)

    def retain(self, documents: Mapping[int, Sequence[int]]) -> None:
        """Drops the rows of these documents except the given chunks. `documents` maps document number -> the
        chunk numbers to keep, which are none for a deleted document.
        """
        numbers = np.fromiter(documents, dtype=np.int64, count=len(documents))
        kept = np.array([no for chunk_nos in documents.values() for no in chunk_nos], dtype=np.int64)
        self._drop(lambda t: np.isin(t["document_no"], numbers) & ~np.isin(t["chunk_no"], kept))

    def put(self, batch: VectorBatch) -> None:
        """Adds chunks, and replaces rows with the same chunk numbers. Raises `IndexDamaged` if the number
        of dimensions changed.
        """
        count, dim = batch.vectors.shape
        if not count:
            return
        if dim != self.dim and self.row_count:
            raise IndexDamaged(f"the embeddings have {dim} dimensions now, the index {self.dim}")
        self.dim = dim
        if int(batch.chunk_nos.min()) <= self._max_chunk_no:
            self._drop(lambda table: np.isin(table["chunk_no"], batch.chunk_nos))
        table = np.zeros(count, ROW)
        table["chunk_no"], table["document_no"] = batch.chunk_nos, batch.document_nos
        table["updated_ms"] = batch.updated_ms
        table["source"] = [self._sources.setdefault(name, len(self._sources)) for name in batch.sources]
        # If a chunk number occurs more than once, keep the last row.
        _, last_from_end = np.unique(batch.chunk_nos[::-1], return_index=True)
        self._added.append(Rows(table, batch.vectors).take(np.sort(count - 1 - last_from_end)))
        self._max_chunk_no = max(self._max_chunk_no, int(batch.chunk_nos.max()))
        self._changed = True
        if self._added_count >= WRITE_ROWS:
            self._write(len(self._segments))

    def _drop(self, condition: Callable[[Any], Mask]) -> None:
        """Drops the rows for which `condition(columns)` is true."""
        for segment, alive in zip(self._segments, self._alive, strict=True):
            dropped = condition(segment.columns)
            if (alive & dropped).any():
                alive &= ~dropped
                self._changed = True
        self._added = [rows.take(~condition(rows.table)) for rows in self._added]

    def publish(self, applied: int, history: str) -> None:
        """Makes all changes durable and visible to readers. `applied` is the last catalog seq that they
        cover, and `history` identifies the catalog (see `Documents.history`).
        """
        if not self._changed and (applied, history) == (self.applied, self.history):
            return
        dead = self.row_count - self.alive_count
        compact = dead >= COMPACT_MIN_DEAD and dead > COMPACT_DEAD_SHARE * self.row_count
        # Segments at least double in size from last to first. So there are few, and a row is rarely copied.
        first, size = len(self._segments), self._added_count
        while first and (compact or self._alive[first - 1].sum() <= 2 * size):
            first -= 1
            size += int(self._alive[first].sum())
        self._write(first)
        fields = {
            "format": VECTORS_FORMAT,
            "model": self._model,
            "dim": self.dim,
            "applied": applied,
            "history": history,
            "sources": list(self._sources),
            "segments": list(map(_segment_fields, self._segments, self._alive)),
        }
        with writing("the vector index", StoreError):
            write_state(os.path.join(self._folder, "state"), fields)
            current = {"state", *(segment.name for segment in self._segments)}
            for name in os.listdir(self._folder):
                if _NAME.fullmatch(name) and name not in current:
                    os.unlink(os.path.join(self._folder, name))
        self.applied, self.history, self._changed = applied, history, False

    def _write(self, first: int) -> None:
        """Merges the segments from index `first` on and the added rows into one segment."""
        count = sum(int(alive.sum()) for alive in self._alive[first:]) + self._added_count
        merged = self._segments[first:], self._alive[first:], self._added
        segments = self._segments[:first]
        if count:
            # A name that was never used, because readers keep the segments that they have mapped by name.
            path = os.path.join(self._folder, f"{os.urandom(8).hex()}.segment")
            with writing("the vector index", StoreError):
                segments.append(write_segment(path, self._beneath, _living(*merged), count, self.dim))
        self._alive = [*self._alive[:first], *(np.ones(s.count, np.bool_) for s in segments[first:])]
        self._segments, self._added = segments, []


def _living(segments: Sequence[Segment], alive: Sequence[Mask], added: Sequence[Rows]) -> Iterator[Rows]:
    for segment, mask in zip(segments, alive, strict=True):
        numbers = np.flatnonzero(mask)
        for first in range(0, len(numbers), BLOCK_ROWS):
            yield segment.rows.take(numbers[first : first + BLOCK_ROWS])
    yield from added
