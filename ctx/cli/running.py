"""`ctx projects`, and which projects run on this machine: a small file for each server, locked as long as its
process lives.

The lock is the truth, not the file: a process that was killed leaves its file behind without one, and whoever
lists next clears it away. So a number that the system gives to another process later deceives nobody.
"""

import fcntl
import json
import logging
import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ctx import files
from ctx.cli.common import ago, table, tell
from ctx.cli.options import Parser, describe
from ctx.clock import iso_utc
from ctx.hosts import is_everywhere, is_loopback
from ctx.server.address import local
from ctx.server.policy import split_bind

logger = logging.getLogger(__name__)


def add_options(command: str, options: Parser) -> None:
    describe(options, "List the projects that this user's servers serve now.", json=True)


def run(command: str, args: Namespace) -> int:
    rows = servers(state_folder(os.environ))
    listed = [
        {"root": row.root, "url": local(row.address), "pid": row.pid, "since": iso_utc(row.since_ms)}
        for row in rows
    ]
    cells = [(row.root, local(row.address), str(row.pid), ago(row.since_ms)) for row in rows]
    return tell(
        args.json,
        {"projects": listed},
        table(cells, ("PROJECT", "ADDRESS", "PID", "STARTED"))
        if rows
        else "No server runs; `ctx serve mcp` starts one for this project.",
    )


class Running(NamedTuple):
    """A server that runs."""

    root: str  # the project's folder
    address: str  # HOST:PORT
    pid: int
    since_ms: int


def state_folder(environ: Mapping[str, str]) -> str:
    """The user's folder of running servers."""
    return os.path.join(files.state_folder(environ), "running")


class Registration:
    """`with Registration(folder) as registration`: what is registered is listed until the block ends.

    A folder that cannot be written is no reason not to serve: it is logged, and the server is not listed.
    """

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, f"{os.getpid()}.json")
        self._descriptor = -1

    def __enter__(self) -> "Registration":
        return self

    def register(self, running: Running) -> None:
        """Lists the server. Never raises for a folder that is in the way."""
        try:
            files.make_folder(os.path.dirname(self._path))
            self._descriptor = files.open_file(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._descriptor, json.dumps(running._asdict()).encode())
        except OSError as error:
            logger.info("this server is not listed by `ctx projects` reason=%s", error.strerror)

    def __exit__(self, *exception: object) -> None:
        if self._descriptor < 0:
            return
        try:
            os.unlink(self._path)
        except OSError:
            pass  # the folder went; nothing is listed then
        os.close(self._descriptor)


def servers(folder: str) -> list[Running]:
    """The servers that run, the oldest first. What dead ones left behind is cleared away."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    rows = [row for name in names if name.endswith(".json") and (row := _live(os.path.join(folder, name)))]
    return sorted(rows, key=lambda row: row.since_ms)


def of_project(rows: Sequence[Running], root: str) -> Running | None:
    """The server of the project in that folder, the youngest where there are several."""
    folder = os.path.realpath(root)
    return next((row for row in reversed(rows) if os.path.realpath(row.root) == folder), None)


def at_address(rows: Sequence[Running], bind: str) -> Running | None:
    """The server that listens where `bind`, HOST:PORT, leads. Raises `ConfigError` for what is no address."""
    return next((row for row in rows if _meet(split_bind(row.address), split_bind(bind))), None)


def _meet(first: tuple[str, int], second: tuple[str, int]) -> bool:
    hosts = (first[0], second[0])
    near = hosts[0] == hosts[1] or all(map(is_loopback, hosts))
    return first[1] == second[1] and (near or any(map(is_everywhere, hosts)))


def _live(path: str) -> Running | None:
    """What a file says whose process lives."""
    try:
        descriptor = files.open_file(path, os.O_RDWR)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return _parsed(file.read())
        os.unlink(path)  # nobody holds it: its server is gone
    return None


def _parsed(content: bytes) -> Running | None:
    try:
        row = Running(**json.loads(content))
    except (ValueError, TypeError):
        return None  # it is being written
    return row if isinstance(row.root, str) and isinstance(row.since_ms, int) else None
