"""The threads of a server: the watcher, which follows the sources, and the jobs of ctx/upkeep.py."""

import logging
from collections.abc import Callable
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING

from ctx import upkeep
from ctx.errors import StoreError
from ctx.indexing.status import publish

if TYPE_CHECKING:
    from ctx.indexing.report import IndexReport
    from ctx.indexing.watch import Watcher
    from ctx.tools.toolbox import Call
    from ctx.workspace import Workspace

logger = logging.getLogger(__name__)


class Background:
    """The background threads of a workspace, until `close`."""

    def __init__(self, workspace: "Workspace") -> None:
        self._workspace = workspace
        self._jobs: list[tuple[Thread, Event]] = []
        self.watcher: Watcher | None = None

    def start(self, *, patience_s: float | None = None) -> None:
        """Starts to follow the sources and the scripts. Returns at once.

        The first scan of the sources begins after `patience_s`, or when `begin` is called.
        """
        space = self._workspace
        space.scripts.watch()
        self._follow_sources(None, patience_s)
        space.toolbox.observe(self._look_after_store_error)
        configuration = upkeep.Configuration(space.config.path)
        self._run("ctx-configuration", partial(upkeep.watch_configuration, space.indexer, configuration))
        self._run(
            "ctx-behind",
            partial(upkeep.look_after_index, space.catalog, space.index, space.indexer, space.catch_up),
        )
        if space.config.store.url:
            self._run("ctx-follow", partial(upkeep.follow_catalog, space.catalog, space.indexer))
        if not space.config.store.url:
            from ctx.memory.copies import keep_copies  # 170 ms with the memories and numpy

            self._run("ctx-copies", partial(keep_copies, space.location.memory))
        if space.packs and space.embedder is not None:
            self._run("ctx-memories", partial(upkeep.embed_memories, space.memory))

    def publish_state(self, path: str) -> None:
        """Keeps a file with the state of the indexer for the worker processes."""
        self._run("ctx-state", partial(publish, self._workspace.indexer, path))

    def begin(self) -> None:
        """Starts the first scan now, because the first requests are answered."""
        if self.watcher is not None:
            self.watcher.begin()

    def follow(self, on_report: "Callable[[IndexReport], None]", stop: Event) -> None:
        """Only follows the sources until `stop` is set (`ctx index --watch`).

        `on_report` gets the report of every run, in another thread.
        """
        self._follow_sources(on_report, 0.0)
        try:
            stop.wait()
        finally:
            self._workspace.close()

    def close(self) -> None:
        """Stops all threads and waits for them."""
        if self.watcher is not None:
            self.watcher.close()
            self.watcher = None
        for _, stopping in self._jobs:
            stopping.set()
        while self._jobs:
            self._jobs.pop()[0].join()

    def _follow_sources(
        self, on_report: "Callable[[IndexReport], None] | None", patience_s: float | None
    ) -> None:
        from ctx.indexing.watch import Intervals, Watcher  # 54 ms
        from ctx.scripts.sources import intervals_s

        config = self._workspace.config
        self.watcher = Watcher(
            self._workspace.indexer,
            Intervals(intervals_s(config), config.watch.debounce_ms),
            ignored=(config.folder,),
            follow=config.watch.enabled,
            before=self._log_unconfigured,
            on_report=on_report,
            patience_s=patience_s,
        )
        self.watcher.start()

    def _log_unconfigured(self) -> None:
        # In a shared database they belong to other machines.
        for status in () if self._workspace.config.store.url else self._workspace.unconfigured():
            logger.warning(
                "source=%s is not in the configuration; its %d documents stay (`ctx index --prune` drops "
                "them)",
                status.name,
                status.doc_count,
            )

    def _look_after_store_error(self, call: "Call") -> None:
        if call.outcome == StoreError.word and self.watcher is not None:
            self.watcher.look_soon()

    def _run(self, name: str, job: Callable[[Event], None]) -> None:
        """Runs `job` in a thread until its event is set."""
        stopping = Event()
        thread = Thread(target=job, args=(stopping,), name=name, daemon=True)
        thread.start()
        self._jobs.append((thread, stopping))


class WorkerBackground(Background):
    """The background of a worker process, which does not follow the sources."""

    def start(self, *, patience_s: float | None = None) -> None:
        """Reloads changed scripts."""
        self._workspace.scripts.watch()
