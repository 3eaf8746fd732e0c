"""Folders and files that whoever indexes may not read."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tree_kit import put

UNPRIVILEGED = textwrap.dedent(
    """
    import json, os, sys
    from ctx.connectors.base import ScanLog
    from ctx.connectors.filesystem import FilesystemConnector
    if os.getuid() == 0:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    log, indexed = ScanLog(), json.loads(sys.argv[2])
    sizes = {}
    for item in FilesystemConnector("filesystem", sys.argv[1]).scan(indexed, log):
        try:
            sizes[item.source_id] = len(item.read().data)
        except Exception as error:
            sizes[item.source_id] = type(error).__name__ + ": " + str(error)
    print(json.dumps([sizes, log.withheld, [list(problem) for problem in log.problems]]))
    """
)


@pytest.fixture
def open_root() -> Iterator[Path]:
    """A folder that any user may enter (those of pytest are private): another user can meet closed doors in
    it.
    """
    folder = Path("/tmp") / f"ctx-closed-{os.getpid()}"
    folder.mkdir(mode=0o755)
    yield folder
    for path in folder.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


def test_closed_folders_and_files_are_reported_and_what_is_known_below_them_is_kept(open_root: Path) -> None:
    for path in ("a.md", "closed/b.md", "secret.md", "ruled/c.md", "ruled/.gitignore"):
        put(open_root, path).chmod(0o644)
    (open_root / "secret.md").chmod(0)
    (open_root / "ruled/.gitignore").chmod(0)
    (open_root / "closed").chmod(0)
    out = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, str(open_root), "{}"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert out.returncode == 0, out.stderr
    sizes, withheld, problems = json.loads(out.stdout)
    assert sizes == {"a.md": 4, "secret.md": "SourceError: cannot be read: Permission denied"}
    assert sorted(withheld) == ["closed/", "ruled/"]
    assert sorted(source_id for source_id, _ in problems) == ["closed", "ruled"]
