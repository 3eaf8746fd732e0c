"""State that several machines share: the catalog, keys, sessions and script values in PostgreSQL, an index in
OpenSearch, leases, and the migration between a file and a database.

This package needs the extra `cluster`. Other packages import it only if `[store] url` or `[index] engine`
asks for it. The functions in this file import the client libraries and report a missing library.
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
    """A context manager for the import of a client library. Raises `ConfigError` if it is not installed.

    `setting` is the setting that needs the library; `client` is the name of the server.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"{setting} needs the client of {client}: pip install 'ctx-server[cluster]'"
        ) from error


def open_database(url: str) -> "Database":
    """Opens the PostgreSQL database that several machines share. Raises `ConfigError`, `StoreError`."""
    with needs_extra("[store] url", "PostgreSQL"):
        from ctx.cluster.postgres import Database
    return Database(url)


def open_catalog(url: str, path: str) -> "PostgresCatalog":
    """Opens the catalog in a PostgreSQL database. The folder of `path` holds the data derived from it. Raises
    `ConfigError`, `StoreError`.
    """
    database = open_database(url)
    from ctx.cluster.catalog import PostgresCatalog

    own_folder(path)
    return PostgresCatalog(database, machine=machine_name(os.path.dirname(path)))


def check_database(url: str, timeout_s: float) -> None:
    """Raises `StoreError` if no server in `url` answers within `timeout_s`, and `ConfigError` if `url` is
    wrong.
    """
    with needs_extra("[store] url", "PostgreSQL"):
        from ctx.cluster.postgres import check_reached
    check_reached(url, timeout_s)


def open_client(settings: "Index") -> "Client":
    """A client for the OpenSearch nodes of `[index] url`. Raises `ConfigError`."""
    with needs_extra('[index] engine = "opensearch"', "OpenSearch"):
        from ctx.cluster.opensearch_client import Client
    return Client(settings)
