"""The bare clones of git repositories: where they are, their locks, and what a killed git left in them.

The files of a bare repository can make git run programs, read other folders and contact other hosts. So git
must never run in a clone into which anybody else can write. Clones in the user's own cache folder are safe,
because that folder has mode 0700. In `cache_dir`, which may be a folder of a project that a stranger wrote, a
secret of the user is part of the clone's name, so no stranger knows the name.
"""

import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

from ctx import files
from ctx.errors import SourceError

REMOTE = "ctx"  # the remote's name in our clones; unlike `origin`, no user's git configuration mentions it
LOCK_POLL_S = 0.05

_SECRET_BYTES = 32
_HEAD = b"ref: refs/heads/main\n"  # this branch does not exist, because our branches are below refs/ctx
_CONFIG = b"[core]\n\trepositoryformatversion = %d\n\tbare = true\n"
_PARTIAL = (
    b'[extensions]\n\tpartialClone = %s\n[remote "%s"]\n\tpromisor = true\n\tpartialclonefilter = blob:none\n'
)


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
        name = self.name
        try:
            self._make_own_folder()
            if self.folder != self.own:
                secret = self._secret()
                name = hashlib.sha256(secret + name.encode()).hexdigest()[:32]
        except OSError as error:
            raise self._unwritable(error) from error
        return os.path.join(self.folder, name + ".git")

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
        not in the clone but are passed to git in environment variables. Raises `SourceError`.
        """
        try:
            for folder in ("", "objects", "objects/pack", "refs"):
                files.make_folder(os.path.join(self.path, folder))
            _remove_leftovers(self.path)
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
        """The user's secret, which is created at the first call."""
        path = os.path.join(self.own, "secret")
        with files.locked(path):
            if not os.path.exists(path):
                files.replace(path, secrets.token_bytes(_SECRET_BYTES))
            return files.read_file(path)

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


def _remove_leftovers(repository: str) -> None:
    """Remove the locks and partial packs of a killed git, which would stop the next one or fill the disk."""
    for folder, _, names in os.walk(repository):
        for name in names:
            if name.endswith((".lock", ".keep")) or name.startswith(("tmp_", ".tmp-", "shallow_")):
                os.unlink(os.path.join(folder, name))
