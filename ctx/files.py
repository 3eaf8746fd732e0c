"""Opens and replaces ctx's own files without following links, and keeps them private.

A cloned repository can contain links. For example, a lock file could be a link to an SSH key, and writing to
it would destroy the key. `beneath` names a folder that ctx owns: neither it nor anything below it may be a
link, a pipe or a device, and to be written it must belong to this user or root. Without `beneath`, only the
file itself is checked, because the user's own folders (`~/.config`) may be links. If ctx refuses a file, the
`strerror` of the `OSError` is a sentence that says why.
"""

import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe that has no reader would block.
PATIENT = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_WRITING = os.O_WRONLY | os.O_RDWR
_PRIVATE, _OTHERS = 0o600, 0o077

_PIECE_BYTES = 1 << 16  # to read at a time
_LINK = "`%s` is a link, which ctx does not follow there: remove it"
_NO_FILE = "`%s` is not a file: remove it, or choose another path"

Identity = tuple[int, int]
"""(device, inode) of a file, which identifies it independently of its name."""


def open_file(path: str, flags: int, *, beneath: str | None = None) -> int:
    """Opens a regular file and returns its descriptor. A file that is opened for writing must belong to this
    user (or root), and its mode becomes 0600 if other users could read it.

    `flags` are those of `os.open`; O_TRUNC takes effect after the checks. Raises `OSError`.
    """
    folder, name = enter(path, beneath)
    try:
        return _opened(name, flags & ~os.O_TRUNC | PATIENT, folder, partial(_check_file, flags=flags))
    finally:
        os.close(folder)


def read_file(path: str, *, beneath: str | None = None, most: int = -1) -> bytes:
    """The content of a regular file, or its first `most` bytes. Raises `OSError`."""
    with open(open_file(path, os.O_RDONLY, beneath=beneath), "rb") as file:
        return file.read() if most < 0 else read_most(file.read, most)


def read_most(read: Callable[[int], bytes], limit: int) -> bytes:
    """Calls `read` until it returns nothing, for at most `limit` bytes. It reads in pieces, because Python
    allocates as many bytes as it is asked for, even for a small file.
    """
    data = bytearray()  # adding to `bytes` would copy all of it each time
    while len(data) < limit and (piece := read(min(limit - len(data), _PIECE_BYTES))):
        data += piece
    return bytes(data)


def make_folder(path: str, *, beneath: str | None = None, alone: bool = False) -> None:
    """Creates a folder and its missing parents with mode 0700, whatever the umask. An existing folder keeps
    its mode. Raises `OSError`.

    With `beneath`, all folders from `beneath` down to `path` must belong to this user (or root), and none may
    be a link. `alone`: creates no parents.
    """
    path = os.path.abspath(path)
    if alone and not os.path.isdir(os.path.dirname(path)):
        raise FileNotFoundError(errno.ENOENT, f"the folder {os.path.basename(os.path.dirname(path))} is gone")
    _make_folders(path)
    if beneath is not None:
        check_folder(path, beneath=beneath, writing=True)


def _make_folders(path: str) -> None:
    if os.path.isdir(path):
        return
    _make_folders(os.path.dirname(path))
    try:
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)  # the umask may have removed bits
    except FileExistsError:
        if not os.path.isdir(path):
            raise OSError(errno.ENOTDIR, f"`{os.path.basename(path)}` is not a folder: remove it") from None


def check_folder(path: str, *, beneath: str, writing: bool = False) -> None:
    """Raises `OSError` if a folder from `beneath` down to `path` is a link. With `writing`, all these folders
    must also belong to this user (or root).
    """
    os.close(_open_folder(path, beneath, writing=writing))


def check_file(path: str, *, beneath: str, own: bool = False, private: bool = False) -> Identity | None:
    """The identity of the regular file at `path`; None if there is no file. Raises `OSError` for a link, a
    folder, a pipe or a device.

    `own`: the file must belong to this user (or root). `private`: like `own`, and the file's mode becomes
    0600 if other users could read it. The file is not opened, because closing it would release SQLite's locks
    on it in this process.
    """
    folder, name = enter(path, beneath)
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, _LINK % name)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, _NO_FILE % name)
        if own or private:
            _check_owner(status, name)
        if private and _too_open(status):
            os.chmod(name, _PRIVATE, dir_fd=folder)
        return (status.st_dev, status.st_ino)
    except FileNotFoundError:
        return None
    finally:
        os.close(folder)


def check_plain(path: str) -> None:
    """Raises `OSError` if a folder contains anything but regular files. Needed for search engines that open
    the files in the folder themselves.
    """
    with os.scandir(path) as entries:
        for entry in entries:
            if not entry.is_file(follow_symlinks=False):
                raise OSError(
                    errno.ELOOP,
                    f"`{entry.name}` is a link or not a file, which ctx does not open there: remove it",
                )


def irregular(path: str) -> bool:
    """Whether `path` exists and is not a regular file. (Opening a pipe would block.)"""
    return os.path.exists(path) and not os.path.isfile(path)


def work_tree(folder: str) -> str | None:
    """The top folder of the git work tree that contains `folder`; None if there is none."""
    while not os.path.lexists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def identity(path: str) -> Identity | None:
    """The identity of the file at `path`, without following a link; None if it does not exist."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


def stamp(path: str) -> tuple[int, ...]:
    """A value that changes when a file, or the list of names in a folder, changes. It is all zeros if `path`
    does not exist.
    """
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0, 0, 0)
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def state_folder(environ: Mapping[str, str]) -> str:
    """The user's folder for state that ctx keeps between runs, outside all projects."""
    home = environ.get("XDG_STATE_HOME") or ""
    # The XDG standard says to ignore a relative path. A relative path could lead to a folder of a cloned
    # repository.
    if not os.path.isabs(home):
        home = os.path.join(environ.get("HOME") or "/", ".local", "state")
    return os.path.join(home, "ctx")


def sqlite_address(path: str, option: str) -> str:
    """The URI of a database file for SQLite, with an option such as `mode=rw` or `immutable=1`."""
    return "file:" + path.replace("%", "%25").replace("?", "%3f").replace("#", "%23") + "?" + option


def enter(path: str, beneath: str | None) -> tuple[int, str]:
    """(an open descriptor of the folder of `path`, the file's name in this folder). The caller must close the
    descriptor. Raises `OSError`.
    """
    folder, name = os.path.split(path)
    if beneath is None:
        return _opened(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, None, None), name
    return _open_folder(folder, beneath, writing=False), name


def _open_folder(path: str, beneath: str, *, writing: bool) -> int:
    """Opens the folders from `beneath` down to `path` one after the other, without following links. Returns
    the descriptor of the last.
    """
    inside = os.path.relpath(path or ".", beneath or ".")
    steps = [] if inside == "." else inside.split(os.sep)
    if ".." in steps:
        raise OSError(errno.EXDEV, "a path leads out of the folder of the store")
    folder: int | None = None
    for step in (beneath or ".", *steps):
        try:
            below = _opened(step, _FOLDER, folder, _check_folder_owner if writing else None)
        finally:
            if folder is not None:
                os.close(folder)
        folder = below
    return below


def _opened(name: str, flags: int, folder: int | None, check: Callable[[int, str], None] | None) -> int:
    """The descriptor of a file or folder in the open `folder`. If `check(descriptor, name)` raises an error,
    it is closed.
    """
    try:
        descriptor = os.open(name, flags, _PRIVATE, dir_fd=folder)
    except OSError as error:
        raise _said(error, name, folder) from None
    try:
        if check is not None:
            check(descriptor, name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_folder_owner(descriptor: int, name: str) -> None:
    _check_owner(os.fstat(descriptor), os.path.basename(name) or name)


def _check_file(descriptor: int, name: str, flags: int) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, _NO_FILE % name)
    if not flags & _WRITING:
        return
    _check_owner(status, name)
    if _too_open(status):
        os.fchmod(descriptor, _PRIVATE)
    if flags & os.O_TRUNC:
        os.ftruncate(descriptor, 0)


def _too_open(status: os.stat_result) -> bool:
    """Whether this user's file must get mode 0600: other users can access it, or its owner cannot read it
    (due to a strict umask).
    """
    exposed = status.st_mode & _OTHERS
    return status.st_uid == os.geteuid() and bool(exposed or not status.st_mode & stat.S_IRUSR)


def _check_owner(status: os.stat_result, name: str) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise OSError(
            errno.EPERM,
            f"`{name}` belongs to another user (uid {status.st_uid}): run ctx as that user, or give it to "
            "yours with chown",
        )


def _said(error: OSError, name: str, folder: int | None) -> OSError:
    """The error, with a sentence as its message if a link, a folder or a pipe caused it."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        try:
            linked = stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except OSError:
            return error
        label = os.path.basename(name) or name
        return OSError(
            error.errno,
            (_LINK if linked else "`%s` is not a folder: remove it, or choose another path") % label,
        )
    if error.errno in (errno.EISDIR, errno.ENXIO):
        return OSError(error.errno, _NO_FILE % name)
    return error


# A partial file that was not written to for this time counts as abandoned.
_ABANDONED_S = 600


@contextmanager
def locked(path: str, *, beneath: str | None = None) -> Iterator[None]:
    """A context manager that holds the lock file `PATH.lock`, so that no other process changes the file at
    `path`. Creates a missing folder with mode 0700. Raises `OSError`.
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
    """A context manager that raises an `OSError` of its block as `kind`, with the message "LABEL cannot be
    written: REASON".
    """
    try:
        yield
    except OSError as error:
        raise kind(f"{label} cannot be written: {error.strerror or error}") from error


@contextmanager
def replacement(path: str, *, mode: int = 0o600, beneath: str | None = None) -> Iterator[int]:
    """A context manager that yields the descriptor of a new file. At the end of the block, the new file
    replaces `path` durably. If the block raises an error, the new file is deleted.

    Readers see either the whole old file or the whole new file. A link at `path` is replaced, not followed.
    Raises `OSError`. If `path` is a folder, the error is raised before anything is written.
    """
    folder, name = enter(path, beneath)
    try:
        _check_replaceable(name, folder)
        partial = f"{name}.partial-{os.getpid()}"
        _unlink(partial, folder)  # a dead process with the same id, or an attacker, may have left this file
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
    """Replaces the file at `path` by one with this content, in the same way as `replacement`. Raises
    `OSError`.
    """
    with replacement(path, mode=mode, beneath=beneath) as descriptor:
        remainder = memoryview(content)
        while remainder:
            remainder = remainder[os.write(descriptor, remainder) :]


def delete_folder(path: str) -> None:
    """Deletes a folder with its content, or the link at `path`. Files that cannot be deleted are left,
    because on a network file system a reader may still have them open.
    """
    if os.path.islink(path):
        os.unlink(path)
    elif os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)


def free_bytes(path: str) -> int:
    """The number of free bytes on the disk of `path`. Raises `OSError`."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def sync(path: str) -> None:
    """Writes the content of a file, or the list of names in a folder, to the disk (fsync). Raises
    `OSError`.
    """
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
    """Deletes the partial files that killed processes left."""
    for entry in os.listdir(folder):
        number = entry.removeprefix(f"{name}.partial-")
        if number == entry or not number.isdecimal():
            continue
        with suppress(FileNotFoundError):  # another process may delete the file at the same time
            idle_s = time.time() - os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mtime
            if idle_s > _ABANDONED_S:
                os.unlink(entry, dir_fd=folder)


def _unlink(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def bundled_path(*parts: str) -> str:
    """The path of a file that ships with ctx. In a checkout it is next to the package, and in a wheel inside
    the package (`_bundled/`).
    """
    installed = os.path.join(_PACKAGE, "_bundled", *parts)
    return installed if os.path.exists(installed) else os.path.join(os.path.dirname(_PACKAGE), *parts)


def loader_variables() -> dict[str, str]:
    """The environment of a process without privileges: only the variables that a Python outside the system's
    folders may need to find its libraries.
    """
    names = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    return {name: os.environ[name] for name in names if name in os.environ}
