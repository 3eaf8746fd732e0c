"""What git knows of a work tree that may be a stranger's: nothing that its configuration names is run."""

import os
import subprocess

from ctx import files

_TIMEOUT_S = 20.0  # a whole history may be read
_SETTINGS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false")
# What the environment may say of the user's own configuration. The rest of it (GIT_DIR, GIT_INDEX_FILE) is of
# the git that started us, in a hook.
_KEPT = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
_HEAD_BYTES = 8192


def ask(folder: str, *arguments: str) -> bytes | None:
    """What git prints when it is run in a folder; None where it fails, or there is none."""
    environ = {name: value for name, value in os.environ.items() if name[:4] != "GIT_" or name in _KEPT}
    # A sparse index has git look for trees, and fetch those that lack, by whichever program the repository
    # names; older versions know only that no transport is allowed.
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
    """The first line of a small file of git's. Raises `OSError`."""
    return files.read_file(path, most=_HEAD_BYTES).decode("utf-8", "surrogateescape").split("\n", 1)[0]


def repository(top: str) -> str | None:
    """The repository of the work tree at `top`, which linked work trees share; None where it has none."""
    own = own_folder(top)
    if own is None:
        return None
    try:
        return os.path.realpath(os.path.join(own, first_line(f"{own}/commondir")))
    except OSError:
        return own


def global_rules(folder: str) -> str | None:
    """The path of the user's own ignore file, for a work tree at `folder`. It may not exist."""
    told = ask(folder, "config", "--type=path", "--get", "core.excludesFile")
    if told is not None:
        return os.path.realpath(os.fsdecode(told.rstrip(b"\n"))) if told.strip() else None
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.environ.get("HOME") or "/", ".config")
    return os.path.realpath(os.path.join(home, "git", "ignore"))  # whoever keeps dotfiles links them


def tracked_though_ignored(folder: str) -> list[str]:
    """The paths below a folder that git tracks although an ignore file matches them."""
    names = ask(folder, "ls-files", "-z", "--cached", "--ignored", "--exclude-standard", "--", ".")
    return [os.fsdecode(name) for name in (names or b"").split(b"\0") if name]


def is_copy(top: str, root: str) -> bool:
    """Whether the work tree at `top` is a linked one, of a repository that has another at `root`, around it
    or below it. Of several below it, the one on the repository's own branch is no copy.
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
    """Where git keeps what it knows of a work tree: in a linked one, `.git` is a file that says where."""
    path = os.path.join(top, ".git")
    if os.path.isdir(path):
        return os.path.realpath(path)
    try:
        return os.path.realpath(os.path.join(top, first_line(path).removeprefix("gitdir:").strip()))
    except OSError:
        return None


def _work_trees(common: str) -> dict[str, str]:
    """The work trees of a repository, and the folder of each that git keeps."""
    trees = {}
    if os.path.exists(f"{common}/index"):  # else it is a bare one
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
