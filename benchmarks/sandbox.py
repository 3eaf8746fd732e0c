"""What a call in the Lua sandbox costs, and whether it stays what it costs: `python benchmarks/sandbox.py
[--quick] [--part pool|server]`.

`pool` measures the sandbox by itself; `server` a running `ctx serve mcp` over HTTP: what a script adds to a
request, how late a 408 is, and how fast `/health` answers meanwhile.

Each line is a figure, its target and PASS or FAIL; the exit code is the number of FAILs. The targets are for
a quiet machine of two cores: the load before and after is printed, and the best of several rounds is what is
compared.
"""

import argparse
import http.client
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ctx.errors import ScriptTimeout
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
LOOP = TRIVIAL._replace(name="loop", source=b"tool = {} function tool.execute() while true do end end")
GAP_S = 0.003  # between spaced calls: time for a new worker to be forked on a quiet machine
DEADLINE_S = 0.2
failures = 0


def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
    return b"[]"


def report(what: str, figure: float, unit: str, limit: float | None = None, *, least: bool = False) -> None:
    global failures
    if limit is None:
        print(f"{what:<58}{figure:>10.2f} {unit}")
        return
    good = figure >= limit if least else figure <= limit
    failures += not good
    print(
        f"{what:<58}{figure:>10.2f} {unit:<8}{'>=' if least else '<='} "
        f"{limit:<8g}{'PASS' if good else 'FAIL'}"
    )


def timed_ms(call: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    call()
    return (time.perf_counter() - began_s) * 1000


def at(share: float, values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def spaced_ms(pool: Pool, job: Job, calls: int) -> list[float]:
    times = []
    for _ in range(calls):
        time.sleep(GAP_S)
        while pool.ready == 0:  # warm is what is measured; without a pause it is the throughput below
            time.sleep(GAP_S)
        times.append(timed_ms(lambda: pool.run(job, host, 5)))
    return times


def best_round(pool: Pool, job: Job, rounds: int, calls: int) -> tuple[float, float]:
    """p50 and p99 of the round with the best p99: the neighbours' noise comes in bursts."""
    found = [spaced_ms(pool, job, calls) for _ in range(rounds)]
    best = min(found, key=lambda times: at(0.99, times))
    return at(0.5, best), at(0.99, best)


def per_second(pool: Pool, job: Job, threads: int, calls: int) -> float:
    workers = [
        threading.Thread(target=lambda: [pool.run(job, host, 5) for _ in range(calls)])
        for _ in range(threads)
    ]
    began_s = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return threads * calls / (time.perf_counter() - began_s)


def latency(pool: Pool, rounds: int) -> None:
    for label, job in (
        ("one-shot", TRIVIAL),
        ("one-shot, one host call", ASKING),
    ):
        p50, p99 = best_round(pool, job, rounds, 200)
        trivial = job.name == TRIVIAL.name  # the one the targets speak of
        report(f"warm call, {label}: p50", p50, "ms", 1.0 if trivial else None)
        report(f"warm call, {label}: p99", p99, "ms", 5.0 if trivial else None)


def throughput(pool: Pool, rounds: int) -> None:
    report("one-shot, 2 clients", max(per_second(pool, TRIVIAL, 2, 300) for _ in range(rounds)), "calls/s")


def kills(pool: Pool, rounds: int) -> None:
    late, recovered = [], []

    def overrun() -> None:
        try:
            pool.run(LOOP, host, DEADLINE_S)
        except ScriptTimeout:
            return
        raise AssertionError("a loop came to an end")

    for _ in range(10 * rounds):
        late.append(timed_ms(overrun) - DEADLINE_S * 1000)
        recovered.append(timed_ms(lambda: pool.run(TRIVIAL, host, 5)))
    report("408 after the deadline: worst", max(late), "ms", 250)
    report("a call right after a kill: p50", at(0.5, recovered), "ms")
    report("a call right after a kill: worst", max(recovered), "ms", 50)


def children(zygote: int | None) -> int:
    try:
        with open(f"/proc/{zygote}/task/{zygote}/children") as file:
            return len(file.read().split())
    except OSError:
        return 0


def rss_mb(pid: int | str) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def settled(pool: Pool) -> tuple[int, int, float, float]:
    """Descriptors of this process, children of the zygote, and the memory of both, once the last workers are
    gone.
    """
    for _ in range(20):
        pool.run(TRIVIAL, host, 5)  # uses up the workers that a burst of calls has left over
    before = -1
    while (now := children(pool.zygote_pid)) != before:
        before = now
        time.sleep(0.2)
    return len(os.listdir("/proc/self/fd")), now, rss_mb("self"), rss_mb(pool.zygote_pid or "self")


def growth(pool: Pool, calls: int) -> None:
    jobs = (TRIVIAL, ASKING)
    for job in jobs:
        per_second(pool, job, 2, 50)
    fds, processes, server_mb, zygote_mb = settled(pool)
    began_s = time.perf_counter()
    for job in jobs:
        per_second(pool, job, 2, calls // 4)
    report(f"{calls} calls", time.perf_counter() - began_s, "s")
    fds_after, processes_after, server_after_mb, zygote_after_mb = settled(pool)
    report("  descriptors more", fds_after - fds, "", 0)
    report("  processes more", processes_after - processes, "", 0)
    report("  memory of the server more", server_after_mb - server_mb, "MB", 64)
    report("  memory of the zygote more", zygote_after_mb - zygote_mb, "MB", 64)


# -- a running server ----------------------------------------------------------------------------------------

LATE = {  # each defeats another way of stopping a script from within
    "loop": "while true do end",
    "pcall": "while true do pcall(function() while true do end end) end",
    "coroutine": "coroutine.wrap(function() while true do end end)()",
    "pattern": "return (('a'):rep(30000)):find(('.-'):rep(6) .. 'b')",
    "move": "table.move({}, 1, 2^40, 1, {})",
    "sort": "local t = {} for i = 1, 4000000 do t[i] = i end table.sort(t, function(a, b) while true do end "
    "end)",
    "gc": "setmetatable({}, { __gc = function() while true do end end }) while true do collectgarbage() end",
    "sleep": "sleep(1e9)",
    "log": "while true do log.info(('x'):rep(1000)) end",
    "search": "while true do context.search('x') end",
    "memory": "local t = {} while true do pcall(function() t[#t + 1] = ('x'):rep(1e6) end) end",
}
SCRIPTS_TIMEOUT_S = 0.5
LOOKERS = 8


@contextmanager
def server(folder: Path) -> Iterator[tuple[str, int]]:
    """`ctx serve mcp` with a tool that does nothing, the late ones, and the hostile corpus where it lies
    beside the checkout.
    """
    scripts = folder / "scripts"
    scripts.mkdir()
    (folder / "docs").mkdir()
    (folder / "docs" / "a.md").write_text("# A document\n\nOf a few words.\n")
    (scripts / "trivial.lua").write_bytes(TRIVIAL.source)
    for name, body in LATE.items():
        (scripts / f"late-{name}.lua").write_text(
            f"tool = {{}} function tool.execute(params, context) {body} end"
        )
    tables = [
        '[tools.script.trivial]\npath = "./scripts/trivial.lua"',
    ]
    tables += [
        f'[tools.script.late-{name}]\npath = "./scripts/late-{name}.lua"\ntimeout = {SCRIPTS_TIMEOUT_S}'
        for name in LATE
    ]
    for row in hostile():
        tables.append(
            f'[tools.script.{row["name"]}]\npath = "{corpus() / str(row["file"])}"\ntimeout = '
            f"{row['timeout_s']}"
        )
    head = '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'
    (folder / "ctx.toml").write_text(head + "\n".join(tables))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CTX_")} | {
        "HOME": str(folder)
    }
    command = [sys.executable, "-m", "ctx", "serve", "mcp", "--bind", "127.0.0.1:0", "--log-level", "error"]
    process = subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().decode().split()[-1]
        host, _, port = address.rpartition(":")
        yield host, int(port)
    finally:
        process.terminate()
        process.wait()


def corpus() -> Path:
    return Path(os.environ.get("CTX_SHARED", Path(__file__).parents[2] / "shared")) / "redteam"


def hostile() -> list[dict[str, object]]:
    """The corpus's rows that must end at their deadline; none where the corpus is not here."""
    try:
        rows = json.loads((corpus() / "manifest.json").read_text())["scripts"]
    except OSError:
        return []
    return [row for row in rows if row["category"] == "timeout"]


def post(connection: http.client.HTTPConnection, tool: str) -> int:
    connection.request("POST", f"/tools/{tool}", b"{}", {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read()
    return response.status


def added(host: str, port: int, rounds: int) -> None:
    """What a script adds to a request, beside the same request to a built-in tool, in turns so that noise
    hits both.
    """
    connection = http.client.HTTPConnection(host, port)
    best: dict[str, tuple[float, float, float, float]] = {}
    for tool in ("trivial",):
        found = []
        for _ in range(rounds):
            builtin, script = [], []
            for _ in range(200):
                time.sleep(GAP_S)
                builtin.append(timed_ms(lambda: post(connection, "sources")))
                time.sleep(GAP_S)
                script.append(timed_ms(lambda tool=tool: post(connection, tool)))  # type: ignore[misc]
            found.append((at(0.5, builtin), at(0.99, builtin), at(0.5, script), at(0.99, script)))
        best[tool] = min(found, key=lambda figures: figures[3])
    for tool, label in (("trivial", "one-shot"),):
        b50, _, s50, s99 = best[tool]
        report(f"POST /tools/sources (built in): p50 beside {label}", b50, "ms")
        report(f"POST /tools/{tool} ({label}): p50", s50, "ms")
        report(f"  added by the script: p50, {label}", s50 - b50, "ms", 1.0)
        report(f"POST /tools/{tool} ({label}): p99", s99, "ms", 5.0)
    connection.close()


def lookers(host: str, port: int, ended: str) -> subprocess.Popen[bytes]:
    """A process of its own with eight loops over `/health`; it prints their times once the file `ended` is
    there.
    """
    program = f"""
import http.client, json, os, threading, time
times = []
def look():
    connection = http.client.HTTPConnection({host!r}, {port})
    while not os.path.exists({ended!r}):
        began = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        times.append(time.perf_counter() - began)
        time.sleep(0.01)
threads = [threading.Thread(target=look) for _ in range({LOOKERS})]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps(times))
"""
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)


def under_fire(host: str, port: int, folder: Path) -> None:
    """Every late script one after the other, with eight loops over `/health` beside them; then three at a
    time.
    """
    rows = [(f"late-{name}", SCRIPTS_TIMEOUT_S, [408, 500]) for name in LATE]
    rows += [(str(row["name"]), float(str(row["timeout_s"])), row["expect"]["status"]) for row in hostile()]  # type: ignore[index]
    connection = http.client.HTTPConnection(host, port)
    ended = folder / "ended"
    watching = lookers(host, port, str(ended))
    late, wrong = [], 0
    for name, timeout_s, statuses in rows:
        began_s = time.perf_counter()
        status = post(connection, name)
        late.append((time.perf_counter() - began_s - timeout_s) * 1000)
        wrong += status not in statuses
    connection.close()
    ended.touch()
    out, _ = watching.communicate()
    times_ms = [seconds * 1000 for seconds in json.loads(out)]
    report(f"{len(rows)} scripts at their deadlines: other answers than 408", wrong, "", 0)
    report("  after the deadline: worst", max(late), "ms", 250)
    report(f"/health meanwhile, {LOOKERS} at once, {len(times_ms)} calls: p50", at(0.5, times_ms), "ms")
    report("/health meanwhile: p99", at(0.99, times_ms), "ms", 50)


def served(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name, server(Path(name)) as (host, port):
        added(host, port, rounds)
        under_fire(host, port, Path(name))


def pooled(rounds: int, quick: bool) -> None:
    with Pool() as pool:
        for layer in pool.selftest():
            print(f"{layer.name:<20}{'holds' if layer.held else 'MISSING':<9}{layer.detail}")
        latency(pool, rounds)
        throughput(pool, rounds)
        kills(pool, 1 if quick else 3)
        if sys.platform == "linux":
            growth(pool, 2_000 if quick else 20_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the calls")
    parser.add_argument("--part", choices=("pool", "server"), help="only this one")
    options = parser.parse_args()
    quick = options.quick
    print("$", shlex.join(["python", *sys.argv]))
    print(
        f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}"
    )
    print("load before:", *(f"{load:.2f}" for load in os.getloadavg()))
    rounds = 2 if quick else 6
    if options.part != "server":
        pooled(rounds, quick)
    if options.part != "pool":
        served(rounds)
    print("load after: ", *(f"{load:.2f}" for load in os.getloadavg()))
    return failures


if __name__ == "__main__":
    sys.exit(main())
