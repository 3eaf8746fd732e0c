"""Whether the tests would notice: one thing at a time is changed in a room that keeps data or a door.

    python scripts/mutate.py [ROOM ...] [--sample 25] [--seed 1] [--seconds N] [--at FILE[:LINE]]

Each line is a mutant that no test noticed (`survived`); the last line of a room is its share of those that
fell. A mutant is shown to the quick tests that run its line, the quickest first, up to the first that fails:
one run of the room's tests beforehand tells who they are. What only another process runs is shown to all
tests of the room. The tree is copied to a temporary folder, so the working copy is never touched.
"""

import argparse
import contextlib
import importlib
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import coverage
import hypothesis
import pytest
from mutants import Mutant, mutants

ROOT = Path(__file__).parents[1]
SLACK_S = 20.0  # beyond four times what the tests take unchanged: a mutant that loops has been noticed
# Threads of these would not outlive the fork of a process that has loaded them.
THREADED = ("numpy", "onnxruntime", "tantivy", "lupa", "pyarrow", "psycopg")


class Room(NamedTuple):
    """Files that are changed, and what pytest runs for them."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "indexing": Room(("ctx/indexing/run.py",), ("tests/indexing",)),
    "store": Room(
        (
            "ctx/store/record.py",
            "ctx/store/documents.py",
            "ctx/store/embeddings.py",
            "ctx/store/sqlite.py",
        ),
        (
            "tests/store/test_catalog_contract.py",
            "tests/store/test_embeddings_contract.py",
            "tests/store/test_store_schema.py",
            "tests/store/test_store_folder.py",
            "tests/cluster/test_moving.py",
            "tests/indexing/test_index_run.py",
        ),
    ),
    "memory": Room(
        (
            "ctx/memory/change.py",
            "ctx/memory/statement.py",
            "ctx/memory/filters.py",
            "ctx/memory/reader.py",
            "ctx/memory/records.py",
            "ctx/memory/rows.py",
            "ctx/memory/store.py",
            "ctx/memory/vectors.py",
            "ctx/memory/writer.py",
        ),
        ("tests/memory",),
    ),
    "middleware": Room(
        ("ctx/server/middleware.py", "ctx/server/zones.py"),
        (
            "tests/server/test_zones.py",
            "tests/server/test_middleware.py",
            "tests/server/test_guard_documents.py",
            "tests/server/test_policy.py",
            "tests/server/test_run.py",
        ),
    ),
    "policy": Room(
        ("ctx/server/policy.py",),
        ("tests/server/test_policy.py", "tests/server/test_zones.py", "tests/server/test_middleware.py"),
    ),
    "keys": Room(("ctx/server/keys.py",), ("tests/server/test_keys.py", "tests/server/test_middleware.py")),
    "frames": Room(("ctx/lua/frames.py",), ("tests/lua/test_lua_frames.py",)),
}


class Map(NamedTuple):
    """Which test runs which line, how long each takes, and what else is imported for them."""

    contexts: dict[
        str, dict[int, list[str]]
    ]  # of a file, of a line: ids of tests, and files whose set-up ran it
    seconds: dict[str, float]
    modules: list[str]

    def witnesses(self, mutant: Mutant) -> list[str]:
        """The tests that could notice a mutant, the quickest first."""
        by_line = self.contexts.get(mutant.path, {})
        contexts = {context for line in mutant.lines for context in by_line.get(line, [])}
        tests = [test for test in self.seconds if not contexts or {test, test.partition("::")[0]} & contexts]
        return sorted(tests, key=self.seconds.__getitem__)


class Chosen:
    """A pytest plugin: only these tests, in this order, and no smaller example of what has failed."""

    def __init__(self, tests: list[str] | None = None) -> None:
        self._ranks = None if tests is None else {test: rank for rank, test in enumerate(tests)}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", phases=phases, database=None)
        hypothesis.settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._ranks is not None:
            ranks = self._ranks
            items[:] = [item for item in items if item.nodeid in ranks]
            items.sort(key=lambda item: ranks[item.nodeid])


class Witness:
    """A pytest plugin that notes which test runs which line, and how long it takes."""

    def __init__(self, files: list[str]) -> None:
        self._coverage = coverage.Coverage(data_file=None, config_file=False, include=files)
        self._files = files
        self._seconds: dict[str, float] = {}

    def pytest_sessionstart(self) -> None:
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began_s = time.monotonic()
        # What a fixture does may be for the tests after this one too.
        self._coverage.switch_context(item.nodeid.partition("::")[0])
        result = yield
        self._coverage.switch_context("")
        self._seconds[item.nodeid] = time.monotonic() - began_s
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context(item.nodeid.partition("::")[0])

    def map(self, folder: Path) -> Map:
        self._coverage.stop()
        data = self._coverage.get_data()
        contexts = {
            os.path.relpath(file, folder): {
                line: [context for context in names if context]
                for line, names in data.contexts_by_lineno(file).items()
            }
            for file in self._files
        }
        return Map(contexts, self._seconds, _others(folder))


def _others(folder: Path) -> list[str]:
    """The modules of this process that no mutant changes: those of other packages."""
    return [
        name
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] not in THREADED
        and "site-packages" in (getattr(module, "__file__", None) or "")
        and not (getattr(module, "__file__", None) or "").startswith(str(folder))
    ]


def _in_a_child(work: Callable[[], Any], limit_s: float, log: str = os.devnull) -> Any:
    """What `work` gives in a process of its own; None where it ended otherwise or takes longer than
    `limit_s`.

    A fork, since what is imported for every mutant need not be imported again. What it prints goes to `log`.
    """
    with tempfile.TemporaryFile() as reply:
        child = os.fork()
        if child == 0:
            os.setsid()
            for stream, name in enumerate((os.devnull, log, log)):
                os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), stream)
            try:
                pickle.dump(work(), reply)
                reply.flush()
            finally:
                os._exit(0)
        until_s = time.monotonic() + limit_s
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() > until_s:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return None
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what a test had started
        reply.seek(0)
        try:
            return pickle.load(reply)  # noqa: S301 - our own process wrote it
        except EOFError:
            return None


def _pytest(folder: Path, tests: list[str], limit_s: float, *plugins: object) -> int:
    """pytest's status; a test that takes longer than `limit_s` fails."""
    os.chdir(folder)
    sys.path[:0] = [str(folder), str(folder / "tests")]
    importlib.invalidate_caches()
    options = [
        "-x",
        "-q",
        "-m",
        "not slow",
        f"--timeout={limit_s:.0f}",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ]
    spared = [f"-pno:{name}" for name in ("cacheprovider", "schemathesis", "langsmith_plugin", "xdist")]
    return int(pytest.main([*options, *spared, *tests], list(plugins)))


def survey(room: Room, folder: Path) -> Map:
    """One run of a room's tests without any change."""
    tests = [test for test in room.tests if (folder / test).exists()]

    def work() -> tuple[int, Map]:
        witness = Witness([str(folder / path) for path in room.files])
        status = _pytest(folder, tests, 300, Chosen(), witness)
        return status, witness.map(folder)

    log = folder.with_name("survey.log")
    status, answer = _in_a_child(work, 1200, str(log)) or (None, None)
    if status != 0 or answer is None:
        raise SystemExit(f"{log.read_text()[-4000:]}\nThe tests fail without any change.")
    survey: Map = answer
    for name in survey.modules:
        with contextlib.suppress(Exception):  # a module that is imported in a way of its own
            importlib.import_module(name)
    return survey


def _survives(mutant: Mutant, folder: Path, source: str, answer: Map) -> bool:
    """Whether every test that could notice a mutant passes with it, in the time it should take."""
    tests = answer.witnesses(mutant)
    files = sorted({test.partition("::")[0] for test in tests})
    path = folder / mutant.path
    stamps = path.stat()
    path.write_text(mutant.text(source))
    os.utime(path, ns=(stamps.st_atime_ns, stamps.st_mtime_ns + 10**10))  # no compiled file is taken for it
    seconds = [answer.seconds[test] for test in tests]

    def work() -> int:
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        return _pytest(folder, files, 4 * max(seconds) + SLACK_S / 2, Chosen(tests))

    try:
        return bool(_in_a_child(work, 4 * sum(seconds) + SLACK_S) == 0)
    finally:
        path.write_text(source)
        os.utime(path, ns=(stamps.st_atime_ns, stamps.st_mtime_ns))


def sweep(
    name: str, folder: Path, sample: int, seed: int, until_s: float, lines: list[str]
) -> tuple[int, int]:
    """Tries a room's mutants, or those of `lines`, in a copy of the tree: how many fell, of how many."""
    room = ROOMS[name]
    sources = {path: (folder / path).read_text() for path in room.files}
    every = [mutant for path, source in sources.items() for mutant in mutants(path, source)]
    chosen = random.Random(seed).sample(every, min(sample, len(every)))  # noqa: S311 - the same ones each time
    if lines:
        chosen = [
            mutant for mutant in every if {mutant.path, f"{mutant.path}:{mutant.line}"}.intersection(lines)
        ]
    if not chosen:
        return 0, 0
    answer = survey(room, folder)
    fell = tried = 0
    for mutant in sorted(chosen, key=lambda mutant: (mutant.path, mutant.line)):
        if time.monotonic() > until_s:
            break
        source = sources[mutant.path]
        survived = _survives(mutant, folder, source, answer)
        tried += 1
        fell += not survived
        if survived:
            line = source.splitlines()[mutant.line - 1].strip()
            print(f"survived  {mutant.path}:{mutant.line}  {mutant.change}: {line}", flush=True)
    print(f"{name}: {fell} of {tried} fell, of {len(every)} possible; seed {seed}", flush=True)
    return fell, tried


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rooms", nargs="*", metavar="ROOM", choices=[[], *ROOMS], help=", ".join(ROOMS))
    parser.add_argument("--sample", type=int, default=25, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600, help="in all; what is left then is not tried")
    parser.add_argument(
        "--at", action="append", default=[], metavar="FILE[:LINE]", help="only the mutants of this line"
    )
    options = parser.parse_args()
    until_s = time.monotonic() + options.seconds
    fell = tried = 0
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)  # noqa: S103 - some tests read the code as nobody
        folder = Path(name).resolve() / "tree"
        spared = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", ".hypothesis")
        shutil.copytree(ROOT, folder, ignore=spared)
        os.environ |= {"CTX_FUZZ_SECONDS": "0.5", "PYTHONPATH": str(folder)}
        for room in options.rooms or ROOMS:
            counts = sweep(room, folder, options.sample, options.seed, until_s, options.at)
            fell, tried = fell + counts[0], tried + counts[1]
    print(f"all: {fell} of {tried} fell ({100 * fell / max(tried, 1):.0f} %)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
