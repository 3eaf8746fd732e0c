"""The only wiring: a configuration becomes a catalog, an index, a toolbox and whatever keeps them fresh.

Everything heavy is made when first used. What searches stands in ctx/searching.py.
"""

import os
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from ctx.config import Config
from ctx.errors import Busy, EmbeddingsDisabled, StoreError
from ctx.items import SourceStatus
from ctx.project import user_folder
from ctx.searching import SearchWorkspace, check_stored
from ctx.store.plane import check_whole, file_catalog, postgres_catalog
from ctx.store.sqlite_catalog import SqliteCatalog
from ctx.types import JSON, CallProgress

# Whatever a search by words does not need is imported where it is used: the indexer alone brings numpy, git
# and the file formats with it, 150 ms.
if TYPE_CHECKING:
    import threading

    from ctx.extensions.loader import Scripts
    from ctx.extensions.scripts import Runner
    from ctx.extensions.store import ScriptStore
    from ctx.indexing.indexer import Indexer
    from ctx.indexing.run import IndexReport
    from ctx.lua.pool import Pool
    from ctx.memory import MemoryStore
    from ctx.memory.rows import MemoryRows
    from ctx.memory.wording import LanguageModel
    from ctx.packs.packs import Pack
    from ctx.packs.sessions import Sessions
    from ctx.store.base import Projection
    from ctx.store.postgres import Database
    from ctx.store.postgres_catalog import PostgresCatalog
    from ctx.tools.agents import Agents
    from ctx.tools.base import Call, Toolbox


def open_workspace(config: Config, *, reading: bool = False, projecting: bool = True) -> "Workspace":
    """The workspace of a configuration. `reading`: nothing is created; raises `StoreError` where nothing is
    indexed yet.

    Not `projecting`: it keeps no index of its own, and answers nothing.
    """
    if reading:
        check_stored(config)
    workspace = Workspace(config, reading=reading, projecting=projecting)
    if reading and projecting and config.store.url:
        workspace.catch_up()
    return workspace


class Workspace(SearchWorkspace):
    """A running ctx without its doors: what searches, and what indexes, serves scripts, remembers and stays
    fresh. `reading`: its catalog takes no writes.
    """

    def __init__(self, config: Config, *, reading: bool = False, projecting: bool = True) -> None:
        super().__init__(config)
        self._reading = reading
        self._projecting = projecting

    @cached_property
    def catalog(self) -> "SqliteCatalog | PostgresCatalog":
        with self._lock:
            url, path = self.config.store.url, self.config.db.path
            catalog = postgres_catalog(url, path) if url else file_catalog(path, reading=self._reading)
            self._opened.append(catalog.close)
            check_whole(catalog, shared=bool(url))
            return catalog

    @cached_property
    def toolbox(self) -> "Toolbox":
        from ctx.tools.base import Toolbox  # 4 ms with a search's rooms, and an index run calls no tool
        from ctx.tools.builtin import builtin_tools

        toolbox = Toolbox()
        for tool in builtin_tools(self, self.config.retrieval.final_limit):
            toolbox.add(tool)
        return toolbox

    def require_embeddings(self) -> None:
        """Raises `EmbeddingsDisabled` where no model is configured."""
        if self.config.embedding.provider == "disabled":
            raise EmbeddingsDisabled("embeddings are disabled; set [embedding] provider in ctx.toml")

    # -- sources ---------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Applies what other machines wrote since to this one's index, unless another process is at it."""
        if self.behind():
            try:
                self.indexer.repair()
            except Busy:
                pass  # searches tell that the index is behind

    # -- indexing --------------------------------------------------------------------------------------------

    @cached_property
    def indexer(self) -> "Indexer":
        from ctx.indexing.indexer import Indexer
        from ctx.indexing.run import ConfigurationFile
        from ctx.indexing.worker import NoLock, NoProjection
        from ctx.sources import configured_connectors
        from ctx.store.lock import WriterLock, work_lock
        from ctx.succession import key_of

        shared = self.plane.remote and not isinstance(self.catalog, SqliteCatalog)

        def embedding() -> tuple[str | None, int | None]:
            return key_of(self.succession.indexed(self.catalog))

        def open_projection() -> "Projection":
            return self.plane.open(embedding, writable=True) if self._projecting else NoProjection()

        config = self.config
        with self._lock:
            self.succession.note()
            return Indexer(
                configured_connectors(config, self.runner),
                self.catalog,
                open_projection,
                # Who writes to an index that machines share has its turn by a lease.
                NoLock()
                if shared or not self._projecting
                else WriterLock(os.path.join(self.config.folder, "lock")),
                lambda: self.embedder,
                model=self.model,
                max_tokens=self.config.chunking.max_tokens,
                overlap_tokens=self.config.chunking.overlap_tokens,
                work_lock=partial(work_lock, self.config.folder),
                turn=None if isinstance(self.catalog, SqliteCatalog) else self.catalog.turn,
                configuration=ConfigurationFile.of(config.path, config.folder) if config.path else None,
            )

    def refresh(self, names: Sequence[str], progress: CallProgress | None = None) -> list[dict[str, JSON]]:
        """Indexes now and says what changed; the embeddings follow in the background of a server.

        `progress(done, total, message)` counts documents and embeddings over all sources, so it only grows.
        """
        counts: dict[str, int] = {}

        def count(source: str, done: int, total: int | None) -> None:
            counts[source] = max(done, counts.get(source, 0))
            if progress:
                progress(sum(counts.values()), None, f"{source}: {done}" + (f" of {total}" if total else ""))

        answers: list[dict[str, JSON]] = []
        for report in self.indexer.run(names, progress=count):
            count(report.source, report.added + report.updated + report.unchanged, None)
            if self._watcher is not None:
                self._watcher.after_run(report.source, report.ok)
            answers.append(report.answer())
        if self._watcher is not None:
            self._watcher.embed_soon()
        else:
            self.indexer.embed(progress=count)
        return answers

    def unconfigured(self) -> list[SourceStatus]:
        """The sources with documents that this configuration lacks: perhaps they are another one's."""
        return [status for status in self.statuses() if not status.configured]

    def _say_unconfigured(self) -> None:
        import logging  # 8 ms that a search does without

        # In a database they are other machines'.
        for status in () if self.config.store.url else self.unconfigured():
            logging.getLogger(__name__).warning(
                "source=%s is not in the configuration; its %d documents stay (`ctx index --prune` drops "
                "them)",
                status.name,
                status.doc_count,
            )

    # -- agents and scripts ----------------------------------------------------------------------------------

    @cached_property
    def agents(self) -> "Agents":
        """The agents, by name: those that the configuration spells out, then whatever is loaded."""
        from ctx.tools.agents import Agents, inline_agent

        with self._lock:
            agents = Agents()
            for agent in self.config.inline_agents:
                agents.add(inline_agent(agent.name, agent.description, agent.system_prompt, agent.tools))
            return agents

    @cached_property
    def pool(self) -> "Pool":
        """The Lua sandbox; it starts with the first script."""
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
        """What runs scripts: the sandbox, and the bridge to the Toolbox."""
        from ctx.extensions.bridge import Bridge
        from ctx.extensions.scripts import Runner

        return Runner(self.pool, Bridge(self.toolbox, store=self._script_store, database=self.config.db.path))

    @cached_property
    def _script_store(self) -> "ScriptStore | None":
        """What scripts keep between calls, in the catalog's file; None where there is no project for it."""
        if self.config.path is None:
            return None
        from ctx.extensions.store import FileScriptStore

        with self._lock:
            store: ScriptStore = FileScriptStore(self.config.db.path)
            if self.config.store.url:
                from ctx.extensions.shared_store import SharedScriptStore

                store = SharedScriptStore(self._database)
            self._opened.append(store.close)
            return store

    def load_extensions(self) -> None:
        """Loads the packs, then the scripts: of two tools of one name, the script is the one that fails.
        Raises `ConfigError`.

        What nobody will serve, and settings that do nothing, are logged here.
        """
        import logging  # 8 ms that a search does without

        _ = self.packs
        _ = self.scripts
        for doubt in self.doubts():
            logging.getLogger(__name__).warning("%s", doubt)

    def doubts(self) -> list[str]:
        """What the configuration says of scripts and agents that will do nothing, one sentence each."""
        from ctx.extensions.loader import missing_calls, missing_tools, script_doubts
        from ctx.sources import script_file

        config = self.config
        configured = (*config.script_tools, *config.script_agents, *config.script_connectors)
        scripts = [script_file(script, config.root) for script in configured]
        return [
            *(doubt for script in scripts for doubt in script_doubts(script)),
            *(doubt for script in scripts for doubt in missing_calls(self.toolbox, script)),
            *missing_tools(self.toolbox, self.agents),
        ]

    @cached_property
    def scripts(self) -> "Scripts":
        """The tools and agents that operators wrote, loaded; one that fails says so in `statuses`."""
        from ctx.extensions.loader import REGISTRY_RANK, Scripts
        from ctx.extensions.trust import TrustFile, trust_path
        from ctx.registries.shelf import shelf_of
        from ctx.sources import script_file

        config = self.config
        trust = TrustFile(trust_path(os.environ))
        with self._lock:
            scripts = Scripts(self.runner, self.toolbox, self.agents)
            scripts.load(
                [script_file(script, config.root) for script in config.script_tools],
                [script_file(script, config.root) for script in config.script_agents],
                tools_dir=config.lua.tools_dir,
                project=config.root,
                trust=trust,
                user=user_folder(os.environ),
                registries=partial(shelf_of(os.environ, trust).served, REGISTRY_RANK),
            )
            self._opened.append(scripts.close)
            return scripts

    # -- memory ----------------------------------------------------------------------------------------------

    @cached_property
    def memory(self) -> "MemoryStore":
        """The memories, where the catalog is."""
        from ctx.memory import MemoryStore

        with self._lock:
            settings = self.config.memory
            store = MemoryStore(
                self._memory_rows() if self.config.store.url else self.config.db.path,
                self.embedder,
                secrets=settings.secrets,
                language_model=self._language_model(),
            )
            self._opened.append(store.close)
            check_whole(store.rows, shared=bool(self.config.store.url))
            return store

    def _sessions(self, pack: str, path: str | None) -> "Sessions":
        """The sessions of a pack's clients, which it keeps in a file at the path, or not at all."""
        from ctx.packs.sessions import FileSessions

        if path is None or not self.config.store.url:
            return FileSessions(path)
        from ctx.packs.shared_sessions import SharedSessions

        return SharedSessions(self._database, pack)

    def _memory_rows(self) -> "MemoryRows":
        from ctx.memory.postgres_engine import PostgresRows

        return PostgresRows(self._database)

    @property
    def _database(self) -> "Database":
        """The database of the catalog, where it is in one."""
        catalog = self.catalog
        assert not isinstance(catalog, SqliteCatalog)
        return catalog.database

    def _language_model(self) -> "LanguageModel | None":
        from ctx.memory.llm import ChatCompletion

        llm = self.config.memory.llm
        if llm is None:
            return None
        key = os.environ.get(llm.api_key_env) if llm.api_key_env else None
        return ChatCompletion(
            llm.base_url, llm.model, api_key=key, timeout_s=llm.timeout_s, allow_remote=llm.allow_remote
        )

    @cached_property
    def packs(self) -> "list[Pack]":
        """The enabled memory packs, loaded. Raises `ConfigError`."""
        if not self.config.packs.enabled:
            return []
        from ctx.packs.packs import load_packs

        config = self.config
        with self._lock:
            packs = load_packs(
                config.packs.enabled,
                config.packs.settings,
                self.runner(),
                lambda: self.memory,
                self.toolbox,
                self.agents,
                shared=config.memory.shared,
                root=config.root,
                environ=os.environ,
                database=config.db.path,
                sessions=self._sessions,
            )
            self._opened.extend(pack.close for pack in packs)
            return packs

    # -- staying fresh ---------------------------------------------------------------------------------------

    def start(self, *, patience_s: float | None = None) -> None:
        """Begins to follow the sources and the served scripts in the background. Returns at once.

        The sources are looked at behind the first answers: after `patience_s`, or when `begin` is called.
        """
        self.scripts.watch()
        self._follow_sources(None, patience_s)
        self.toolbox.observe(self._mend_after)
        from ctx import upkeep

        configuration = upkeep.Configuration(self.config.path)
        look = partial(upkeep.look_after_files, self.catalog, self.indexer, configuration, self._read_anew)
        self._in_background("ctx-files", look)
        look = partial(upkeep.look_after_index, self.catalog, self.index, self.catch_up)
        self._in_background("ctx-behind", look)
        if self.config.store.url:
            self._in_background("ctx-follow", partial(upkeep.follow_catalog, self.catalog, self.indexer))
        if self.packs and self.embedder is not None:
            self._in_background("ctx-memories", partial(upkeep.embed_memories, self.memory))

    def begin(self) -> None:
        """The first answers are given."""
        if self._watcher is not None:
            self._watcher.begin()

    def _follow_sources(
        self, on_report: "Callable[[IndexReport], None] | None", patience_s: float | None
    ) -> None:
        from ctx.indexing.watch import Intervals, Watcher
        from ctx.sources import intervals_s

        config = self.config
        self._watcher = Watcher(
            self.indexer,
            Intervals(intervals_s(config), config.watch.debounce_ms),
            ignored=(config.folder,),
            follow=config.watch.enabled,
            before=self._say_unconfigured,
            on_report=on_report,
            patience_s=patience_s,
        )
        self._watcher.start()

    def _mend_after(self, call: "Call") -> None:
        if call.outcome == StoreError.word and self._watcher is not None:
            self._watcher.look_soon()

    def _read_anew(self) -> None:
        """Has every source looked at: the index went with the store, and with it what numbers of documents
        mean.
        """
        self.__dict__.pop("searcher", None)
        if self._watcher is not None:
            self._watcher.look_soon()
            for name in self.indexer.connectors:
                self._watcher.request(name)

    def _in_background(self, name: str, work: "Callable[[threading.Event], None]") -> None:
        """Runs `work` in a thread until the event that it is given is set."""
        import threading

        stopping = threading.Event()
        thread = threading.Thread(target=work, args=(stopping,), name=name, daemon=True)
        thread.start()
        self._opened += [thread.join, stopping.set]  # taken from the end: it is told before it is waited for

    def follow(self, on_report: "Callable[[IndexReport], None]", stop: "threading.Event") -> None:
        """Follows the sources, and nothing else, until `stop` is set (`ctx index --watch`).

        `on_report` is given the report of every run, in another thread.
        """
        self._follow_sources(on_report, 0.0)
        try:
            stop.wait()
        finally:
            self.close()

    def wind_down(self) -> None:
        """Begins the stop of what runs in the background, without waiting; `close` must follow."""
        if self._watcher is not None:
            self._watcher.stop()
