"""Two configuration files on one store: neither drops unasked what the other one indexed."""

import shutil
from pathlib import Path

import pytest
from kit import ctx


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name, text in (("docs/a.md", "# A\n\nalpha"), ("notes/b.md", "# B\n\nbeta")):
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    _configure(folder / "ctx.toml", "docs")
    _configure(folder / "other.toml", "notes")
    assert ctx("index", cwd=folder).returncode == 0
    return folder


def _configure(file: Path, root: str) -> None:
    file.write_text(f'[connectors.filesystem]\nroot = "./{root}"\n[embedding]\nprovider = "disabled"\n')


def _finds(folder: Path, word: str) -> bool:
    return "No results" not in ctx("search", word, cwd=folder).stdout


def test_a_source_of_one_name_is_that_of_the_file_that_indexed_it_first(folder: Path) -> None:
    run = ctx("index", "--config", "other.toml", cwd=folder)
    assert run.returncode == 1
    assert f"was read with {folder / 'ctx.toml'}" in run.stdout + run.stderr
    assert "ctx index --take-over" in run.stdout + run.stderr
    assert _finds(folder, "alpha")
    assert not _finds(folder, "beta")
    assert ctx("index", cwd=folder).returncode == 0


def test_who_takes_a_source_over_has_it_from_then_on(folder: Path) -> None:
    assert ctx("index", "--config", "other.toml", "--take-over", cwd=folder).returncode == 0
    assert _finds(folder, "beta")
    assert not _finds(folder, "alpha")
    assert ctx("index", cwd=folder).returncode == 1  # it is the other one's now
    (folder / "other.toml").unlink()
    assert ctx("index", cwd=folder).returncode == 0  # of nobody any more
    assert _finds(folder, "alpha")


def test_two_files_that_say_the_same_of_a_source_share_it(folder: Path) -> None:
    shutil.copy(folder / "ctx.toml", folder / "twin.toml")
    run = ctx("index", "--config", "twin.toml", cwd=folder)
    assert run.returncode == 0, run.stdout + run.stderr
    assert _finds(folder, "alpha")


def test_a_file_that_is_edited_has_its_way(folder: Path) -> None:
    _configure(folder / "ctx.toml", "notes")
    assert ctx("index", cwd=folder).returncode == 0
    assert _finds(folder, "beta")
    assert not _finds(folder, "alpha")


def test_a_project_that_is_copied_with_its_store_stays_what_it_is(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "docs" / "c.md").write_text("# C\n\ngamma")
    run = ctx("index", cwd=copy)
    assert run.returncode == 0, run.stdout + run.stderr
    assert _finds(copy, "gamma")
