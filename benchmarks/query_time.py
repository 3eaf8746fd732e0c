"""Time of a search, of this checkout beside another one's: every query is asked of both, in turn.

    git worktree add --detach ../before a88e0e9
    python benchmarks/query_time.py --against ../before --chunks 55000
    python benchmarks/query_time.py --against ../before --chunks 55000 --served
    python benchmarks/query_time.py --against ../before --chunks 55000 --served --warm 800
    python benchmarks/query_time.py --chunks 10000

In process, what is measured is the asking thread (`time.thread_time`), and the process as a whole beside it,
since a scan may be shared by threads. `--served` asks a server of each checkout over HTTP instead, as users
do: the client's clock, and the processor time of the server's process. A process looks at each document once,
when it first is a candidate; `--warm` asks so many other questions first, as a server at work has been asked.

Both run in the same environment, so that only `ctx/` differs; each has a store of its own, made of the same
pages. The queries are words that stand side by side or apart in the pages. Vectors are random
(`fill_vectors`): the worst case for a scan.
"""

import argparse
import http.client
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Protocol

from _common import header, markdown_tree, quantiles, used_s, wait_until_idle

HERE = Path(__file__).resolve().parent
CONFIG = '[connectors.filesystem]\nroot = "./docs"\n[watch]\nenabled = false\n'
IN_PROCESS, SERVED = ("thread", "process", "clock"), ("process", "clock")  # what is measured of each

# Run in either checkout: what it calls stood in all of them.
MAKE = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from _common import fill_vectors
print(fill_vectors(Path(sys.argv[1])))
"""
ANSWER = """
import json, os, sys, time
from ctx.config import load_config
from ctx.workspace import open_workspace
os.chdir(sys.argv[1])
with open_workspace(load_config("ctx.toml", dict(os.environ))) as space:
    searcher = space.searcher
    for line in sys.stdin:
        query, mode = json.loads(line)
        began = time.thread_time(), time.process_time(), time.perf_counter()
        searcher.search(query, mode)
        ended = time.thread_time(), time.process_time(), time.perf_counter()
        print(json.dumps([b - a for a, b in zip(began, ended)]), flush=True)
"""


class Side(Protocol):
    """What answers from one checkout's code."""

    def ask(self, query: str, mode: str) -> list[float]:
        """The seconds that an answer took, by each of what is measured."""

    def close(self) -> None: ...


class Checkout:
    """A process that answers from one checkout's code."""

    def __init__(self, code: Path, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(code)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", ANSWER, str(folder)],
            env=environment,
            cwd=code,  # `-c` looks here first
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, query: str, mode: str) -> list[float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([query, mode]) + "\n")
        self._process.stdin.flush()
        times: list[float] = json.loads(self._process.stdout.readline())
        return times

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


class Served:
    """A server of one checkout's code, asked over one connection."""

    def __init__(self, code: Path, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        (folder / "ctx.toml").write_text(f'{CONFIG}[server]\nbind = "{address}"\n')
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ctx", "serve", "mcp", "--config", str(folder / "ctx.toml")],
            env={**os.environ, "PYTHONPATH": str(code)},
            cwd=code,  # `-m` looks here first
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until_idle(address)
        self._connection = http.client.HTTPConnection(address, timeout=30)

    def ask(self, query: str, mode: str) -> list[float]:
        body = json.dumps({"query": query, "mode": mode})
        used, began = used_s(self._process.pid), time.perf_counter()
        self._connection.request("POST", "/tools/search", body, {"Content-Type": "application/json"})
        reply = self._connection.getresponse()
        answer = reply.read()
        times = [time.perf_counter() - began]
        assert reply.status == 200, answer
        return [used_s(self._process.pid) - used, *times]

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)


def queries_of(folder: Path, count: int) -> list[str]:
    """One to eight words of a page of the corpus."""
    chance = random.Random(5)
    pages = [page.read_text() for page in sorted(folder.glob("*/*.md"))[:300]]
    queries: list[str] = []
    while len(queries) < count:
        words = ["".join(char for char in word if char.isalnum()) for word in chance.choice(pages).split()]
        queries.append(" ".join(chance.sample([word for word in words if word], chance.randint(1, 8))))
    return queries


def build(code: Path, folder: Path, chunks: int) -> None:
    """A store of so many chunks, made by one checkout's code; kept where it is there already."""
    if (folder / ".ctx").exists():
        return
    markdown_tree(folder / "docs", chunks // 11)
    (folder / "ctx.toml").write_text(CONFIG)
    subprocess.run(
        [sys.executable, "-c", MAKE, str(folder), str(HERE)],
        env={**os.environ, "PYTHONPATH": str(code)},
        cwd=code,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def measure(
    checkouts: dict[str, Side], warm: list[str], queries: list[str], mode: str, measured: tuple[str, ...]
) -> dict[str, object]:
    """p50, p95 and p99 of every checkout in milliseconds; of two, the median of the ratios question by
    question too. Those to get `warm` by are asked first.
    """
    for query in warm:
        for checkout in checkouts.values():
            checkout.ask(query, mode)
    figures: dict[str, list[list[float]]] = {side: [] for side in checkouts}
    for i, query in enumerate(queries):
        order = list(checkouts.items())
        for side, checkout in order if i % 2 else reversed(order):
            figures[side].append(checkout.ask(query, mode))
    report: dict[str, object] = {
        "mode": mode,
        "queries": len(queries),
        "load": [round(value, 1) for value in os.getloadavg()],
    }
    for column, what in enumerate(measured):
        columns = {side: [row[column] for row in rows] for side, rows in figures.items()}
        report[f"{what}_ms"] = {
            side: [round(value, 2) for value in quantiles(values)] for side, values in columns.items()
        }
        if len(columns) == 2:
            pairs = zip(columns["now"], columns["before"], strict=True)
            report[f"{what}_ratio"] = round(statistics.median(new / old for new, old in pairs), 3)
    return report


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--against", type=Path, help="the other checkout; without it this one alone")
    options.add_argument("--chunks", type=int, default=55_000)
    options.add_argument("--queries", type=int, default=150)
    options.add_argument("--warm", type=int, default=0, help="other questions asked before, of each mode")
    options.add_argument("--folder", type=Path, help="where the stores are made and kept")
    options.add_argument("--served", action="store_true", help="over HTTP, of a server of each")
    args = options.parse_args()
    header(f"a search {'over HTTP' if args.served else 'in process'}, beside another checkout's")
    codes = {"now": HERE.parent}
    if args.against is not None:
        codes["before"] = args.against.resolve()
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        folder = (args.folder or Path(name)).resolve()
        for side, code in codes.items():
            build(code, folder / side, args.chunks)
        start: type[Served | Checkout] = Served if args.served else Checkout
        checkouts: dict[str, Side] = {side: start(code, folder / side) for side, code in codes.items()}
        queries = queries_of(folder / "now" / "docs", args.queries + args.warm)
        queries, warm = queries[: args.queries], queries[args.queries :] or queries[:20]
        measured = SERVED if args.served else IN_PROCESS
        try:
            for mode in ("keyword", "semantic", "hybrid"):
                print(json.dumps(measure(checkouts, warm, queries, mode, measured)), flush=True)
        finally:
            for checkout in checkouts.values():
                checkout.close()


if __name__ == "__main__":
    main()
