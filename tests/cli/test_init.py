"""`ctx init`."""

from pathlib import Path

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


def test_init_names_a_configuration_that_is_not_found_by_itself(tmp_path: Path) -> None:
    reply = ctx("init", "--config", "another place.toml", cwd=tmp_path)
    assert "`ctx index --config 'another place.toml'`" in reply.stdout


def test_init_where_it_cannot_write_says_so_in_a_line(tmp_path: Path) -> None:
    failed = ctx("init", "--config", "/proc/ctx/ctx.toml", cwd=tmp_path)
    assert failed.returncode == 2
    assert failed.stderr.startswith("Error: /proc/ctx/ctx.toml cannot be written")
    assert failed.stderr.count("\n") == 1
    assert ctx("init", "--root", "nowhere", cwd=tmp_path).returncode == 2
