"""Fixtures for scripts."""

from pathlib import Path

import pytest


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """An empty folder for scripts."""
    folder = tmp_path / "tools"
    folder.mkdir()
    return folder
