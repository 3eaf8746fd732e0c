"""Embeds memories and queries. Vectors are stored with 8 bits per dimension, and cached in memory for each
bank.

Without an embedder, or if it fails, memories are still stored and found by their words. They are embedded
later.

A search scans all vectors of a bank. A million vectors of 384 dimensions take 0.4 GB.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import chain, islice, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ctx.embed import Embedder
from ctx.errors import CtxError
from ctx.memory.columns import MAX_TEXT_CHARS
from ctx.memory.language import first_person
from ctx.memory.reader import Reader
from ctx.memory.scores import MAX_PASSAGE_CHARS, embedding_texts
from ctx.store.segments import (
    QUERY_ZERO,
    Codes,
    Products,
    Signed,
    decode,
    encode,
    multiply,
    query_codes,
    query_row,
    signed,
)
from ctx.store.segments import Floats as Floats

logger = logging.getLogger(__name__)

CACHE_BYTES = 1536 << 20  # all vectors in memory; the banks that were used least recently are dropped
# Embedding a text of this length takes about a second. A longer text is stored without vectors and embedded
# in the background; until then it is found by its words.
MAX_CHARS_AT_ONCE = 24 * MAX_PASSAGE_CHARS
# With at least this many vectors, multiplying the 8-bit codes is faster than multiplying floats.
CODED_ROWS = 8_192
_STEP_BYTES = 4
_DEVIATIONS = 6.0  # the assumed maximum error of an estimated cosine, in standard deviations
# The numbers of vectors to compare, to learn which cosines are high for a model.
_MIN_SAMPLE, _MAX_SAMPLE = 32, 256


def pack(vector: Floats) -> bytes:
    """Packs the direction of a vector: the step (float32), which is the value of one unit of a code, then one
    code byte per dimension.
    """
    codes, steps = encode(_unit(vector)[None, :].astype(np.float32))
    return bytes(steps.astype("<f4").tobytes() + codes.tobytes())


def _unit(vector: Floats) -> Floats:
    length = float(np.linalg.norm(vector))
    return vector / np.float32(length) if length else vector


def unpack(packed: bytes) -> Floats:
    """The unit vector that was packed, with a precision of 8 bits per dimension. The inverse of `pack`."""
    vector: Floats = decode(*_unpacked([packed]))[0]
    return vector


def _unpacked(batch: Sequence[bytes]) -> tuple[Codes, Floats]:
    """The codes, uint8 (n, dim), and steps, float32 (n,), of packed vectors of the same dimension."""
    raw = np.frombuffer(b"".join(batch), np.uint8).reshape(len(batch), -1)
    steps = np.ascontiguousarray(raw[:, :_STEP_BYTES]).view("<f4")[:, 0].astype(np.float32)
    return raw[:, _STEP_BYTES:], steps


class _Rows(NamedTuple):
    """The arrays that searches read. The first `filled` columns are used; in these, only `alive` changes."""

    columns: Signed  # (dim, capacity): one vector per column, the fastest layout for scans
    sums: Products  # the sum of each vector's codes
    steps: Floats
    owners: npt.NDArray[np.int64]
    alive: npt.NDArray[np.bool_]  # false if the memory is deleted or has a later vector
    filled: int

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """All arrays. The last axis of each is the index of the vector."""
        return self.columns, self.sums, self.steps, self.owners, self.alive

    @classmethod
    def empty(cls, capacity: int = 0, dim: int = 0) -> "_Rows":
        return cls(
            np.zeros((dim, capacity), np.int8),
            np.zeros(capacity, np.int32),
            np.zeros(capacity, np.float32),  # zeros, because a scan multiplies unused columns too
            np.empty(capacity, np.int64),
            np.zeros(capacity, np.bool_),
            0,
        )


class BankVectors:
    """The cached vectors of one bank for one model. `refresh` brings them up to date. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._rows = _Rows.empty()
        self._dead = 0
        self._seq = -1
        self._purges = 0
        self._last_owner = 0
        # (number of vectors when `quantile` last took a sample, the result).
        self._sampled: tuple[int, float | None] = (0, None)

    @property
    def size_bytes(self) -> int:
        return sum(array.nbytes for array in self._rows.arrays)

    def refresh(self, reader: Reader, model_no: int) -> None:
        """Loads the changes since the last call; the first time and after a purge, loads all vectors."""
        bank = reader.bank
        if bank.seq == self._seq and bank.purges == self._purges:
            return
        with self._lock:
            if bank.seq <= self._seq and bank.purges == self._purges:
                return  # another thread has already loaded these changes, or newer ones
            many_dead = self._dead * 3 > self._rows.filled + CODED_ROWS
            if self._seq < 0 or bank.purges != self._purges or many_dead:
                self._clear()
                self._append(reader, model_no, None, set(reader.deleted()))
            else:
                self._apply(reader, model_no, reader.changed_since(self._seq))
            self._seq, self._purges = bank.seq, bank.purges

    def _apply(self, reader: Reader, model_no: int, changes: list[tuple[int, bool]]) -> None:
        if outdated := [no for no, _ in changes if no <= self._last_owner]:
            columns = np.flatnonzero(np.isin(self._rows.owners[: self._rows.filled], outdated))
            self._rows.alive[columns] = False
            self._dead += len(columns)
        if undeleted := [no for no, deleted in changes if not deleted]:
            self._append(reader, model_no, undeleted, set())

    def _append(self, reader: Reader, model_no: int, nos: list[int] | None, deleted: set[int]) -> None:
        entries = reader.vectors(model_no, nos)
        while batch := list(islice(entries, 4096)):
            added_codes, added_steps = _unpacked([packed for _, packed in batch])
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
            rows.alive[first:end] = [no not in deleted for no in owners]
            self._last_owner = max(self._last_owner, *owners)
            # Set last, so that a reader without the lock sees only complete columns.
            self._rows = rows._replace(filled=end)

    def nearest(self, query: Floats, k: int, *, among: list[int] | None = None) -> dict[int, float]:
        """The cosines of the k memories whose best passage is nearest to a unit vector, by number, nearest
        first. With `among`, only of these memories.
        """
        with self._lock:
            rows = self._rows
            eligible = rows.alive[: rows.filled].copy()
        if not rows.filled or rows.columns.shape[0] != len(query):
            return {}
        owners = rows.owners[: rows.filled]
        if among is not None:
            eligible &= np.isin(owners, among)
        places = np.flatnonzero(eligible)
        scores, margin = _scan(rows, query)
        scores = scores[places]
        width = k + 16
        while True:
            chosen = places
            if width < len(places):
                chosen = places[scores >= np.partition(scores, -width)[-width] - 2 * margin]
            exact = (query @ rows.columns[:, chosen].astype(np.float32)) * rows.steps[chosen]
            nearest: dict[int, float] = {}
            for index in np.lexsort((owners[chosen], -exact)):
                nearest.setdefault(int(owners[chosen[index]]), float(exact[index]))
            if len(nearest) >= k or width >= len(places):
                return dict(islice(nearest.items(), k))
            width *= 4  # the nearest passages belong to too few memories: look at more passages

    def quantile(self, share: float) -> float | None:
        """A quantile of the cosines of all pairs of vectors, estimated from a sample.

        None if there are too few vectors. It is computed again when the bank has doubled.
        """
        with self._lock:
            rows, (sampled, cosine) = self._rows, self._sampled
            if rows.filled < _MIN_SAMPLE or rows.filled < 2 * sampled:
                return cosine
            step = max(1, rows.filled // _MAX_SAMPLE)
            places = np.flatnonzero(rows.alive[: rows.filled])[::step]
            vectors = rows.columns[:, places].T.astype(np.float32) * rows.steps[places, None]
            pairs = (vectors @ vectors.T)[np.triu_indices(len(places), 1)]
            self._sampled = (rows.filled, float(np.quantile(pairs, share)) if pairs.size else None)
            return self._sampled[1]

    def cosines_among(self, nos: list[int]) -> dict[tuple[int, int], float]:
        """Pair of memory numbers -> cosine of the two passages that are nearest to each other.

        Memories without a vector are left out.
        """
        owners, starts, vectors = self._passages_of(nos)
        if not owners:
            return {}
        products = np.maximum.reduceat(vectors @ vectors.T, starts, axis=0)
        cosines = np.maximum.reduceat(products, starts, axis=1).tolist()
        return dict(zip(product(owners, owners), chain(*cosines), strict=True))

    def cosines(self, query: Floats, nos: list[int]) -> dict[int, float]:
        """Memory number -> cosine of its best passage. Memories without a vector are left out."""
        owners, starts, vectors = self._passages_of(nos)
        if not owners or vectors.shape[1] != len(query):
            return {}
        return dict(zip(owners, np.maximum.reduceat(vectors @ query, starts).tolist(), strict=True))

    def _passages_of(self, nos: list[int]) -> tuple[list[int], npt.NDArray[np.intp], Floats]:
        """(memories, starts, vectors) of the memories among `nos` that have a vector.

        `memories` has memory numbers, ascending. `starts` has the index in `vectors` of each memory's first
        passage. `vectors` has unit vectors, float32 (passages, dim).
        """
        with self._lock:
            rows = self._rows
            places = np.flatnonzero(np.isin(rows.owners[: rows.filled], nos) & rows.alive[: rows.filled])
        places = places[np.argsort(rows.owners[places], kind="stable")]
        owners, starts = np.unique(rows.owners[places], return_index=True)
        vectors = np.ascontiguousarray(rows.columns[:, places].T, np.float32) * rows.steps[places, None]
        return owners.tolist(), starts, vectors


def _scan(rows: _Rows, query: Floats) -> tuple[Floats, float]:
    """Estimated cosines of a query with all vectors, float32 (filled,), and their maximum error."""
    count = rows.filled
    if count < CODED_ROWS:
        return (query @ rows.columns[:, :count].astype(np.float32)) * rows.steps[:count], 0.0
    values, step = query_codes(query)
    products = multiply(query_row(values), rows.columns)[0, :count] - QUERY_ZERO * rows.sums[:count]
    # The query is rounded to 8 bits too, so the error of each of its components is at most half a step. The
    # product of these errors with a unit vector has a standard deviation of step / sqrt(12).
    return products.astype(np.float32) * rows.steps[:count] * step, _DEVIATIONS * float(step) / 12**0.5


class Embedding:
    """The embedder of a store, if it has one, and the cached vectors of its banks. Thread-safe."""

    def __init__(self, embedder: Embedder | None, deferred: Callable[[], None]) -> None:
        """`deferred` is called after a memory was stored without vectors."""
        self.embedder = embedder
        self._deferred = deferred
        self._banks: OrderedDict[int, BankVectors] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def model(self) -> str | None:
        return self.embedder.model if self.embedder else None

    def close(self) -> None:
        with self._lock:
            self._banks.clear()

    def packed(
        self, texts: Sequence[str], *, patient: bool = False, stop: threading.Event | None = None
    ) -> list[list[bytes]]:
        """For each text, the packed vectors of its passages.

        All lists are empty without an embedder, if it failed, or if `stop` was set meanwhile. The list of a
        very long text is empty unless `patient`.
        """
        if self.embedder is None or not texts:
            return [[] for _ in texts]
        max_chars = MAX_TEXT_CHARS if patient else MAX_CHARS_AT_ONCE
        passages = [embedding_texts(text) if len(text) <= max_chars else [] for text in texts]
        listed = [passage for entry in passages for passage in entry]
        try:
            vectors = [pack(np.asarray(vector, np.float32)) for vector in self.embedder.embed(listed, stop)]
        except CtxError as error:
            # Do not raise: the memories must be stored, even without vectors.
            logger.warning("memory=embed outcome=%s texts=%d", error.word, len(texts))
            vectors = []
        if len(vectors) < len(listed):
            return [[] for _ in texts]  # the embedder failed or was stopped
        packed = iter(vectors)
        return [[next(packed) for _ in entry] for entry in passages]

    def stored(self, vectors: Sequence[Sequence[bytes]]) -> None:
        """To be called with the vectors of memories after these were stored. If any memory has none, it is
        embedded in the background.
        """
        if self.embedder is not None and not all(vectors):
            self._deferred()

    def query_vector(self, query: str) -> Floats | None:
        """The unit vector of a query; None without an embedder or on failure."""
        if self.embedder is None:
            return None
        try:
            vector = np.asarray(self.embedder.embed_query(first_person(query)), np.float32)
        except CtxError as error:
            logger.warning("memory=embed_query outcome=%s", error.word)
            return None
        return _unit(vector) if vector.any() else None

    def of_bank(self, reader: Reader) -> BankVectors | None:
        """The cached vectors of a bank, brought up to date; None if the model has embedded no memories."""
        if self.model is None or (model_no := reader.model_no(self.model)) is None:
            return None
        with self._lock:
            vectors = self._banks.setdefault(reader.bank_no, BankVectors())
            self._banks.move_to_end(reader.bank_no)
            sizes = [bank.size_bytes for bank in self._banks.values()]
            while len(sizes) > 1 and sum(sizes) > CACHE_BYTES:
                self._banks.popitem(last=False)
                del sizes[0]
        vectors.refresh(reader, model_no)
        return vectors
