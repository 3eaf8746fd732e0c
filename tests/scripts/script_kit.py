"""A small project with scripts, and the tools that they make."""

from pathlib import Path

from kit import workspace

from ctx.models import JSON, Caller
from ctx.workspace import Workspace


def configured(folder: Path, scripts: str) -> Path:
    """Writes a project with one document and these tables about scripts; returns its ctx.toml."""
    (folder / "docs").mkdir(parents=True, exist_ok=True)
    (folder / "docs" / "guide.md").write_text(
        "# Release guide\n\nThe release token is rotated by the platform team.\n"
    )
    path = folder / "ctx.toml"
    path.write_text(
        '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'
        f"[lua]\nworkers = 4\n{scripts}"
    )
    return path


def opened(folder: Path, scripts: str = '\ntools_dir = "./tools"') -> Workspace:
    """The workspace of such a project with its scripts loaded. Close it."""
    space = workspace(configured(folder, scripts))
    _ = space.scripts
    return space


def answering(value: str) -> str:
    """A tool that answers `{said = value}`."""
    return f"tool = {{}} function tool.execute() return {{ said = [[{value}]] }} end"


def said(space: Workspace, name: str) -> JSON:
    """The `said` of what a script's tool answers."""
    return space.toolbox.call(name, {}, Caller("cli"))["said"]
