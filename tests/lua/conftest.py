"""The shared sandbox, and the folder of hostile scripts."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from http_kit import Server
from redteam_run import WatchedPool

from ctx.models import JSON


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def other() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture(scope="session")
def sandbox() -> Iterator[WatchedPool]:
    with WatchedPool() as pool:
        yield pool


@pytest.fixture
def pool(sandbox: WatchedPool) -> Iterator[WatchedPool]:
    """A running sandbox. After each test no process of its calls may live on."""
    sandbox.used.clear()
    yield sandbox
    assert sandbox.survivors(1.0) == []


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of hostile scripts."""
    shared = Path(os.environ.get("CTX_SHARED", Path(__file__).parents[3] / "shared"))
    folder = shared / "redteam"
    if not (folder / "manifest.json").is_file():
        refuse: JSON = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        refuse(f"the hostile scripts are not at {folder}; set CTX_SHARED")
    return folder
