"""Rolling copies of `memory.db` next to it: `memory.db.1` is the newest of three, about a day apart.

A copy is made by SQLite's online backup while others read and write, and replaces an older one only once
every page of it is known to be sound.
"""

import glob
import logging
import os
import time
from contextlib import closing
from itertools import pairwise
from threading import Event

from ctx import files
from ctx.errors import StoreError
from ctx.memory.ledger import Ledger
from ctx.store.schema import connect, copy_database, discard_copy, translating

RESTORED = ".restored"  # the suffix of a restored file until it is in place

logger = logging.getLogger(__name__)

KEPT = 3
DAY_S = 86_400
_CHECK_S = 3600  # how often a server looks whether a day has passed


def copies(memory: str) -> list[str]:
    """The copies that are there, the newest first."""
    return [path for path in _names(memory) if os.path.isfile(path)]


def _names(memory: str) -> list[str]:
    return [f"{memory}.{number}" for number in range(1, KEPT + 1)]


def is_sound(path: str) -> bool:
    """Whether every page of a file is sound. It may be of no length, which SQLite takes for an empty one."""
    try:
        with closing(connect(path, read_only=True)) as connection, translating():
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            return bool(tables) and connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
    except StoreError:
        return False


def copy_if_changed(memory: str, *, daily: bool = False) -> bool:
    """Makes a copy if the memories changed since the newest; whether it did. `daily`: and a day has passed.

    A file that lost memories, or is damaged, is not copied over sound copies. What goes wrong is logged.
    """
    try:
        changed_s = max(_mtime_s(memory), _mtime_s(f"{memory}-wal"))
        newest_s = max(map(_mtime_s, copies(memory)), default=0.0)
        if changed_s <= newest_s or (daily and time.time() - newest_s < DAY_S):
            return False
        count = Ledger(memory).read()
        if not os.path.isfile(memory) or (count is not None and (count.lost or count.lost_changes)):
            return False
        if files.free_bytes(os.path.dirname(memory)) < 2 * os.stat(memory).st_size:
            logger.warning("memory=copy outcome=disk_full path=%s", memory)
            return False
        with files.locked(f"{memory}.copy", beneath=os.path.dirname(memory)):
            return _copy(memory)
    except (OSError, StoreError) as error:
        logger.warning("memory=copy outcome=failed path=%s reason=%s", memory, error)
        return False


def _copy(memory: str) -> bool:
    made = f"{memory}.copied"
    with closing(connect(memory, read_only=True)) as connection:
        copy_database(connection, f"{memory}.copying", made)
    if not is_sound(made):
        discard_copy(made)
        logger.error("memory=copy outcome=damaged path=%s mend='ctx doctor'", memory)
        return False
    first, second, *_ = names = _names(memory)
    # A copy less than a day younger than the one before makes way; else each moves down.
    if not (os.path.exists(second) and _mtime_s(first) - _mtime_s(second) < DAY_S):
        for newer, older in reversed([*pairwise(names)]):
            if os.path.exists(newer):
                os.replace(newer, older)
    os.replace(made, first)
    files.sync(os.path.dirname(memory))
    return True


def _mtime_s(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def renew(memory: str) -> None:
    """Deletes the copies and set-aside damaged files, because they contain memories that were just erased.
    Then makes a new copy if there were any.
    """
    old = [*copies(memory), *glob.glob(f"{glob.escape(memory)}.damaged-*")]
    for path in old:
        discard_copy(path)
    if old:
        copy_if_changed(memory)


def keep_copies(memory: str, stop: Event) -> None:
    """Makes a copy each day until `stop` is set, and one then."""
    while not stop.wait(_CHECK_S):
        copy_if_changed(memory, daily=True)
    copy_if_changed(memory)
