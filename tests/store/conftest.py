"""The catalogs that the contract tests run on. Add another in CATALOGS."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ctx.store.base import Catalog
from ctx.store.sqlite import SqliteCatalog


def sqlite_catalog(request: pytest.FixtureRequest) -> Catalog:
    folder: Path = request.getfixturevalue("tmp_path")
    return SqliteCatalog(str(folder / "ctx.db"))


def postgresql_catalog(request: pytest.FixtureRequest) -> Catalog:
    url: str = request.getfixturevalue("database_url")
    from ctx.cluster.catalog import PostgresCatalog

    return PostgresCatalog(url)


CATALOGS: dict[str, Callable[[pytest.FixtureRequest], Catalog]] = {
    "sqlite": sqlite_catalog,
    "postgresql": postgresql_catalog,
}


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.cluster)],
)
def catalog(request: pytest.FixtureRequest) -> Iterator[Catalog]:
    opened = CATALOGS[request.param](request)
    yield opened
    opened.close()
