"""The entries for MCP registries and clients are correct."""

import json
import os
import sys
import tomllib
from pathlib import Path

from kit import ROOT, ctx, project

from ctx import __version__


def test_the_registry_entry_names_this_package_and_version() -> None:
    entry = json.loads((ROOT / ".ci" / "server.json").read_text())
    package = entry["packages"][0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert entry["version"] == package["version"] == __version__
    assert package["identifier"] == project["name"]
    assert package["identifier"] in project["scripts"]  # `uvx NAME` runs the program of that name
    assert package["packageArguments"][0]["value"] == "mcp"
    assert len(entry["description"]) <= 100
    assert f"mcp-name: {entry['name']}" in (ROOT / "README.md").read_text()


def test_the_checkouts_own_entry_is_what_connect_writes(tmp_path: Path) -> None:
    project(tmp_path, {"note.md": "# Note\n"})
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # of the command that the entry names
    completed = ctx(
        "connect",
        "claude-code",
        "--scope",
        "project",
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": path},
    )
    assert completed.returncode == 0, completed.stderr
    assert json.loads((tmp_path / ".mcp.json").read_text()) == json.loads((ROOT / ".mcp.json").read_text())
