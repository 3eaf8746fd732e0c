"""The configuration of a running server, and the one that the deployment guide shows."""

from pathlib import Path

import pytest
from faults import eventually
from kit import ROOT, project, workspace

from ctx import background
from ctx.config import load_config
from ctx.workspace import Workspace


def told(space: Workspace) -> bool:
    return any("restart ctx to use it" in line for line in space.indexer.activity.degraded)


def test_an_edited_configuration_is_told_of_until_it_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "CONFIGURATION_LOOK_S", 0.02)
    config = project(tmp_path, {"a.md": "# A\n"})
    text = config.read_text()
    with workspace(config) as space:
        background.Background(space).start()
        config.write_text(f"{text}[connectors.filesystem.more]\nroot = '.'\n")
        eventually(lambda: told(space))
        config.write_text(text)
        eventually(lambda: not told(space))
        config.rename(tmp_path / "away.toml")
        eventually(lambda: told(space))


def test_the_configuration_of_a_cluster_is_one_that_ctx_takes(tmp_path: Path) -> None:
    path = tmp_path / "ctx.toml"
    path.write_text((ROOT / "docs" / "deploy" / "cluster.toml").read_text())
    (tmp_path / "docs").mkdir()
    config = load_config(str(path), {"CTX_DATABASE_PASSWORD": "a", "CTX_API_KEY": "b"})
    assert config.index.engine == "opensearch"
    assert config.store.url == "postgresql://ctx:a@db/ctx"
    assert not config.warnings
