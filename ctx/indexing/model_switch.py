"""Chooses the embedding model for queries while a newly configured model is still embedding.

After the configured model changes, every chunk is pending again. Until the new model has embedded as many
chunks as the old model, the index keeps the old vectors, and queries are embedded with the old model. Then
the index is rebuilt with the new vectors, which replace the old ones. The published index records the name of
its model. The settings of the old model are stored in the user's own files, not in the project, because a
stranger's project must not decide where queries are sent.
"""

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import Lock

from ctx import files
from ctx.config.settings import Embedding
from ctx.embed import Embedder, open_embedder
from ctx.errors import CtxError
from ctx.models import JSON, as_table
from ctx.store.base import Catalog
from ctx.store.folder import read_state

logger = logging.getLogger(__name__)

# The settings that identify a model. API keys are not stored, only the names of their variables.
_FIELDS = ("provider", "model", "dims", "url", "api_key_env")
_MODELS_NOTED = 4  # maximum models to record per store
_STORES_NOTED = 200


@dataclass(eq=False, repr=False)
class ModelSwitch:
    """The embedding models of one store: the configured model, and the model whose vectors are published.

    `configured()` returns the configured embedder. `notes` is the path of the user's file that records
    models. `ask_published()` returns the model of the published vectors; it is needed if the vectors are not
    in the store's folder.
    """

    settings: Embedding
    database: str
    configured: Callable[[], Embedder | None]
    notes: str
    ask_published: Callable[[], str | None] | None = None

    def __post_init__(self) -> None:
        self._store = os.path.realpath(self.database)
        self._state = os.path.join(os.path.dirname(self.database), "index", "vectors", "state")
        self._lock = Lock()
        self._seen: tuple[int, ...] | None = None
        self._published: str | None = None
        self._predecessors: dict[str, Embedder | None] = {}

    def answering(self) -> Embedder | None:
        """The model for queries: the published model if it can be opened, else the configured model."""
        configured = self.configured()
        if configured is None:
            return None
        name = self.published()
        with self._lock:
            if name is None or name == configured.model:
                self._predecessors.clear()  # do not close the old embedder: a running query may use it
                return configured
            if name not in self._predecessors:
                self._predecessors[name] = self._opened(name)
            return self._predecessors[name] or configured

    def indexed(self, catalog: Catalog) -> Embedder | None:
        """The model whose vectors to publish: the old model until the new one has embedded as many chunks."""
        configured, answering = self.configured(), self.answering()
        if configured is None or answering is None or answering is configured:
            return configured
        ahead = catalog.pending_count(answering.model) < catalog.pending_count(configured.model)
        return answering if ahead else configured

    def published(self) -> str | None:
        """The model of the published vectors; None if there are none."""
        if self.ask_published is not None:
            return self.ask_published()
        current_stamp = files.stamp(self._state)
        if current_stamp != self._seen:
            try:
                self._published = (read_state(self._state) or {}).get("model")
            except CtxError:
                self._published = None  # the state is damaged; reading the vectors reports that
            self._seen = current_stamp
        return self._published

    def note(self) -> None:
        """Records the settings of the configured model, to use it after another model is configured."""
        configured = self.configured()
        # Do not store a password in a URL.
        if configured is None or "@" in (self.settings.url or ""):
            return
        entry = {field: getattr(self.settings, field) for field in _FIELDS}
        if self._noted().get(configured.model) == entry:
            return
        try:
            with files.locked(self.notes):
                stores = self._stores()
                models = stores.pop(self._store, {})
                models.pop(configured.model, None)
                stores[self._store] = dict([*models.items(), (configured.model, entry)][-_MODELS_NOTED:])
                content = json.dumps(dict([*stores.items()][-_STORES_NOTED:]), indent=1)
                files.replace(self.notes, content.encode())
        except OSError as error:
            logger.info("the model could not be recorded reason=%s", error.strerror)

    def close(self) -> None:
        """Closes the old model."""
        with self._lock:
            embedders, self._predecessors = list(self._predecessors.values()), {}
        for embedder in embedders:
            if embedder is not None:
                embedder.close()

    def _opened(self, name: str) -> Embedder | None:
        """The embedder for a recorded model, or None if its settings no longer open that model."""
        entry = self._noted().get(name)
        if not isinstance(entry, dict) or entry.keys() != set(_FIELDS):
            return None
        try:
            embedder = open_embedder(replace(self.settings, **entry), os.environ)
            if embedder is not None and embedder.model != name:
                embedder.close()
                return None
        except CtxError:
            return None  # the settings no longer work; for example, the model's folder is gone
        return embedder

    def _noted(self) -> dict[str, JSON]:
        return as_table(self._stores().get(self._store))

    def _stores(self) -> dict[str, JSON]:
        try:
            return as_table(json.loads(files.read_file(self.notes)))
        except (OSError, ValueError):
            return {}


def model_of(embedder: Embedder | None) -> str | None:
    return None if embedder is None else embedder.model


def notes_path(environ: Mapping[str, str]) -> str:
    """The path of the file that records the models of the user's stores."""
    return os.path.join(files.state_folder(environ), "embedders.json")
