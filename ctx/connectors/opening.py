"""Read one file of a folder: its fingerprint from `stat`, and its content without following links."""

import os
import stat
from collections.abc import Callable
from functools import partial
from operator import attrgetter

from ctx.errors import SourceError
from ctx.formats.encoding import SNIFF_BYTES
from ctx.formats.table import DOCUMENT_SUFFIXES

FINE_TICK_NS = 100_000_000  # ten times the resolution of kernel timestamps (1 to 10 ms)
COARSE_TICK_NS = 2_500_000_000  # FAT stores two seconds, HFS+ and old servers one
CLOCK_SKEW_NS = 3_600_000_000_000  # a timestamp further in the future is a wrong date, not clock skew
RACY = "~"  # ends the fingerprint of a file that may still change without a new timestamp

# `looks_binary` does not judge files that begin with a byte order mark, or gzip, which may contain text.
_NOT_JUDGED = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff", b"\xef\xbb\xbf", b"\x1f\x8b")
STAMP = attrgetter("st_mtime_ns", "st_ctime_ns", "st_size", "st_ino")
READ_ATTEMPTS = 3  # for a file that changes while it is read
_PART_BYTES = 16_384  # to read at once if the size is unknown
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opens a FIFO at once; it is refused later
_DOCUMENTS = tuple(f".{suffix}" for suffix in DOCUMENT_SUFFIXES)  # binary formats that contain text


def fingerprint(st: os.stat_result) -> str:
    """A fingerprint that changes whenever the file may have changed.

    ctime detects what mtime does not (a moved older file, `cp -p`, two edits in one second); inode and size
    detect changes after the clock was set back. Python's hash of integers is the same in every process. An
    item's fingerprint also has the scope's tag.
    """
    return hex(hash(STAMP(st)))


def may_still_change(st: os.stat_result, now_ns: int) -> bool:
    """Whether a later write could leave the same timestamp, because the file system's clock is too coarse.

    `now_ns` must not be later than the `stat` call.
    """
    for stamp_ns in (st.st_mtime_ns, st.st_ctime_ns):
        tick_ns = FINE_TICK_NS if stamp_ns % 1_000_000_000 else COARSE_TICK_NS
        if now_ns - tick_ns < stamp_ns < now_ns + CLOCK_SKEW_NS:
            return True
    return False


def looks_binary(head: bytes) -> bool:
    """Whether the first `SNIFF_BYTES` of a file cannot be text in any encoding.

    In doubt the answer is False: the whole file is read and the extractor decides.
    """
    head = head[: len(head) // 4 * 4]
    if b"\0" not in head or head.startswith(_NOT_JUDGED):
        return False
    if not (head[::2].count(0) and head[1::2].count(0)):
        return False  # in UTF-16 the NULs are all at even or all at odd places
    return max(head[::4].count(0), head[3::4].count(0)) < len(head) // 4  # in UTF-32 every fourth byte is NUL


def read_below(root: str, relative: str, max_bytes: int, *, whole: bool = False) -> bytes:
    """Read a regular file below the folder `root`; `relative` is its path with `/`. Of a binary file that is
    not a document, only the first `SNIFF_BYTES` are read, unless `whole`.

    If the file keeps changing, returns the content of the last attempt. Its fingerprint is older, so the next
    run reads it again. Raises `OSError`, and `SourceError` for more than `max_bytes`.
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
    try:
        return _read(fd, name, max_bytes, whole)
    finally:
        os.close(fd)


def _read(fd: int, name: str, max_bytes: int, whole: bool) -> bytes:
    """Does the same as `read_below`, for an open file."""
    for _ in range(READ_ATTEMPTS):
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise SourceError("is not a regular file any more")
        if before.st_size > max_bytes:
            raise SourceError(too_large(before.st_size, max_bytes))
        os.lseek(fd, 0, os.SEEK_SET)
        head = os.read(fd, SNIFF_BYTES)
        if not whole and looks_binary(head) and not name.lower().endswith(_DOCUMENTS):
            return head  # enough for the extractor to see that it is binary
        data = head
        if len(head) != before.st_size:
            expected = before.st_size - len(head)
            data += read_most(partial(os.read, fd), max_bytes + 1 - len(head), expected + 1)
        after = os.fstat(fd)
        times = (after.st_mtime_ns, after.st_ctime_ns, len(data))
        if (before.st_mtime_ns, before.st_ctime_ns, before.st_size) == times:
            break
    if len(data) > max_bytes:
        raise SourceError(too_large(len(data), max_bytes))
    return data


def read_most(read: Callable[[int], bytes | None], limit: int, expected: int = 0) -> bytes:
    """Call `read` until it returns nothing, for at most `limit` bytes, about `expected` at once.

    Reading `limit` bytes at once would allocate a buffer of that size for each small file.
    """
    parts = []
    while limit > 0:
        part = read(min(limit, max(expected, _PART_BYTES)))
        if not part:
            break
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def too_large(size_bytes: int, max_file_bytes: int) -> str:
    """The message for a file of this size."""
    return f"{size_bytes:,} bytes are more than max_file_bytes ({max_file_bytes:,}), which may be raised"
