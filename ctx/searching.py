"""What a search needs of a workspace, opened as it is asked for: a catalog, an index, what embeds a question.

`ctx search` works with this alone and starts the sooner; every other door has a whole `Workspace`
(ctx/workspace.py), which this is the base of.
"""

import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from math import inf
from threading import RLock
from typing import TYPE_CHECKING, Self

from ctx.config import Config
from ctx.errors import StoreError
from ctx.store.plane import Plane, check_whole, file_record

if TYPE_CHECKING:
    from ctx.embed import Embedder
    from ctx.indexing.indexer import Indexer
    from ctx.indexing.watch import Watcher
    from ctx.items import SourceStatus
    from ctx.search import Searcher
    from ctx.store.base import SearchIndex
    from ctx.store.postgres_catalog import PostgresCatalog
    from ctx.store.sqlite import SqliteRecord
    from ctx.succession import Succession
    from ctx.tools.base import Toolbox

COMPLETE_S = 0.02  # for which nothing is lacking; the index looks as often whether a writer has committed
_HOLD_TRIES = 3  # models do not change more often while one question is asked


def check_stored(config: Config) -> None:
    """Raises `StoreError` where nothing is indexed yet, which who only reads cannot change."""
    if not config.stored:
        raise StoreError(
            "nothing is indexed yet; run `ctx index` first (or `ctx serve mcp`, which does it by itself)"
        )


def _not_indexed(names: Sequence[str]) -> str:
    have = "has" if len(names) == 1 else "have"
    return f"{', '.join(names)} {have} not been indexed to the end yet: there may be more"


class SearchWorkspace:
    """What answers searches from a catalog in a file; a context manager."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.started_s = time.monotonic()
        self._lock = RLock()
        self._watcher: Watcher | None = None
        self._all_indexed = False  # every source, once at least
        self._complete_until_s = -inf  # on the monotonic clock
        self._opened: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def toolbox_of_search(self) -> "Toolbox":
        """A toolbox with `search` alone, for a command that calls nothing else and must start soon."""
        from ctx.tools.base import Toolbox
        from ctx.tools.search import search_tool

        toolbox = Toolbox()
        toolbox.add(search_tool(self, self.config.retrieval.final_limit))
        return toolbox

    @property
    def model(self) -> str | None:
        """The catalog's name for the embedding model; None where embeddings are off."""
        return self._embedding[0]

    @cached_property
    def _embedding(self) -> tuple[str | None, int | None]:
        from ctx.succession import key_of

        return key_of(self.embedder)

    @cached_property
    def succession(self) -> "Succession":
        """Which model answers, where another one was configured lately."""
        from ctx.succession import Succession, notes_path

        with self._lock:
            succession = Succession(
                self.config.embedding,
                self.config.db.path,
                lambda: self.embedder,
                notes_path(os.environ),
                published=self.plane.published_model if self.plane.remote else None,
            )
            self._opened.append(succession.close)
            return succession

    @property
    def question_embedder(self) -> "Embedder | None":
        """What embeds a question; the index has vectors of its model in hand, unless there are none."""
        for _ in range(_HOLD_TRIES):
            embedder = self.succession.answering()
            if embedder is None or self.index.hold(embedder.model):
                break  # else another one's were published just now
        return embedder

    @cached_property
    def catalog(self) -> "SqliteRecord | PostgresCatalog":
        with self._lock:
            catalog = file_record(self.config.db.path)
            self._opened.append(catalog.close)
            check_whole(catalog, shared=False)
            return catalog

    @cached_property
    def plane(self) -> Plane:
        """The engine that searches: in this process, or the one that `[index]` names."""
        with self._lock:
            plane = Plane(self.config.index, self.config.folder, lambda: self.catalog)
            self._opened.append(plane.close)
            return plane

    @cached_property
    def index(self) -> "SearchIndex":
        """The index as readers see it: it follows what this process or another one publishes."""
        with self._lock:
            index = self.plane.open(self._answering, writable=False)
            self._opened.append(index.close)
            return index

    def _answering(self) -> tuple[str | None, int | None]:
        from ctx.succession import key_of

        return key_of(self.succession.answering())

    @cached_property
    def embedder(self) -> "Embedder | None":
        from ctx.embed import open_embedder

        with self._lock:
            embedder = open_embedder(self.config.embedding, os.environ)
            if embedder is not None:
                self._opened.append(embedder.close)
            return embedder

    @cached_property
    def searcher(self) -> "Searcher":
        from ctx.search import Searcher

        return Searcher(self.catalog, self.index, self.config.retrieval, self)

    def source_names(self) -> list[str]:
        """The full names of the configured sources, in the order of the configuration."""
        config = self.config
        groups = (config.filesystems, config.gits, config.webs, config.buckets, config.script_connectors)
        return [source.name for group in groups for source in group]

    def searched_names(self) -> list[str]:
        """The names that a search can be narrowed to: the configured ones, then those of the store."""
        return list(dict.fromkeys((*self.source_names(), *self.catalog.filled_sources())))

    def statuses(self) -> "list[SourceStatus]":
        """The health of every source that is configured or still holds documents."""
        statuses = self.catalog.statuses(self.model, self.source_names())
        indexer = self.indexer_at_work
        return [*statuses] if indexer is None else indexer.with_ailments(statuses)

    def behind(self) -> int:
        """How many catalog writes the index has yet to apply."""
        return max(0, self.catalog.seq() - self.index.applied_seq())

    def ask_for(self, chunk_nos: Sequence[int]) -> None:
        """Where this process embeds, it embeds these chunks soon."""
        if self.indexer_at_work is not None:
            self.indexer_at_work.ask_for(chunk_nos)

    def lacking(self) -> str | None:
        """What a search must be told to lack: sources never indexed to the end, writes yet to be applied.

        That nothing is holds for `COMPLETE_S`: hundreds of searches a second need not ask each.
        """
        began_s = time.monotonic()
        if began_s < self._complete_until_s:
            return None
        if not self._all_indexed:
            never_indexed = [name for name in self.source_names() if self.catalog.last_run(name) is None]
            if never_indexed:
                return _not_indexed(never_indexed)
            self._all_indexed = True
        if self.behind():
            indexer = self.indexer_at_work
            # What embedding writes adds nothing to what words find.
            if indexer is None or indexer.activity.phase != "embedding":
                return "the index is behind the catalog: the latest changes may be missing"
        else:
            self._complete_until_s = began_s + COMPLETE_S
        return None

    @property
    def indexer_at_work(self) -> "Indexer | None":
        """The indexer, where there is one by now: to ask makes none."""
        return self.__dict__.get("indexer")

    def close(self) -> None:
        """Stops what runs and closes what is open. Safe to call twice."""
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        while self._opened:
            self._opened.pop()()
