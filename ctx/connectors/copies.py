"""The bare clones of git repositories: where they are, their locks, and what a killed git left in them.

The files of a bare repository can make git run programs, read other folders and contact other hosts, and the
folder of the clones may be part of a project that a stranger wrote. So a secret of the user is part of the
clone's name, which no stranger can know before the clone exists. Later, before each use, its configuration is
written again, and a clone with a file that git did not put there is made again.
"""

import fcntl
import hashlib
import logging
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

from ctx import files
from ctx.errors import SourceError

logger = logging.getLogger(__name__)

REMOTE = "ctx"  # the remote's name in our clones; unlike `origin`, no user's git configuration mentions it
LOCK_POLL_S = 0.05

_SECRET_BYTES = 32
_HEAD = b"ref: refs/heads/main\n"  # this branch does not exist, because our branches are below refs/ctx
_CONFIG = b"[core]\n\trepositoryformatversion = %d\n\tbare = true\n"
_PARTIAL = (
    b'[extensions]\n\tpartialClone = %s\n[remote "%s"]\n\tpromisor = true\n\tpartialclonefilter = blob:none\n'
)
# All files of a bare repository without a work tree, submodules or hooks. Others are not accepted: hooks,
# config.worktree, commondir, gitdir, worktrees, modules.
_TOP_FILES = {"HEAD", "config", "packed-refs", "shallow", "FETCH_HEAD", "gc.log", "gc.pid"}
_TOP_FOLDERS = {"objects", "refs", "info", "logs"}
_INFO = {"refs"}  # not grafts, attributes, sparse-checkout
_OBJECTS_INFO = {"packs", "commit-graph", "commit-graphs"}  # not alternates, http-alternates
_LOOSE = frozenset(f"{number:02x}" for number in range(256))


def user_folder(environ: Mapping[str, str]) -> str:
    """The folder of the user's clones, in `$XDG_CACHE_HOME` or `~/.cache`. It may not exist yet."""
    caches = environ.get("XDG_CACHE_HOME") or ""
    if not os.path.isabs(caches):  # the XDG standard says to ignore relative paths
        caches = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(caches, "ctx", "git")


class Copy:
    """The clone of one remote: its folder and its lock.

    `folder` is where clones are kept; None for the user's own folder, `own`. `key` identifies the remote.
    `source` is the connector's name, for messages.
    """

    def __init__(self, key: str, *, own: str, folder: str | None, source: str) -> None:
        self.own = own
        self.folder = own if folder is None else os.path.abspath(folder)
        self.name = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._source = source

    @cached_property
    def path(self) -> str:
        """The path of the clone. Raises `SourceError` if the user's own folder cannot be used."""
        place = os.path.join(os.path.realpath(self.folder), self.name)
        try:
            self._make_own_folder()
            digest = hashlib.sha256(self._secret() + os.fsencode(place)).hexdigest()
        except OSError as error:
            raise self._unwritable(error) from error
        return os.path.join(self.folder, digest[:32] + ".git")

    @contextmanager
    def locked(self, timeout_s: float) -> Iterator[int]:
        """Lock the clone, exclusively until `share` is called. Yields the lock's descriptor.

        Child processes that write to the clone hold the same lock. If this process is killed, the next run
        waits for them. Raises `SourceError`.
        """
        path = self.path.removesuffix(".git") + ".lock"
        try:
            files.make_folder(self.folder)
            lock = files.open_file(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            deadline_s = time.monotonic() + timeout_s
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline_s:
                        message = f"another process has been fetching this repository for {timeout_s:g} s"
                        raise SourceError(f"{self._source}: {message}") from error
                    time.sleep(LOCK_POLL_S)
            yield lock
        finally:
            os.close(lock)

    def prepare(self) -> None:
        """Prepare the clone for git, or create an empty one. Needs the lock.

        Repairs what was left by a process that was killed. The remote's address and the other settings are
        not in the clone but are passed to git in environment variables. Raises `SourceError`, also if the
        clone is a link or belongs to another user.
        """
        try:
            if os.path.lexists(self.path):
                status = os.lstat(self.path)
                if (
                    not stat.S_ISDIR(status.st_mode)
                    or status.st_uid != os.geteuid()
                    or status.st_mode & 0o077
                ):
                    raise SourceError(f"{self._source}: ctx did not make {self.path}, so delete it")
                if (stray := _stray(self.path)) is not None:
                    logger.warning("git clone has a strange file source=%s file=%r", self._source, stray)
                    shutil.rmtree(self.path)
            for folder in ("", "objects", "objects/pack", "refs"):
                files.make_folder(os.path.join(self.path, folder))
            partial = holds_partial_packs(self.path)
            config = _CONFIG % partial + (_PARTIAL % ((REMOTE.encode(),) * 2) if partial else b"")
            for name, content in (("config", config), ("HEAD", _HEAD)):
                path = os.path.join(self.path, name)
                if not os.path.exists(path) or files.read_file(path) != content:
                    files.replace(path, content)
        except OSError as error:
            raise self._unwritable(error) from error

    def _make_own_folder(self) -> None:
        """Create the user's own folder, 0700. Raises `SourceError` if it belongs to another user."""
        if not os.path.isabs(self.own):  # relative to the working folder, which may be a stranger's clone
            raise SourceError(f"{self._source}: no home folder to keep clones in. Set XDG_CACHE_HOME")
        files.make_folder(self.own)
        status = os.stat(self.own)
        if status.st_uid != os.geteuid():
            raise SourceError(
                f"{self._source}: the cache folder for clones belongs to another user. Set XDG_CACHE_HOME "
                "to a folder of your own"
            )
        if status.st_mode & 0o077:
            os.chmod(self.own, 0o700)

    def _secret(self) -> bytes:
        """The user's secret, which is created at the first call, and again if another user could have made
        it. Then the clones in the user's own folder are deleted, because nobody knows their names any more.
        """
        path = os.path.join(self.own, "secret")
        with files.locked(path):
            if not _is_private(path) or len(secret := files.read_file(path)) != _SECRET_BYTES:
                for name in os.listdir(self.own):
                    if name.endswith((".git", ".lfs")):
                        shutil.rmtree(os.path.join(self.own, name), ignore_errors=True)
                secret = secrets.token_bytes(_SECRET_BYTES)
                files.replace(path, secret)
            return secret

    def _unwritable(self, error: OSError) -> SourceError:
        return SourceError(
            f"{self._source}: the folder for clones of repositories cannot be used: {error.strerror}. It is "
            "`cache_dir`, or else ctx/git in $XDG_CACHE_HOME or ~/.cache, which must be writable in any case"
        )


def holds_partial_packs(repository: str) -> bool:
    """Whether the repository is a partial clone: it has packs that lack objects, which git fetches when it
    needs them.
    """
    packs = os.path.join(repository, "objects", "pack")
    return os.path.isdir(packs) and any(name.endswith(".promisor") for name in os.listdir(packs))


def share(lock: int) -> None:
    """Make the lock shared, so that other readers can use the clone."""
    fcntl.flock(lock, fcntl.LOCK_SH)


def _stray(repository: str) -> str | None:
    """The path of a file in a bare repository that git did not put there; None if there is none.

    Removes the leftovers of a killed git. Lists the folders of packs and objects but reads no files in them.
    """
    expected = {
        "": _TOP_FILES | _TOP_FOLDERS,
        "objects": {"pack", "info"} | _LOOSE,
        "objects/info": _OBJECTS_INFO,
        "info": _INFO,
    }
    folders = [""]
    while folders:
        folder = folders.pop()
        for entry in sorted(os.scandir(os.path.join(repository, folder)), key=lambda entry: entry.name):
            path = os.path.join(folder, entry.name)
            if entry.is_file(follow_symlinks=False) and _left_behind(folder, entry.name):
                os.unlink(entry.path)
            elif not _fits(entry, folder) or entry.name not in expected.get(folder, (entry.name,)):
                return path
            elif entry.is_dir(follow_symlinks=False) and not (folder == "objects" and entry.name in _LOOSE):
                folders.append(path)
    return None


def _left_behind(folder: str, name: str) -> bool:
    """Whether a file was left by a killed git, a file manager or NFS. Git does not read such files."""
    if folder.startswith("objects"):
        return name.endswith((".lock", ".keep")) or name.startswith(("tmp_", ".tmp-"))
    return name.endswith(".lock") or (
        not folder and (name.startswith((".", "shallow_")) or ".partial-" in name)
    )


def _fits(entry: os.DirEntry[str], folder: str) -> bool:
    """Whether an entry has the type that git gives it: a plain file, or a folder where git has folders.
    Links, pipes and devices never fit.
    """
    if entry.is_dir(follow_symlinks=False):
        return folder not in ("objects/pack", "info") and not (not folder and entry.name in _TOP_FILES)
    if (not folder and entry.name in _TOP_FOLDERS) or folder == "objects":
        return False
    return entry.is_file(follow_symlinks=False)


def _is_private(path: str) -> bool:
    """Whether only this user can have written a file."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077 and status.st_nlink == 1
