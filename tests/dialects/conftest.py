"""One server with every pack for the tests of a module; each test keeps to banks and sessions of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dialect_kit import KEY, PackServer, pack_project, served


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of the module's project."""
    return pack_project(tmp_path_factory.mktemp("packs"))


@pytest.fixture(scope="module")
def server(config: Path) -> Iterator[PackServer]:
    """A server whose sekha has a key; the other packs are open."""
    with served(config, SEKHA_API_KEY=KEY) as running:
        yield running
