"""Small JSON files with a checksum, replaced atomically: the state of an index."""

import json
import os
import zlib
from collections.abc import Mapping
from typing import Any

from ctx import files
from ctx.errors import StoreError

# of vectors.py, which needs numpy (70 ms) and is not imported to see that nothing has changed
VECTORS_FORMAT = 4
OPEN_TRIES = 5  # the files that a state names may be replaced before they are opened

Stamp = tuple[int, int, int]
"""Changes when a file is replaced: inode, modification time (ns), size."""


def stamp(path: str) -> Stamp | None:
    """The stamp of a file; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def read_state(path: str) -> dict[str, Any] | None:
    """The fields of a state file. None if there is none; {} if it is damaged or from an older ctx."""
    try:
        data = files.read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"the index cannot be read: {error.strerror} (check its folder)") from error
    body, _, checksum = data.rstrip(b"\n").rpartition(b"\n")
    if checksum != b"%08x" % zlib.crc32(body):
        return {}
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def write_state(path: str, fields: Mapping[str, Any]) -> None:
    """Replaces a state file durably. Raises `OSError`."""
    body = json.dumps(fields).encode()
    files.replace(path, b"%s\n%08x\n" % (body, zlib.crc32(body)))
