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


Plant = Callable[[Path, Trap], None]
"""Lays a trap in a bare repository."""


def settings(copy: Path, trap: Trap, *lines: str) -> None:
    """Appends `[section] key = value` lines to the copy's configuration; TRAP is the program."""
    with open(copy / "config", "a") as file:
        file.writelines(line.replace("TRAP", trap.script()) + "\n" for line in lines)


def configured(*lines: str) -> Plant:
    return lambda copy, trap: settings(copy, trap, *lines)


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


def alternates(name: str) -> Plant:
    """Objects of another repository, with the command that lists its branches."""

    def plant(copy: Path, trap: Trap) -> None:
        settings(copy, trap, '[core] alternateRefsCommand = "TRAP"')
        (copy / "objects" / "info").mkdir(exist_ok=True)
        (copy / "objects" / "info" / name).write_text(f"{trap.repository() / 'objects'}\n")

    return plant


def hooks(folder: str, *lines: str) -> Plant:
    def plant(copy: Path, trap: Trap) -> None:
        settings(copy, trap, *lines)
        (copy / folder).mkdir(exist_ok=True)
        for name in ("reference-transaction", "post-checkout", "pre-auto-gc", "post-rewrite"):
            shutil.copy(trap.script(), copy / folder / name)

    return plant


def included(copy: Path, trap: Trap) -> None:
    settings(copy, trap, "[include] path = more.config")
    (copy / "more.config").write_text("\n".join(TRAPS).replace("TRAP", trap.script()) + "\n")


def included_by_folder(copy: Path, trap: Trap) -> None:
    included(copy, trap)
    settings(copy, trap, '[includeIf "gitdir:/**"] path = more.config')


def of_a_worktree(copy: Path, trap: Trap) -> None:
    settings(copy, trap, "[core] repositoryformatversion = 1", "[extensions] worktreeConfig = true")
    (copy / "config.worktree").write_text("\n".join(TRAPS).replace("TRAP", trap.script()) + "\n")


def common_folder(copy: Path, trap: Trap) -> None:
    (copy / "commondir").write_text(f"{trap.repository()}\n")


def git_folder(copy: Path, trap: Trap) -> None:
    (copy / ".git").write_text(f"gitdir: {trap.repository()}\n")
    (copy / "gitdir").write_text(f"{trap.repository()}\n")
    settings(copy, trap, *TRAPS)


def linked(name: str) -> Plant:
    """A part of the copy is a link to the same part of the stranger's repository, where git would write."""

    def plant(copy: Path, trap: Trap) -> None:
        target = trap.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(copy / name) if (copy / name).is_dir() else (copy / name).unlink(missing_ok=True)
        source = trap.repository() / name
        if source.is_dir():
            shutil.copytree(source, target)
        elif source.exists():
            shutil.copy(source, target)
        else:
            target.mkdir()
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).symlink_to(target)

    return plant


def linked_whole(copy: Path, trap: Trap) -> None:
    shutil.rmtree(copy)
    copy.symlink_to(trap.repository())


def grafted(copy: Path, trap: Trap) -> None:
    settings(copy, trap, *TRAPS)
    (copy / "info").mkdir(exist_ok=True)
    (copy / "info" / "grafts").write_text("")
    (copy / "shallow").write_text("")


def cookies(copy: Path, trap: Trap) -> None:
    """git's own way to write a file of anybody's choice."""
    settings(copy, trap, f"[http] cookieFile = {trap.mark}", "[http] saveCookies = true")


def piped(copy: Path, _: Trap) -> None:
    (copy / "HEAD").unlink()
    os.mkfifo(copy / "HEAD")


PLANTS: dict[str, Plant] = {
    **{line.replace('"', ""): configured(line) for line in TRAPS},
    "all at once": configured(*TRAPS),
    "another address": configured('[url "ext::TRAP "] insteadOf = http', '[protocol "ext"] allow = always'),
    "another program for the address": configured('[remote "ctx"] vcs = ext', '[remote "origin"] vcs = ext'),
    "a signature to check": configured("[log] showSignature = true", '[gpg] program = "TRAP"'),
    "alternates": alternates("alternates"),
    "alternates of the web": alternates("http-alternates"),
    "hooks": hooks("hooks"),
    "hooks elsewhere": hooks("other", "[core] hooksPath = other"),
    "an included file": included,
    "a file included by folder": included_by_folder,
    "a worktree's configuration": of_a_worktree,
    "a common folder elsewhere": common_folder,
    "a git folder elsewhere": git_folder,
    "grafts": grafted,
    "cookies": cookies,
    "a pipe": piped,
    "a link as a whole": linked_whole,
    **{
        f"a link as {name}": linked(name) for name in ("config", "HEAD", "objects", "refs", "logs", "shallow")
    },
    "a link as a folder of objects": linked("objects/pack"),
    "a link as a folder of loose objects": linked("objects/0a"),
    "a link as a folder of branches": linked("refs/ctx"),
}

hostile = pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS.keys())


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    folder = tmp_path / "outside"
    folder.mkdir()
    return Trap(folder)


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


def remotes(upstream: Upstream, web: str) -> list[str]:
    """One that answers, one that asks for a password, and two that are spoken to through a program."""
    return [
        str(upstream.bare),
        f"http://{web}/upstream.git",
        "ssh://git@127.0.0.1:1/a.git",
        "git://127.0.0.1:1/a.git",
    ]


def trapped(folder: Path, source: GitConnector, trap: Trap) -> Path:
    """A hostile repository in a folder of clones, with a name that a stranger can compute."""
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


def attempt(source: GitConnector) -> Scan | str:
    """A scan, or why there is none."""
    try:
        return Scan(source)
    except SourceError as error:
        return error.message


def copy_of(source: GitConnector) -> Path:
    return Path(source.copy.path)


@hostile
def test_what_was_laid_into_a_copy_of_ours_is_not_obeyed(
    upstream: Upstream, tmp_path: Path, trap: Trap, plant: Plant
) -> None:
    """As a `git pull` could, where `cache_dir` is within the project."""
    upstream.commit({"a.md": "a"})
    source = connector(upstream, tmp_path)
    first = Scan(source)
    plant(copy_of(source), trap)
    upstream.commit({"b.md": "b"})
    before = everything(trap.folder)
    result = attempt(source)
    assert everything(trap.folder) == before
    if plant is linked_whole:  # which is nothing of ours any more
        assert "ctx did not make" in str(result)
    else:
        assert isinstance(result, Scan), result
        assert result.data == {"a.md": b"a", "b.md": b"b"}
    assert first.ids == {"a.md"}


@pytest.mark.parametrize(
    "line",
    [line for line in TRAPS if "credential" in line or "ssh" in line or "Proxy" in line or "ask" in line],
)
def test_what_was_laid_into_a_copy_of_ours_is_not_asked_for_a_password(
    upstream: Upstream, tmp_path: Path, web: str, trap: Trap, line: str
) -> None:
    upstream.commit({"a.md": "a"})
    for url in remotes(upstream, web)[1:]:
        source = connector(url, tmp_path, timeout_s=20)
        assert isinstance(attempt(source), str)
        settings(copy_of(source), trap, line)
        assert isinstance(attempt(source), str)
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
    assert [path.stat().st_mode & 0o777 for path in (folder, copy_of(source))] == [0o700] * 2
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600


def test_clones_whose_secret_others_could_read_are_replaced(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "a"})
    first = connector(upstream, tmp_path, cache_dir=None)
    Scan(first)
    copy_of(first).with_name("secret").chmod(0o640)
    second = connector(upstream, tmp_path, cache_dir=None)
    assert Scan(second).data == {"a.md": b"a"}
    assert list(copy_of(first).parent.glob("*.git")) == [copy_of(second)] != [copy_of(first)]


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
