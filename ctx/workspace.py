"""The workspace: opens the catalog, index, toolbox, memories and background jobs of a configuration.

Each part is opened at its first use. Scripts, packs and memory are also imported at first use, because their
import takes 50 to 500 ms and `ctx search` does not need them.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ctx.config import Config
from ctx.config.settings import PackSettings
from ctx.embed import Embedder, open_embedder
from ctx.errors import Busy, EmbeddingsDisabled, StoreError
from ctx.indexing import status
from ctx.indexing.indexer import Indexer
from ctx.indexing.model_switch import ModelSwitch, model_of, notes_path
from ctx.indexing.run import ConfigurationFile
from ctx.indexing.worker import NoLock
from ctx.memory.activity import Activity, file_activity
from ctx.memory.copies import copy_if_changed
from ctx.memory.location import Location, locate, loss
from ctx.models import JSON, Caller, CallProgress, SourceStatus
from ctx.scripts.sources import configured_connectors
from ctx.scripts.store import FileScriptStore, ScriptStore
from ctx.search.searcher import Searcher
from ctx.store.base import Projection, SearchIndex
from ctx.store.folder import WriterLock, work_lock
from ctx.store.index import Plane
from ctx.store.record import Closeable
from ctx.store.schema import is_locked
from ctx.store.sqlite import SqliteCatalog, check_whole, open_catalog
from ctx.text.strings import did_you_mean, one_line
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

# Maximum attempts to find the model of the published vectors, which may change during a query.
_HOLD_TRIES = 3


def open_workspace(config: Config, *, reading: bool = False, projecting: bool = True) -> "Workspace":
    """Opens the workspace of a configuration. With `reading`, creates no store, and raises `StoreError` if
    nothing is indexed yet. With `projecting=False`, the workspace writes no search index.
    """
    if reading and not config.stored:
        raise StoreError("nothing is indexed yet; run `ctx index` first (`ctx serve` does it automatically)")
    workspace = Workspace(config, reading=reading, projecting=projecting)
    if reading and projecting and (config.store.url or workspace.plane.outdated()):
        workspace.catch_up()
    return workspace


Part = TypeVar("Part")


class part(Generic[Part]):
    """An attribute of a workspace that is opened at its first use, and only once for all threads."""

    def __init__(self, open_part: Callable[[Any], Part]) -> None:
        self._open = open_part

    def __get__(self, workspace: "Workspace", owner: type) -> Part:
        parts, name = vars(workspace), self._open.__name__
        with workspace.lock:
            if name not in parts:
                parts[name] = self._open(workspace)
            value: Part = parts[name]
            return value


class Workspace(Closeable):
    """An opened project, for REST, MCP, the command line and Lua. It is a context manager."""

    def __init__(
        self,
        config: Config,
        *,
        reading: bool = False,
        projecting: bool = True,
        rates: str | None = None,
        state: str | None = None,
    ) -> None:
        """`rates` is the file that stores rate limits; None keeps them in memory. `state` is set in a worker
        process, which only answers requests: the file where the indexing process writes the indexer's state.
        """
        self.config = config
        self.started_s = time.monotonic()
        self.background: Background | None = None
        self.rates = rates
        self.state = state
        self._reading = reading
        self._projecting = projecting
        self.lock = RLock()  # held while a part is opened
        self._all_indexed = False  # whether every source was indexed at least once
        self._opened = ExitStack()  # closes the opened parts

    def close(self) -> None:
        """Stops all threads and closes all stores. Safe to call twice."""
        if self.background is not None:
            self.background.close()
        self._opened.close()

    # -- stores and models -----------------------------------------------------------------------------------

    @part
    def catalog(self) -> "SqliteCatalog | PostgresCatalog":
        url, path = self.config.store.url, self.config.db.path
        if url:
            catalog = open_catalog(url, path)
        else:
            catalog = SqliteCatalog(path, read_only=self._reading or is_locked(path))
        self._opened.callback(catalog.close)
        check_whole(unfinished=catalog.unfinished(), shared=bool(url))
        return catalog

    @property
    def _database(self) -> "Database":
        """The shared PostgreSQL database. Only available with `[store] url`."""
        catalog = self.catalog
        assert not isinstance(catalog, SqliteCatalog)
        return catalog.database

    @part
    def plane(self) -> Plane:
        """The object that opens search indexes, in the engine that `[index]` chooses."""
        plane = Plane(self.config.index, self.config.folder, lambda: self.catalog)
        return self._opened.enter_context(closing(plane))

    @part
    def index(self) -> SearchIndex:
        """The search index, opened for reading. It sees each version that any process publishes."""
        index = self.plane.open(lambda: model_of(self.model_switch.answering()))
        return self._opened.enter_context(closing(index))

    @part
    def embedder(self) -> Embedder | None:
        embedder = open_embedder(self.config.embedding, os.environ)
        if embedder is not None:
            self._opened.callback(embedder.close)
        return embedder

    @property
    def model(self) -> str | None:
        """The embedding model's name in the catalog; None if embeddings are off."""
        return None if self.embedder is None else self.embedder.model

    @part
    def model_switch(self) -> ModelSwitch:
        """Decides which embedding model answers queries while a newly configured model replaces another."""
        model_switch = ModelSwitch(
            self.config.embedding,
            self.config.db.path,
            lambda: self.embedder,
            notes_path(os.environ),
            ask_published=(lambda: self.plane.reader.published_model()) if self.plane.remote else None,
        )
        return self._opened.enter_context(closing(model_switch))

    @property
    def question_embedder(self) -> Embedder | None:
        """The embedder for queries, whose model's vectors are in the index; None if there is none."""
        for _ in range(_HOLD_TRIES):
            embedder = self.model_switch.answering()
            if embedder is None or self.index.hold(embedder.model):
                break  # otherwise another model's vectors were published in the meantime, so ask again
        return embedder

    def require_embeddings(self) -> None:
        """Raises `EmbeddingsDisabled` if no model is configured."""
        if self.config.embedding.provider == "disabled":
            raise EmbeddingsDisabled("embeddings are disabled; set [embedding] provider in ctx.toml")

    # -- searching -------------------------------------------------------------------------------------------

    @part
    def searcher(self) -> Searcher:
        return Searcher(self.catalog, self.index, self.config.retrieval, self)

    @part
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
        behind the catalog. None if the index is complete.
        """
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
        return None

    # -- indexing --------------------------------------------------------------------------------------------

    @part
    def indexer(self) -> Indexer:
        shared = self.plane.remote and not isinstance(self.catalog, SqliteCatalog)

        def open_projection() -> Projection:
            if not self._projecting:
                return Projection()
            return self.plane.open(lambda: model_of(self.model_switch.indexed(self.catalog)))

        config = self.config
        # Writers of a shared index use a lease in the database instead of a lock file.
        unlocked = shared or not self._projecting
        self.model_switch.note()
        return Indexer(
            configured_connectors(config, self.runner),
            self.catalog,
            open_projection,
            NoLock() if unlocked else WriterLock(os.path.join(config.folder, "lock")),
            lambda: self.embedder,
            model=self.model,
            max_tokens=config.chunking.max_tokens,
            overlap_tokens=config.chunking.overlap_tokens,
            work_lock=partial(work_lock, config.folder),
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
            with suppress(Busy):  # searches report that the index is behind
                self.indexer.repair()

    # -- agents and scripts ----------------------------------------------------------------------------------

    @part
    def agents(self) -> Agents:
        """The agents: first those that the configuration defines, later also those of scripts."""
        agents = Agents()
        for agent in self.config.inline_agents:
            agents.add(inline_agent(agent.name, agent.description, agent.system_prompt, agent.tools))
        return agents

    @part
    def pool(self) -> "Pool":
        """The pool of Lua sandbox processes. It starts with the first script."""
        from ctx.lua.pool import Pool

        lua = self.config.lua
        pool = Pool(sandbox=lua.sandbox, workers=max(4, lua.workers * 4), spares=lua.workers)
        return self._opened.enter_context(closing(pool))

    def runner(self) -> "Runner":
        """A runner for scripts: the Lua sandbox with the bridge to the toolbox and the stores."""
        from ctx.scripts.bridge import Bridge
        from ctx.scripts.scripts import Runner

        stores: tuple[str, ...] = (self.config.db.path,)
        if self.config.path is not None and not self.config.store.url:
            stores += (self.location.memory,)
        bridge = Bridge(self.toolbox, store=self._script_store, stores=stores, memory=lambda: self.memory)
        return Runner(self.pool, bridge)

    @part
    def _script_store(self) -> ScriptStore | None:
        """The store for values that scripts keep between calls; None without a project. It is in the same
        file or database as the memories.
        """
        if self.config.path is None:
            return None
        if self.config.store.url:
            from ctx.cluster.memory_db import SharedScriptStore

            return SharedScriptStore(self._database)
        return self._opened.enter_context(closing(FileScriptStore(lambda: self.location.memory)))

    def load_extensions(self) -> None:
        """Loads the packs and then the scripts, and logs settings without effect. A script whose tool has the
        same name as an existing tool fails to load. Raises `ConfigError`.
        """
        _ = self.packs, self.scripts
        for doubt in self.doubts():
            logger.warning("%s", doubt)

    def doubts(self) -> list[str]:
        """A warning for each tool that an agent names and that does not exist."""
        names = self.toolbox.names()
        return [
            f"agent '{agent.name}': there is no tool '{one_line(name)}'; {did_you_mean(name, names)}"
            for agent in self.agents.list()
            for name in agent.tools
            if name not in names
        ]

    @part
    def scripts(self) -> "Scripts":
        """The loaded scripts with their tools and agents. Their `statuses` also list scripts that failed to
        load.
        """
        from ctx.scripts.loader import Scripts, candidates_of

        scripts = Scripts(self.runner, self.toolbox, self.agents, candidates_of(self.config, os.environ))
        scripts.load()
        return self._opened.enter_context(closing(scripts))

    # -- activity and memory ---------------------------------------------------------------------------------

    @part
    def activity(self) -> Activity | None:
        """The activity log of client requests; None if it is turned off or there is no project."""
        if self.config.path is None or not self.config.server.activity:
            return None
        if self.config.store.url:
            from ctx.cluster.memory_db import shared_activity

            activity = shared_activity(self._database)
        else:
            activity = file_activity(self._activity_path)
        return self._opened.enter_context(closing(activity))

    def _activity_path(self) -> str:
        """The file that holds the activity log, which is the file of the memories. Raises `StoreError` if
        memories of an older ctx must be moved into it first.
        """
        if self.location.waiting:
            raise StoreError(self.location.waiting)
        return self.location.memory

    def _note_call(
        self, tool: str, arguments: Mapping[str, JSON], caller: Caller, reply: JSON, answer: JSON
    ) -> None:
        # A call by a script or by ctx itself has no client.
        if caller.client is not None and self.activity is not None:
            self.activity.note(tool, arguments, caller, reply, answer)

    @part
    def location(self) -> Location:
        """The location of memories, keys and script values without `[store] url`. Raises `StoreError`."""
        return locate(self.config, os.environ)

    @part
    def memory(self) -> "MemoryStore":
        """The memories, which are in their own file or in the database of `[store] url`."""
        from ctx.memory.reflect import ChatCompletion
        from ctx.memory.store import MemoryStore

        shared = bool(self.config.store.url)
        rows: MemoryRows | str
        if shared:
            from ctx.cluster.memory_db import PostgresRows

            rows = PostgresRows(self._database)
        else:
            rows = self.location.memory
        settings, llm = self.config.memory, self.config.memory.llm
        language_model = ChatCompletion(llm, os.environ.get(llm.api_key_env or "")) if llm else None
        store = MemoryStore(
            rows,
            self.embedder,
            secrets=settings.secrets,
            language_model=language_model,
            consolidate=llm is not None and llm.consolidate,
            leftovers=() if shared else self.location.leftovers,
        )
        if not shared:
            self._opened.callback(copy_if_changed, self.location.memory, daily=True)
        self._opened.callback(store.close)
        check_whole(unfinished=store.rows.unfinished(), shared=shared)
        return store

    def memory_loss(self) -> str | None:
        """A sentence about acknowledged memories that are missing; None if no memory is missing."""
        if self.config.store.url:
            return None
        try:
            return loss(self.location.memory)
        except StoreError as error:
            return error.message

    @part
    def packs(self) -> "list[Pack]":
        """The enabled memory packs. The first access registers their tools. Raises `ConfigError`."""
        config = self.config
        if not config.packs.enabled:
            return []
        from ctx.memory.dialects import DIALECTS
        from ctx.memory.dialects.pack import Pack

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
        """The state of the indexer (see ctx/indexing/status.py); None if this process has no indexer."""
        if self.state is not None:
            return status.published(self.state)
        return None if self.indexer_at_work is None else status.indexer_state(self.indexer_at_work)
