"""What the tests of commands share."""

from pathlib import Path

import pytest
from kit import project


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project beside a home of its own."""
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "home").mkdir()
    project(folder)
    return folder
