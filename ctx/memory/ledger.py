"""The number of acknowledged memories, in a small file next to `memory.db`. If the database has fewer, some
were lost.

The number never exceeds the stored memories: it is raised after a write is committed, and lowered, durably,
before a removal is committed. So a process killed in between causes no false alarm. A lock held from before
the commit until the number is written excludes other processes.
"""

import fcntl
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from ctx import files

logger = logging.getLogger(__name__)

_SUFFIX = ".count"
_BYTES = 512  # in place, and less than a disk's sector: a write of it is never half done


@dataclass(frozen=True)
class Count:
    """The acknowledged memories. `changes` is the number of the last change; `lost` counts memories found
    missing since the store was last restored or accepted.
    """

    memories: int = 0
    changes: int = 0
    lost: int = 0
    lost_changes: int = 0


class Ledger:
    """The count of one `memory.db`. Safe from several threads and processes."""

    def __init__(self, memory: str) -> None:
        self.path = memory + _SUFFIX

    @contextmanager
    def held(self) -> "Iterator[Page]":
        """Nobody else counts meanwhile. Raises `OSError`."""
        folder = os.path.dirname(os.path.abspath(self.path))
        descriptor = files.open_file(self.path, os.O_RDWR | os.O_CREAT, beneath=folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Page(descriptor)
        finally:
            os.close(descriptor)

    def read(self) -> Count | None:
        """The stored count; None if there is none or it cannot be read."""
        with suppress(OSError):
            return _parsed(files.read_file(self.path, beneath=os.path.dirname(os.path.abspath(self.path))))
        return None

    def reset(self, memories: int, changes: int) -> None:
        """Accepts what is stored now as all there is. Raises `OSError`."""
        with self.held() as page:
            page.write(Count(memories, changes), durable=True)


class Page:
    """The open file, while it is locked."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.count = _parsed(os.pread(descriptor, _BYTES, 0)) or Count()

    def compare(self, memories: int, changes: int) -> Count:
        """Records missing memories. No process may be between a commit and its count."""
        count = self.count
        lost, lost_changes = max(0, count.memories - memories), max(0, count.changes - changes)
        if lost or lost_changes:
            self.write(
                Count(memories, changes, count.lost + lost, count.lost_changes + lost_changes), durable=True
            )
        elif (memories, changes) != (count.memories, count.changes):
            self.write(replace(count, memories=memories, changes=changes))
        return self.count

    def lower(self, memories: int, changes: int) -> None:
        """Before a commit: counts no more than there will be after it."""
        least = replace(
            self.count,
            memories=min(memories, self.count.memories),
            changes=min(changes, self.count.changes),
        )
        if least != self.count:
            self.write(least, durable=True)

    def raise_to(self, memories: int, changes: int) -> None:
        """After a commit: counts what is stored now."""
        self.write(replace(self.count, memories=memories, changes=changes))

    def write(self, count: Count, *, durable: bool = False) -> None:
        content = json.dumps(asdict(count)).encode()
        os.pwrite(self._descriptor, content.ljust(_BYTES), 0)
        if durable:
            os.fsync(self._descriptor)
        self.count = count


def _parsed(content: bytes) -> Count | None:
    try:
        values = json.loads(content)
        return Count(**{name: int(values[name]) for name in Count.__dataclass_fields__})
    except (ValueError, LookupError, TypeError):
        return None
