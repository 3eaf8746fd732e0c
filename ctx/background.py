"""The background threads of a server: the watcher, which indexes changed sources, and maintenance jobs."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING

from ctx import files
from ctx.errors import CtxError, StoreError
from ctx.indexing.indexer import Indexer
from ctx.indexing.status import publish
from ctx.indexing.watch import Watcher
from ctx.memory.copies import keep_copies
from ctx.scripts.sources import intervals_s
from ctx.store.base import Catalog, SearchIndex

if TYPE_CHECKING:
    from ctx.memory.store import MemoryStore
    from ctx.tools.toolbox import Call
    from ctx.workspace import Workspace

logger = logging.getLogger(__name__)


class Background:
    """The background threads of a workspace. The workspace calls `close` when it closes."""

    def __init__(self, workspace: "Workspace") -> None:
        workspace.background = self
        self._workspace = workspace
        self._jobs: list[tuple[Thread, Event]] = []
        self.watcher: Watcher | None = None

    def start(self, *, patience_s: float | None = None) -> None:
        """Starts the watcher, the reloading of changed scripts, and the maintenance jobs. In a worker
        process, starts only the reloading of scripts. Returns at once.

        The first scan of the sources begins after `patience_s` seconds, or when `begin` is called.
        """
        space = self._workspace
        space.scripts.watch()
        if space.state is not None:
            return
        self.watcher = Watcher(
            space.indexer,
            intervals_s(space.config),
            debounce_ms=space.config.watch.debounce_ms,
            ignored=(space.config.folder,),
            follow=space.config.watch.enabled,
            before=self._log_unconfigured,
            patience_s=patience_s,
        )
        self.watcher.start()
        space.toolbox.observe(self._look_after_store_error)
        if space.config.path is not None:
            watch = partial(watch_configuration, space.indexer, space.config.path)
            self._run("ctx-configuration", watch)
        self._run(
            "ctx-behind",
            partial(look_after_index, space.catalog, space.index, space.indexer, space.catch_up),
        )
        if space.config.store.url:
            self._run("ctx-follow", partial(follow_catalog, space.catalog, space.indexer))
        else:
            self._run("ctx-copies", partial(keep_copies, space.location.memory))
        if space.packs and space.embedder is not None:
            self._run("ctx-memories", partial(embed_memories, space.memory))

    def publish_state(self, path: str) -> None:
        """Starts to write the state of the indexer to the file `path`, which the worker processes read."""
        self._run("ctx-state", partial(publish, self._workspace.indexer, path))

    def begin(self) -> None:
        """Starts the first scan now. Called when the first requests are answered."""
        if self.watcher is not None:
            self.watcher.begin()

    def close(self) -> None:
        """Stops all threads and waits for them."""
        if self.watcher is not None:
            self.watcher.close()
            self.watcher = None
        for _, stopping in self._jobs:
            stopping.set()
        while self._jobs:
            self._jobs.pop()[0].join()

    def _log_unconfigured(self) -> None:
        # In a shared database, unconfigured sources may belong to other machines.
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
        """Runs `job(event)` in a thread. `close` sets the event."""
        stopping = Event()
        thread = Thread(target=job, args=(stopping,), name=name, daemon=True)
        thread.start()
        self._jobs.append((thread, stopping))


CONFIGURATION_LOOK_S = 1.0  # seconds between two checks of the configuration file
INDEX_LOOK_S = 1.0  # seconds between two checks of the index
# After this many checks without progress, assume that no other process is updating the index.
LEFT_BEHIND_LOOKS = 3
FOLLOW_S = 0.5  # seconds between two checks for writes of other machines; a check is two small queries
_EMBED_AT_ONCE = 64  # memories embedded between two checks of the stop event


_CHANGED = "the file was changed since the start: restart ctx to use it (`ctx doctor` checks it)"


def watch_configuration(indexer: Indexer, path: str, stopping: threading.Event) -> None:
    """Reports in `/health` if the configuration file was changed or deleted after the server started."""
    stamp, content = files.stamp(path), _content(path)
    while not stopping.wait(CONFIGURATION_LOOK_S):
        before, stamp = stamp, files.stamp(path)
        if stamp == before:
            continue
        changed = _content(path) != content
        if indexer.degrade("configuration", _CHANGED if changed else None):
            logger.warning("configuration file=%s changed=%s", path, changed)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def look_after_index(
    catalog: Catalog,
    index: SearchIndex,
    indexer: Indexer,
    catch_up: Callable[[], None],
    stopping: threading.Event,
) -> None:
    """Updates the index if it stays behind the catalog, for example because the index was deleted or the
    process that wrote it was killed.

    Reports in `/health` if the catalog cannot be read.
    """
    applied, looks, patience = 0, 0, LEFT_BEHIND_LOOKS
    while not stopping.wait(INDEX_LOOK_S):
        try:
            seq = catalog.seq()
            indexer.degrade("store", None)
        except CtxError as error:
            indexer.degrade("store", error.message)
            continue
        with suppress(CtxError):  # searches report the error
            before, applied = applied, index.applied_seq()
            if applied >= seq:
                looks, patience = 0, LEFT_BEHIND_LOOKS
                continue
            looks = looks + 1 if applied == before else 0
            if looks >= patience:
                # Retry less and less often, because for example a full disk may stay full.
                looks, patience = 0, 2 * patience
                catch_up()


def follow_catalog(catalog: Catalog, indexer: Indexer, stopping: threading.Event) -> None:
    """Applies the writes of other machines to this machine's index. Reports failures in `/health`."""
    applied: tuple[int, str | None] = (-1, None)
    while not stopping.wait(FOLLOW_S):
        try:
            seq = catalog.seq()
            state = seq, catalog.history(seq)
            if state != applied:
                indexer.repair()
                applied = state
            indexer.degrade("catalog", None)
        except CtxError as error:
            indexer.degrade("catalog", error.message)


def embed_memories(store: "MemoryStore", stopping: threading.Event) -> None:
    """Embeds the memories that have no vector of the current model."""
    try:
        while not stopping.is_set() and store.embed_pending(_EMBED_AT_ONCE):
            pass
    except CtxError as error:
        logger.warning("memories are not embedded yet: %s", error.message)
