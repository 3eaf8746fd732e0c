"""The vectors of one bank in memory, as 8-bit codes, scanned whole: a million of 384 dimensions in 0.4 GB."""

import threading
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ctx.memory.packed import unpacked
from ctx.memory.reader import Reader
from ctx.store.int8 import QUERY_ZERO, Products, Signed, multiply, query_codes, query_row, signed
from ctx.store.int8 import Floats as Floats

CODED_ROWS = 8_192  # from here on the product of codes is faster, and worth loading what makes it
_DEVIATIONS = 6.0  # that a score may be off
_LOAD_ROWS = 4096
_MIN_SAMPLE, _MAX_SAMPLE = 32, 256  # vectors whose cosines tell what is near for a model


class Neighbour(NamedTuple):
    no: int
    cosine: float


class _Rows(NamedTuple):
    """What the threads read: never changed below `filled`, but for the two masks."""

    columns: Signed  # (dim, capacity): a row in each, as a scan reads them fastest
    sums: Products  # of each row's codes
    steps: Floats
    owners: npt.NDArray[np.int64]
    alive: npt.NDArray[np.bool_]  # neither deleted nor replaced by a later vector
    current: npt.NDArray[np.bool_]  # alive and not superseded
    filled: int

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """Each with its rows along the last axis."""
        return self.columns, self.sums, self.steps, self.owners, self.alive, self.current

    @classmethod
    def empty(cls, capacity: int = 0, dim: int = 0) -> "_Rows":
        return cls(
            np.zeros((dim, capacity), np.int8),
            np.zeros(capacity, np.int32),
            np.zeros(capacity, np.float32),  # unused places are multiplied too
            np.empty(capacity, np.int64),
            np.zeros(capacity, np.bool_),
            np.zeros(capacity, np.bool_),
            0,
        )


class BankVectors:
    """One bank's vectors for one model, kept up with the catalog by `refresh`. Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._rows = _Rows.empty()
        self._dead = 0
        self._seq = -1
        self._purges = 0
        self._last_owner = 0
        self._sampled: tuple[int, float | None] = (0, None)  # rows there were, and the quantile of cosines

    @property
    def size_bytes(self) -> int:
        return sum(array.nbytes for array in self._rows.arrays)

    def refresh(self, reader: Reader, model_no: int) -> None:
        """Applies what the bank's journal has and this lacks; reads everything the first time, or after a
        purge.
        """
        bank = reader.bank
        if bank.seq == self._seq and bank.purges == self._purges:
            return
        with self._lock:
            if bank.seq <= self._seq and bank.purges == self._purges:
                return  # another thread was here, or has a younger snapshot
            if (
                self._seq < 0
                or bank.purges != self._purges
                or self._dead * 3 > self._rows.filled + CODED_ROWS
            ):
                self._clear()
                self._append(reader, model_no, None, dict(reader.withdrawn()))
            else:
                self._catch_up(reader, model_no)
            self._seq, self._purges = bank.seq, bank.purges

    def _drop(self, owners: list[int]) -> None:
        rows = self._rows
        replaced = np.flatnonzero(np.isin(rows.owners[: rows.filled], owners))
        rows.alive[replaced] = False
        rows.current[replaced] = False
        self._dead += len(replaced)

    def _catch_up(self, reader: Reader, model_no: int) -> None:
        changed = reader.changed_since(self._seq)
        reread = [no for no, _, _ in changed if no <= self._last_owner]
        if reread:
            self._drop(reread)
        withdrawn = {no: deleted for no, deleted, superseded in changed if deleted or superseded}
        undeleted = [no for no, deleted, _ in changed if not deleted]
        if undeleted:
            self._append(reader, model_no, undeleted, withdrawn)

    def _append(
        self, reader: Reader, model_no: int, nos: list[int] | None, withdrawn: dict[int, bool]
    ) -> None:
        entries = reader.vectors(model_no, nos)
        while batch := list(islice(entries, _LOAD_ROWS)):
            self._append_batch(batch, withdrawn)

    def _append_batch(self, batch: list[tuple[int, bytes]], withdrawn: dict[int, bool]) -> None:
        added_codes, added_steps = unpacked([packed for _, packed in batch])
        rows, first, end = self._rows, self._rows.filled, self._rows.filled + len(batch)
        if end > len(rows.owners):
            larger = _Rows.empty(max(end, first + first // 2, 64), added_codes.shape[1])
            if first:
                for target, source in zip(larger.arrays, rows.arrays, strict=True):
                    target[..., :first] = source[..., :first]
            rows = larger
        owners = [no for no, _ in batch]
        centred = signed(added_codes)
        rows.columns[:, first:end] = centred.T
        rows.sums[first:end] = centred.sum(axis=1, dtype=np.int32)
        rows.steps[first:end] = added_steps
        rows.owners[first:end] = owners
        rows.alive[first:end] = [not withdrawn.get(no, False) for no in owners]
        rows.current[first:end] = [no not in withdrawn for no in owners]
        self._last_owner = max(self._last_owner, *owners)
        self._rows = rows._replace(filled=end)  # last: a reader without the lock sees whole rows only

    def nearest(
        self, query: Floats, k: int, *, superseded: bool = False, among: list[int] | None = None
    ) -> list[Neighbour]:
        """The k memories whose best passage is nearest to a unit vector, nearest first; ties by number."""
        with self._lock:
            rows = self._rows
            visible = (rows.alive if superseded else rows.current)[: rows.filled].copy()
        if not rows.filled or rows.columns.shape[0] != len(query):
            return []
        owners = rows.owners[: rows.filled]
        if among is not None:
            visible &= np.isin(owners, among)
        places = np.flatnonzero(visible)
        scores, margin = _scan(rows, query)
        scores = scores[places]
        width = k + 16
        while True:
            chosen = places
            if width < len(places):
                lowest = np.partition(scores, -width)[-width]
                chosen = places[scores >= lowest - 2 * margin]
            exact = (query @ rows.columns[:, chosen].astype(np.float32)) * rows.steps[chosen]
            nearest: dict[int, float] = {}
            for index in np.lexsort((owners[chosen], -exact)):
                nearest.setdefault(int(owners[chosen[index]]), float(exact[index]))
            if len(nearest) >= k or width >= len(places):
                return [Neighbour(no, cosine) for no, cosine in list(nearest.items())[:k]]
            width *= 4  # many passages of one memory took the places

    def quantile(self, share: float) -> float | None:
        """The cosine below which that share of pairs of a sample of the vectors lies; None if there are too
        few. Kept until the bank has doubled.
        """
        with self._lock:
            rows, (sampled, cosine) = self._rows, self._sampled
            if rows.filled < _MIN_SAMPLE or rows.filled < 2 * sampled:
                return cosine
            step = max(1, rows.filled // _MAX_SAMPLE)
            places = np.flatnonzero(rows.current[: rows.filled])[::step]
            vectors = rows.columns[:, places].T.astype(np.float32) * rows.steps[places, None]
            pairs = (vectors @ vectors.T)[np.triu_indices(len(places), 1)]
            self._sampled = (rows.filled, float(np.quantile(pairs, share)) if pairs.size else None)
            return self._sampled[1]

    def cosines_among(self, nos: list[int]) -> dict[tuple[int, int], float]:
        """The cosine of the nearest passages of each pair of these memories; those without a vector are left
        out.
        """
        owners, starts, vectors = self._passages_of(nos)
        if not owners:
            return {}
        products = np.maximum.reduceat(vectors @ vectors.T, starts, axis=0)
        cosines = np.maximum.reduceat(products, starts, axis=1).tolist()
        return {
            (no, other): cosine
            for no, row in zip(owners, cosines, strict=True)
            for other, cosine in zip(owners, row, strict=True)
        }

    def cosines(self, query: Floats, nos: list[int]) -> dict[int, float]:
        """The cosine of the best passage of each of these memories; those without a vector are left out."""
        owners, starts, vectors = self._passages_of(nos)
        if not owners or vectors.shape[1] != len(query):
            return {}
        return dict(zip(owners, np.maximum.reduceat(vectors @ query, starts).tolist(), strict=True))

    def _passages_of(self, nos: list[int]) -> tuple[list[int], npt.NDArray[np.intp], Floats]:
        """Those of some memories that have a vector, ascending; where the passages of each begin; and the
        unit vectors of these, float32 (passages, dim).
        """
        with self._lock:
            rows = self._rows
            places = np.flatnonzero(np.isin(rows.owners[: rows.filled], nos) & rows.alive[: rows.filled])
        places = places[np.argsort(rows.owners[places], kind="stable")]
        owners, starts = np.unique(rows.owners[places], return_index=True)
        vectors = np.ascontiguousarray(rows.columns[:, places].T, np.float32) * rows.steps[places, None]
        return owners.tolist(), starts, vectors


def _scan(rows: _Rows, query: Floats) -> tuple[Floats, float]:
    """The scores of the rows with a query, float32 (filled,), and by how much each may be off its cosine."""
    count = rows.filled
    if count < CODED_ROWS:
        return (query @ rows.columns[:, :count].astype(np.float32)) * rows.steps[:count], 0.0
    values, step = query_codes(query)
    products = multiply(query_row(values), rows.columns)[0, :count] - QUERY_ZERO * rows.sums[:count]
    # Each component of the query is off by half a step at most, and the errors of many cancel out: times a
    # unit vector they have a standard deviation of step / sqrt(12).
    return products.astype(np.float32) * rows.steps[:count] * step, _DEVIATIONS * float(step) / 12**0.5
