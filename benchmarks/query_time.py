"""Processor time of a search in process, of this checkout beside another one's: every query is asked of both,
in turn.

    git worktree add --detach ../before a88e0e9
    python benchmarks/query_time.py --against ../before --chunks 55000
    python benchmarks/query_time.py --chunks 10000

Both processes run in the same environment, so that only `ctx/` differs; each has a store of its own, made of
the same pages. What is measured is the asking thread (`time.thread_time`), and the process as a whole beside
it, since a scan may be shared by threads. The queries are words that stand side by side or apart in the
pages. Vectors are random (`fill_vectors`): the worst case for a scan.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _common import header, markdown_tree, quantiles

HERE = Path(__file__).resolve().parent
CONFIG = '[connectors.filesystem]\nroot = "./docs"\n[watch]\nenabled = false\n'

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
        reply = searcher.search(query, mode)
        ended = time.thread_time(), time.process_time(), time.perf_counter()
        print(json.dumps([[b - a for a, b in zip(began, ended)], [row.source_id for row in reply.results]]), flush=True)
"""


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

    def ask(self, query: str, mode: str) -> tuple[list[float], list[str]]:
        """(seconds of the thread, of the process, of the clock), and the paths that were answered."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([query, mode]) + "\n")
        self._process.stdin.flush()
        times, paths = json.loads(self._process.stdout.readline())
        return times, paths

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
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


def measure(checkouts: dict[str, Checkout], queries: list[str], mode: str) -> dict[str, object]:
    """p50, p95 and p99 of every checkout in milliseconds; of two, the median of the ratios question by
    question too.
    """
    for query in queries[:20]:
        for checkout in checkouts.values():
            checkout.ask(query, mode)
    figures: dict[str, list[list[float]]] = {side: [] for side in checkouts}
    for i, query in enumerate(queries):
        order = list(checkouts.items())
        for side, checkout in order if i % 2 else reversed(order):
            figures[side].append(checkout.ask(query, mode)[0])
    report: dict[str, object] = {
        "mode": mode,
        "queries": len(queries),
        "load": [round(value, 1) for value in os.getloadavg()],
    }
    for column, what in enumerate(("thread", "process", "clock")):
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
    options.add_argument("--folder", type=Path, help="where the stores are made and kept")
    args = options.parse_args()
    header("a search in process, beside another checkout's")
    codes = {"now": HERE.parent}
    if args.against is not None:
        codes["before"] = args.against.resolve()
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        folder = (args.folder or Path(name)).resolve()
        for side, code in codes.items():
            build(code, folder / side, args.chunks)
        checkouts = {side: Checkout(code, folder / side) for side, code in codes.items()}
        queries = queries_of(folder / "now" / "docs", args.queries)
        for mode in ("keyword", "semantic", "hybrid"):
            print(json.dumps(measure(checkouts, queries, mode)), flush=True)
        for checkout in checkouts.values():
            checkout.close()


if __name__ == "__main__":
    main()
