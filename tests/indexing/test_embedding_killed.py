"""An embedding that is killed goes on where it was, and in the same order."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kit import project, workspace

SOURCE = '[connectors.filesystem.docs]\nroot = "./docs"\n[chunking]\nmax_tokens = 32\n'


@pytest.mark.slow
def test_an_embedding_killed_between_batches_has_read_all_openings_and_is_completed(tmp_path: Path) -> None:
    pages = {
        f"{number}.md": f"# Page {number}\n\n"
        + "\n\n".join(f"{word}{number} " * 6 for word in ("harbour", "lantern", "otter", "heron"))
        for number in range(200)
    }
    config = project(tmp_path, pages, SOURCE)
    with workspace(config) as space:
        space.indexer.run()
        assert space.model is not None
        chunks = list(space.catalog.pending_chunks(space.model))
        assert len(chunks) > 512  # the kill falls among them, also where it comes late
        assert sum(chunk.ordinal == 0 for chunk in chunks) < 256
    command = [sys.executable, "-m", "ctx", "--config", str(tmp_path / "ctx.toml"), "embed", "pending"]
    with subprocess.Popen(
        [*command, "--progress", "json"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if line.startswith("{") and json.loads(line)["n"] == 256:  # told when they are stored
                child.kill()
                break
    with workspace(config) as space:
        assert space.model is not None
        waiting = list(space.catalog.pending_chunks(space.model))
        assert 0 < len(waiting) <= len(chunks) - 256
        assert all(chunk.ordinal > 0 for chunk in waiting)
        report = space.indexer.embed()
        assert (report.embedded, report.pending) == (len(waiting), 0)
        assert space.searcher.search("harbour7", "hybrid").results[0].source_id == "7.md"
