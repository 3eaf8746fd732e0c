"""The bare clones of git repositories: where they are, and how ctx makes sure that it made them.

The files of a repository can make git run programs, read other folders and contact other hosts. So ctx must
never take a folder that somebody else made for its clone. It recognises its own clones by a random token,
stored in the clone and in the user's cache, where no project can write. It also rewrites the clone's
configuration before each use.
"""

import fcntl
import hashlib
import logging
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ctx import files
from ctx.errors import SourceError

logger = logging.getLogger(__name__)

REMOTE = "ctx"  # a name that user configurations do not mention, unlike `origin`
LOCK_POLL_S = 0.05

_TOKEN_FILE = "ctx-token"  # noqa: S105 - a name
_TOKEN_BYTES = 64  # hexadecimal digits
_HEAD = b"ref: refs/heads/main\n"  # does not exist: our branches are below refs/ctx
_CONFIG = b"[core]\n\trepositoryformatversion = %d\n\tbare = true\n"
_PARTIAL = (
    b'[extensions]\n\tpartialClone = %s\n[remote "%s"]\n\tpromisor = true\n\tpartialclonefilter = blob:none\n'
)
# All files of a bare repository without a work tree, submodules or hooks. Others are not accepted: hooks,
# config.worktree, commondir, gitdir, worktrees, modules.
_TOP_FILES = {"HEAD", "config", "packed-refs", "shallow", "FETCH_HEAD", "gc.log", "gc.pid", _TOKEN_FILE}
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
    """The clone of one remote: its folder, its lock, and the token that proves that ctx made it.

    `folder` is where clones are kept; None for the user's own folder, `own`. The tokens are always in `own`.
    `key` identifies the remote. `source` is the connector's name, for messages.
    """

    def __init__(self, key: str, *, own: str, folder: str | None, source: str) -> None:
        self.own = own
        self.folder = own if folder is None else os.path.abspath(folder)
        self.name = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self.path = os.path.join(self.folder, self.name + ".git")
        self._source = source

    @contextmanager
    def locked(self, timeout_s: float) -> Iterator[int]:
        """Lock the clone, exclusively until `share` is called. Yields the lock's descriptor.

        Child processes that write to the clone hold the same lock. If this process is killed, the next run
        waits for them. Raises `SourceError`.
        """
        if not os.path.isabs(self.own):  # relative to the working folder, which may be a stranger's clone
            raise SourceError(
                f"{self._source}: no home folder to keep copies of repositories in; set XDG_CACHE_HOME"
            )
        self._private(self.own)
        try:
            files.make_folder(self.folder)
            lock = files.open_file(os.path.join(self.folder, self.name + ".lock"), os.O_RDWR | os.O_CREAT)
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

        Removes locks and partial packs of a killed git. Raises `SourceError` if the folder exists but ctx did
        not make it and may not remove it.
        """
        try:
            stray = _stray(self.path) if self._present() else None
            if stray is not None:
                logger.warning(
                    "git copy holds %r, which git did not put there source=%s: made again",
                    stray,
                    self._source,
                )
                self._remove()
            if os.path.lexists(self.path):
                self._write_settings(self.path)
            else:
                self._make()
        except OSError as error:
            raise self._unwritable(error) from error

    # -- ownership ---------------------------------------------------------------------------------

    def _present(self) -> bool:
        """Whether our clone exists. A clone that ctx did not make is removed from the user's own folder; in
        any other folder it is a `SourceError`.
        """
        if not os.path.lexists(self.path):
            return False
        token = _read(self._proof()) if _is_private(self._proof()) else None
        copied = None if os.path.islink(self.path) else _read(os.path.join(self.path, _TOKEN_FILE))
        if token == copied and len(token or b"") == _TOKEN_BYTES:
            return True
        if os.path.realpath(self.folder) != os.path.realpath(self.own):
            raise SourceError(
                f"{self._source}: {self.name}.git in `cache_dir` is a copy that ctx did not make for you, "
                "and git would do what it says; delete it, or leave `cache_dir` out"
            )
        logger.warning("git copy not ours source=%s copy=%s: made again", self._source, self.name)
        self._remove()
        return False

    def _proof(self) -> str:
        """The path of the file in the user's own folder that has the token of this clone."""
        path = os.path.join(os.path.realpath(self.folder), self.name)
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
        return os.path.join(self.own, "made", digest)

    def _make(self) -> None:
        """Create an empty repository and move it into place, so that a kill leaves nothing half done."""
        partial = tempfile.mkdtemp(prefix=f"{self.name}.", suffix=".new", dir=self.folder)  # 0700
        try:
            for folder in ("objects/pack", "objects/info", "refs"):
                os.makedirs(os.path.join(partial, folder))
            token = secrets.token_hex(_TOKEN_BYTES // 2).encode()
            files.replace(os.path.join(partial, _TOKEN_FILE), token)
            self._write_settings(partial)
            self._private(os.path.dirname(self._proof()))
            files.replace(self._proof(), token)
            os.rename(partial, self.path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise

    def _remove(self) -> None:
        if os.path.islink(self.path) or not os.path.isdir(self.path):
            os.unlink(self.path)
        else:
            shutil.rmtree(self.path)

    def _private(self, folder: str) -> None:
        """Create the user's own folder, 0700. Raises `SourceError` if it belongs to another user."""
        try:
            files.make_folder(folder)
            status = os.stat(folder)
            if status.st_uid == os.geteuid() and status.st_mode & 0o077:
                os.chmod(folder, 0o700)
        except OSError as error:
            raise self._unwritable(error) from error
        if status.st_uid != os.geteuid():
            raise SourceError(
                f"{self._source}: the cache folder for copies of repositories belongs to another user; point "
                "XDG_CACHE_HOME to one of your own"
            )

    def _unwritable(self, error: OSError) -> SourceError:
        return SourceError(
            f"{self._source}: the folder for copies of repositories cannot be used: {error.strerror}; it is "
            "`cache_dir`, else ctx/git in $XDG_CACHE_HOME or ~/.cache (which is needed in either case)"
        )

    # -- content -----------------------------------------------------------------------------------

    def _write_settings(self, repository: str) -> None:
        """Write git's configuration files. The address and the other settings are in the environment."""
        for folder in ("objects", "objects/pack", "refs"):
            os.makedirs(os.path.join(repository, folder), exist_ok=True)
        partial = holds_partial_packs(repository)
        config = _CONFIG % partial + (_PARTIAL % ((REMOTE.encode(),) * 2) if partial else b"")
        for name, content in (("config", config), ("HEAD", _HEAD)):
            path = os.path.join(repository, name)
            if _read(path) != content:
                files.replace(path, content)


def holds_partial_packs(repository: str) -> bool:
    """Whether a pack lacks objects that the remote has promised."""
    packs = os.path.join(repository, "objects", "pack")
    return os.path.isdir(packs) and any(name.endswith(".promisor") for name in os.listdir(packs))


def share(lock: int) -> None:
    """Make the lock shared, so that other readers can use the clone."""
    fcntl.flock(lock, fcntl.LOCK_SH)


def _stray(repository: str) -> str | None:
    """The path of a file in a bare repository that git did not put there; None if there is none.

    Removes the leftovers of a killed git. Lists the folders of packs and objects but reads no files in them.
    """
    borne = {
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
            elif not _fits(entry, folder) or entry.name not in borne.get(folder, (entry.name,)):
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


def _read(path: str) -> bytes | None:
    """The content of a small plain file, None for anything else."""
    try:
        return files.read_file(path, most=1 << 16)
    except OSError:
        return None
