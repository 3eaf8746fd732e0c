"""Opens the catalog and the index of a workspace.

The catalog is a file, or the database of `[store]`. The index is in the store's folder, or in the search
engine of `[index]`.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ctx.config.settings import Index
from ctx.errors import StoreError
from ctx.store.base import Catalog, SearchIndex
from ctx.store.keyword_files import STATE, format_fault, keyword_state
from ctx.store.local import LocalIndex
from ctx.store.schema import is_locked
from ctx.store.sqlite import SqliteCatalog

if TYPE_CHECKING:
    from ctx.cluster.catalog import PostgresCatalog
    from ctx.cluster.opensearch import OpenSearchIndex
    from ctx.cluster.opensearch_client import Client

Embedding = Callable[[], tuple[str | None, int | None]]


def file_catalog(path: str, *, reading: bool) -> SqliteCatalog:
    """The catalog in a file. A file that cannot be written can still be searched."""
    return SqliteCatalog(path, read_only=reading or is_locked(path))


def open_catalog(place: str, path: str) -> "SqliteCatalog | PostgresCatalog":
    """The catalog at a place: the URL of a database, or a file. What is derived from a database goes into the
    folder of `path`. Raises `ConfigError`, `StoreError`.
    """
    if "://" in place:
        from ctx import cluster

        return cluster.open_catalog(place, path)
    return SqliteCatalog(place)


def check_whole(*, unfinished: bool, shared: bool) -> None:
    """Raises `StoreError` if a migration into this store was interrupted. `shared`: it is a database."""
    if unfinished:
        raise StoreError(
            "the migration into this store was interrupted, so only part of the data is here: "
            f"run `ctx migrate --from {'FILE' if shared else 'postgresql://...'}` again to finish it"
        )


class Plane:
    """The search engine of a configuration. `catalog()` is the catalog that its indexes follow; `folder` is
    the store's.
    """

    def __init__(self, settings: Index, folder: str, catalog: Callable[[], Catalog]) -> None:
        self._settings = settings
        self._folder = folder
        self._catalog = catalog
        self._client: Client | None = None
        self._reader: OpenSearchIndex | None = None

    @property
    def remote(self) -> bool:
        """Whether the index is in OpenSearch, where several machines can write it."""
        return self._settings.engine != "local"

    def open(self, embedding: Embedding, *, writable: bool) -> SearchIndex:
        """The index; `embedding` as for `LocalIndex`. Raises `ConfigError`."""
        if not self.remote:
            return LocalIndex(os.path.join(self._folder, "index"), embedding, writable=writable)
        return self._open_remote(embedding, writable=writable)

    def outdated(self) -> bool:
        """Whether the index in the store's folder was made by an older ctx."""
        if self.remote:
            return False
        fields = keyword_state(os.path.join(self._folder, "index", STATE))
        return fields is not None and bool(fields) and format_fault(fields) is not None

    def _open_remote(self, embedding: Embedding, *, writable: bool) -> "OpenSearchIndex":
        from ctx import cluster

        if self._client is None:
            self._client = cluster.open_client(self._settings)
        from ctx.cluster.opensearch import OpenSearchIndex
        from ctx.cluster.opensearch_part import Layout

        settings = self._settings
        return OpenSearchIndex(
            self._client,
            embedding,
            name=settings.name,
            layout=Layout(settings.shards, settings.replicas),
            owner=self._owner,
            writable=writable,
            turn=self._catalog().index_turn(settings.name),
        )

    def reader(self) -> "OpenSearchIndex":
        """The index in OpenSearch, for questions about its state."""
        if self._reader is None:
            self._reader = self._open_remote(lambda: (None, None), writable=False)
        return self._reader

    def published_model(self) -> str | None:
        """The model of the vectors in OpenSearch; None if there are none."""
        return self.reader().published_model()

    def _owner(self) -> str:
        """A name for the catalog: of the shared database, or of this machine and store."""
        from ctx.cluster.leases import machine_name

        return self._catalog().identity() or machine_name(self._folder)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
