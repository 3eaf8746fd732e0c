"""The workspace: opens the catalog, index, toolbox, memories and background jobs of a configuration.

Each part is opened at its first use. Scripts, packs and memory are also imported at first use, because their
import takes 50 to 500 ms and `ctx search` does not need them.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from math import inf
from threading import RLock
from typing import TYPE_CHECKING, Self

from ctx.config import Config
from ctx.config.settings import PackSettings
from ctx.embed import Embedder, open_embedder
from ctx.errors import Busy, EmbeddingsDisabled, StoreError
from ctx.indexing import status
from ctx.indexing.indexer import Indexer
from ctx.indexing.model_switch import ModelSwitch, key_of, notes_path
from ctx.indexing.run import ConfigurationFile
from ctx.indexing.worker import NoLock
from ctx.memory.activity import Activity, file_activity
from ctx.memory.copies import copy_if_changed
from ctx.memory.location import Location, locate, loss
from ctx.models import JSON, Caller, CallProgress, SourceStatus
from ctx.scripts.sources import configured_connectors, script_file
from ctx.scripts.store import FileScriptStore, ScriptStore
from ctx.search.searcher import Searcher
from ctx.store.base import Projection, SearchIndex
from ctx.store.folder import WriterLock, work_lock
from ctx.store.index import Plane
from ctx.store.schema import is_locked
from ctx.store.sqlite import SqliteCatalog, check_whole, open_catalog
from ctx.tools.builtin import builtin_tools
from ctx.tools.toolbox import Agents, Toolbox, inline_agent

if TYPE_CHECKING:
    from ctx.background import Background
    from ctx.cluster.catalog import PostgresCatalog
    from ctx.cluster.postgres import Database
    from ctx.lua.pool import Pool
    from ctx.memory.dialects.pack import Pack
    from ctx.memory.rows import MemoryRows
    from ctx.memory.store import MemoryStore
    from ctx.scripts.loader import Scripts
    from ctx.scripts.scripts import Runner

logger = logging.getLogger(__name__)

COMPLETE_S = 0.02  # after a check, the index counts as up to date for this time
_HOLD_TRIES = 3  # attempts to find the published model, which may change during a query


def open_workspace(config: Config, *, reading: bool = False, projecting: bool = True) -> "Workspace":
    """Opens the workspace of a configuration. With `reading`, creates no store, and raises `StoreError` if
    nothing is indexed yet.

    With `projecting=False`, the workspace writes no search index.
    """
    if reading and not config.stored:
        raise StoreError(
            "nothing is indexed yet; run `ctx index` first (or `ctx serve`, which does so automatically)"
        )
    workspace = Workspace(config, reading=reading, projecting=projecting)
    if reading and projecting and (config.store.url or workspace.plane.outdated()):
        workspace.catch_up()
    return workspace


class Workspace:
    """An opened project, for REST, MCP, the command line and Lua. It is a context manager.

    `reading`: the catalog is opened read-only. `projecting=False`: no search index is written. `background`
    has the background threads of a server; `indexes` is False if another process follows the sources.
    """

    indexes = True

    def __init__(
        self,
        config: Config,
        *,
        reading: bool = False,
        projecting: bool = True,
        rates: str | None = None,
    ) -> None:
        """`rates` is the file that stores the rate limits of packs; None keeps them in memory."""
        self.config = config
        self.started_s = time.monotonic()
        self.background: Background | None = None
        self.rates = rates
        self._reading = reading
        self._projecting = projecting
        self._lock = RLock()
        self._all_indexed = False  # whether every source was indexed at least once
        self._complete_until_s = -inf  # until then, the index counts as up to date (monotonic clock)
        self._opened: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops all threads and closes all stores. Safe to call twice."""
        if self.background is not None:
            self.background.close()
        while self._opened:
            self._opened.pop()()

    # -- stores and models -----------------------------------------------------------------------------------

    @cached_property
    def catalog(self) -> "SqliteCatalog | PostgresCatalog":
        with self._lock:
            url, path = self.config.store.url, self.config.db.path
            if url:
                catalog = open_catalog(url, path)
            else:
                catalog = SqliteCatalog(path, read_only=self._reading or is_locked(path))
            self._opened.append(catalog.close)
            check_whole(unfinished=catalog.unfinished(), shared=bool(url))
            return catalog

    @property
    def _database(self) -> "Database":
        """The shared PostgreSQL database. Only available with `[store] url`."""
        catalog = self.catalog
        assert not isinstance(catalog, SqliteCatalog)
        return catalog.database

    @cached_property
    def plane(self) -> Plane:
        """Opens search indexes in the engine that `[index]` chooses."""
        with self._lock:
            plane = Plane(self.config.index, self.config.folder, lambda: self.catalog)
            self._opened.append(plane.close)
            return plane

    @cached_property
    def index(self) -> SearchIndex:
        """The search index, opened for reading. It sees each version that this or another process
        publishes.
        """

        def answering() -> tuple[str | None, int | None]:
            return key_of(self.model_switch.answering())

        with self._lock:
            index = self.plane.open(answering, writable=False)
            self._opened.append(index.close)
            return index

    @cached_property
    def embedder(self) -> Embedder | None:
        with self._lock:
            embedder = open_embedder(self.config.embedding, os.environ)
            if embedder is not None:
                self._opened.append(embedder.close)
            return embedder

    @property
    def model(self) -> str | None:
        """The embedding model's name in the catalog; None if embeddings are off."""
        return None if self.embedder is None else self.embedder.model

    @cached_property
    def model_switch(self) -> ModelSwitch:
        """Decides which embedding model answers queries while a newly configured model replaces another."""
        with self._lock:
            model_switch = ModelSwitch(
                self.config.embedding,
                self.config.db.path,
                lambda: self.embedder,
                notes_path(os.environ),
                ask_published=self.plane.published_model if self.plane.remote else None,
            )
            self._opened.append(model_switch.close)
            return model_switch

    @property
    def question_embedder(self) -> Embedder | None:
        """The embedder for queries, whose model's vectors are in the index; None if there is none."""
        for _ in range(_HOLD_TRIES):
            embedder = self.model_switch.answering()
            if embedder is None or self.index.hold(embedder.model):
                break  # otherwise, another model's vectors were published meanwhile: ask again
        return embedder

    def require_embeddings(self) -> None:
        """Raises `EmbeddingsDisabled` if no model is configured."""
        if self.config.embedding.provider == "disabled":
            raise EmbeddingsDisabled("embeddings are disabled; set [embedding] provider in ctx.toml")

    # -- searching -------------------------------------------------------------------------------------------

    @cached_property
    def searcher(self) -> Searcher:
        return Searcher(self.catalog, self.index, self.config.retrieval, self)

    @cached_property
    def toolbox(self) -> Toolbox:
        toolbox = Toolbox()
        for tool in builtin_tools(self, self.config.retrieval.final_limit, self._note_call):
            toolbox.add(tool)
        return toolbox

    def source_names(self) -> list[str]:
        """The full names of the configured sources, in the order of the configuration."""
        config = self.config
        groups = (config.filesystems, config.gits, config.webs, config.buckets, config.script_connectors)
        return [source.name for group in groups for source in group]

    def searched_names(self) -> list[str]:
        """The names of the sources that a search can filter by: first the configured sources, then other
        sources that have documents.
        """
        return list(dict.fromkeys((*self.source_names(), *self.catalog.filled_sources())))

    def statuses(self) -> list[SourceStatus]:
        """The status of every source that is configured or still has documents."""
        statuses = self.catalog.statuses(self.model, self.source_names())
        indexer = self.indexer_at_work
        return [*statuses] if indexer is None else indexer.with_failures(statuses)

    def unconfigured(self) -> list[SourceStatus]:
        """The status of the sources that have documents but are not in this configuration. They may belong to
        another configuration.
        """
        return [status for status in self.statuses() if not status.configured]

    def behind(self) -> int:
        """The number of catalog writes that the index has not applied yet."""
        return max(0, self.catalog.seq() - self.index.applied_seq())

    def lacking(self) -> str | None:
        """A sentence that says why results may be missing: a source was never fully indexed, or the index is
        behind the catalog. None if the index is complete, which is checked again after `COMPLETE_S`.
        """
        began_s = time.monotonic()
        if began_s < self._complete_until_s:
            return None
        if not self._all_indexed:
            names = [name for name in self.source_names() if self.catalog.last_run(name) is None]
            if names:
                have = "has" if len(names) == 1 else "have"
                return f"{', '.join(names)} {have} not been fully indexed yet: there may be more results"
            self._all_indexed = True
        if self.behind():
            indexer = self.indexer_at_work
            # Embeddings do not change what a keyword search finds.
            if indexer is None or indexer.activity.phase != "embedding":
                return "the index is behind the catalog: the latest changes may be missing"
        else:
            self._complete_until_s = began_s + COMPLETE_S
        return None

    # -- indexing --------------------------------------------------------------------------------------------

    @cached_property
    def indexer(self) -> Indexer:
        shared = self.plane.remote and not isinstance(self.catalog, SqliteCatalog)

        def embedding() -> tuple[str | None, int | None]:
            return key_of(self.model_switch.indexed(self.catalog))

        def open_projection() -> Projection:
            return self.plane.open(embedding, writable=True) if self._projecting else Projection()

        config = self.config
        with self._lock:
            self.model_switch.note()
            return Indexer(
                configured_connectors(config, self.runner),
                self.catalog,
                open_projection,
                # Writers of a shared index use a lease in the database instead of a lock file.
                NoLock()
                if shared or not self._projecting
                else WriterLock(os.path.join(self.config.folder, "lock")),
                lambda: self.embedder,
                model=self.model,
                max_tokens=self.config.chunking.max_tokens,
                overlap_tokens=self.config.chunking.overlap_tokens,
                work_lock=partial(work_lock, self.config.folder),
                turn=self.catalog.turn,
                configuration=ConfigurationFile.of(config.path, config.folder) if config.path else None,
            )

    def refresh(self, names: Sequence[str], progress: CallProgress | None = None) -> list[dict[str, JSON]]:
        """Indexes the named sources (all if empty) and returns one report per source. In a server, the
        embeddings follow in the background.

        `progress(done, total, message)` reports the number of documents and embeddings of all sources
        together, which never decreases.
        """
        counts: dict[str, int] = {}

        def count(source: str, done: int, total: int | None) -> None:
            counts[source] = max(done, counts.get(source, 0))
            if progress:
                progress(sum(counts.values()), None, f"{source}: {done}" + (f" of {total}" if total else ""))

        watcher = None if self.background is None else self.background.watcher
        answers: list[dict[str, JSON]] = []
        for report in self.indexer.run(names, progress=count):
            count(report.source, report.added + report.updated + report.unchanged, None)
            if watcher is not None:
                watcher.after_run(report.source, report.ok)
            answers.append(report.answer())
        if watcher is not None:
            watcher.embed_soon()
        else:
            self.indexer.embed(progress=count)
        return answers

    @property
    def indexer_at_work(self) -> Indexer | None:
        """The indexer, if this process has used one."""
        return self.__dict__.get("indexer")

    def catch_up(self) -> None:
        """Applies the catalog's new writes to the index, and rebuilds an index of an older ctx. Does nothing
        if another process is doing this.
        """
        if self.behind():
            try:
                self.indexer.repair()
            except Busy:
                pass  # searches report that the index is behind

    # -- agents and scripts ----------------------------------------------------------------------------------

    @cached_property
    def agents(self) -> Agents:
        """The agents: first those that the configuration defines, later also those of scripts."""
        with self._lock:
            agents = Agents()
            for agent in self.config.inline_agents:
                agents.add(inline_agent(agent.name, agent.description, agent.system_prompt, agent.tools))
            return agents

    @cached_property
    def pool(self) -> "Pool":
        """The pool of Lua sandbox processes. It starts with the first script."""
        from ctx.lua.pool import Pool

        with self._lock:
            pool = Pool(
                sandbox=self.config.lua.sandbox,
                workers=max(4, self.config.lua.workers * 4),
                spares=self.config.lua.workers,
            )
            self._opened.append(pool.close)
            return pool

    def runner(self) -> "Runner":
        """A runner for scripts: the Lua sandbox with the bridge to the toolbox, the stores and the
        memories.
        """
        from ctx.scripts.bridge import Bridge
        from ctx.scripts.scripts import Runner

        stores: tuple[str, ...] = (self.config.db.path,)
        if self.config.path is not None and not self.config.store.url:
            stores += (self.location.memory,)
        bridge = Bridge(self.toolbox, store=self._script_store, stores=stores, memory=lambda: self.memory)
        return Runner(self.pool, bridge)

    @cached_property
    def _script_store(self) -> ScriptStore | None:
        """The store for values that scripts keep between calls; None without a project. It is in the same
        file or database as the memories.
        """
        if self.config.path is None:
            return None
        with self._lock:
            store: ScriptStore
            if self.config.store.url:
                from ctx.cluster.memory_db import SharedScriptStore

                store = SharedScriptStore(self._database)
            else:
                store = FileScriptStore(lambda: self.location.memory)
            self._opened.append(store.close)
            return store

    def load_extensions(self) -> None:
        """Loads the packs and then the scripts, and logs settings without effect. A script whose tool has the
        name of an existing tool fails. Raises `ConfigError`.
        """
        _ = self.packs
        _ = self.scripts
        for doubt in self.doubts():
            logger.warning("%s", doubt)

    def doubts(self) -> list[str]:
        """Sentences about settings of scripts and agents that have no effect."""
        from ctx.scripts.loader import doubts

        config = self.config
        configured = (*config.script_tools, *config.script_agents, *config.script_connectors)
        scripts = [script_file(script, config) for script in configured]
        return list(doubts(scripts, self.toolbox, self.agents))

    @cached_property
    def scripts(self) -> "Scripts":
        """The loaded scripts with their tools and agents. Their `statuses` also list scripts that failed to
        load.
        """
        from ctx.scripts.loader import Scripts, candidates_of

        with self._lock:
            candidates = candidates_of(self.config, os.environ)
            scripts = Scripts(self.runner, self.toolbox, self.agents, candidates)
            scripts.load()
            self._opened.append(scripts.close)
            return scripts

    # -- activity --------------------------------------------------------------------------------------------

    @cached_property
    def activity(self) -> Activity | None:
        """The activity log of client requests; None if it is turned off or there is no project."""
        if self.config.path is None or not self.config.server.activity:
            return None
        with self._lock:
            if self.config.store.url:
                from ctx.cluster.memory_db import shared_activity

                activity = shared_activity(self._database)
            else:
                activity = file_activity(self._activity_path)
            self._opened.append(activity.close)
            return activity

    def _activity_path(self) -> str:
        """The file of the memories. Raises `StoreError` while memories of an earlier version must still be
        moved into it.
        """
        if self.location.waiting:
            raise StoreError(self.location.waiting)
        return self.location.memory

    def _note_call(
        self, tool: str, arguments: Mapping[str, JSON], caller: Caller, reply: JSON, answer: JSON
    ) -> None:
        # A script or ctx itself has no client.
        if caller.client is not None and self.activity is not None:
            self.activity.note(tool, arguments, caller, reply, answer)

    # -- memory ----------------------------------------------------------------------------------------------

    @cached_property
    def location(self) -> Location:
        """The location of memories, keys and script values. Not used with `[store] url`. Raises
        `StoreError`.
        """
        with self._lock:
            return locate(self.config, os.environ)

    @cached_property
    def memory(self) -> "MemoryStore":
        """The memories, which are in their own file or in the database of `[store] url`."""
        from ctx.memory.reflect import ChatCompletion
        from ctx.memory.store import MemoryStore

        with self._lock:
            settings = self.config.memory
            language_model = None
            if llm := settings.llm:
                language_model = ChatCompletion(
                    llm.base_url,
                    llm.model,
                    provider=llm.provider,
                    api_key=os.environ.get(llm.api_key_env) if llm.api_key_env else None,
                    timeout_s=llm.timeout_s,
                    allow_remote=llm.allow_remote,
                )
            store = MemoryStore(
                self._memory_rows() if self.config.store.url else self.location.memory,
                self.embedder,
                secrets=settings.secrets,
                language_model=language_model,
                consolidate=settings.llm is not None and settings.llm.consolidate,
                leftovers=() if self.config.store.url else self.location.leftovers,
            )
            self._opened.append(partial(self._close_memory, store))
            check_whole(unfinished=store.rows.unfinished(), shared=bool(self.config.store.url))
            return store

    def _close_memory(self, store: "MemoryStore") -> None:
        store.close()
        if not self.config.store.url:
            copy_if_changed(self.location.memory, daily=True)

    def memory_loss(self) -> str | None:
        """A sentence about acknowledged memories that are missing; None if no memory is missing."""
        if self.config.store.url:
            return None
        try:
            return loss(self.location.memory)
        except StoreError as error:
            return error.message

    def _memory_rows(self) -> "MemoryRows":
        from ctx.cluster.memory_db import PostgresRows

        return PostgresRows(self._database)

    @cached_property
    def packs(self) -> "list[Pack]":
        """The enabled memory packs. The first access registers their tools. Raises `ConfigError`."""
        config = self.config
        if not config.packs.enabled:
            return []
        from ctx.memory.dialects import DIALECTS
        from ctx.memory.dialects.pack import Pack

        with self._lock:
            packs = [
                Pack(
                    DIALECTS[name],
                    config.packs.settings.get(name, PackSettings()),
                    lambda: self.memory,
                    shared=config.memory.shared,
                    database=config.db.path if config.store.url else self.location.memory,
                    rates=self.rates,
                )
                for name in config.packs.enabled
            ]
            for pack in packs:
                pack.load(self.toolbox, self.agents)
            return packs

    def indexer_state(self) -> dict[str, JSON] | None:
        """The state of the indexer as JSON (see ctx/indexing/status.py); None if this process has no
        indexer.
        """
        return None if self.indexer_at_work is None else status.indexer_state(self.indexer_at_work)


class WorkerWorkspace(Workspace):
    """The workspace of a worker process (`ctx serve --workers`), which only answers requests. Another process
    indexes and embeds.
    """

    indexes = False

    def __init__(self, config: Config, *, state: str, rates: str) -> None:
        """`state` is the file to which the indexing process writes the state of its indexer."""
        super().__init__(config, rates=rates)
        self._state = state

    def indexer_state(self) -> dict[str, JSON] | None:
        return status.published(self._state)
