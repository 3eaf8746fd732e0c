"""The search index: in a local folder (`LocalIndex`), with tantivy for words and mapped files for vectors; or
in OpenSearch. `Plane` opens the configured index.

    keyword.state      names the current tantivy folder, its format and its seq
    keyword-N/         tantivy's files
    vectors/           see vectors.py; has its own state, because the two parts are rebuilt separately
    rebuild-requested  exists after a search found damage: the next catch-up then rebuilds both parts

All files are derived from the catalog. Files that are missing, damaged, in another format or ahead of the
catalog are rebuilt from it, without reading a source or embedding a text again. Both parts (words and
vectors) replace documents by number and store the seq afterwards. After a crash the stored seq is too low,
which is harmless, because applying a document twice changes nothing.

Opening checks that the files exist and are complete.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from ctx import files
from ctx.config.settings import Index
from ctx.errors import StoreError
from ctx.models import Filters, Hit
from ctx.store.base import Catalog, SearchIndex
from ctx.store.folder import OPEN_TRIES, VECTORS_FORMAT, IndexDamaged, read_state
from ctx.store.keyword_writer import (
    OUTDATED,
    STATE,
    KeywordWriter,
    check_reachable,
    complete_files,
    keyword_state,
)
from ctx.store.tantivy import DAMAGED, KeywordIndex, damage_reported
from ctx.text.strings import one_line, sound

if TYPE_CHECKING:  # numpy takes 70 ms, and a keyword search does not need it
    import numpy as np

    from ctx.cluster.opensearch import OpenSearchIndex
    from ctx.cluster.opensearch_client import Client
    from ctx.store.vectors import Snapshot, VectorWriter

logger = logging.getLogger(__name__)

T = TypeVar("T")

_RETAINED = 20_000  # the number of documents whose chunks are compared at once

Embedding = Callable[[], str | None]
"""Returns the name of the embedding model; None if embeddings are off."""


class LocalIndex(SearchIndex):
    """The `SearchIndex` in a folder. Readers see each version that a writer in this or another process
    publishes.

    `embedding` is called at each use and may return another model each time. Opening changes nothing.
    The caller of `catch_up` must hold the `WriterLock`. Raises `StoreError` if the path is not UTF-8,
    which tantivy requires.
    """

    def __init__(self, path: str, embedding: Embedding) -> None:
        if sound(path) != path:
            raise StoreError(
                f"the index cannot be in {one_line(path)}, which is not UTF-8: rename its folder; where its "
                "name is UTF-8, let LC_ALL be C.UTF-8 and PYTHONUTF8 not be 0"
            )
        self._path = path
        self._beneath = os.path.dirname(os.path.abspath(path))  # the store's folder
        self._embedding = embedding
        self._state_path = os.path.join(path, STATE)
        self._vectors_path = os.path.join(path, "vectors")
        self._rebuild_path = os.path.join(path, "rebuild-requested")
        self._catching_up = Lock()
        self._opening = Lock()
        self._seen: tuple[int, ...] | None = None
        self._keyword: KeywordIndex | None = None
        # The writer stays open until `close`, so that tantivy can merge between two calls.
        self._words = KeywordWriter(path, self._beneath)
        # model -> (the stamp of the state that was read, the vectors)
        self._vectors: dict[str, tuple[tuple[int, ...] | None, Snapshot | None]] = {}

    # -- searching -------------------------------------------------------------------------------------------
    def _ask(self, ask: Callable[[KeywordIndex], T], empty: T) -> T:
        with self._searching():
            index = self._current_keyword()
            return empty if index is None else ask(index)

    def keyword(self, query: str, filters: Filters, k: int, *, prefix: bool = False) -> list[Hit]:
        """See `SearchIndex`; [] if the index is empty. Raises `StoreError` if the files are damaged."""
        return self._ask(lambda index: index.search(query, filters, k, prefix=prefix), [])

    def vocabulary(self, terms: Sequence[str], names: Sequence[str]) -> tuple[dict[str, float], list[str]]:
        return self._ask(lambda index: index.vocabulary(terms, names), None) or ({}, [])

    def resembling(self, words: Sequence[str]) -> str | None:
        return self._ask(lambda index: index.resembling(words), None)

    def definitions(self, names: Sequence[str], filters: Filters, k: int) -> list[Hit]:
        return self._ask(lambda index: index.definitions(names, filters, k), [])

    def semantic(self, vector: "np.ndarray", filters: Filters, k: int, model: str) -> list[Hit]:
        with self._searching():
            snapshot = self._snapshot_of(model)
            try:
                return snapshot.search(vector, filters, k) if snapshot else []
            except IndexDamaged:
                self._vectors.pop(model, None)  # maps the files again, in case they are rebuilt
                raise

    def hold(self, model: str) -> bool:
        """See `SearchIndex`."""
        try:
            return self._snapshot_of(model) is not None
        except StoreError:
            return True  # the next call of `semantic` raises the error

    def _snapshot_of(self, model: str) -> "Snapshot | None":
        """The published vectors of a model. If another model's vectors have replaced them, those that were
        opened before; None if there are none.
        """
        from ctx.store.vectors import open_snapshot  # numpy: 70 ms

        state_path = os.path.join(self._vectors_path, "state")
        # The stamp is taken before the state is read, so the next call notices a newer state.
        current_stamp = files.stamp(state_path)
        with self._opening:
            seen, snapshot = self._vectors.get(model, (None, None))
            if seen != current_stamp:
                check_reachable(self._vectors_path, self._beneath)
                published = open_snapshot(self._vectors_path, model, snapshot)
                if published is not None or not read_state(state_path):
                    snapshot = published
                self._vectors[model] = current_stamp, snapshot
            return snapshot

    @contextmanager
    def _searching(self) -> Iterator[None]:
        """A context manager for a search. If it finds damage, the next writer in any process rebuilds the
        index.
        """
        try:
            with damage_reported():
                yield
        except IndexDamaged:
            try:
                os.close(files.open_file(self._rebuild_path, os.O_WRONLY | os.O_CREAT, beneath=self._beneath))
            except OSError:
                pass  # the folder is gone or read-only, and the caller reports the first error
            raise

    def applied_seq(self) -> int:
        """The last seq that both words and vectors have applied; 0 if one part is missing, damaged or
        outdated.
        """
        words = keyword_state(self._state_path)
        if not words or not words.get("model"):
            return int(words["applied"]) if words else 0
        vectors = read_state(os.path.join(self._vectors_path, "state")) or {}
        return min(int(words["applied"]), int(vectors.get("applied", 0)))

    def close(self) -> None:
        """Waits for tantivy's merges and closes the files."""
        self._words.close()
        self._keyword = self._seen = None
        self._vectors = {}

    def _current_keyword(self) -> KeywordIndex | None:
        """The published keyword index, opened; None if no index was published."""
        current_stamp = files.stamp(self._state_path)
        if current_stamp == self._seen:
            return self._keyword
        with self._opening:
            for tries_left in reversed(range(OPEN_TRIES)):
                # The stamp is taken before the state is read, so the next call notices a newer state.
                current_stamp = files.stamp(self._state_path)
                fields = keyword_state(self._state_path)
                if fields is None:
                    return None
                if not fields:
                    rebuilding = self._catching_up.locked()
                    remedy = "it is being rebuilt" if rebuilding else "run `ctx index` to rebuild it"
                    raise StoreError(f"the keyword index {OUTDATED}: {remedy}")
                folder = os.path.join(self._path, fields["folder"])
                try:
                    check_reachable(folder, self._beneath)
                    if not complete_files(folder):
                        raise IndexDamaged(DAMAGED)
                    self._keyword, self._seen = KeywordIndex(folder, writable=False), current_stamp
                    return self._keyword
                except StoreError:
                    # Either a writer has published another folder meanwhile, or this folder is damaged.
                    if not tries_left or files.stamp(self._state_path) == current_stamp:
                        raise
        raise AssertionError("unreachable")

    # -- catching up -----------------------------------------------------------------------------------------
    def catch_up(self, catalog: Catalog) -> int:
        """See `Projection`. Rebuilds damaged files. A long catch-up publishes every few seconds.

        After a `StoreError` (such as a full disk), readers keep the last published version, and the next call
        continues from there.
        """
        with self._catching_up:
            model = self._embedding()
            rebuild = os.path.exists(self._rebuild_path)
            if rebuild:
                logger.warning("index is rebuilt reason=a search found damage")
            with files.writing("the index", StoreError):
                files.make_folder(self._path, beneath=self._beneath)
            applied = self._words.catch_up(catalog, model or "", rebuild=rebuild)
            if model is None:
                files.delete_folder(self._vectors_path)
            elif rebuild or not self._vectors_complete(catalog, model):
                applied = min(applied, self._catch_up_vectors(catalog, model, rebuild=rebuild))
            if rebuild:
                os.unlink(self._rebuild_path)
            return applied

    def _vectors_complete(self, catalog: Catalog, model: str) -> bool:
        """Whether the vectors have applied all writes and their files are complete. Does not need numpy."""
        seq = catalog.seq()
        expected = {"applied": seq, "history": catalog.history(seq), "model": model, "format": VECTORS_FORMAT}
        state = read_state(os.path.join(self._vectors_path, "state")) or {}
        if not expected.items() <= state.items():
            return False
        for segment in state["segments"]:
            path = os.path.join(self._vectors_path, segment["name"])
            if not os.path.exists(path) or os.path.getsize(path) != segment["bytes"]:
                return False
        return True

    def check(self) -> list[str]:
        """Opens all files of the index and returns one line for each problem."""
        problems = []
        self._seen = None  # opens the current files again
        try:
            with self._searching():
                if self._current_keyword() is None:
                    problems.append("there is no keyword index yet")
        except StoreError as error:
            problems.append(error.message)
        model = self._embedding()
        if model is not None:
            from ctx.store.vectors import open_snapshot  # numpy: 70 ms

            try:
                with self._searching():
                    if open_snapshot(self._vectors_path, model) is None:
                        problems.append(f"there are no vectors of '{model}' yet")
            except StoreError as error:
                problems.append(error.message)
        return problems

    def _catch_up_vectors(self, catalog: Catalog, model: str, *, rebuild: bool) -> int:
        from ctx.store.vectors import VectorWriter  # numpy: 70 ms

        writer = VectorWriter(self._vectors_path, model, beneath=self._beneath)
        if rebuild:
            writer.start_from(None)
        elif writer.history and catalog.history(writer.applied) != writer.history:
            logger.warning("vectors are rebuilt reason=they belong to another catalog")
            writer.start_from(None)
        try:
            target = self._apply_to_vectors(catalog, model, writer)
            # Embeddings may have been deleted, which the index cannot find out in another way.
            covered = catalog.stats()["chunks"] - catalog.pending_count(model)
            if writer.alive_count == covered or catalog.seq() != target:
                return target
            reason = "they do not match the catalog"
        except IndexDamaged as error:
            reason = error.message
        logger.warning("vectors are rebuilt reason=%s", reason)
        writer.start_from(None)
        return self._apply_to_vectors(catalog, model, writer)

    @staticmethod
    def _apply_to_vectors(catalog: Catalog, model: str, writer: "VectorWriter") -> int:
        target = catalog.seq()
        if writer.applied == target and writer.history:
            return target
        if writer.row_count:
            deleted = ((document_no, ()) for _, document_no in catalog.deletions_since(writer.applied))
            changed = ((no, chunk_nos) for _, no, chunk_nos in catalog.chunks_since(writer.applied))
            retained: Iterator[tuple[int, tuple[int, ...]]] = chain(deleted, changed)
            while batch := dict(islice(retained, _RETAINED)):
                writer.retain(batch)
        for vectors in catalog.vectors_since(model, writer.applied):
            writer.put(vectors)
        writer.publish(target, catalog.history(target) or "")
        return target


class Plane:
    """Opens the search index that `[index]` chooses, local or in OpenSearch.

    `folder` is the store's folder. `catalog` returns the catalog from which the index is built.
    """

    def __init__(self, settings: Index, folder: str, catalog: Callable[[], Catalog]) -> None:
        self._settings = settings
        self._folder = folder
        self._catalog = catalog
        self._client: Client | None = None
        self.remote = settings.engine != "local"  # in OpenSearch, where several machines can write it

    def open(self, embedding: Embedding) -> SearchIndex:
        """Opens the index. `embedding` is described at `LocalIndex`. Raises `ConfigError`."""
        if not self.remote:
            return LocalIndex(os.path.join(self._folder, "index"), embedding)
        return self._open_remote(embedding)

    def outdated(self) -> bool:
        """Whether the index in the store's folder is damaged or has a format that this ctx cannot read."""
        return not self.remote and keyword_state(os.path.join(self._folder, "index", STATE)) == {}

    def _open_remote(self, embedding: Embedding) -> "OpenSearchIndex":
        from ctx import cluster
        from ctx.cluster.leases import machine_name

        if self._client is None:
            self._client = cluster.open_client(self._settings)
        from ctx.cluster.opensearch import OpenSearchIndex

        settings, catalog = self._settings, self._catalog()
        return OpenSearchIndex(
            self._client,
            embedding,
            name=settings.name,
            layout=(settings.shards, settings.replicas),
            # The name of the shared database, or of this machine and store.
            owner=lambda: catalog.identity() or machine_name(self._folder),
            turn=catalog.index_turn(settings.name),
        )

    @cached_property
    def reader(self) -> "OpenSearchIndex":
        """The index in OpenSearch, opened only to read its state."""
        return self._open_remote(lambda: None)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
