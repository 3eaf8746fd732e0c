"""Changes ctx's own files: one process at a time, and atomically. ctx/files.py explains how files are opened,
and `beneath`.
"""

import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ctx.files import PATIENT, enter, make_folder, open_file

# Age of a partial file after which its unknown process (perhaps in another container) counts as dead.
_ABANDONED_S = 600


@contextmanager
def locked(path: str, *, beneath: str | None = None) -> Iterator[None]:
    """Holds the lock `PATH.lock`, so that no other process changes the file. Makes its folder with 0700.
    Raises `OSError`.
    """
    make_folder(os.path.dirname(path) or ".", beneath=beneath)
    descriptor = open_file(f"{path}.lock", os.O_RDWR | os.O_CREAT, beneath=beneath)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def writing(label: str, kind: type[Exception]) -> Iterator[None]:
    """Raises an `OSError` of the block as `kind`: "LABEL cannot be written"."""
    try:
        yield
    except OSError as error:
        raise kind(f"{label} cannot be written: {error.strerror or error}") from error


@contextmanager
def replacement(path: str, *, mode: int = 0o600, beneath: str | None = None) -> Iterator[int]:
    """Yields the descriptor of a new file, which replaces `path` durably at the end of the block, or is
    deleted if the block raises.

    Readers find the whole old or the whole new file. A link at `path` is replaced, not followed. Raises
    `OSError`; for a folder at `path` before anything is written.
    """
    folder, name = enter(path, beneath)
    try:
        _check_replaceable(name, folder)
        partial = f"{name}.partial-{os.getpid()}"
        _unlink(partial, folder)  # of a dead process with the same number, or planted by someone
        _delete_abandoned(name, folder)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | PATIENT, mode, dir_fd=folder)
        try:
            try:
                os.fchmod(descriptor, mode)  # independent of the umask
                yield descriptor
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        finally:
            _unlink(partial, folder)
    finally:
        os.close(folder)


def replace(path: str, content: bytes, *, mode: int = 0o600, beneath: str | None = None) -> None:
    """Replaces a file like `replacement`. Raises `OSError`."""
    with replacement(path, mode=mode, beneath=beneath) as descriptor:
        remainder = memoryview(content)
        while remainder:
            remainder = remainder[os.write(descriptor, remainder) :]


def delete_folder(path: str) -> None:
    """Deletes a folder with its content, or a link in its place, as far as possible: on a network file system
    a reader may hold a file.
    """
    if os.path.islink(path):
        os.unlink(path)
    elif os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)


def free_bytes(path: str) -> int:
    """Free space on the disk of `path`. Raises `OSError`."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def sync(path: str) -> None:
    """Makes the content of a file, or the names in a folder, durable. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_replaceable(name: str, folder: int) -> None:
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode if name else stat.S_IFDIR
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, "it is a folder: choose a file in it")
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise OSError(
            errno.EINVAL, "it is a device or a pipe, which cannot be replaced: write to standard output"
        )


def _delete_abandoned(name: str, folder: int) -> None:
    """Deletes partial files of killed processes."""
    for entry in os.listdir(folder):
        number = entry.removeprefix(f"{name}.partial-")
        if number == entry or not number.isdecimal() or _runs(int(number)):
            continue
        try:
            idle_s = time.time() - os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mtime
        except FileNotFoundError:
            continue
        if idle_s > _ABANDONED_S:
            _unlink(entry, folder)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _unlink(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
