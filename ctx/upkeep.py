"""Background jobs of a server. Each runs until it is stopped."""

import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ctx import files
from ctx.errors import CtxError
from ctx.indexing.indexer import Indexer
from ctx.store.base import Catalog, SearchIndex

if TYPE_CHECKING:  # 70 ms
    from ctx.memory import MemoryStore

logger = logging.getLogger(__name__)

CONFIGURATION_LOOK_S = 1.0  # between two checks of the configuration file
INDEX_LOOK_S = 1.0  # between two checks of the index
LEFT_BEHIND_LOOKS = 3  # after so many checks without progress, nobody else is updating the index
FOLLOW_S = 0.5  # between two checks for writes of other machines: two small queries
_EMBED_AT_ONCE = 64  # memories embedded between two checks of the stop event


class Configuration:
    """Notices changes of the configuration file while a server runs."""

    def __init__(self, path: str | None) -> None:
        """`path` None: there is no file."""
        self.path = path or os.devnull
        self._stamp = files.stamp(self.path)
        self._content = self._read()
        self._differs = False

    def differs(self) -> bool:
        """Whether the file has other content now, or is gone."""
        stamp = files.stamp(self.path)
        if stamp != self._stamp:
            self._stamp, self._differs = stamp, self._read() != self._content
        return self._differs

    def _read(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except OSError:
            return b""


_CHANGED = "the file was changed since the start: restart ctx to use it (`ctx doctor` checks it)"


def watch_configuration(indexer: Indexer, configuration: Configuration, stopping: threading.Event) -> None:
    """Reports in `/health` that the configuration file was changed since the start."""
    while not stopping.wait(CONFIGURATION_LOOK_S):
        if indexer.degrade("configuration", _CHANGED if configuration.differs() else None):
            logger.warning("configuration file=%s changed=%s", configuration.path, configuration.differs())


def look_after_index(
    catalog: Catalog,
    index: SearchIndex,
    indexer: Indexer,
    catch_up: Callable[[], None],
    stopping: threading.Event,
) -> None:
    """Updates the index if it stays behind the catalog: it was deleted, or its writer was killed.

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
        try:
            before, applied = applied, index.applied_seq()
            if applied >= seq:
                looks, patience = 0, LEFT_BEHIND_LOOKS
                continue
            looks = looks + 1 if applied == before else 0
            if looks >= patience:
                looks, patience = 0, 2 * patience  # retries less and less often, for example on a full disk
                catch_up()
                applied = index.applied_seq()
                if applied >= catalog.seq():  # it may be deleted again before the next check
                    patience = LEFT_BEHIND_LOOKS
        except CtxError:
            pass  # searches report it


def follow_catalog(catalog: Catalog, indexer: Indexer, stopping: threading.Event) -> None:
    """Applies writes of other machines to this machine's index; reports failures in `/health`."""
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
    """Embeds memories that were stored without a model, or with another one."""
    try:
        while not stopping.is_set() and store.embed_pending(_EMBED_AT_ONCE):
            pass
    except CtxError as error:
        logger.warning("memories are not embedded yet: %s", error.message)
