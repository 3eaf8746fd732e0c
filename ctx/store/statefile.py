"""A small file of `key value` lines that is whole or absent: what a projection says of itself.

It is replaced at once (a new file is synced, then renamed over the old one) and ends with a checksum, so that
a damaged one is told from a good one. Not JSON, because a keyword search from the command line reads one and
would wait 2 ms for the parser.
"""

import os
from collections.abc import Mapping

from ctx.errors import StoreError
from ctx.files import checksum, read_file

_HEAD = "ctx-state 1"

Stamp = tuple[int, int, int]
"""What changes when a file is replaced: inode, time of change (ns), size."""


def stamp(path: str) -> Stamp | None:
    """The stamp of a file, a microsecond; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def read_state(path: str) -> dict[str, str] | None:
    """The fields of a state file. None where there is none; {} where it is damaged or of another kind."""
    try:
        data = read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"the index cannot be read: {error.strerror} (check its folder)") from error
    body, _, last = data.rstrip(b"\n").rpartition(b"\n")
    if last != b"sum %016x" % checksum(body) and last != b"sum " + former_sum(body).encode():
        return {}
    lines = body.decode("utf-8").split("\n")
    if lines[0] != _HEAD:
        return {}
    return dict(_pair(line) for line in lines[1:])


def write_state(path: str, fields: Mapping[str, str | int]) -> None:
    """Replaces a state file, durably. Values hold no line breaks. Raises `OSError`."""
    from ctx.file_writing import replace  # what a search does without

    lines = [_HEAD, *(f"{key} {value}" for key, value in fields.items())]
    body = "\n".join(lines).encode("utf-8")
    replace(path, body + b"\nsum %016x\n" % checksum(body))


def former_sum(data: bytes) -> str:
    """What tells a damaged file where an older ctx has noted it."""
    import zlib  # which a search of a store that was written since does without

    return f"{zlib.crc32(data):08x}"


def _pair(line: str) -> tuple[str, str]:
    key, _, value = line.partition(" ")
    return key, value
