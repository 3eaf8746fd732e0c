"""Small JSON files of one user that several processes change: one at a time, and never half."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ctx.types import JSON


@contextmanager
def alone(path: str) -> Iterator[None]:
    """Waits until no other process changes the file, and keeps others waiting; makes its folder, 0700. Raises `OSError`.

    The lock is on `PATH.lock`, since the file itself is replaced by a change.
    """
    os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace(path: str, content: JSON, *, indent: int | None = None) -> None:
    """Puts a file of mode 0600 in place of the one there is, durably. Raises `OSError`, and `ValueError` for what JSON cannot say."""
    partial = f"{path}.partial-{os.getpid()}"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=indent)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
