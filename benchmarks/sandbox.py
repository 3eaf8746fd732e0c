"""Measures the cost of a call in the Lua sandbox, the delay until a script is stopped, and leaks.

    python benchmarks/sandbox.py [--quick] [--json]

The limits are for an idle machine with two cores. The best of several rounds is compared with the limits.
"""

import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from _common import check, finish, header, note, options, quantiles, timed

from ctx.errors import ScriptTimeout, ToolError
from ctx.lua.pool import Job, Pool

TRIVIAL = Job(
    "trivial",
    b"tool = {} function tool.execute(p) return {ok = true} end",
    "execute",
    b"{}",
    b"{}",
    frozenset(),
    "operator",
)
ASKING = TRIVIAL._replace(
    name="asking",
    source=b"tool = {} function tool.execute(p, context) return context.search('x') end",
    grants=frozenset({"context"}),
)
LATE = {  # endless scripts; each defeats another way of stopping a script from inside the process
    "loop": "while true do end",
    "pcall": "while true do pcall(function() while true do end end) end",
    "coroutine": "coroutine.wrap(function() while true do end end)()",
    "pattern": "return (('a'):rep(30000)):find(('.-'):rep(6) .. 'b')",
    "move": "table.move({}, 1, 2^40, 1, {})",
    "sort": "local t = {} for i = 1, 4000000 do t[i] = i end "
    "table.sort(t, function(a, b) while true do end end)",
    "gc": "setmetatable({}, { __gc = function() while true do end end }) while true do collectgarbage() end",
    "sleep": "sleep(1e9)",
    "log": "while true do log.info(('x'):rep(1000)) end",
    "search": "while true do context.search('x') end",
    "memory": "local t = {} while true do pcall(function() t[#t + 1] = ('x'):rep(1e6) end) end",
}
GAP_S = 0.003  # the pause between calls, in which an idle machine can fork a new worker
DEADLINE_S = 0.2


def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
    return b"[]"


def best_round(
    call: Callable[[], object], rounds: int, ready: Callable[[], object] = lambda: True
) -> tuple[float, float]:
    """(p50, p99) in ms of the round with the best p99, because other programs disturb only some rounds.

    Waits until `ready()` before each call.
    """
    found = []
    for _ in range(rounds):
        times = []
        for _ in range(200):
            time.sleep(GAP_S)
            while not ready():
                time.sleep(GAP_S)
            times.append(timed(call))
        p50, _, p99 = quantiles(times)
        found.append((p99, p50))
    p99, p50 = min(found)
    return p50, p99


def latency(pool: Pool, rounds: int) -> None:
    def warm(job: Job) -> tuple[float, float]:
        return best_round(lambda: pool.run(job, host, 5), rounds, lambda: pool.ready)

    p50, p99 = warm(TRIVIAL)
    check("warm call, p50", p50, 1.0, unit=" ms")
    check("warm call, p99", p99, 5.0, unit=" ms")
    note("warm call with a host call, p50 ms", warm(ASKING)[0])


def stops(pool: Pool, rounds: int) -> None:
    """Checks how long after its deadline each endless script ends, and how long the next call takes."""
    late, recovered = [], []

    def overrun(job: Job) -> None:
        try:
            pool.run(job, host, DEADLINE_S)
        except (ScriptTimeout, ToolError):  # the script may run out of memory before its deadline
            return
        raise AssertionError(f"{job.name} came to an end")

    for _ in range(rounds):
        for name, body in LATE.items():
            source = f"tool = {{}} function tool.execute(params, context) {body} end".encode()
            job = ASKING._replace(name=name, source=source)
            late.append((timed(lambda job=job: overrun(job)) - DEADLINE_S) * 1000)  # type: ignore[misc]
            recovered.append(timed(lambda: pool.run(TRIVIAL, host, 5)) * 1000)
    check("end after the deadline, worst", max(late), 250, unit=" ms")
    check("call right after a kill, worst", max(recovered), 50, unit=" ms")


def many(pool: Pool, calls: int) -> None:
    """Runs about `calls` calls in two threads."""

    def run() -> None:
        for _ in range(calls // 4):
            pool.run(TRIVIAL, host, 5)
            pool.run(ASKING, host, 5)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def rss_mb(pid: int | str) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def settled(pool: Pool) -> dict[str, float]:
    """The resources that the sandbox uses after the last workers have ended: file descriptors, processes, and
    memory in MB.
    """
    for _ in range(20):
        pool.run(TRIVIAL, host, 5)  # uses up the spare workers that a burst of calls has left
    zygote, before, count = pool.zygote_pid, -1, 0
    while count != before:
        before = count
        time.sleep(0.2)
        with open(f"/proc/{zygote}/task/{zygote}/children") as file:
            count = len(file.read().split())
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "processes": count,
        "MB of the server": rss_mb("self"),
        "MB of the zygote": rss_mb(zygote or "self"),
    }


def growth(pool: Pool, calls: int) -> None:
    many(pool, 200)
    before = settled(pool)
    took_s = timed(lambda: many(pool, calls))
    note("calls per second, 2 clients", calls / took_s)
    for name, figure in settled(pool).items():
        check(f"{name} more after {calls} calls", figure - before[name], 64 if "MB" in name else 0)


@contextmanager
def server(folder: Path) -> Iterator[http.client.HTTPConnection]:
    """A context manager that runs `ctx serve mcp` with a tool that does nothing, and yields a connection to
    it.
    """
    (folder / "docs").mkdir()
    (folder / "docs" / "a.md").write_text("# A document\n\nOf a few words.\n")
    (folder / "trivial.lua").write_bytes(TRIVIAL.source)
    (folder / "ctx.toml").write_text(
        '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'
        '[tools.script.trivial]\npath = "./trivial.lua"\n'
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CTX_")}
    command = [sys.executable, "-m", "ctx", "serve", "mcp", "--bind", "127.0.0.1:0", "--log-level", "error"]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environ | {"HOME": str(folder), "CTX_CONFIG": str(folder / "ctx.toml")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        yield http.client.HTTPConnection(process.stdout.readline().decode().split()[-1])
    finally:
        process.terminate()
        process.wait()


def served(rounds: int) -> None:
    """Checks how much longer a request to a script takes than a request to a built-in tool."""

    def post(tool: str) -> None:
        connection.request("POST", f"/tools/{tool}", b"{}", {"Content-Type": "application/json"})
        reply = connection.getresponse()
        reply.read()
        assert reply.status == 200, f"{tool}: {reply.status}"

    with tempfile.TemporaryDirectory() as name, server(Path(name)) as connection:
        builtin = best_round(lambda: post("sources"), rounds)
        script = best_round(lambda: post("trivial"), rounds)
        check("added to a request by a script, p50", script[0] - builtin[0], 1.0, unit=" ms")
        check("POST /tools/trivial, p99", script[1], 5.0, unit=" ms")
        connection.close()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and a tenth of the calls")
    quick = parser.parse_args().quick
    header("sandbox")
    rounds = 2 if quick else 6
    with Pool() as pool:
        for layer in pool.selftest():
            print(f"{layer.name:<20}{'holds' if layer.held else 'MISSING':<9}{layer.detail}")
        latency(pool, rounds)
        stops(pool, 1 if quick else 3)
        if sys.platform == "linux":
            growth(pool, 2_000 if quick else 20_000)
    served(rounds)
    finish()


if __name__ == "__main__":
    main()
