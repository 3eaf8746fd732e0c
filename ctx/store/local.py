"""The search index of one machine: tantivy for words, a matrix for vectors, in one folder.

    keyword.state   which folder of tantivy's counts, of which format, its files, the seq it has applied, and
                    whether code defines anything in it
    keyword-N/      tantivy's files
    vectors/        see vectors.py; its own state, since either half can be lost and rebuilt by itself
    suspect         there after a reader found damage: the next catch-up reads every byte

Everything here is derived: whatever is missing, damaged, of another format or ahead of the catalog is built
anew from it, without reading a source or embedding a text again. Both halves apply documents by number,
replacing, and note the seq afterwards; a crash between any two steps leaves a seq that is too low, and what
is applied twice is the same as once.

Damage is looked for where it costs little: every opening checks that the files are there, as long as they
were, and (of vectors) that tables and end are as written; the first change a process makes reads all of both
halves before it.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from ctx import files
from ctx.errors import EmbeddingsDisabled, StoreError
from ctx.store.statefile import (
    DAMAGED,
    KEYWORD_FORMAT,
    OPEN_TRIES,
    VECTORS_FORMAT,
    Stamp,
    Surviving,
    check_reachable,
    complete_files,
    format_fault,
    has_definitions,
    keyword_state,
    read_state,
    stamp,
    vector_sizes,
)
from ctx.text import one_line, sound
from ctx.types import Filters, Hit

if TYPE_CHECKING:  # numpy costs 70 ms and logging 8, and a keyword search from the command line needs neither
    import logging

    import numpy as np

    from ctx.store.base import Catalog
    from ctx.store.keyword_writer import KeywordWriter
    from ctx.store.tantivy import KeywordIndex
    from ctx.store.vector_writer import VectorWriter
    from ctx.store.vectors import VectorReader

PUBLISH_EVERY_S = 3.0  # what a long catch-up has applied becomes findable that often; a commit costs 10 ms
_RETAINED = 20_000  # documents whose chunks are compared at once
_FORMER_S = 60.0  # a question that was asked of the model before has its answer long before that
# From so many on words are searched for while the question is embedded: .93 of a hybrid search's time. In a
# small index it costs up to 6 % more of the processor, which other clients wait for.
BESIDE_PASSAGES = 10_000


def _retain(catalog: "Catalog", writer: "VectorWriter", applied: int) -> None:
    """Drops the vectors of chunks that are gone since."""
    writer.retain({document_no: () for _, document_no in catalog.deletions_since(applied)})
    retained: dict[int, tuple[int, ...]] = {}
    for _, document_no, chunk_nos in catalog.chunks_since(applied):
        retained[document_no] = chunk_nos
        if len(retained) >= _RETAINED:
            writer.retain(retained)
            retained = {}
    writer.retain(retained)


class LocalIndex:
    """The `SearchIndex` in a folder. Readers follow what a writer publishes, in this process or another.

    `embedding()` gives the name of the model and its dimensions where known, (None, None) where embeddings
    are off; it is asked whenever vectors are needed, and may name another model from one time to the next.
    Opening touches nothing. `catch_up` needs `writable`, and the `WriterLock` held by the caller.
    Raises `StoreError` where the path is not UTF-8: the engine takes no other, and what it cannot open would
    be taken for damaged and built anew, each time.
    """

    def __init__(
        self, path: str, embedding: Callable[[], tuple[str | None, int | None]], *, writable: bool = False
    ) -> None:
        if sound(path) != path:
            raise StoreError(
                f"the index cannot be in {one_line(path)}, which is not UTF-8: rename its folder; where its "
                "name is UTF-8, let LC_ALL be C.UTF-8 and PYTHONUTF8 not be 0"
            )
        self._path = path
        self._beneath = os.path.dirname(os.path.abspath(path))  # the folder of the store
        self._embedding = embedding
        self._writable = writable
        self._state_path = os.path.join(path, "keyword.state")
        self._applied: tuple[tuple[Stamp | None, Stamp | None], int] = ((None, None), 0)
        self._vectors_path = os.path.join(path, "vectors")
        self._suspect_path = os.path.join(path, "suspect")
        self._catching_up = Lock()
        self._opening = Lock()
        self._seen: Stamp | None = None
        self._keyword: KeywordIndex | None = None
        self._keyword_folder = ""
        self._defining = True  # whether some code may define a name
        self._keyword_writer: KeywordWriter | None = None
        self._vectors: VectorReader | None = None
        self._former: VectorReader | None = None  # of the model before
        self._former_ends_s = 0.0

    # -- searching -------------------------------------------------------------------------------------------
    def keyword(self, query: str, filters: Filters, k: int, *, prefix: bool = False) -> list[Hit]:
        """As the protocol has it; [] where nothing is indexed yet.
        Raises `StoreError` where the files do not answer.
        """
        with _Suspecting(self):
            index = self._current_keyword()
            return [] if index is None else index.search(query, filters, k, prefix=prefix)

    def vocabulary(self, terms: Sequence[str], names: Sequence[str]) -> tuple[dict[str, float], list[str]]:
        with _Suspecting(self):
            index = self._current_keyword()
            if index is None:
                return {}, []
            # The first question about a field that is empty takes tantivy .7 ms.
            return index.rarity(terms), index.defined(names) if self._defining else []

    def resembling(self, words: Sequence[str]) -> str | None:
        with _Suspecting(self):
            index = self._current_keyword()
            return None if index is None else index.resembling(words)

    def definitions(self, names: Sequence[str], filters: Filters, k: int) -> list[Hit]:
        with _Suspecting(self):
            index = self._current_keyword()
            return [] if index is None else index.definitions(names, filters, k)

    def semantic(
        self, vector: "np.ndarray", filters: Filters, k: int, *, model: str | None = None
    ) -> list[Hit]:
        """As the protocol has it; [] where nothing is embedded yet.
        Raises `EmbeddingsDisabled` where no model is configured.
        """
        model = model or self._embedding()[0]
        if model is None:
            raise EmbeddingsDisabled("embeddings are disabled; set [embedding] provider in ctx.toml")
        reader = self._vectors_of(model)
        try:
            return reader.search(vector, filters, k)
        except StoreError:
            self.suspect()
            raise

    def both(
        self,
        query: str,
        vector: "Callable[[], np.ndarray]",
        filters: Filters,
        depths: tuple[int, int],
        *,
        prefix: bool = False,
        model: str | None = None,
    ) -> tuple[list[Hit], list[Hit]]:
        if self._keyword is None or self._keyword.passages < BESIDE_PASSAGES:
            hits = self.keyword(query, filters, depths[0], prefix=prefix)
            return hits, self.semantic(vector(), filters, depths[1], model=model)
        from ctx.store.vectors import HELPERS  # numpy, as in `_vectors_of`

        hits_beside = HELPERS.submit(self.keyword, query, filters, depths[0], prefix=prefix)
        neighbours = self.semantic(vector(), filters, depths[1], model=model)
        return hits_beside.result(), neighbours

    def hold(self, model: str) -> bool:
        """Whether `semantic` has vectors of this model in hand, so that a question may be put to it."""
        try:
            return self._vectors_of(model).hold()
        except StoreError:
            return True  # `semantic` says what is wrong with them

    def _vectors_of(self, model: str) -> "VectorReader":
        """The vectors of a model. Those of the one before stay at hand for questions that are under way."""
        reader = self._vectors
        if reader is not None and reader.model == model:
            if self._former is not None and time.monotonic() > self._former_ends_s:
                self._former = None
            return reader
        former = self._former
        if former is not None and former.model == model:
            return former
        from ctx.store.vectors import VectorReader  # numpy: 70 ms, not for a keyword search

        check_reachable(self._vectors_path, self._beneath)
        self._former, self._former_ends_s = reader, time.monotonic() + _FORMER_S
        self._vectors = VectorReader(self._vectors_path, model)
        return self._vectors

    def suspect(self) -> None:
        """Asks the next writer, of any process, to read every byte."""
        try:
            os.close(files.open_file(self._suspect_path, os.O_WRONLY | os.O_CREAT, beneath=self._beneath))
        except OSError:
            pass  # the folder is gone or may not be written: the caller has the error either way

    def applied_seq(self) -> int:
        """The seq of the catalog that both halves have applied, 0 where one is missing or damaged; of what
        their files say now.
        """
        stamps = (stamp(self._state_path), stamp(f"{self._vectors_path}/state"))
        applied_stamps, applied = self._applied
        if applied_stamps != stamps:
            applied = self._read_applied_seq()
            # Of files no newer than these: a later change is seen next time.
            self._applied = (stamps, applied)
        return applied

    def _read_applied_seq(self) -> int:
        fields = keyword_state(self._state_path)
        if not fields:
            return 0
        applied = int(fields.get("applied", 0))
        if not fields.get("model"):
            return applied
        vectors = read_state(os.path.join(self._vectors_path, "state")) or {}
        return min(applied, int(vectors.get("applied", 0)))

    def close(self) -> None:
        """Waits for tantivy's merges and lets the files go."""
        writer, self._keyword_writer = self._keyword_writer, None
        if writer is not None:
            writer.close()
        reader, self._keyword = self._keyword, None
        self._seen = None
        if reader is not None:
            reader.close()
        self._vectors = self._former = None

    def __enter__(self) -> "LocalIndex":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _opened(self, fields: dict[str, str]) -> "KeywordIndex":
        """The index of a state. Raises `StoreError` where files of it are missing or damaged."""
        from ctx.store.tantivy import KeywordIndex

        folder = os.path.join(self._path, fields["folder"])
        check_reachable(folder, self._beneath)
        if not complete_files(folder, fields):
            raise StoreError(DAMAGED)
        if self._keyword is not None and self._keyword_folder == folder:
            self._keyword.reload()
            return self._keyword
        keyword = KeywordIndex(folder, writable=False)
        self._keyword_folder = folder
        return keyword

    def _check_format(self, fields: Mapping[str, str]) -> None:
        if (fault := format_fault(fields)) is not None:
            building = self._catching_up.locked()
            mend = "it is being built anew" if building else "run `ctx index`, which builds it anew"
            raise StoreError(f"the keyword index {fault}: {mend}")

    def _current_keyword(self) -> "KeywordIndex | None":
        """What is published now, opened. None where nothing is."""
        current_stamp = stamp(self._state_path)
        if current_stamp == self._seen and current_stamp is not None:
            return self._keyword
        with self._opening:
            for tries_left in reversed(range(OPEN_TRIES)):
                # Before the state is read: a newer one is then seen next time.
                current_stamp = stamp(self._state_path)
                fields = keyword_state(self._state_path)
                if fields is None:
                    return None
                self._check_format(fields)
                try:
                    self._keyword = self._opened(fields)
                    self._defining = has_definitions(fields)
                    self._seen = current_stamp
                    return self._keyword
                except StoreError:
                    # A writer may have gone on to another folder meanwhile; if it has not, this one is
                    # damaged.
                    if not tries_left or stamp(self._state_path) == current_stamp:
                        raise
        raise AssertionError("unreachable")

    # -- catching up -----------------------------------------------------------------------------------------
    def catch_up(self, catalog: "Catalog") -> int:
        """As the protocol has it. What is damaged is built anew on the way, and what was long is published in
        steps.

        After a `StoreError` (a full disk) readers still have what was published before, and the next call
        goes on from there.
        """
        if not self._writable:
            raise StoreError("the index was opened to be read only")
        with self._catching_up:
            model, _ = self._embedding()
            suspect = os.path.exists(self._suspect_path)
            if suspect:
                _log().warning("index is read in full reason=a reader could not use it")
                from ctx.store.inventory import verified  # what a search does without

                verified.clear()
            elif self._up_to_date(catalog, model or ""):
                return catalog.seq()
            try:
                files.make_folder(self._path, beneath=self._beneath)
            except OSError as error:
                raise StoreError(f"the index cannot be made: {error.strerror}; check its folder") from error
            applied = self._words.catch_up(catalog, model or "")
            if model is None:
                from ctx.file_writing import delete_folder  # what a search does without

                delete_folder(self._vectors_path)
            else:
                applied = min(applied, self._catch_up_vectors(catalog, model, suspect=suspect))
            if suspect:
                os.unlink(self._suspect_path)
            return applied

    def feed(self, catalog: "Catalog") -> None:
        """Gives tantivy what was written since, and publishes nothing: its threads index while the caller
        reads on.

        What is fed is published by the next `catch_up`. A crash before that loses nothing: the seq that
        counts is the published one.
        """
        if not self._writable:
            raise StoreError("the index was opened to be read only")
        with self._catching_up:
            self._words.feed(catalog)

    @property
    def _words(self) -> "KeywordWriter":
        """What writes the half of the words; it stays until `close`, so that merges run between two calls."""
        if self._keyword_writer is None:
            # Tantivy with the analysis is 3 ms, and a run that finds nothing changed has no use for it.
            from ctx.store.keyword_writer import KeywordWriter

            self._keyword_writer = KeywordWriter(self._path, self._state_path, self._beneath, PUBLISH_EVERY_S)
        return self._keyword_writer

    def _up_to_date(self, catalog: "Catalog", model: str) -> bool:
        """Whether there is nothing to apply, as far as the two states and the sizes of the files tell: a
        millisecond, no numpy.
        """
        seq = catalog.seq()
        expected = {"applied": str(seq), "history": catalog.history(seq) or "", "model": model}
        words = keyword_state(self._state_path) or {}
        if not {**expected, "format": str(KEYWORD_FORMAT)}.items() <= words.items():
            return False
        if not complete_files(os.path.join(self._path, words["folder"]), words):
            return False
        return self._are_vectors_up_to_date(expected)

    def _are_vectors_up_to_date(self, expected: dict[str, str]) -> bool:
        model = expected["model"]
        vectors = read_state(os.path.join(self._vectors_path, "state"))
        if vectors is None or not model:
            return vectors is None and not model
        if not {**expected, "format": str(VECTORS_FORMAT)}.items() <= vectors.items():
            return False
        for name, size in vector_sizes(vectors).items():
            current_stamp = stamp(os.path.join(self._vectors_path, name))
            if current_stamp is None or current_stamp[2] < size:
                return False
        return True

    def reach(self) -> None:
        """Nothing: it is in this process."""

    def adopt(self) -> None:
        """Nothing: what lies beside the catalog is its own."""

    def check(self) -> list[str]:
        """What is wrong with the index, a line each, after reading all of it: half a second for a million
        chunks. Repairs nothing.
        """
        problems = []
        fields = keyword_state(self._state_path)
        if fields is None:
            problems.append("there is no keyword index yet")
        elif (fault := format_fault(fields)) is not None:
            problems.append(f"the keyword index {fault}")
        else:
            folder = os.path.join(self._path, fields["folder"])
            from ctx.store.inventory import sound_files, verified

            verified.pop(folder, None)
            if not (complete_files(folder, fields) and sound_files(folder)):
                problems.append("the keyword index is damaged")
        model, _ = self._embedding()
        if model is not None:
            from ctx.store.vectors import check_vectors  # numpy: 70 ms, not for a keyword search

            problems += check_vectors(self._vectors_path, model)
        if problems:
            self.suspect()
        return problems

    def _catch_up_vectors(self, catalog: "Catalog", model: str, *, suspect: bool) -> int:
        from ctx.store.vector_writer import VectorWriter  # numpy: 70 ms, not for a keyword search
        from ctx.store.vectors import VectorsDamaged

        with VectorWriter(self._vectors_path, model, suspect=suspect, beneath=self._beneath) as writer:
            if writer.history and catalog.history(writer.applied) != writer.history:
                _log().warning("vectors are built anew reason=of another catalog")
                writer.start_over()
            for _ in range(2):
                try:
                    target = self._apply_to_vectors(catalog, model, writer)
                    if self._complete(catalog, model, writer, target):
                        return target
                    reason = "not the embeddings of the catalog"
                except VectorsDamaged as error:
                    reason = error.message
                _log().warning("vectors are built anew reason=%s", reason)
                writer.start_over()
            return self._apply_to_vectors(catalog, model, writer)

    @staticmethod
    def _apply_to_vectors(catalog: "Catalog", model: str, writer: "VectorWriter") -> int:
        target = catalog.seq()
        applied = writer.applied
        if applied == target and writer.history:
            return target
        published_s = time.monotonic()
        if writer.row_count:
            _retain(catalog, writer, applied)
        for batch in catalog.vectors_since(model, applied):
            writer.put(batch)
            if not writer.replaces and time.monotonic() - published_s > PUBLISH_EVERY_S:
                # Findable, but the seq stays: the rows do not come in its order.
                writer.publish(applied, writer.history or catalog.history(applied) or "")
                published_s = time.monotonic()
        writer.publish(target, catalog.history(target) or "")
        return target

    @staticmethod
    def _complete(catalog: "Catalog", model: str, writer: "VectorWriter", target: int) -> bool:
        """Whether there is a row for every chunk with an embedding, as far as that can be told while others
        write.

        It is false after embeddings were forgotten: nothing else tells a projection so.
        """
        covered = catalog.stats()["chunks"] - catalog.pending_count(model)
        return writer.alive_count == covered or catalog.given_seq() != target


class _Suspecting(Surviving):
    """`Surviving`, and whoever writes next reads every byte after an error."""

    def __init__(self, index: LocalIndex) -> None:
        self._index = index

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            super().__exit__(kind, error, trace)
        except StoreError:
            self._index.suspect()
            raise
        if isinstance(error, StoreError):
            self._index.suspect()


def _log() -> "logging.Logger":
    import logging

    return logging.getLogger(__name__)
