"""What a file's stat and its first bytes tell of it, before it is read."""

import os
from operator import attrgetter

SNIFF_BYTES = 8192
FINE_TICK_NS = 100_000_000  # kernels stamp files with a clock of 1 to 10 ms; ten times that
COARSE_TICK_NS = 2_500_000_000  # FAT keeps two seconds, HFS+ and old servers one
CLOCK_SKEW_NS = 3_600_000_000_000  # a stamp further ahead is a wrong date, not a server's clock
RACY = "~"  # follows the fingerprint of a file that may yet change without a new stamp

# Byte order marks; gzip, which may hold text.
_NOT_JUDGED = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff", b"\xef\xbb\xbf", b"\x1f\x8b")
STAMP = attrgetter("st_mtime_ns", "st_ctime_ns", "st_size", "st_ino")


def fingerprint(st: os.stat_result) -> str:
    """Changes whenever the file may have changed.

    ctime sees what mtime does not (a move of an older file, `cp -p`, two edits in one second), inode and size
    what a clock set back would hide. The hash of integers is the same in every process; a Python that
    computes it otherwise reads every file once more. An item's fingerprint has the scope's tag after it.
    """
    return hex(hash(STAMP(st)))


def may_still_change(st: os.stat_result, now_ns: int) -> bool:
    """Whether a later write could leave this very stamp, because the clock of the file system has not moved
    on since.

    `now_ns` must not be later than the moment of the stat.
    """
    for stamp_ns in (st.st_mtime_ns, st.st_ctime_ns):
        tick_ns = FINE_TICK_NS if stamp_ns % 1_000_000_000 else COARSE_TICK_NS
        if now_ns - tick_ns < stamp_ns < now_ns + CLOCK_SKEW_NS:
            return True
    return False


def looks_binary(head: bytes) -> bool:
    """Whether the first `SNIFF_BYTES` of a file cannot be text in any encoding.

    Says less than the extractor does, and never other than it: in doubt the file is read whole and the
    extractor decides.
    """
    head = head[: len(head) // 4 * 4]
    if b"\0" not in head or head.startswith(_NOT_JUDGED):
        return False
    if not (head[::2].count(0) and head[1::2].count(0)):
        return False  # UTF-16 has its NULs on one side
    return max(head[::4].count(0), head[3::4].count(0)) < len(head) // 4  # in UTF-32 every fourth byte is one
