"""Files in Git LFS: parse the pointer in the repository, and fetch the file with the user's `git lfs`."""

import hashlib
import re
import shutil
from typing import NamedTuple

from ctx.connectors.copies import REMOTE
from ctx.connectors.forges import Remote
from ctx.connectors.gitcmd import Git, GitFailed
from ctx.connectors.opening import read_below, too_large
from ctx.errors import SourceError

POINTER_BYTES = 1024
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:[a-z0-9.-]+ [^\n]*\n)*?oid "
    rb"sha256:([0-9a-f]{64})\nsize ([0-9]{1,15})\n"
)
_BEGINNING = b"version https://git-lfs.github.com/spec/"


class Pointer(NamedTuple):
    """The pointer to a file in Git LFS. `digest` is empty for an unknown kind of pointer."""

    digest: str
    size: int


def pointer_of(data: bytes) -> Pointer | None:
    """Parse a pointer; None for an ordinary file."""
    if len(data) > POINTER_BYTES or not data.startswith(_BEGINNING):
        return None
    match = _POINTER.match(data)
    return Pointer("", 0) if match is None else Pointer(match[1].decode(), int(match[2]))


def lfs_installed() -> bool:
    """Whether `git lfs` is installed."""
    return shutil.which("git-lfs") is not None


def lfs_content(
    git: Git, remote: Remote, pointer: Pointer, data: bytes, *, max_bytes: int, timeout_s: float
) -> bytes:
    """The file that the pointer `data` refers to. Raises `SourceError`.

    `git lfs` fetches it from the repository's own remote and stores it next to our clone. `.lfsconfig` in the
    repository is not read, because it could send the user's credentials elsewhere.
    """
    if pointer.size > max_bytes:
        raise SourceError(too_large(pointer.size, max_bytes))
    content = _beside(remote, pointer) or _fetched(git, data, timeout_s)
    if hashlib.sha256(content).hexdigest() != pointer.digest:
        raise SourceError("its Git LFS file is not what the repository says it is")
    return content


def _beside(remote: Remote, pointer: Pointer) -> bytes | None:
    """The file from the LFS storage of a repository on this machine; None if it is not there. For a local
    remote, `git lfs` would look in our own storage instead.
    """
    if remote.transport not in ("local", "file"):
        return None
    digest = pointer.digest
    for folder in (".git/lfs", "lfs"):
        path = f"{folder}/objects/{digest[:2]}/{digest[2:4]}/{digest}"
        try:
            return read_below(remote.path, path, pointer.size, whole=True)
        except (OSError, SourceError):
            continue  # missing, or of another size
    return None


def _fetched(git: Git, data: bytes, timeout_s: float) -> bytes:
    storage = git.repository.removesuffix(".git") + ".lfs"
    settings = [f"lfs.storage={storage}", f"remote.lfsdefault={REMOTE}", "lfs.concurrenttransfers=2"]
    options = [word for setting in settings for word in ("-c", setting)]
    try:
        return git.run([*options, "lfs", "smudge"], timeout_s=timeout_s, stdin=data)
    except GitFailed as error:
        raise SourceError(f"its Git LFS file cannot be fetched: {error.words}") from error
