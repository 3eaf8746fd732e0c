"""The bytes of one file, opened component by component below a folder: no link in its path is followed."""

import os
import stat
from collections.abc import Callable

from ctx.connectors.stamps import SNIFF_BYTES, looks_binary
from ctx.errors import SourceError
from ctx.formats.table import DOCUMENT_SUFFIXES

READ_ATTEMPTS = 3  # of a file that changes under the reader
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO opens at once, and is then refused
_DOCUMENTS = tuple(f".{suffix}" for suffix in DOCUMENT_SUFFIXES)  # binary, and yet text to a reader


def read_below(root: str, relative: str, max_bytes: int) -> bytes:
    """The bytes of a regular file at a path (with `/`) below a folder; only their beginning where that is
    binary.

    Raises `SourceError` for one of more than `max_bytes`, and `OSError`.

    Of a file that keeps changing, what the last attempt read: its fingerprint is older, so the next run reads
    it again.
    """
    *folders, name = relative.split("/")
    parent = os.open(root, FOLDER)
    try:
        for folder in folders:
            below = os.open(folder, FOLDER, dir_fd=parent)
            os.close(parent)
            parent = below
        fd = os.open(name, FILE, dir_fd=parent)
    finally:
        os.close(parent)
    with open(fd, "rb", buffering=0) as file:
        for _ in range(READ_ATTEMPTS):
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                raise SourceError("is not a regular file any more")
            if before.st_size > max_bytes:
                raise SourceError(too_large(before.st_size, max_bytes))
            file.seek(0)
            head = file.read(SNIFF_BYTES) or b""
            if looks_binary(head) and not name.lower().endswith(_DOCUMENTS):
                return head  # enough for the extractor to see the same
            data = head + read_most(file.read, max_bytes + 1 - len(head))
            after = os.fstat(fd)
            if (before.st_mtime_ns, before.st_ctime_ns, before.st_size) == (
                after.st_mtime_ns,
                after.st_ctime_ns,
                len(data),
            ):
                break
        if len(data) > max_bytes:
            raise SourceError(too_large(len(data), max_bytes))
        return data


def read_most(read: Callable[[int], bytes | None], limit: int) -> bytes:
    parts = []
    while limit > 0:
        part = read(limit)
        if not part:
            break
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def too_large(size_bytes: int, max_file_bytes: int) -> str:
    return f"skipped: {size_bytes} bytes are more than max_file_bytes ({max_file_bytes})"
