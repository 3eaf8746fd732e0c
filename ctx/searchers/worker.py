"""A process that answers searches for a server which is asked for more of them than one process can answer.

It reads what the server reads, as `ctx search` beside it would: the catalog without writing to it, and of the
index whatever was published last. It answers one question after the other, and ends when the server has
closed a line, when nobody has asked for a while, or when another store lies at the path of the one it opened.
"""

import gc
import os
from multiprocessing.connection import Connection, wait
from typing import Any, cast

from ctx import files
from ctx.config import Config
from ctx.errors import CtxError
from ctx.types import JSON, Caller
from ctx.workspace import Workspace

_FIRST_QUESTION = {"query": "the first question", "limit": 1}


class ServedWorkspace(Workspace):
    """A workspace whose server says what its index lacks."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, reading=True)
        self._remark: str | None = None

    def lacking(self) -> str | None:
        return self._remark

    def answer(self, arguments: JSON, remark: str | None) -> tuple[JSON] | None:
        """What the tool answers; None for an error, which the server meets as well and words itself."""
        self._remark = remark
        try:
            return (self.toolbox.call("search", arguments, Caller("server")),)
        except CtxError:
            return None


def main(idle_s: float, *descriptors: int) -> None:
    """Reads the configuration from the first line, says None when the store is open, and answers what comes
    on all of them.
    """
    lines: list[Connection[Any, Any]] = [Connection(descriptor) for descriptor in descriptors]
    config: Config = lines[0].recv()
    workspace = ServedWorkspace(config)
    store = files.identity(config.db.path)
    workspace.answer({**_FIRST_QUESTION, "mode": "hybrid" if workspace.model else "keyword"}, None)
    gc.freeze()  # as the server does: a collection would hold up a search for 30 ms
    lines[0].send(None)
    try:
        while readable := wait(lines, idle_s):
            for line in cast("list[Connection[Any, Any]]", readable):
                arguments, remark = line.recv()
                if files.identity(config.db.path) != store:
                    return
                line.send(workspace.answer(arguments, remark))
    except (EOFError, OSError):
        pass  # the server has gone, and nothing here is worth closing
    finally:
        os._exit(0)
