"""What several machines share: the catalog, keys, sessions and script values in PostgreSQL, an index in
OpenSearch, leases, and the move between a file and a database.

It needs the extra `cluster`. Other packages import it only where `[store] url` or `[index] engine` asks for
it; the functions here import the clients and say what is missing.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ctx.cluster.leases import machine_name
from ctx.errors import ConfigError
from ctx.store.folder import own_folder

if TYPE_CHECKING:
    from ctx.cluster.catalog import PostgresCatalog
    from ctx.cluster.opensearch_client import Client
    from ctx.cluster.postgres import Database
    from ctx.config.settings import Index


@contextmanager
def needs_extra(setting: str, client: str) -> Iterator[None]:
    """A block that imports a client. Raises `ConfigError` where it is not installed."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"{setting} needs the client of {client}: pip install 'ctx-server[cluster]'"
        ) from error


def open_database(url: str) -> "Database":
    """The database that machines share. Raises `ConfigError`, `StoreError`."""
    with needs_extra("[store] url", "PostgreSQL"):
        from ctx.cluster.postgres import Database
    return Database(url)


def open_catalog(url: str, path: str) -> "PostgresCatalog":
    """The catalog in a database; what is derived from it is in the folder of `path`. Raises `ConfigError`,
    `StoreError`.
    """
    database = open_database(url)
    from ctx.cluster.catalog import PostgresCatalog

    own_folder(path)
    return PostgresCatalog(database, machine=machine_name(os.path.dirname(path)))


def check_database(url: str, timeout_s: float) -> None:
    """Raises `StoreError` where no server of the URL answers within so long, `ConfigError`."""
    with needs_extra("[store] url", "PostgreSQL"):
        from ctx.cluster.postgres import check_reached
    check_reached(url, timeout_s)


def open_client(settings: "Index") -> "Client":
    """The client for the nodes of `[index] url`. Raises `ConfigError`."""
    with needs_extra('[index] engine = "opensearch"', "OpenSearch"):
        from ctx.cluster.opensearch_client import Client
    return Client(settings)
