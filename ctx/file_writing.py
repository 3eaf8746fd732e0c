"""How the files that ctx keeps are changed: by one process at a time, replaced at once (ctx/files.py says how
they are opened, and what `beneath` is).
"""

import errno
import os
import stat
import time

from ctx.files import PATIENT, enter, make_folder, open_file

# A half written file whose process is not to be seen: it may be another container's, writing.
_ABANDONED_S = 600


class Locked:
    """Waits until no other process changes the file, and keeps others waiting; makes its folder, 0700. Raises
    `OSError`.

    The lock is on `PATH.lock`, since the file itself is replaced by a change.
    """

    def __init__(self, path: str, *, beneath: str | None = None) -> None:
        self._path = path
        self._beneath = beneath
        self._descriptor = -1

    def __enter__(self) -> None:
        import fcntl

        make_folder(os.path.dirname(self._path) or ".", beneath=self._beneath)
        self._descriptor = open_file(f"{self._path}.lock", os.O_RDWR | os.O_CREAT, beneath=self._beneath)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __exit__(self, *exception: object) -> None:
        os.close(self._descriptor)


class Writing:
    """A block that writes what is called `label`: an `OSError` in it is raised as ours, of this `kind`."""

    def __init__(self, label: str, kind: type[Exception]) -> None:
        self._label = label
        self._kind = kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise self._kind(f"{self._label} cannot be written: {error.strerror or error}") from error


class Replacement:
    """A file to write that takes the place of `path` when the block ends, durably, and leaves nothing behind
    if it raises.

    `with Replacement(path) as descriptor`: whoever looks finds the old file or the new one, whole. A link at
    `path` is replaced, not followed. The descriptor is closed here. Raises `OSError`, a folder at `path`
    before anything is written.
    """

    def __init__(self, path: str, *, mode: int = 0o600, beneath: str | None = None) -> None:
        self._path = path
        self._mode = mode
        self._beneath = beneath

    def __enter__(self) -> int:
        self._folder, self._name = enter(self._path, self._beneath)
        try:
            _check_replaceable(self._name, self._folder)
            self._partial = f"{self._name}.partial-{os.getpid()}"
            _unlink(self._partial, self._folder)  # of a process of this number that died, or laid by others
            _delete_abandoned(self._name, self._folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PATIENT
            self._descriptor = os.open(self._partial, flags, self._mode, dir_fd=self._folder)
            os.fchmod(self._descriptor, self._mode)  # whatever the umask
        except BaseException:
            os.close(self._folder)
            raise
        return self._descriptor

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            try:
                if kind is None:
                    os.fsync(self._descriptor)
            finally:
                os.close(self._descriptor)
            if kind is None:
                os.replace(self._partial, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
                os.fsync(self._folder)
        finally:
            _unlink(self._partial, self._folder)
            os.close(self._folder)


def replace(path: str, content: bytes, *, mode: int = 0o600, beneath: str | None = None) -> None:
    """Puts a file in place of the one there is, as `Replacement` does. Raises `OSError`."""
    with Replacement(path, mode=mode, beneath=beneath) as descriptor:
        remainder = memoryview(content)
        while remainder:
            remainder = remainder[os.write(descriptor, remainder) :]


def delete_folder(path: str) -> None:
    """Removes a folder with all in it, or the link that stands in its place, as far as the system lets us: a
    reader on a network file system may hold a file.
    """
    if os.path.islink(path):
        os.unlink(path)
    elif os.path.isdir(path):
        import shutil  # 5 ms; only a writer comes here

        shutil.rmtree(path, ignore_errors=True)


def free_bytes(path: str) -> int:
    """What the disk that `path` is on has left for us. Raises `OSError`."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def sync_folder(path: str) -> None:
    """Makes the names in a folder durable. Raises `OSError`."""
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
        raise OSError(errno.EISDIR, "it is a folder, and a file is to be written: name a file in it")
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise OSError(
            errno.EINVAL, "it is a device or a pipe, which cannot be replaced: write to standard output"
        )


def _delete_abandoned(name: str, folder: int) -> None:
    """Deletes what killed processes left half written for this name."""
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
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
