"""Ask git about a work tree. It may be a stranger's, so no program that its configuration names is run."""

import os
import subprocess

from ctx import files

_TIMEOUT_S = 20.0  # a whole history may be read
_SETTINGS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false")
# Variables of git that are kept, because they name the user's own configuration. Others, such as GIT_DIR,
# come from the git that runs ctx in a hook.
_KEPT = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
_HEAD_BYTES = 8192


def ask(folder: str, *arguments: str) -> bytes | None:
    """What git prints when it runs in a folder; None if it fails or is not installed."""
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
    """The first line of one of git's small files. Raises `OSError`."""
    return files.read_file(path, most=_HEAD_BYTES).decode("utf-8", "surrogateescape").split("\n", 1)[0]


def repository(top: str) -> str | None:
    """The repository folder of the work tree at `top`, which linked work trees share; None without one."""
    own = own_folder(top)
    if own is None:
        return None
    try:
        return os.path.realpath(os.path.join(own, first_line(f"{own}/commondir")))
    except OSError:
        return own


def global_rules(folder: str) -> str | None:
    """The path of the user's own ignore file, for a work tree at `folder`. It may not exist."""
    named = ask(folder, "config", "--type=path", "--get", "core.excludesFile")
    if named is not None:
        return os.path.realpath(os.fsdecode(named.rstrip(b"\n"))) if named.strip() else None
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.environ.get("HOME") or "/", ".config")
    return os.path.realpath(os.path.join(home, "git", "ignore"))  # often a link to a folder of dotfiles


def tracked_though_ignored(folder: str) -> list[str]:
    """The paths below a folder that git tracks although an ignore file matches them."""
    names = ask(folder, "ls-files", "-z", "--cached", "--ignored", "--exclude-standard", "--", ".")
    return [os.fsdecode(name) for name in (names or b"").split(b"\0") if name]


def is_copy(top: str, root: str) -> bool:
    """Whether the work tree at `top` is a linked one whose repository has another work tree that contains
    `root` or is below it. Of several linked ones below `root`, the one on the main branch is not a copy.
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
    """The folder with git's data about a work tree. In a linked work tree, `.git` is a file with its path."""
    path = os.path.join(top, ".git")
    if os.path.isdir(path):
        return os.path.realpath(path)
    try:
        return os.path.realpath(os.path.join(top, first_line(path).removeprefix("gitdir:").strip()))
    except OSError:
        return None


def _work_trees(common: str) -> dict[str, str]:
    """The work trees of a repository -> the folder with git's data about each."""
    trees = {}
    if os.path.exists(f"{common}/index"):  # not a bare repository
        named = ask(common, "config", "--file", "config", "--get", "core.worktree")  # of a submodule
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
