"""The folder that holds the catalog, the index and the keys (`.ctx`): the user's own, and nothing that came
with a clone.

It is checked where writing begins. A search only reads, and asks no more than that no link leads out of it.
"""

import os
from collections.abc import Sequence

from ctx import files
from ctx.errors import Busy, StoreError
from ctx.store.schema import COMPANIONS, JOURNAL

_NAME = ".ctx"
_PROJECT_OWN = ("tools", "agents", "config.toml", ".gitignore")  # what a project may well keep there in git
_STORE_OWN = ("lock", "index", "keys.json", "cache")
COPY = "backup.partial"  # of the catalog, while a backup is written
PARTIAL = "restored.partial"  # a catalog that is restored, until it is whole and checked
_GIT_TIMEOUT_S = 5.0
_MAGIC = bytes.fromhex("d9d505f920a163d7")  # of a journal of SQLite's
# Folders known to hold nothing that git tracks, and with which catalogs in them they were looked at.
_checked: dict[tuple[str, files.Identity | None], set[files.Identity | None]] = {}


def own_folder(database: str) -> None:
    """Makes and checks the folder of the catalog at `database`, for writing. Raises `StoreError` with the
    mend.

    One that is made gets 0700; it, and any called `.ctx`, gets a `.gitignore` that keeps the store out of
    git.
    """
    folder = os.path.dirname(os.path.abspath(database))
    name = os.path.basename(folder) or folder
    if os.path.islink(folder):
        raise StoreError(
            f"`{name}` is a link, and ctx keeps its store in none: remove it, or set [db] path to where it "
            "leads"
        )
    absent = not os.path.exists(folder)
    try:
        files.make_folder(folder, beneath=folder)
        if absent or name == _NAME:
            _hide(folder)
    except OSError as error:
        raise StoreError(
            f"the catalog cannot be made in the folder `{name}` ([db] path): {error.strerror}; make it, or "
            "name another"
        ) from error
    # The file's identity too: a pull lays what it brings over the store's own without a word, since that is
    # ignored.
    place, file = (database, files.identity(folder)), files.identity(database)
    if file not in _checked.setdefault(place, set()):
        check_untracked(database, exchanged=bool(_checked[place] - {None, file}))
        _checked[place].add(file)


def is_of_store(name: str, database: str) -> bool:
    """Whether a file or folder of this name beside the catalog at `database` holds what the store does: the
    catalog with its log and its copies, the index, the keys. It need not lie in a `.ctx`.
    """
    catalog = os.path.basename(database)
    begins = (f"{catalog}-", f"{catalog}.", COPY, PARTIAL)
    return name in (catalog, "index", "keys.json") or name.startswith(begins)


def check_journal(path: str) -> None:
    """Raises `StoreError` where a journal beside a database names another one: SQLite plays the journal back
    whenever the file is opened, and deletes what it names then, any file of the user's.

    Only a change of several databases at once has such a journal, which ctx never makes. The name stands at
    its end, behind which is the mark of a journal.
    Source: https://www.sqlite.org/fileformat2.html#the_rollback_journal, `readSuperJournal` of pager.c.
    """
    folder = os.path.dirname(os.path.abspath(path))
    try:
        descriptor = files.open_file(path + JOURNAL, os.O_RDONLY, beneath=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"the catalog cannot be opened: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        file.seek(max(0, os.fstat(descriptor).st_size - len(_MAGIC)))
        if file.read() == _MAGIC:
            name = os.path.basename(path) + JOURNAL
            raise StoreError(
                f"`{name}` leads to another file, which ctx never writes and SQLite would delete: delete "
                f"{name}, and {os.path.basename(path)} too if you did not make it"
            )


def _hide(folder: str) -> None:
    path = os.path.join(folder, ".gitignore")
    if os.path.lexists(path) or not os.access(folder, os.W_OK):
        return
    try:
        descriptor = files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, beneath=folder)
    except FileExistsError:
        return  # another process came first
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write("# made by ctx: the store is this machine's own\n*\n")


def check_untracked(path: str, *, exchanged: bool = False) -> None:
    """Raises `StoreError` where git tracks a file of the store that this one is of: it came with a clone, or
    would be published with the next push. Of one that was just `exchanged`, `Busy` while git is at work: it
    lays files first, and writes down at the end that they are its own.
    """
    folder, name = os.path.split(os.path.abspath(path))
    top = files.work_tree(folder)
    if top is not None:
        if exchanged and os.path.lexists(os.path.join(_git_folder(top), "index.lock")):
            raise Busy("git is changing files here, and may have laid one in the store: try again")
        if os.path.basename(folder) == _NAME:
            tracked = _tracked(top, folder, ["."], _PROJECT_OWN)
        else:
            catalog = [name + suffix for suffix in ("", *COMPANIONS)]
            tracked = _tracked(top, folder, [*catalog, *_STORE_OWN])
        if tracked:
            raise StoreError(
                f"git tracks `{tracked}` in the folder of the store, so it may be somebody else's: "
                "`git rm -r --cached` it and delete the file, or set [db] path to another folder"
            )


def _git_folder(top: str) -> str:
    """Where git keeps what it knows of the work tree at `top`: in a linked one `.git` is a file that says."""
    path = os.path.join(top, ".git")
    try:
        text = files.read_file(path).decode("utf-8", "surrogateescape")
    except OSError:
        return path
    return os.path.join(top, text.partition("gitdir:")[2].strip())


def _tracked(top: str, folder: str, parts: Sequence[str], own: Sequence[str] = ()) -> str | None:
    """The first tracked file of these parts of `folder` that is none of its `own`; None where git tracks
    none, or cannot say.
    """
    if _surely_untracked(top, folder):
        return None
    import subprocess  # 8 ms, which most projects do not pay: see above

    # Nothing that the repository's configuration names may run.
    settings = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false"]
    inside = os.path.relpath(folder, top)
    pathspecs = [
        f":({magic}){os.path.normpath(os.path.join(inside, part))}"
        for magic, names in (("literal", parts), ("exclude,literal", own))
        for part in names
    ]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        reply = subprocess.run(
            ["git", "--no-pager", *settings, "ls-files", "-z", "--", *pathspecs],
            cwd=top,  # a clone may bring a folder that passes for a repository of its own, and tracks nothing
            # A sparse index has it look for trees, and fetch those that lack, by whichever program the
            # repository names; older versions know only that no transport is allowed.
            env=environ | {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    name = reply.split(b"\0", 1)[0].decode("utf-8", "replace")
    return os.path.relpath(name, inside) if name else None


def _surely_untracked(top: str, folder: str) -> bool:
    """Whether git's list of tracked files, read as bytes, lacks the folder's name.

    Its versions 2 and 3 hold whole paths; version 4 shortens them and a split list is in two files, which is
    left to git.
    """
    if folder == top:
        return False
    inside = os.path.relpath(folder, top).replace(os.sep, "/") + "/"
    try:
        if any(name.startswith("sharedindex.") for name in os.listdir(os.path.join(top, ".git"))):
            return False
        content = files.read_file(os.path.join(top, ".git", "index"))  # a pipe would be waited for
    except FileNotFoundError:
        return True  # nothing was ever added
    except OSError:
        return False
    return int.from_bytes(content[4:8], "big") in (2, 3) and os.fsencode(inside) not in content
