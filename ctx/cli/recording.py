"""Has the opening of a project (ctx/server/opening.py) recorded before a client comes for the first time.

A process of its own does it, behind the command and out of everybody's way: it takes half a second of
processor time, which the first client else waits for.
"""

import os
import sys
from collections.abc import Sequence

from ctx import files
from ctx.config import Config

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def opening_slot(config: Config) -> str | None:
    """The file for the opening of a project; None where the user has no folder for such things."""
    return files.cache_slot("opening", config.path or config.root, os.environ)


def record_soon(config: Config, arguments: Sequence[str] = ()) -> None:
    """Starts the recording, unless there was one since the configuration and ctx were changed last; returns
    at once. `arguments` are those that a client will give `ctx mcp`.
    """
    slot = opening_slot(config)
    if slot is None or config.path is None or config.packs.enabled:
        return
    if _changed_s(slot) > max(_changed_s(config.path), _changed_s(_PACKAGE)):
        return
    command = [sys.executable, "-P", "-m", "ctx.cli.recorder", *arguments]
    nowhere = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)]
    try:
        files.make_folder(os.path.dirname(slot))
        # Claimed, so that a recording that fails is not tried with every command.
        descriptor = files.open_file(slot, os.O_WRONLY | os.O_CREAT)
        os.utime(descriptor)
        os.close(descriptor)
        os.posix_spawn(sys.executable, command, os.environ, file_actions=nowhere)
    except OSError:
        pass  # the first client waits, as it did


def _changed_s(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
