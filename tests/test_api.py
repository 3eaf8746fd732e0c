"""The Python API: `ctx.open`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kit import ROOT

import ctx

NOTES = {"auth.md": "# Signing in\n\nTokens rotate every 30 days.\n", "ship.md": "# Releasing\n\nTag it.\n"}


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two notes, of a user who has no other configuration."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "notes"
    folder.mkdir()
    for name, text in NOTES.items():
        (folder / name).write_text(text)
    return folder


def test_a_folder_is_opened_indexed_searched_and_read(notes: Path) -> None:
    with ctx.open(notes) as project:
        assert [(report.source, report.added) for report in project.index(embed=False)] == [
            ("filesystem:docs", 2)
        ]
        reply = project.search("token rotation", limit=1)
        assert [result.source_id for result in reply.results] == ["auth.md"]
        assert project.get(reply.results[0].id).body == NOTES["auth.md"]
        assert [status.doc_count for status in project.sources()] == [2]
        assert project.search("tag", source="git").results == []
        assert (
            project.search("tag", source="git").note == "no source is called 'git' (known: filesystem:docs)"
        )
        assert project.search("token", source="filesystem").note is None


def test_a_configuration_above_the_folder_counts_and_the_environments_does_not(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (notes / "ctx.toml").write_text('[connectors.filesystem.above]\nroot = "."\n')
    (notes / "deep").mkdir()
    monkeypatch.setenv("CTX_CONFIG", str(notes / "elsewhere.toml"))
    with ctx.open(notes / "deep") as project:
        assert [status.name for status in project.sources()] == ["filesystem:above"]


def test_a_found_configuration_that_asks_for_more_waits_for_trust_and_a_named_one_does_not(
    notes: Path,
) -> None:
    (notes / "ctx.toml").write_text('[connectors.filesystem.all]\nroot = ".."\n')
    with pytest.raises(ctx.CtxError, match="asks for more than reading its own folder"):
        ctx.open(notes)
    with ctx.open(notes / "ctx.toml") as project:
        assert project.sources()[0].name == "filesystem:all"


def test_mistakes_are_errors_of_ours_that_name_the_thing(notes: Path) -> None:
    with pytest.raises(ctx.CtxError, match="no such file or folder"):
        ctx.open(notes / "nowhere")
    with ctx.open(notes) as project:
        with pytest.raises(ctx.CtxError, match="no document with id: nothing"):
            project.get("nothing")
        with pytest.raises(ctx.CtxError, match="unknown mode 'magic'"):
            project.search("x", mode="magic")
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        _ = ctx.opne  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_lines_of_the_page_are_typed_and_run(notes: Path) -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert programs
    for text in programs:
        program = notes.parent / "program.py"
        program.write_text(text)
        environ = {**os.environ, "HOME": str(notes.parent), "MYPYPATH": str(ROOT)}
        types = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(program)],
            capture_output=True,
            text=True,
            env=environ,
            cwd=ROOT,
        )
        assert types.returncode == 0, types.stdout
        process = subprocess.run(
            [sys.executable, str(program)], capture_output=True, text=True, env=environ, cwd=notes.parent
        )
        assert process.returncode == 0, process.stderr
        assert "auth.md" in process.stdout
