"""Where commands write: a place that cannot be written is one line and an exit code, and nothing is left there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults import unprivileged
from kit import ctx, project, workspace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = project(tmp_path / "project", {"a.md": "alpha"})
    assert ctx("index", cwd=config.parent).returncode == 0
    return config.parent


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("output", ["docs", "docs/", ".", "absent/out.json", "pipe"])
@pytest.mark.parametrize("command", [("export",), ("memory", "export")])
def test_an_export_that_cannot_be_written_is_told_in_one_line(
    folder: Path, command: tuple[str, ...], output: str
) -> None:
    os.mkfifo(folder / "pipe")
    if command[0] == "memory":
        with workspace(folder / "ctx.toml") as space:
            space.memory.bank("default").put("tea")
    before = names(folder), names(folder.parent), names(folder / "docs")
    reply = ctx(*command, "-o", output, cwd=folder)
    assert (reply.returncode, reply.stdout) == (2, "")
    assert "Traceback" not in reply.stderr
    assert len(reply.stderr.splitlines()) == 1
    assert (names(folder), names(folder.parent), names(folder / "docs")) == before


def as_a_user(folder: Path, *argv: str, home: Path) -> "subprocess.CompletedProcess[str]":
    environ = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return subprocess.run(
        [*unprivileged(), sys.executable, "-m", "ctx", *argv],
        cwd=folder,
        env=environ | {"HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("exists", [True, False])
def test_a_key_in_a_project_that_may_not_be_written_is_a_store_error(tmp_path: Path, exists: bool) -> None:
    config = project(tmp_path / "project")
    if exists:
        (config.parent / ".ctx").mkdir(mode=0o500)
    config.parent.chmod(0o500)
    reply = as_a_user(config.parent, "key", "create", "bob", home=tmp_path)
    config.parent.chmod(0o700)
    assert (reply.returncode, reply.stdout) == (4, "")
    assert "Permission denied" in reply.stderr
    assert len(reply.stderr.splitlines()) == 1


def test_trust_in_a_home_that_may_not_be_written_is_told_and_needed_for_scripts_alone(tmp_path: Path) -> None:
    config = project(tmp_path / "project")
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    assert "Traceback" not in as_a_user(config.parent, "trust", home=home).stderr
    tool = config.parent / ".ctx" / "tools" / "x.lua"
    tool.parent.mkdir(parents=True)
    tool.write_text("tool = {name = 'x', description = 'x', execute = function() return 1 end}")
    reply = as_a_user(config.parent, "trust", home=home)
    assert reply.returncode == 2, reply.stderr
    assert "XDG_STATE_HOME" in reply.stderr
    assert len(reply.stderr.splitlines()) == 1
