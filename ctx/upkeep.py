"""Background jobs of a server. Each runs until it is told to stop."""

import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ctx import files
from ctx.errors import CtxError
from ctx.indexing.indexer import Indexer
from ctx.store.base import Catalog, SearchIndex

if TYPE_CHECKING:  # numpy and psycopg take 70 and 200 ms to import
    from ctx.memory import MemoryStore

logger = logging.getLogger(__name__)

CONFIGURATION_LOOK_S = 1.0  # between two looks at the configuration file
INDEX_LOOK_S = 1.0  # between two looks at how far the index is
LEFT_BEHIND_LOOKS = 3  # so often the index stands still behind the catalog before nobody is taken to be at it
FOLLOW_S = 0.5  # between two looks at what other machines wrote: two queries of a row
_EMBED_AT_ONCE = 64  # memories between two looks at whether to stop


class Configuration:
    """A configuration's file, which somebody may edit while a server goes by what it says now."""

    def __init__(self, path: str | None) -> None:
        """`path` None: there is no file, and nothing to be told."""
        self.path = path or os.devnull
        self._stamp = files.stamp(self.path)
        self._content = self._read()
        self._differs = False

    def differs(self) -> bool:
        """Whether it says something else now, or is gone."""
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


_CHANGED = (
    "its file was changed since the start: restart ctx to take it up (`ctx doctor` says whether it can be "
    "read)"
)


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
    """Brings the index up to date when it stays behind the catalog: it was deleted, or its writer was killed.

    `/health` reports a catalog that cannot be read.
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
                looks, patience = 0, 2 * patience  # what fails, on a full disk say, is not tried all the time
                catch_up()
                applied = index.applied_seq()
                if applied >= catalog.seq():  # now: by the next look it may have been deleted once more
                    patience = LEFT_BEHIND_LOOKS
        except CtxError:
            pass  # searches report it


def follow_catalog(catalog: Catalog, indexer: Indexer, stopping: threading.Event) -> None:
    """Applies what other machines write to the index of this one; `/health` tells where it cannot."""
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
    """Embeds what was stored while there was no model, or another."""
    try:
        while not stopping.is_set() and store.embed_pending(_EMBED_AT_ONCE):
            pass
    except CtxError as error:
        logger.warning("memories are not embedded yet: %s", error.message)
