"""Several processes on one folder, and a server that stops at any moment."""

import subprocess
import sys
from pathlib import Path

import pytest
from faults import eventually, serving
from kit import project, workspace

pytestmark = pytest.mark.slow

MANY = {
    f"part{n % 20}/p{n}.md": f"# Page {n}\n\n" + "some words and more words. " * 120 + f"xylophone {n}"
    for n in range(1500)
}
SEMANTIC = '[connectors.filesystem.docs]\nroot = "./docs"\n'


# -- one writer, many readers --------------------------------------------------------------------------------
def test_two_index_runs_and_two_servers_on_one_folder_corrupt_nothing_and_agree(tmp_path: Path) -> None:
    config = project(tmp_path, {f"p{n}.md": f"# Page {n}\n\nxylophone {n}" for n in range(80)})
    command = [sys.executable, "-m", "ctx", "index", "--full", "--no-progress"]
    with serving(config) as first, serving(config) as second:
        runs = [subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for number in range(10):
            (tmp_path / f"docs/p{number}.md").write_text(f"# Page {number}\n\nmarimba {number}")
        for run in runs:
            _, errors = run.communicate(timeout=60)
            assert run.returncode == 0, errors  # each waits for its turn
        expected = sorted(f"p{n}.md" for n in range(10))
        for server in (first, second):
            eventually(lambda server=server: server.search("marimba") == expected)  # type: ignore[misc]
            assert len(server.search("xylophone")) == 70
    with workspace(config) as space:
        assert space.catalog.check() == []
        assert space.index.check() == []
        assert space.catalog.stats()["documents"] == 80


# -- stopping ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("moment", ["idle", "indexing", "embedding"])
def test_a_server_stops_whatever_it_does(tmp_path: Path, moment: str) -> None:
    files = MANY if moment != "idle" else {"a.md": "# A"}
    config = project(tmp_path, files, SEMANTIC if moment == "embedding" else None)
    with serving(config, "--log-level", "error") as server:
        eventually(lambda: server.get("/health")["activity"] == moment)
        server.stop()
        assert server.process.returncode == 0, "1 means that it was stuck"
    with workspace(config) as space:
        assert space.catalog.check() == []
