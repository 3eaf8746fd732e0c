"""Which engines a workspace works with.

The record is in a file, or in the database that `[store]` names; the index in the folder of the store, or in
the search engine that `[index]` names.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ctx.config.settings import Index
from ctx.errors import ConfigError, StoreError
from ctx.store.local import LocalIndex
from ctx.store.schema import is_locked

if TYPE_CHECKING:  # the embedded engine needs neither
    from ctx.store.base import ReadCatalog, SearchIndex
    from ctx.store.opensearch import OpenSearchIndex
    from ctx.store.opensearch_client import Access, Client
    from ctx.store.postgres import Database
    from ctx.store.postgres_catalog import PostgresCatalog
    from ctx.store.sqlite_catalog import SqliteCatalog

    class Movable(Protocol):
        """What `ctx migrate` moves into."""

        def unfinished(self) -> bool: ...


Embedding = Callable[[], tuple[str | None, int | None]]


def _of_client(module: str) -> Any:
    """A module of this room that speaks with PostgreSQL. Raises `ConfigError` where its client is not
    installed.
    """
    from importlib import import_module  # what a search in a file does without

    try:
        return import_module(f"ctx.store.{module}")
    except ImportError as error:
        raise ConfigError(
            "[store] url needs the client of PostgreSQL: pip install 'ctx-server[cluster]'"
        ) from error


def open_database(url: str) -> "Database":
    """The database that machines share. Raises `ConfigError`, `StoreError`."""
    database: Database = _of_client("postgres").Database(url)
    return database


def check_database(url: str, timeout_s: float) -> None:
    """Raises `StoreError` where the database does not answer within so long, `ConfigError`."""
    _of_client("postgres_address").check_reached(url, timeout_s)


def postgres_catalog(url: str, path: str) -> "PostgresCatalog":
    """The catalog in a database; what follows from it lies in the folder of `path`. Raises `ConfigError`,
    `StoreError`.
    """
    from ctx.store.folder import own_folder
    from ctx.store.leases import machine_name

    database = open_database(url)
    from ctx.store.postgres_catalog import PostgresCatalog

    own_folder(path)
    return PostgresCatalog(database, machine=machine_name(os.path.dirname(path)))


def file_catalog(path: str, *, reading: bool) -> "SqliteCatalog":
    """The catalog in a file. What may not be written can still be searched; whoever would write is told by
    the lock.
    """
    from ctx.store.sqlite_catalog import SqliteCatalog

    return SqliteCatalog(path, read_only=reading or is_locked(path))


def open_catalog(place: str, path: str) -> "SqliteCatalog | PostgresCatalog":
    """The catalog at a place: the address of a database, or a file. What follows from it lies beside `path`.
    Raises `ConfigError`, `StoreError`.
    """
    if "://" in place:
        return postgres_catalog(place, path)
    from ctx.store.sqlite_catalog import SqliteCatalog

    return SqliteCatalog(place)


def check_whole(store: "Movable", *, shared: bool) -> None:
    """Raises `StoreError` for a store that a move into did not come to its end; `shared`: in a database."""
    if store.unfinished():
        raise StoreError(
            "the move into this store was broken off, and only a part of it is here: `ctx migrate --from "
            f"{'FILE' if shared else 'postgresql://...'}` goes on with it"
        )


class Plane:
    """The engine of a configuration. `catalog()` gives the record that its indexes follow; `folder` is beside
    that.
    """

    def __init__(self, settings: Index, folder: str, catalog: "Callable[[], ReadCatalog]") -> None:
        self._settings = settings
        self._folder = folder
        self._catalog = catalog
        self._client: Client | None = None
        self._reader: OpenSearchIndex | None = None

    @property
    def remote(self) -> bool:
        """Whether the index is another program's, which several machines may write to."""
        return self._settings.engine != "local"

    def open(self, embedding: Embedding, *, writable: bool) -> "SearchIndex":
        """The index; `embedding` as for `LocalIndex`. Raises `ConfigError`."""
        if not self.remote:
            return LocalIndex(os.path.join(self._folder, "index"), embedding, writable=writable)
        return self.open_remote(embedding, writable=writable)

    def open_remote(self, embedding: Embedding, *, writable: bool) -> "OpenSearchIndex":
        """The index in the search engine. It asks for nothing before it is used."""
        from ctx.store.opensearch import OpenSearchIndex
        from ctx.store.opensearch_client import Client
        from ctx.store.opensearch_part import Layout

        settings = self._settings
        if self._client is None:
            self._client = Client(access_of(settings))
        shared = self._catalog()
        turn = getattr(shared, "index_turn", None)
        return OpenSearchIndex(
            self._client,
            embedding,
            name=settings.name,
            layout=Layout(settings.shards, settings.replicas),
            owner=self._owner,
            writable=writable,
            turn=turn(settings.name) if turn else None,
        )

    def reader(self) -> "OpenSearchIndex":
        """The index in the search engine, to be asked about itself."""
        if self._reader is None:
            self._reader = self.open_remote(lambda: (None, None), writable=False)
        return self._reader

    def published_model(self) -> str | None:
        """The model whose vectors the search engine has; None where it has none."""
        return self.reader().published_model()

    def _owner(self) -> str:
        """A name for the catalog: the database's, or that of this machine and store."""
        identity = getattr(self._catalog(), "identity", None)
        if identity is not None:
            return str(identity())
        from ctx.store.leases import machine_name

        return machine_name(self._folder)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def access_of(settings: Index) -> "Access":
    """How the nodes of a configuration are reached. Raises `ConfigError`."""
    from ctx.store.opensearch_client import Access, node_urls

    urls, user, password = node_urls(settings.url or "")
    return Access(
        urls,
        user,
        password,
        settings.api_key,
        settings.ca_file,
        settings.timeout_secs,
        settings.max_retries,
    )
