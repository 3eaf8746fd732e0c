"""Hostile git repositories and copies: nothing in them runs a command or chooses a path or address."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from git_kit import TOKEN, Scan, Upstream, connector, git

from ctx.config import load_config
from ctx.connectors.base import ScanLog
from ctx.connectors.filesystem import FilesystemConnector
from ctx.connectors.git import GitConnector
from ctx.errors import SourceError
from ctx.workspace import open_workspace

pytestmark = pytest.mark.usefixtures("plain_git")


class Trap(NamedTuple):
    """Where a hostile copy writes when it gets its way."""

    folder: Path  # outside of every project and cache

    @property
    def mark(self) -> Path:
        return self.folder / "mark"

    def script(self) -> str:
        """A program that leaves the mark."""
        path = self.folder.parent / "trap.sh"
        path.write_text(f"#!/bin/sh\necho ran >> {self.mark}\n")
        path.chmod(0o755)
        return str(path)

    def repository(self) -> Path:
        """A repository of the stranger's, complete, whose configuration is a trap in all ways at once."""
        path = self.folder.parent / "stranger.git"
        if not path.exists():
            git(self.folder, "init", "-q", "--bare", str(path))
            settings(path, self, *TRAPS)
        return path


def settings(copy: Path, trap: Trap, *lines: str) -> None:
    """Appends `[section] key = value` lines to the copy's configuration; TRAP is the program."""
    with open(copy / "config", "a") as file:
        file.writelines(line.replace("TRAP", trap.script()) + "\n" for line in lines)


TRAPS = [
    '[credential] helper = "!TRAP"',
    '[credential] probe = "!TRAP"',
    '[credential "http://127.0.0.1"] helper = "!TRAP"',
    '[remote "origin"] uploadpack = "TRAP"',
    '[remote "ctx"] uploadpack = "TRAP"',
    '[core] sshCommand = "TRAP"',
    '[core] gitProxy = "TRAP"',
    '[core] askPass = "TRAP"',
    '[core] fsmonitor = "TRAP"',
    '[core] alternateRefsCommand = "TRAP"',
    '[core] pager = "TRAP"',
    '[uploadpack] packObjectsHook = "TRAP"',
    '[gpg] program = "TRAP"',
    '[diff] external = "TRAP"',
    '[ssh] variant = "simple"',
]


def alternates(name: str) -> Callable[[Path, Trap], None]:
    """Objects of another repository, with the command that lists its branches."""

    def plant(copy: Path, trap: Trap) -> None:
        settings(copy, trap, '[core] alternateRefsCommand = "TRAP"')
        (copy / "objects" / "info").mkdir(exist_ok=True)
        (copy / "objects" / "info" / name).write_text(f"{trap.repository() / 'objects'}\n")

    return plant


def hooks(folder: str, *lines: str) -> Callable[[Path, Trap], None]:
    def plant(copy: Path, trap: Trap) -> None:
        settings(copy, trap, *lines)
        (copy / folder).mkdir(exist_ok=True)
        for name in ("reference-transaction", "post-checkout", "pre-auto-gc", "post-rewrite"):
            shutil.copy(trap.script(), copy / folder / name)

    return plant


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    folder = tmp_path / "outside"
    folder.mkdir()
    return Trap(folder)


def remotes(upstream: Upstream, web: str) -> list[str]:
    """One that answers, one that asks for a password, and two that are spoken to through a program."""
    return [
        str(upstream.bare),
        f"http://{web}/upstream.git",
        "ssh://git@127.0.0.1:1/a.git",
        "git://127.0.0.1:1/a.git",
    ]


def trapped(folder: Path, source: GitConnector, trap: Trap) -> Path:
    """A hostile repository in a folder of clones, with the name that a clone has in the user's own folder."""
    path = folder / f"{source.copy.name}.git"
    path.parent.mkdir(parents=True, exist_ok=True)
    git(trap.folder, "init", "-q", "--bare", str(path))
    settings(path, trap, *TRAPS)
    hooks("hooks")(path, trap)
    alternates("alternates")(path, trap)
    return path


def test_a_stranger_who_writes_into_cache_dir_cannot_name_the_clone(
    upstream: Upstream, tmp_path: Path, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a `git pull` could, where `cache_dir` is within the project."""
    upstream.commit({"a.md": "a"})
    first = connector(upstream, tmp_path)
    planted = trapped(tmp_path / "cache", first, trap)
    assert Scan(first).data == {"a.md": b"a"}
    assert not trap.mark.exists()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another-user"))
    assert Scan(connector(upstream, tmp_path)).data == {"a.md": b"a"}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    assert Scan(connector(upstream, tmp_path)).data == {"a.md": b"a"}
    clones = set((tmp_path / "cache").glob("*.git")) - {planted}
    assert len(clones) == 2  # one for each user
    assert not trap.mark.exists()


def test_a_cloned_project_runs_nothing_when_it_is_indexed(
    upstream: Upstream, tmp_path: Path, web: str, trap: Trap
) -> None:
    """A repository that ships a configuration, and copies below `.ctx`, where ctx once kept them."""
    upstream.commit({"a.md": "a"})
    urls = remotes(upstream, web)
    origin = tmp_path / "stranger"
    tables = "".join(
        f'[connectors.git.n{number}]\nurl = "{url}"\ntimeout_s = 20\n' for number, url in enumerate(urls)
    )
    for number, url in enumerate(urls):
        copy = trapped(origin / ".ctx" / "cache" / "git", GitConnector(f"git:n{number}", url), trap)
        for folder in ("objects/pack", "refs/heads"):
            (copy / folder / "keep").touch()  # git carries no empty folders
    (origin / "ctx.toml").write_text(f'[embedding]\nprovider = "disabled"\n{tables}')
    git(origin, "init", "-q", "-b", "main")
    git(origin, "add", "-A", "--force")
    git(origin, "commit", "-q", "-m", "hello", at=1_700_000_000)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(origin), str(clone))
    config = load_config(str(clone / "ctx.toml"), os.environ)
    with open_workspace(config) as workspace:
        reports = workspace.indexer.run()
    assert not trap.mark.exists()
    assert [report.ok for report in reports] == [True, False, False, False]
    assert reports[0].added == 1
    assert len(list((tmp_path / "user-cache" / "ctx" / "git").glob("*.git"))) == len(urls)


@pytest.mark.parametrize("line", TRAPS)
def test_a_local_repository_that_a_clone_brought_runs_nothing(
    upstream: Upstream, tmp_path: Path, trap: Trap, line: str
) -> None:
    upstream.commit({"a.md": "a"})
    settings(upstream.bare, trap, line, '[remote "origin"] promisor = true', "[core] hooksPath = hooks")
    hooks("hooks")(upstream.bare, trap)
    alternates("alternates")(upstream.bare, trap)
    assert Scan(connector(upstream, tmp_path)).data == {"a.md": b"a"}
    assert not trap.mark.exists()


@pytest.mark.parametrize("line", TRAPS)
def test_a_folder_that_is_a_strangers_work_tree_runs_nothing(
    upstream: Upstream, tmp_path: Path, trap: Trap, line: str
) -> None:
    upstream.commit({"a.md": "a", ".gitignore": "*.log"})
    (upstream.work / "x.log").write_text("tracked")
    git(upstream.work, "add", "-f", "x.log")
    settings(
        upstream.work / ".git", trap, line, '[remote "origin"] promisor = true', "[core] hooksPath = hooks"
    )
    hooks("hooks")(upstream.work / ".git", trap)
    scan = FilesystemConnector("filesystem", str(upstream.work)).scan({}, ScanLog())
    assert {item.source_id for item in scan} == {"a.md", ".gitignore", "x.log"}
    assert not trap.mark.exists()


# -- the user's own folder -------------------------------------------------------------------------


def test_the_users_own_folders_are_closed_to_others(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "a"})
    folder = tmp_path / "user-cache" / "ctx" / "git"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    source = connector(upstream, tmp_path, cache_dir=None)
    Scan(source)
    Scan(connector(upstream, tmp_path))
    assert [path.stat().st_mode & 0o777 for path in (folder, Path(source.copy.path))] == [0o700] * 2
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to someone else")
def test_a_cache_folder_of_another_user_is_refused(upstream: Upstream, tmp_path: Path) -> None:
    folder = tmp_path / "user-cache" / "ctx" / "git"
    folder.mkdir(parents=True)
    os.chown(folder, 65534, 65534)
    with pytest.raises(SourceError, match="belongs to another user"):
        Scan(connector(upstream, tmp_path, cache_dir=None))


# -- the user's own word ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("way", ["global", "environment"])
def test_a_private_repository_opens_by_the_users_own_credential_helper(
    upstream: Upstream, tmp_path: Path, web: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    upstream.commit({"a.md": "a", "film.mp4": "x"})
    helper = f"!echo username=ann; echo password={TOKEN}; true"
    if way == "global":
        path = tmp_path / "my.gitconfig"
        git(tmp_path, "config", "--file", str(path), "credential.helper", helper)
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(path))
    else:
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "credential.helper")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", helper)
    git(upstream.bare, "config", "uploadpack.allowFilter", "true")
    for shallow in (True, False):
        source = connector(f"http://{web}/upstream.git", tmp_path, shallow=shallow)
        first = Scan(source)
        assert first.data == {"a.md": b"a"}
        upstream.commit({"b.md": "b"})
        assert Scan(source, first.known).ids == {"b.md"}
        upstream.commit({"b.md": None})
