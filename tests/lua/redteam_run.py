"""Runs the hostile corpus against a pool, by its manifest. Also a program: `python redteam_run.py FOLDER`
prints what failed.

The host here is the poorest there can be: it refuses files, variables and the network. The policies that the
real one has for them are tested with it; what is tested here is the process the scripts run in.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

from ctx.errors import BadRequest, Busy, CtxError, NotFound, ScriptTimeout, ToolError
from ctx.lua.pool import Job, Pool
from ctx.lua.processes import Worker
from ctx.models import JSON

GRACE_S = 10.0  # on a machine with other work; benchmarks/sandbox.py measures what is promised
STATUS = {ScriptTimeout: 408, ToolError: 500, NotFound: 404, BadRequest: 400, Busy: 503}
GRANTS = frozenset({"http", "fs", "env", "context"})


class Outcome(NamedTuple):
    """What a door would answer: a status and the result or the error's message."""

    status: int
    value: JSON
    seconds: float


class WatchedPool(Pool):
    """A pool that remembers which processes its calls ran in."""

    def __init__(self, **settings: JSON) -> None:
        super().__init__(**settings)
        self.used: list[Worker] = []

    def _take_worker(self, *arguments: JSON) -> Worker:
        worker = super()._take_worker(*arguments)
        self.used.append(worker)
        return worker

    def __enter__(self) -> "WatchedPool":
        self.start()
        return self

    def survivors(self, within_s: float) -> list[int]:
        """The pids of used workers that are still there after `within_s`."""
        until_s = time.monotonic() + within_s
        alive = [
            worker.pid for worker in self.used if not worker.ended.wait(max(0.0, until_s - time.monotonic()))
        ]
        self.used.clear()
        return alive


def poor_host(operation: str, payload: bytes, deadline_s: float) -> bytes:
    if operation in ("context.search", "context.sources"):
        return b"[]"
    if operation == "context.get":
        raise NotFound("no such document")
    if operation == "log":
        return b""
    if operation == "env.get":
        return b"null"
    raise ToolError(f"{operation}: refused")


def tool(source: bytes | str, arguments: JSON = None, **fields: JSON) -> Job:
    """A call of a tool's `execute`."""
    text = source.encode() if isinstance(source, str) else source
    job = Job(
        "attack",
        text,
        "execute",
        json.dumps(arguments or {}).encode(),
        b'{"config": {}}',
        GRANTS,
        "untrusted",
    )
    return job._replace(**fields)


def attempt(pool: Pool, source: bytes, params: JSON, timeout_s: float) -> Outcome:
    """Loads the tool as a server would, then calls it."""
    began_s = time.perf_counter()
    job = tool(source, params)
    try:
        pool.run(job._replace(entry="metadata"), poor_host, timeout_s)
        began_s = time.perf_counter()
        value = pool.run(job, poor_host, timeout_s)
        return Outcome(200, value, time.perf_counter() - began_s)
    except CtxError as error:
        return Outcome(STATUS[type(error)], error.message, time.perf_counter() - began_s)


def is_subset(wanted: JSON, value: JSON) -> bool:
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(
            name in value and is_subset(item, value[name]) for name, item in wanted.items()
        )
    return wanted is None or bool(wanted == value)


def complaints(pool: WatchedPool, folder: Path, row: JSON) -> list[str]:
    """What is wrong with one row of the manifest: its outcome, its time, what it left behind."""
    name = row["name"]
    lines = []
    outcome = attempt(pool, (folder / row["file"]).read_bytes(), row["params"], row["timeout_s"])
    if outcome.status not in row["expect"]["status"]:
        lines.append(f"{name}: answered {outcome.status} {outcome.value!r}")
    elif outcome.status == 200 and not is_subset(row["expect"].get("result_subset"), outcome.value):
        lines.append(f"{name}: returned {outcome.value!r}")
    if outcome.seconds > row["timeout_s"] + GRACE_S:
        lines.append(f"{name}: took {outcome.seconds:.3f} s of {row['timeout_s']}")
    if alive := pool.survivors(GRACE_S):
        lines.append(f"{name}: still alive after {GRACE_S:g} seconds: {alive}")
    probe = (folder / "zz_probe.lua").read_bytes()
    for _ in range(4 if "then" in row else 1):
        check = attempt(pool, probe, {}, GRACE_S)
        if check.status != 200 or check.value.get("clean") is not True:
            lines.append(f"{name}: the probe after it answered {check.status} {check.value!r}")
    pool.survivors(GRACE_S)
    return lines


def run_corpus(pool: WatchedPool, folder: Path) -> list[str]:
    manifest = json.loads((folder / "manifest.json").read_text())
    zygote = pool.zygote_pid
    lines = [complaint for row in manifest["scripts"] for complaint in complaints(pool, folder, row)]
    if pool.zygote_pid != zygote:
        lines.append("the zygote was replaced")
    return lines


def main() -> int:
    folder = Path(sys.argv[1])
    with WatchedPool() as pool:
        print(json.dumps({"uid": os.geteuid(), "level": pool.level, "layers": pool.selftest()}))
        lines = run_corpus(pool, folder)
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
