"""Settings and fixtures for all tests."""

import itertools
import logging
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import opensearch
import postgres
import pytest

from ctx.text.strings import sound

# No deadlines: the duration of an example depends on the machine and shows no error.
hypothesis.settings.register_profile("ctx", deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
hypothesis.settings.load_profile("ctx")


# Each of these takes minutes. They start first, so that nothing waits for them at the end.
LONGEST = ("test_soak", "test_kills", "test_memory_kills", "test_dialect_crash", "test_store_crash")


MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 << 30  # enough for two quick suites and the databases that they start


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--in-memory",
        action="store_true",
        help="keep files in memory where there is room: a disk's waits are half of the quick suite",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    _keep_files_in_memory(config)
    _leave_home(config)
    _begin_node(config)


def _keep_files_in_memory(config: pytest.Config) -> None:
    """Sets the folder for temporary files before it is first used. Worker processes inherit it."""
    if not config.getoption("--in-memory") or "TMPDIR" in os.environ or not MEMORY.is_dir():
        return
    memory = os.statvfs(MEMORY)
    # Tests start scripts from temporary folders. A container may forbid that here, or have only 64 MB.
    if memory.f_flag & os.ST_NOEXEC or memory.f_bavail * memory.f_frsize < MEMORY_BYTES:
        return
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None


def _leave_home(config: pytest.Config) -> None:
    """Gives this process and its children a new home folder. Tests then share no trust, records or copies
    with the user who runs them, nor with the tests in other processes.
    """
    browsers = Path.home() / ".cache" / "ms-playwright"
    if browsers.is_dir():
        os.environ.setdefault("PLAYWRIGHT_BROWSERS_PATH", str(browsers))
    parent = os.environ["HOME"] if hasattr(config, "workerinput") else None  # deleted when all have ended
    config.stash[_home] = os.environ["HOME"] = tempfile.mkdtemp(prefix="ctx-home-", dir=parent)
    for folder in ("CONFIG", "STATE", "CACHE", "DATA"):
        os.environ.pop(f"XDG_{folder}_HOME", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONGEST)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Replaces lone surrogates in the output of a test, because it is sent from one process to another."""
    report = yield
    report.sections = [(name, sound(text)) for name, text in report.sections]
    return report


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """Restores the umask after each test: a `ctx` command that runs in this process changes it."""
    umask = os.umask(0o022)
    os.umask(umask)
    yield
    os.umask(umask)


@pytest.fixture(scope="session")
def postgres_programs() -> Iterator[postgres.Programs]:
    """The programs of PostgreSQL. Skips the test if they are not installed."""
    programs = postgres.Programs()
    yield programs
    programs.discard()


@pytest.fixture(scope="session")
def postgres_server(postgres_programs: postgres.Programs) -> Iterator[postgres.Server]:
    """A running PostgreSQL, shared by all tests of a process."""
    server = postgres.Server(postgres_programs)
    try:
        yield server.create()
    finally:
        server.discard()


@pytest.fixture
def database_url(postgres_server: postgres.Server) -> str:
    """The address of a new, empty database on a real PostgreSQL."""
    return postgres_server.database()


_early = pytest.StashKey[opensearch.Cluster]()
_home = pytest.StashKey[str]()


def _begin_node(config: pytest.Config) -> None:
    """In CI, starts an OpenSearch node in the background when the session starts, for all processes.
    Elsewhere the first test that needs a node starts it.
    """
    chief = not hasattr(config, "workerinput")
    if chief and os.environ.get("CI") == "true" and opensearch.complete() and not config.option.collectonly:
        config.stash[_early] = opensearch.Cluster()
        os.environ[opensearch.URL] = config.stash[_early].url


def pytest_unconfigure(config: pytest.Config) -> None:
    if _early in config.stash:
        config.stash[_early].discard()
    shutil.rmtree(config.stash[_home], ignore_errors=True)


@pytest.fixture(scope="session")
def opensearch_url() -> Iterator[str]:
    """The address of a running OpenSearch node, shared by all tests of a process. Skips the test if
    OpenSearch is not installed.
    """
    if opensearch.URL in os.environ:
        opensearch.wait_for(os.environ[opensearch.URL])
        yield os.environ[opensearch.URL]
        return
    nodes = opensearch.Cluster()
    try:
        yield nodes.wait().url
    finally:
        nodes.discard()


_numbers = itertools.count()


@pytest.fixture
def index_name(opensearch_url: str) -> Iterator[str]:
    """A name for an index that no other test uses. The index is deleted after the test."""
    name = f"t{os.getpid()}x{next(_numbers)}"
    yield name
    opensearch.forget(opensearch_url, name)


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """Removes the log handlers of commands that ran in this process: they write to the standard error of one
    test, which is closed after it.
    """
    yield
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if type(handler) is logging.StreamHandler]:
        root.removeHandler(handler)
        root.setLevel(logging.WARNING)
