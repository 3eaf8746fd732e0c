"""A configuration that is edited while a server goes by what it said is told of, and no longer when it says
that again.
"""

from pathlib import Path

import pytest
from faults import eventually
from kit import project, workspace

from ctx import upkeep
from ctx.workspace import Workspace


def told(space: Workspace) -> bool:
    return any("restart ctx to take it up" in line for line in space.indexer.activity.degraded)


def test_an_edited_configuration_is_told_of_until_it_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "STORE_LOOK_S", 0.02)
    config = project(tmp_path, {"a.md": "# A\n"})
    text = config.read_text()
    with workspace(config) as space:
        space.background.start()
        config.write_text(f"{text}[connectors.filesystem.more]\nroot = '.'\n")
        eventually(lambda: told(space))
        config.write_text(text)
        eventually(lambda: not told(space))
        config.rename(tmp_path / "away.toml")
        eventually(lambda: told(space))
