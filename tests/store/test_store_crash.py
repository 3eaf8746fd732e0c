"""A store killed at any moment opens, and the next run completes it."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import store_tree
from store_tree import MODEL, clean_portrait, follow, open_store, portrait

from ctx.store.index import LocalIndex
from ctx.store.sqlite import SqliteCatalog

LAST = 1_000  # a child never gets there


def kill_a_run(folder: Path, first_version: int, after_s: float) -> bool:
    """Starts a run in a child and kills it after a while; whether it was still at work."""
    command = [sys.executable, store_tree.__file__, str(folder), str(first_version), str(LAST)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n", child.communicate()[1]
    try:
        child.wait(after_s)
    except subprocess.TimeoutExpired:
        pass  # as meant
    child.send_signal(signal.SIGKILL)
    _, errors = child.communicate()
    assert not errors
    return child.returncode == -signal.SIGKILL


def crash(folder: Path, times: int, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(times):
        version = chance.randrange(30)
        assert kill_a_run(folder / "store", version, chance.random() * 1.2)
        catalog, index = open_store(folder / "store")
        with catalog, index:
            assert catalog.check() == []
            follow(catalog, index, version)
            assert portrait(catalog, index) == clean_portrait(folder / f"clean {number}", version)


@pytest.mark.slow
def test_a_run_killed_at_random_moments_is_completed_by_the_next(tmp_path: Path) -> None:
    crash(tmp_path, 3, seed=1)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_run_killed_at_many_random_moments_is_completed_by_the_next(tmp_path: Path) -> None:
    crash(
        tmp_path, int(os.environ.get("CTX_TEST_KILLS", "60")), seed=int(os.environ.get("CTX_TEST_SEED", "2"))
    )


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    code = (
        "import sys; from ctx.store.sqlite import SqliteCatalog; from store_tree import make\n"
        "catalog = SqliteCatalog(sys.argv[1])\n"
        "for n in range(100_000): catalog.put_documents([make('s', str(n), [f'text {n}'])]); print(n, "
        "flush=True)"
    )
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(store_tree.__file__)}
    command = [sys.executable, "-c", code, str(tmp_path / "ctx.db")]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert child.stdout is not None
    for expected in range(150):
        assert child.stdout.readline() == f"{expected}\n"
    child.kill()
    acknowledged = 150 + len(child.communicate()[0].splitlines())
    with SqliteCatalog(str(tmp_path / "ctx.db")) as catalog:
        assert catalog.stats()["documents"] in (acknowledged, acknowledged + 1)
        assert catalog.check() == []


# -- every step of publishing --------------------------------------------------------------------------------
# A child that ends itself at the n-th call of a system function that changes a file: no moment is left out.
STEPS = """
import os, sys, pathlib
import store_tree
from ctx.store import keyword_writer
keyword_writer.PUBLISH_EVERY_S = 0.0
left = int(sys.argv[2])
def counted(act):
    def step(*arguments, **named):
        global left
        left -= 1
        if left < 0:
            os._exit(7)
        return act(*arguments, **named)
    return step
catalog, index = store_tree.open_store(pathlib.Path(sys.argv[1]))
for name in ("write", "pwrite", "fsync", "replace", "ftruncate", "unlink", "rmdir", "mkdir"):
    setattr(os, name, counted(getattr(os, name)))
from ctx.store.tantivy import KeywordIndex
KeywordIndex.commit = counted(KeywordIndex.commit)
KeywordIndex.add = counted(KeywordIndex.add)
catalog.delete_documents("filesystem", ["folder/1.md", "folder/2.md"])
index.catch_up(catalog)
(pathlib.Path(sys.argv[1]) / "index" / "keyword.state").write_text("damaged")
catalog.put_documents([store_tree.make("filesystem", "new.md", ["an otter and a heron"])])
store_tree.embed_pending(catalog)
index.catch_up(catalog)
os._exit(0)
"""


def steps_from(tmp_path: Path, numbers: Callable[[int], bool]) -> int:
    """Runs STEPS once for each chosen number of steps, on a fresh copy each; how many steps there are."""
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(store_tree.__file__)}
    step = 0
    while True:
        if not numbers(step):
            step += 1
            continue
        folder = tmp_path / str(step)
        catalog, index = open_store(folder)
        with catalog, index:
            follow(catalog, index, 0)
        completed = subprocess.run(
            [sys.executable, "-c", STEPS, str(folder), str(step)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment,
        )
        assert completed.returncode in (0, 7), completed.stderr
        catalog, index = open_store(folder)
        with catalog, index:
            index.catch_up(catalog)
            portrayed = portrait(catalog, index)
        clean = LocalIndex(str(folder / "clean"), lambda: MODEL)
        with clean, SqliteCatalog(str(folder / "ctx.db")) as reopened:
            clean.catch_up(reopened)
            assert portrait(reopened, clean) == portrayed, f"step {step}"
        if completed.returncode == 0:
            return step
        step += 1


@pytest.mark.slow
def test_ending_at_a_few_steps_of_a_catch_up_loses_nothing(tmp_path: Path) -> None:
    assert steps_from(tmp_path, lambda step: step in (0, 3, 11) or step > 5_000) > 5_000


@pytest.mark.full
@pytest.mark.timeout(900)
def test_ending_at_any_step_of_a_catch_up_loses_nothing(tmp_path: Path) -> None:
    # Every step up to the fortieth, then each seventh: most of the rest adds one document after another.
    assert steps_from(tmp_path, lambda step: step < 40 or step % 7 == 0) > 40
