"""The files that ctx keeps: replaced at once, changed by one process at a time, readable by their owner alone."""

import os


class Locked:
    """Waits until no other process changes the file, and keeps others waiting; makes its folder, 0700. Raises `OSError`.

    The lock is on `PATH.lock`, since the file itself is replaced by a change. (A class, because `contextlib` is 2 ms of
    `ctx search`, which needs this module and never a lock.)
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> None:
        import fcntl

        os.makedirs(os.path.dirname(self._path) or ".", mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(f"{self._path}.lock", flags, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __exit__(self, *exception: object) -> None:
        os.close(self._descriptor)


def replace(path: str, content: bytes, *, mode: int = 0o600) -> None:
    """Puts a file in place of the one there is, durably: whoever looks finds the old or the new one, whole. Raises `OSError`."""
    partial = f"{path}.partial-{os.getpid()}"
    try:
        os.unlink(partial)  # of a process that died under this number; or a link that somebody laid
    except FileNotFoundError:
        pass
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise
    sync_folder(os.path.dirname(path) or ".")


def sync_folder(path: str) -> None:
    """Makes the names in a folder durable. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
