"""What a server reads between searches, so that they need not."""

import shutil
import tempfile
from pathlib import Path

import pytest
from faults import eventually
from kit import project, workspace

from ctx import upkeep
from ctx.workspace import Workspace


def test_what_files_are_called_is_told_anew_of_a_store_that_took_another_s_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "STORE_LOOK_S", 0.02)
    config = project(tmp_path / "first", {"a/otter.py": "otter = 1", "tests/heron.py": "otter = 2"})
    # The same numbers, the other way about.
    other = project(tmp_path / "second", {"tests/otter.py": "otter = 1", "z/heron.py": "otter = 2"})
    with workspace(other) as space:
        space.indexer.run()
    space = workspace(config)
    try:
        space.indexer.run()
        space.background.start()
        assert held_back(space) == ["tests/heron.py"]
        eventually(lambda: put_in_place(tmp_path / "second" / ".ctx", tmp_path / "first" / ".ctx"))
        shutil.rmtree(tmp_path / "first" / "docs")
        shutil.copytree(tmp_path / "second" / "docs", tmp_path / "first" / "docs")
        eventually(lambda: held_back(space) == ["tests/otter.py"])
    finally:
        space.close()


def put_in_place(store: Path, place: Path) -> bool:
    """Whether one store was put in the place of another before a server laid its own anew."""
    place.rename(tempfile.mkdtemp(dir=place.parent.parent))
    try:
        store.rename(place)
    except OSError:
        return False
    return True


def held_back(space: Workspace) -> list[str]:
    """The files that a search takes for tests."""
    reply = space.searcher.search("otter", explain=True)
    return [
        result.source_id
        for result, explanation in zip(reply.results, reply.explain or [], strict=True)
        if "test" in str(explanation.get("rules"))  # type: ignore[attr-defined]
    ]
