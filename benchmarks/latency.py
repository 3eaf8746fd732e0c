"""`/tools/search` over HTTP at 100k chunks (issue: keyword p50 < 2 ms, hybrid p50 < 12 ms with the query embedded, one worker).

The vectors are random unit vectors put in the catalog beside real texts: the worst case for the scan, whose 8-bit codes part real
ones better, and embedding 100k chunks would take a quarter of an hour. The query is embedded for real.
"""

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _common import Words, check, fill_vectors, finish, header, markdown_tree, quantiles

CONFIG = '[connectors.filesystem]\nroot = "./docs"\n[server]\nbind = "127.0.0.1:{port}"\n[watch]\nenabled = false\n'


def ask(connection: http.client.HTTPConnection, body: dict[str, object]) -> tuple[float, int]:
    payload = json.dumps(body)
    began_s = time.perf_counter()
    connection.request("POST", "/tools/search", payload, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    answer = json.loads(reply.read())
    took_s = time.perf_counter() - began_s
    assert reply.status == 200, answer
    return took_s, len(answer["results"])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--chunks", type=int, default=100_000)
    options.add_argument("--queries", type=int, default=400)
    options.add_argument("--port", type=int, default=17331)
    args = options.parse_args()
    header(f"/tools/search at {args.chunks:,} chunks")
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        folder = Path(name)
        markdown_tree(folder / "docs", args.chunks // 12)
        (folder / "ctx.toml").write_text(CONFIG.format(port=args.port))
        print(f"store: {fill_vectors(folder):,} chunks with vectors")
        server = subprocess.Popen(
            [sys.executable, "-m", "ctx", "serve", "mcp"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            connection = http.client.HTTPConnection("127.0.0.1", args.port, timeout=30)
            for _ in range(200):
                try:
                    connection.request("GET", "/health")
                    connection.getresponse().read()
                    break
                except OSError:
                    connection.close()
                    time.sleep(0.05)
            words = Words(11)
            queries = [" ".join(words.take(words.random.randint(1, 4))) for _ in range(args.queries)]
            for query in queries[:20]:
                ask(connection, {"query": query, "mode": "hybrid"})
            health = []
            for _ in range(args.queries):
                began_s = time.perf_counter()
                connection.request("GET", "/health")
                connection.getresponse().read()
                health.append(time.perf_counter() - began_s)
            print(f"/health   p50 {quantiles(health)[0]:.2f} ms (the yardstick: the door itself)")
            for mode, limit_ms in (("keyword", 2), ("semantic", 12), ("hybrid", 12)):
                p50, p95, p99 = quantiles(
                    [ask(connection, {"query": query, "mode": mode})[0] for query in queries]
                )
                print(f"{mode:<9} p50 {p50:.2f} ms, p95 {p95:.2f} ms, p99 {p99:.2f} ms")
                if mode != "semantic":
                    check(f"{mode} p50", p50, limit_ms, unit=" ms")
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(10)
    os.sync()
    finish()


if __name__ == "__main__":
    main()
