"""Asks git about a work tree. The repository may be untrusted, so no program that its configuration names is
run.
"""

import os
import subprocess

from ctx import files

_TIMEOUT_S = 20.0  # enough to read a whole history
_SETTINGS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false")
# Environment variables of git that are kept, because they name the user's own configuration. Others, such as
# GIT_DIR, are set by git when it runs ctx in a hook.
_KEPT = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
_HEAD_BYTES = 8192


def ask(folder: str, *arguments: str) -> bytes | None:
    """The output of a git command that runs in `folder`; None if it fails or git is not installed."""
    environ = {name: value for name, value in os.environ.items() if name[:4] != "GIT_" or name in _KEPT}
    # In a partial clone git would fetch missing objects, with a program that the repository names. Versions
    # that do not know GIT_NO_LAZY_FETCH obey GIT_ALLOW_PROTOCOL.
    environ |= {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        reply = subprocess.run(
            ["git", "--no-pager", *_SETTINGS, *arguments],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return reply.stdout if reply.returncode == 0 else None


def first_line(path: str) -> str:
    """The first line of a small file of git, such as `HEAD`. Raises `OSError`."""
    return files.read_file(path, most=_HEAD_BYTES).decode("utf-8", "surrogateescape").split("\n", 1)[0]


def repository(top: str) -> str | None:
    """The repository folder of the work tree at `top`, which all its linked work trees share; None if `top`
    is not a work tree.
    """
    own = own_folder(top)
    if own is None:
        return None
    try:
        return os.path.realpath(os.path.join(own, first_line(f"{own}/commondir")))
    except OSError:
        return own


def global_rules(folder: str) -> str | None:
    """The path of the user's own ignore file (`core.excludesFile`), for a work tree at `folder`. The file may
    not exist. None if it is turned off.
    """
    named = ask(folder, "config", "--type=path", "--get", "core.excludesFile")
    if named is not None:
        return os.path.realpath(os.fsdecode(named.rstrip(b"\n"))) if named.strip() else None
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.environ.get("HOME") or "/", ".config")
    return os.path.realpath(os.path.join(home, "git", "ignore"))  # often a link to a folder of dotfiles


def tracked_though_ignored(folder: str) -> list[str]:
    """The paths of the files below `folder`, relative to it, that git tracks although an ignore file matches
    them.
    """
    names = ask(folder, "ls-files", "-z", "--cached", "--ignored", "--exclude-standard", "--", ".")
    return [os.fsdecode(name) for name in (names or b"").split(b"\0") if name]


def is_copy(top: str, root: str) -> bool:
    """Whether the linked work tree at `top` should be skipped as a copy, because another work tree of the
    same repository contains `root` or is below it.

    If all work trees below `root` are linked, one of them is kept: the work tree on the main work tree's
    branch, or else the first.
    """
    own, common = own_folder(top), repository(top)
    if own is None or common is None or own == common:
        return False
    trees = _work_trees(common)
    if any(f"{root}/".startswith(f"{tree}/") for tree in trees):
        return True
    inside = sorted(tree for tree in trees if tree.startswith(f"{root.rstrip('/')}/"))
    if any(trees[tree] == common for tree in inside):
        return True
    same = [tree for tree in inside if _head(trees[tree]) == _head(common)]
    return os.path.realpath(top) not in [*same, *inside][:1]


def own_folder(top: str) -> str | None:
    """The folder with git's data about the work tree at `top`; None if there is none. In a linked work tree,
    `.git` is a file that contains the path of this folder.
    """
    path = os.path.join(top, ".git")
    if os.path.isdir(path):
        return os.path.realpath(path)
    try:
        return os.path.realpath(os.path.join(top, first_line(path).removeprefix("gitdir:").strip()))
    except OSError:
        return None


def _work_trees(common: str) -> dict[str, str]:
    """Work tree -> the folder with git's data about it, for all work trees of a repository."""
    trees = {}
    if os.path.exists(f"{common}/index"):  # not a bare repository
        # This setting is only present in a submodule.
        named = ask(common, "config", "--file", "config", "--get", "core.worktree")
        main = os.path.join(common, os.fsdecode(named).rstrip("\n")) if named else os.path.dirname(common)
        trees[os.path.realpath(main)] = common
    try:
        names = os.listdir(f"{common}/worktrees")
    except OSError:
        names = []
    for name in names:
        own = f"{common}/worktrees/{name}"
        try:
            file = os.path.realpath(os.path.join(own, first_line(f"{own}/gitdir")))
        except OSError:
            continue
        if os.path.exists(file):
            trees[os.path.dirname(file)] = own
    return trees


def _head(own: str) -> str | None:
    try:
        return first_line(f"{own}/HEAD")
    except OSError:
        return None
