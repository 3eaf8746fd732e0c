"""The folder that the filesystem connector's tests read."""

from pathlib import Path

import pytest

from ctx.connectors.filesystem import FilesystemConnector


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


@pytest.fixture
def connector(root: Path) -> FilesystemConnector:
    return FilesystemConnector("filesystem:docs", str(root))
