"""`ctx init`."""

import os
from pathlib import Path

import pytest
from kit import ctx


def test_a_configuration_below_its_own_root_is_not_indexed(tmp_path: Path) -> None:
    (tmp_path / "ctx.toml").write_text(
        '[connectors.filesystem.docs]\nroot = "."\n[embedding]\nprovider = "disabled"\n'
    )
    (tmp_path / "note.md").write_text("# A note\n\nAbout the disabled provider.\n")
    (tmp_path / "other.toml").write_text('provider = "disabled"\n')
    assert "2 added" in ctx("index", cwd=tmp_path).stdout
    results = ctx("search", "provider", cwd=tmp_path).stdout
    assert "note.md" in results
    assert "other.toml" in results
    assert "ctx.toml" not in results


def test_init_writes_once_and_says_what_comes_next(tmp_path: Path) -> None:
    reply = ctx("init", cwd=tmp_path)
    assert reply.returncode == 0
    assert "ctx index" in reply.stdout
    text = (tmp_path / "ctx.toml").read_text()
    assert 'root = "."' in text
    repeat = ctx("init", "--root", "/", cwd=tmp_path)
    assert (repeat.returncode, repeat.stdout) == (0, "")
    assert "--force" in repeat.stderr
    assert (tmp_path / "ctx.toml").read_text() == text
    (tmp_path / "docs").mkdir()
    assert ctx("init", "--root", "docs", "--force", cwd=tmp_path).returncode == 0
    assert 'root = "docs"' in (tmp_path / "ctx.toml").read_text()


def test_the_index_that_add_and_remove_write_is_private_and_ctx_toml_is_not(tmp_path: Path) -> None:
    folder, notes = tmp_path / "project", tmp_path / "notes"
    for each in (folder, notes):
        each.mkdir()
    (notes / "shop.md").write_text("# Shopping\n\nOat milk.\n")
    (folder / "ctx.toml").write_text('[embedding]\nprovider = "disabled"\n')
    (folder / "ctx.toml").chmod(0o644)
    for line in (("add", str(notes)), ("remove", "notes")):
        assert ctx(*line, cwd=folder).returncode == 0
        kept = [path for path in (folder / ".ctx").rglob("*") if path.name != ".gitignore"]
        assert kept
        assert [path for path in kept if path.stat().st_mode & 0o077] == []
        assert (folder / "ctx.toml").stat().st_mode & 0o777 == 0o644


def test_init_names_a_configuration_that_is_not_found_by_itself(tmp_path: Path) -> None:
    reply = ctx("init", "--config", "another place.toml", cwd=tmp_path)
    assert "`ctx index --config 'another place.toml'`" in reply.stdout


def test_init_writes_also_where_the_named_configuration_is_not_there(tmp_path: Path) -> None:
    reply = ctx("init", "--config", "x.toml", cwd=tmp_path, env={"CTX_CONFIG": "nowhere.toml"})
    assert (reply.returncode, reply.stderr) == (0, "")
    assert "`ctx index --config x.toml`" in reply.stdout


def test_init_where_it_cannot_write_says_so_in_a_line(tmp_path: Path) -> None:
    failed = ctx("init", "--config", "/proc/ctx/ctx.toml", cwd=tmp_path)
    assert failed.returncode == 2
    assert failed.stderr.startswith("Error: /proc/ctx/ctx.toml cannot be written")
    assert failed.stderr.count("\n") == 1
    assert ctx("init", "--root", "nowhere", cwd=tmp_path).returncode == 2


def test_init_tells_a_file_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("# A note\n")
    assert "--root: a file, not a folder: note.md" in ctx("init", "--root", "note.md", cwd=tmp_path).stderr
    (tmp_path / "ctx.toml").mkdir()
    for options in ((), ("--force",)):
        reply = ctx("init", *options, cwd=tmp_path)
        assert (reply.returncode, "ctx.toml is a folder" in reply.stderr) == (2, True)


def test_init_writes_any_folder_s_name_so_that_it_is_read_again(tmp_path: Path) -> None:
    for number, name in enumerate(("two\nlines", 'a "quoted" \\ name', "tab\there", "emoji \N{RABBIT}")):
        folder = tmp_path / str(number) / name
        folder.mkdir(parents=True)
        (folder / "note.md").write_text("# A note\n")
        assert ctx("init", "--root", name, cwd=folder.parent).returncode == 0
        reply = ctx("index", "--no-embed", cwd=folder.parent)
        assert (reply.returncode, "1 added" in reply.stdout) == (0, True), reply.stderr


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="a name there is UTF-8")
def test_init_refuses_a_folder_that_toml_cannot_name(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    (tmp_path / name).mkdir()
    reply = ctx("init", "--root", name, cwd=tmp_path)
    assert (reply.returncode, reply.stderr.count("\n")) == (2, 1)
    assert "not UTF-8" in reply.stderr
    assert not (tmp_path / "ctx.toml").exists()
