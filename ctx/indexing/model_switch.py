"""Model switch: which embedding model answers while a newly configured one is still embedding.

Configuring another model makes every chunk pending again. Until the new model has embedded as many chunks as
the old one had, the index keeps the old vectors, and queries are embedded with the old model. Then the new
vectors are built next to the old ones and replace them when they are published. The published state names its
model. How that model was opened is recorded among the user's own files and not in the project: a stranger's
project must not decide where queries are sent.
"""

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

from ctx import file_writing, files
from ctx.config.settings import Embedding
from ctx.errors import CtxError
from ctx.models import JSON, as_table
from ctx.store.statefile import Stamp, read_state, stamp

if TYPE_CHECKING:
    from ctx.embed import Embedder
    from ctx.store.base import Catalog

logger = logging.getLogger(__name__)

_FIELDS = ("provider", "model", "dims", "url", "api_key_env")  # what leads to a model; no key is among them
_MODELS_NOTED = 4  # of one store
_STORES_NOTED = 200


class Succession:
    """The models of one store: the one that is configured, and the one whose vectors are published."""

    def __init__(
        self,
        settings: Embedding,
        database: str,
        configured: "Callable[[], Embedder | None]",
        notes: str,
        *,
        published: Callable[[], str | None] | None = None,
    ) -> None:
        """`configured()` gives the configured embedder; `notes` is the file of the user's where models are
        noted. `published()` names the model whose vectors answer, where they are not in the store's folder.
        """
        self._ask_published = published
        self._settings = settings
        self._store = os.path.realpath(database)
        self._state = os.path.join(os.path.dirname(database), "index", "vectors", "state")
        self._configured = configured
        self._notes = notes
        self._lock = Lock()
        self._seen: Stamp | None = None
        self._published: str | None = None
        self._predecessors: dict[str, Embedder | None] = {}

    def answering(self) -> "Embedder | None":
        """What embeds a query: the published model if it can be opened, else the configured one."""
        configured = self._configured()
        if configured is None:
            return None
        name = self.published()
        if name is None or name == configured.model:
            self._predecessors.clear()  # not closed: a question under way holds its model itself
            return configured
        return self._predecessor(name) or configured

    def indexed(self, catalog: "Catalog") -> "Embedder | None":
        """The model to publish vectors of: the old one until the new one has embedded as many chunks."""
        configured, answering = self._configured(), self.answering()
        if configured is None or answering is None or answering is configured:
            return configured
        ahead = catalog.pending_count(answering.model) < catalog.pending_count(configured.model)
        return answering if ahead else configured

    def published(self) -> str | None:
        """The name of the model whose vectors are published; None if there are none."""
        if self._ask_published is not None:
            return self._ask_published()
        current_stamp = stamp(self._state)
        if current_stamp != self._seen:
            try:
                self._published = (read_state(self._state) or {}).get("model")
            except CtxError:
                self._published = None  # damaged: whoever reads the vectors says so
            self._seen = current_stamp
        return self._published

    def note(self) -> None:
        """Records how the configured model is opened, for when another one is configured."""
        configured = self._configured()
        # A password in an address is not ours to keep.
        if configured is None or "@" in (self._settings.url or ""):
            return
        entry = {field: getattr(self._settings, field) for field in _FIELDS}
        if self._noted().get(configured.model) == entry:
            return
        try:
            with file_writing.locked(self._notes):
                stores = self._stores()
                models = stores.pop(self._store, {})
                models.pop(configured.model, None)
                stores[self._store] = dict([*models.items(), (configured.model, entry)][-_MODELS_NOTED:])
                content = json.dumps(dict([*stores.items()][-_STORES_NOTED:]), indent=1)
                file_writing.replace(self._notes, content.encode())
        except OSError as error:
            logger.info("the model is not noted reason=%s", error.strerror)

    def close(self) -> None:
        """Lets go of the old model."""
        with self._lock:
            embedders, self._predecessors = list(self._predecessors.values()), {}
        for embedder in embedders:
            if embedder is not None:
                embedder.close()

    def _predecessor(self, name: str) -> "Embedder | None":
        with self._lock:
            if name not in self._predecessors:
                self._predecessors[name] = self._opened(name)
            return self._predecessors[name]

    def _opened(self, name: str) -> "Embedder | None":
        """The noted model of that name, if what was noted still leads to it."""
        entry = self._noted().get(name)
        if not isinstance(entry, dict) or entry.keys() != set(_FIELDS):
            return None
        from ctx.embed import open_embedder  # 2 ms, and few stores had another model

        try:
            embedder = open_embedder(replace(self._settings, **entry), os.environ)
            if embedder is not None and embedder.model != name:
                embedder.close()
                return None
        except CtxError:
            return None  # its folder has gone, say
        return embedder

    def _noted(self) -> dict[str, JSON]:
        return as_table(self._stores().get(self._store))

    def _stores(self) -> dict[str, JSON]:
        try:
            return as_table(json.loads(files.read_file(self._notes)))
        except (OSError, ValueError):
            return {}


def key_of(embedder: "Embedder | None") -> tuple[str | None, int | None]:
    """The name of a model and the length of its vectors, as an index takes them."""
    return (None, None) if embedder is None else (embedder.model, embedder.dim)


def notes_path(environ: Mapping[str, str]) -> str:
    """Where the models of the user's stores are noted."""
    return os.path.join(files.state_folder(environ), "embedders.json")
