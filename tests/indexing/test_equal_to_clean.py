"""Whatever happened to the files, and wherever a run was killed: one more `ctx index` equals a clean build of
what is there.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit import found, picture, project, workspace

WORDS = ["xylophone", "marimba", "zeppelin", "quokka", "narwhal", "ocelot"]

NAMES = st.sampled_from(
    ["a.md", "b.md", "c.txt", "sub/a.md", "sub/deep/d.md", "other/e.rst", "UPPER.MD", "f.py"]
)
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), NAMES, st.sampled_from(WORDS)),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("move"), NAMES, NAMES),
    st.tuples(st.just("copy old"), NAMES, NAMES),
    st.tuples(st.just("ignore"), st.sampled_from(["", "*.txt", "sub/", "a.md", "*\n!f.py"])),
    st.tuples(
        st.just("rename folder"),
        st.sampled_from(["sub", "other"]),
        st.sampled_from(["sub", "other", "third"]),
    ),
    st.tuples(st.just("index")),
)


def apply(root: Path, operation: tuple[str, ...]) -> None:
    kind, *names = operation
    paths = [root / name for name in names]
    if kind == "write":
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        if not paths[0].is_dir():
            paths[0].write_text(f"# Title\n\nSome words about the {names[1]}.\n")
    elif kind == "delete" and paths[0].is_file():
        paths[0].unlink()
    elif (
        kind in ("move", "copy old") and paths[0].is_file() and paths[0] != paths[1] and not paths[1].is_dir()
    ):
        paths[1].parent.mkdir(parents=True, exist_ok=True)
        if kind == "move":
            shutil.move(paths[0], paths[1])
        else:
            shutil.copy2(paths[0], paths[1])
            os.utime(paths[1], (1_000_000_000, 1_000_000_000))
    elif kind == "ignore":
        (root / ".ctxignore").write_text(names[0])
    elif kind == "rename folder" and paths[0].is_dir() and not paths[1].exists():
        paths[0].rename(paths[1])


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(OPERATIONS, min_size=1, max_size=12))
def test_any_sequence_of_file_operations_equals_a_clean_index_of_the_final_tree(
    operations: list[tuple[str, ...]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = project(folder, {"a.md": "# Title\n\nFirst words."})
        with workspace(config) as space:
            space.indexer.run()
            for operation in operations:
                if operation[0] == "index":
                    space.indexer.run()
                else:
                    apply(folder / "docs", operation)
            space.indexer.run(full=False)
            after = picture(space), found(space, *WORDS)
        shutil.rmtree(folder / ".ctx")
        with workspace(config) as space:
            space.indexer.run()
            assert after == (picture(space), found(space, *WORDS))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_killed_at_50_random_moments_leaves_a_store_that_opens_and_is_complete_after_the_next(
    tmp_path: Path,
) -> None:
    kill_and_compare(tmp_path, kills=50, seed=7)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_killed_at_a_few_random_moments_leaves_a_store_that_opens(tmp_path: Path) -> None:
    kill_and_compare(tmp_path, kills=5, seed=8)


def kill_and_compare(folder: Path, *, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    text = "\n\n".join(
        f"Paragraph {n} of many, with some more words in it." for n in range(20)
    )  # each word is in few enough files to see all
    config = project(
        folder, {f"part{n % 10}/page{n}.md": f"# Page {n}\n\n{text} {WORDS[n % 6]}" for n in range(300)}
    )
    environ = {**os.environ, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "ctx", "index", "--no-progress"]

    def run_s() -> float:
        began_s = time.monotonic()
        subprocess.run(command, cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - began_s

    longest_s = run_s()
    interrupted = 0
    for round_ in range(kills):
        if round_ % 10 == 0:
            shutil.rmtree(folder / ".ctx")
        for number in chance.sample(range(300), 40):
            path = folder / f"docs/part{number % 10}/page{number}.md"
            if chance.random() < 0.2:
                path.unlink(missing_ok=True)
            else:
                path.write_text(f"# Page {number}\n\n{text} round {round_} {chance.choice(WORDS)}")
        began_s = time.monotonic()
        child = subprocess.Popen(
            command, cwd=folder, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            child.wait(chance.uniform(0.05, longest_s))
            longest_s = min(
                longest_s, time.monotonic() - began_s
            )  # or a busy moment would spoil all the others
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            interrupted += 1
        child.wait()
        with workspace(config) as space:
            assert space.catalog.check() == []
            found(space, WORDS[0])  # it opens and answers
    assert interrupted > kills / 3, "hardly a run was killed: the moments are chosen badly"
    run_s()
    with workspace(config) as space:
        after = picture(space), found(space, *WORDS)
    shutil.rmtree(folder / ".ctx")
    run_s()
    with workspace(config) as space:
        assert after == (picture(space), found(space, *WORDS))
