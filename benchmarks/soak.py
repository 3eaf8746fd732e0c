"""A long-running test: clients search while files change, sources are indexed again and scripts time out.

The test passes if every 5xx reply is a declared 503, memory (RSS) grows by at most 10 %, and no file
descriptors leak. It also reports the p99 of searches. Use `--minutes 30` or `--minutes 480` for a
thorough test. A run of a few minutes exercises the same paths.
"""

import argparse
import http.client
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from _common import Words, check, finish, header, markdown_page, markdown_tree, quantiles

CONFIG = """
[connectors.filesystem]
root = "./docs"
[server]
bind = "127.0.0.1:{port}"
[packs]
enabled = ["hindsight"]
[tools.script.slow]
path = "./slow.lua"
timeout = 0.5
[tools.script.quick]
path = "./quick.lua"
"""
SLOW = (
    'tool = { name = "slow", description = "never ends", parameters = {} }\nfunction tool.execute() while '
    "true do end end\n"
)
QUICK = (
    'tool = { name = "quick", description = "adds", parameters = {} }\nfunction tool.execute() return { sum '
    "= 1 + 1 } end\n"
)


class Clients:
    """Threads that call the server without pause, and the counts and times of the replies."""

    def __init__(self, port: int, count: int) -> None:
        self.port = port
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.searches_s: list[float] = []
        self.broken: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(count)
        ]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(10)

    def _run(self, number: int) -> None:
        chance = random.Random(number)
        words = Words(number)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self.stop.is_set():
            what, path, body = self._request(chance, words, number)
            began_s = time.perf_counter()
            try:
                connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
                reply = connection.getresponse()
                text = reply.read()
            except OSError as error:
                connection.close()
                if not self.stop.is_set():
                    with self.lock:
                        self.broken.append(f"{what}: {error}")
                continue
            with self.lock:
                self.statuses[what, reply.status] += 1
                if what == "search":
                    self.searches_s.append(time.perf_counter() - began_s)
                if reply.status >= 500 and reply.status != 503:
                    self.broken.append(f"{what}: {reply.status} {text[:200]!r}")

    def _request(
        self, chance: random.Random, words: Words, number: int
    ) -> tuple[str, str, dict[str, object]]:
        roll = chance.random()
        if number == 0 and roll < 0.2:
            return "refresh", "/tools/refresh", {}
        if number == 1:
            return "slow", "/tools/slow", {}
        if roll < 0.05:
            return "quick", "/tools/quick", {}
        if roll < 0.08:
            return "retain", "/tools/retain", {"content": " ".join(words.take(12))}
        if roll < 0.1:
            return "recall", "/tools/recall", {"query": " ".join(words.take(3))}
        mode = chance.choice(["keyword", "keyword", "hybrid", "semantic"])
        return "search", "/tools/search", {"query": " ".join(words.take(chance.randint(1, 4))), "mode": mode}


def usage(pid: int) -> tuple[float, int]:
    """(RSS in MB, number of open file descriptors) of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024, len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return 0.0, 0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=3.0)
    options.add_argument("--clients", type=int, default=20)
    options.add_argument("--files", type=int, default=1000)
    options.add_argument("--port", type=int, default=17333)
    args = options.parse_args()
    header(f"Soak: {args.clients} clients, {args.minutes:g} minutes")
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        folder = Path(name)
        markdown_tree(folder / "docs", args.files, 1500)
        (folder / "ctx.toml").write_text(CONFIG.format(port=args.port))
        (folder / "slow.lua").write_text(SLOW)
        (folder / "quick.lua").write_text(QUICK)
        subprocess.run(
            [sys.executable, "-m", "ctx", "index", "--no-progress", "--config", "ctx.toml"],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        log = (folder / "log").open("w")
        server = subprocess.Popen(
            [sys.executable, "-m", "ctx", "serve", "mcp", "--config", "ctx.toml", "--log-level", "error"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        try:
            wait_for(args.port)
            chance, words = random.Random(3), Words(3)
            paths = sorted((folder / "docs").rglob("*.md"))
            samples: list[tuple[float, int]] = []
            with Clients(args.port, args.clients) as clients:
                ends_s = time.monotonic() + args.minutes * 60
                while time.monotonic() < ends_s:
                    for path in chance.sample(paths, 5):
                        path.write_text(
                            markdown_page(words, "Edited", 800)
                        ) if chance.random() < 0.9 else path.unlink(missing_ok=True)
                    samples.append(usage(server.pid))
                    time.sleep(min(2.0, args.minutes * 60 / 40))
            report(clients, samples)
        finally:
            began_s = time.perf_counter()
            server.send_signal(signal.SIGTERM)
            server.wait(20)
            print(f"stop under load: {time.perf_counter() - began_s:.2f} s, exit code {server.returncode}")
            log.close()
            errors = (folder / "log").read_text()
            if errors:
                print(f"log: {errors[:2000]}")
    finish()


def report(clients: Clients, samples: list[tuple[float, int]]) -> None:
    for (what, status), count in sorted(clients.statuses.items()):
        print(f"{what:<8} {status}: {count:,}")
    p50, p95, p99 = quantiles(clients.searches_s)
    print(f"search p50 {p50:.1f} ms, p95 {p95:.1f} ms, p99 {p99:.1f} ms over {len(clients.searches_s):,}")
    for line in clients.broken[:10]:
        print(f"  {line}")
    check("answers that are neither success, a caller's error nor a declared 503", len(clients.broken), 0)
    # In the first third, models, caches and pools are filled. This takes a minute, so a run of less than
    # three minutes does not show growth.
    settled, late = samples[len(samples) // 3 : len(samples) // 2], samples[-max(3, len(samples) // 8) :]
    before, after = max(rss for rss, _ in settled), max(rss for rss, _ in late)
    print(
        f"RSS settled {before:.0f} MB, at the end {after:.0f} MB; descriptors "
        f"{max(fds for _, fds in settled)} -> {max(fds for _, fds in late)}"
    )
    check("RSS at the end against settled", after / before * 100, 110, unit=" %")
    check("descriptors gained", max(fds for _, fds in late) - max(fds for _, fds in settled), 16)


def wait_for(port: int) -> None:
    for _ in range(300):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            connection.getresponse().read()
            connection.close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not start")


if __name__ == "__main__":
    main()
