"""Measures the latency of searches in process and over HTTP with one client, against the budgets.

The budgets at p50 are 5 ms for keyword, 15 ms for semantic and 20 ms for hybrid search in process with
100,000 chunks, and 40 ms for hybrid search over HTTP with a million chunks. The vectors are random unit
vectors, which is the worst case for the vector search. The query is embedded by the real model.

    python benchmarks/latency.py
    python benchmarks/large_store.py --chunks 1000000 --folder STORE
    python benchmarks/latency.py --folder STORE --http-hybrid-ms 40

It also prints the server's processor time per request, and its memory (PSS: shared pages count in part).
"""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from _common import (
    Words,
    check,
    fill_vectors,
    finish,
    header,
    markdown_tree,
    note,
    options,
    quantiles,
    used_s,
    wait_until_idle,
)

from ctx.config import load_config
from ctx.models import Caller
from ctx.workspace import open_workspace

CONFIG = (
    '[connectors.filesystem]\nroot = "./docs"\n[server]\nbind = "127.0.0.1:{port}"\n[watch]\nenabled = '
    "false\n"
)


def ask(connection: http.client.HTTPConnection, body: dict[str, object]) -> tuple[float, int]:
    payload = json.dumps(body)
    began_s = time.perf_counter()
    connection.request("POST", "/tools/search", payload, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    answer = json.loads(reply.read())
    took_s = time.perf_counter() - began_s
    assert reply.status == 200, answer
    return took_s, len(answer["results"])


def print_memory(pid: int, when: str) -> None:
    """Prints the memory (PSS) that a process uses, in MB. `when` says at which moment."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    share_mb = next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    print(f"memory    {share_mb:.0f} MB {when}")
    note(f"memory {when}, MB", share_mb)


def measure(
    connection: http.client.HTTPConnection, pid: int, queries: list[str], hybrid_ms: float | None
) -> None:
    """Searches over HTTP. `hybrid_ms` is the budget of hybrid search at p50, if there is one."""
    print_memory(pid, "before the first search")
    for query in queries[:20]:
        ask(connection, {"query": query, "mode": "keyword"})
    print_memory(pid, f"after {len(queries[:20])} by words")
    for query in queries[:20]:
        ask(connection, {"query": query, "mode": "hybrid"})
    health = []
    for _ in queries:
        began_s = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        health.append(time.perf_counter() - began_s)
    print(f"/health   p50 {quantiles(health)[0]:.2f} ms (for comparison)")
    for mode in ("keyword", "semantic", "hybrid"):
        before_s = used_s(pid)
        p50, p95, p99 = quantiles([ask(connection, {"query": query, "mode": mode})[0] for query in queries])
        each_ms = (used_s(pid) - before_s) / len(queries) * 1000
        print(
            f"{mode:<9} p50 {p50:.2f} ms, p95 {p95:.2f} ms, p99 {p99:.2f} ms; processor {each_ms:.2f} ms each"
        )
        for label, figure in (("p50", p50), ("p95", p95), ("p99", p99), ("processor", each_ms)):
            note(f"{mode} {label}, ms", figure)
        if mode == "hybrid" and hybrid_ms is not None:
            check("hybrid p50 over HTTP", p50, hybrid_ms, unit=" ms")
        if mode == "keyword":
            check("keyword p99 to p50", p99 / p50, 4, unit=" x")
    print_memory(pid, "after all of them")


def measure_in_process(folder: Path, queries: list[str], limits_ms: dict[str, float]) -> None:
    with open_workspace(load_config(str(folder / "ctx.toml"), {})) as space:

        def ask_in_process(query: str, mode: str) -> float:
            began_s = time.perf_counter()
            space.toolbox.call("search", {"query": query, "mode": mode}, Caller("cli"))
            return time.perf_counter() - began_s

        for mode, limit_ms in limits_ms.items():
            for query in queries[:20]:
                ask_in_process(query, mode)
            p50, p95, p99 = quantiles([ask_in_process(query, mode) for query in queries])
            print(f"{mode:<9} p50 {p50:.2f} ms, p95 {p95:.2f} ms, p99 {p99:.2f} ms in process")
            check(f"{mode} p50 in process", p50, limit_ms, unit=" ms")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=400)
    parser.add_argument("--port", type=int, default=17331)
    parser.add_argument("--folder", type=Path, help="a project that is indexed already")
    parser.add_argument("--keyword-ms", type=float, default=5, help="budget at p50 in process")
    parser.add_argument("--semantic-ms", type=float, default=15)
    parser.add_argument("--hybrid-ms", type=float, default=20)
    parser.add_argument("--http-hybrid-ms", type=float, help="budget of hybrid search over HTTP at p50")
    args = parser.parse_args()
    header("search, in process and over HTTP")
    with contextlib.ExitStack() as stack:
        folder: Path | None = args.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ctx-bench-")))
            markdown_tree(folder / "docs", args.chunks // 12)
            (folder / "ctx.toml").write_text(CONFIG.format(port=args.port))
            print(f"store: {fill_vectors(folder):,} chunks with vectors")
        address = tomllib.loads((folder / "ctx.toml").read_text())["server"]["bind"]
        words = Words(11)
        queries = [" ".join(words.take(words.random.randint(1, 4))) for _ in range(args.queries)]
        limits_ms = {
            "keyword": args.keyword_ms,
            "semantic": args.semantic_ms,
            "hybrid": args.hybrid_ms,
        }
        measure_in_process(folder, queries, limits_ms)
        server = subprocess.Popen(
            [sys.executable, "-m", "ctx", "serve", "mcp"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until_idle(address)
            measure(http.client.HTTPConnection(address, timeout=30), server.pid, queries, args.http_hybrid_ms)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(10)
    os.sync()
    finish()


if __name__ == "__main__":
    main()
