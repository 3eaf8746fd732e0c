"""Where a project's configuration is looked for."""

import os
from pathlib import Path

import pytest

from ctx.config.find import PLACES, Location, find_config
from ctx.errors import ConfigError


def written(folder: Path, name: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return str(path)


def test_the_order_in_which_a_configuration_is_looked_for(tmp_path: Path) -> None:
    home = tmp_path / "home"
    user = written(home, "ctx/config.toml")
    environ = {"XDG_CONFIG_HOME": str(home)}
    project = tmp_path / "p"
    project.mkdir()
    assert find_config(None, environ, str(project)) == Location(user, chosen=True)
    for name in ("config/ctx.toml", ".ctx/config.toml", "ctx.toml"):
        path = written(project, name)
        assert find_config(None, environ, str(project)) == Location(path, chosen=False)
    second = written(tmp_path, "second.toml")
    environ["CTX_CONFIG"] = second
    assert find_config(None, environ, str(project)) == Location(second, chosen=True)
    assert find_config("ctx.toml", environ, str(project)) == Location(str(project / "ctx.toml"), chosen=True)
    with pytest.raises(ConfigError, match="no such file"):
        find_config("gone.toml", environ, str(project))


def test_a_folder_is_told_from_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    with pytest.raises(ConfigError, match=r"--config: project is a folder, .*`ctx init`"):
        find_config("project", {}, str(tmp_path))
    with pytest.raises(ConfigError, match=r"\$CTX_CONFIG: .*/project is a folder"):
        find_config(None, {"CTX_CONFIG": str(folder)}, str(tmp_path))


@pytest.mark.parametrize("place", PLACES)
def test_the_nearest_folder_above_counts(tmp_path: Path, place: str) -> None:
    environ = {"HOME": str(tmp_path)}
    below = tmp_path / "project" / "src" / "deep"
    below.mkdir(parents=True)
    path = written(tmp_path / "project", place)
    written(tmp_path, "ctx.toml")
    assert find_config(None, environ, str(below)) == Location(path, chosen=False)
    nearer = written(below.parent, "ctx.toml")
    assert find_config(None, environ, str(below)) == Location(nearer, chosen=False)


def test_nothing_is_looked_for_above_the_home_folder(tmp_path: Path) -> None:
    written(tmp_path, "ctx.toml")
    home = tmp_path / "home"
    below = home / "project"
    below.mkdir(parents=True)
    environ = {"HOME": str(home)}
    assert find_config(None, environ, str(below)) is None
    assert find_config(None, environ, str(home)) is None
    at_home = written(home, "ctx.toml")
    assert find_config(None, environ, str(below)) == Location(at_home, chosen=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_another_user_is_where_the_search_ends(tmp_path: Path) -> None:
    environ = {"HOME": "/nonexistent"}
    theirs = tmp_path / "theirs"
    written(tmp_path, "ctx.toml")
    path = written(theirs, "ctx.toml")
    below = theirs / "mine"
    below.mkdir()
    assert find_config(None, environ, str(below)) == Location(path, chosen=False)
    os.chown(theirs, 65534, 65534)
    assert find_config(None, environ, str(below)) is None
    # But in the very folder one works in, its file counts (and is asked about like any that was found).
    assert find_config(None, environ, str(theirs)) == Location(path, chosen=False)
