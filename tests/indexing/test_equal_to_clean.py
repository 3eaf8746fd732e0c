"""After any sequence of file operations, `ctx index` equals a clean build."""

import os
import shutil
import tempfile
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


@pytest.mark.slow
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
