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
        reply = project.search("token rotation", mode="keyword", limit=1)
        assert [hit.path for hit in reply] == ["auth.md"]
        assert project.get(reply[0].id).body == project.get("auth.md").body == NOTES["auth.md"]
        assert [status.doc_count for status in project.sources()] == [2]
        assert len(project.search("tag", source="git")) == 0
        assert (
            project.search("tag", source="git").note == "no source is called 'git' (known: filesystem:docs)"
        )
        assert project.search("token", source="filesystem").note is None


def test_hits_are_walked_filtered_and_shown(notes: Path) -> None:
    (notes / "ctx.toml").write_text(
        '[connectors.filesystem.docs]\nroot = "."\n[embedding]\nprovider = "disabled"\n'
    )
    (notes / "rotate.py").write_text("def rotate(token):\n    return token[::-1]\n")
    with ctx.open(notes) as project:
        project.index()
        hits = project.search("token")
        assert {hit.path for hit in hits} == {"auth.md", "rotate.py"}
        assert [hit.path for hit in project.search("token", type="code")] == ["rotate.py"]
        assert [hit.path for hit in project.search("token", path=["*.md"], until="2999-01-01")] == ["auth.md"]
        assert list(project.search("token", since="2999-01-01")) == []
        (second,) = project.search("token", offset=1)
        assert second == hits[1]
        (code,) = project.search("token", type="code")
        assert code.lines == (1, 2)
        assert re.fullmatch(r"<rotate\.py:1-2 1\.00 '.*'>", repr(code))
        assert repr(project.search("token", type="code")).splitlines()[0] == "<1 hits for 'token'>"
        assert repr(project) == f"<Project {notes}>"
        with pytest.raises(ctx.CtxError, match="nowhere"):
            project.get("nowhere.md")


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
        with pytest.raises(ctx.CtxError, match="no document at 'nothing'"):
            project.get("nothing")
        with pytest.raises(ctx.CtxError, match="parameter 'mode' must be one of"):
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
