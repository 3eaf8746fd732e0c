"""Eight clients against one over HTTP: `/tools/search` requests a second, keyword and hybrid, and the tail of
one client's.

    python benchmarks/clients.py --chunks 5800            a corpus of its own, random vectors
    python benchmarks/clients.py --folder PROJECT         one that is there, with embeddings

The load generator is one process over plain sockets that sends ready-made bytes and looks for the end of a
reply: 20 us a request. One client and eight take turns, a second each, so that both meet the same machine.
Questions are eight words of the pages; 1.8 times and
1.5 times are what is asked of two cores. `/health` beside it is the door itself.
"""

import argparse
import json
import os
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _common import fill_vectors, finish, header, markdown_tree, quantiles, wait_until_idle
from query_time import queries_of

CONFIG = '[connectors.filesystem]\nroot = "./docs"\n[watch]\nenabled = false\n'


def request(path: str, body: dict[str, object] | None) -> bytes:
    """The bytes of one request."""
    payload = b"" if body is None else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
        f"{len(payload)}\r\n\r\n"
    )
    return head.encode() + payload


class Client:
    """A connection that always has one request under way."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._sent_s = 0.0

    def send(self, data: bytes) -> None:
        self._buffer = b""
        self._sent_s = time.perf_counter()
        self.socket.sendall(data)

    def receive(self) -> float | None:
        """The seconds that the reply took, once it is whole."""
        self._buffer += self.socket.recv(1 << 18)
        head, mark, rest = self._buffer.partition(b"\r\n\r\n")
        if not mark:
            return None
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        return time.perf_counter() - self._sent_s if len(rest) >= length else None


def run(port: int, clients: int, requests: list[bytes], seconds: float) -> list[float]:
    """The seconds that each reply took, of as many clients at once as are asked for."""
    selector = selectors.DefaultSelector()
    taken_s: list[float] = []
    sent = 0
    for _ in range(clients):
        client = Client(port)
        selector.register(client.socket, selectors.EVENT_READ, client)
        client.send(requests[sent % len(requests)])
        sent += 1
    ends_s = time.perf_counter() + seconds
    while time.perf_counter() < ends_s:
        for key, _ in selector.select(1):
            took_s = key.data.receive()
            if took_s is not None:
                taken_s.append(took_s)
                key.data.send(requests[sent % len(requests)])
                sent += 1
    for key in list(selector.get_map().values()):
        key.data.socket.close()
    return taken_s


def measure(port: int, name: str, requests: list[bytes], rounds: int, clients: int) -> dict[str, object]:
    run(port, clients, requests, 0.5)
    singles: list[float] = []
    rates: list[tuple[int, int]] = []
    for _ in range(rounds):
        single = run(port, 1, requests, 1.0)
        singles += single
        rates.append((len(single), len(run(port, clients, requests, 1.0))))
    p50, p95, p99 = quantiles(singles)
    return {
        "what": name,
        "load": [round(value, 1) for value in os.getloadavg()],
        "one_client_per_s": statistics.median(one for one, _ in rates),
        f"{clients}_clients_per_s": statistics.median(several for _, several in rates),
        "ratio": round(statistics.median(several / one for one, several in rates), 2),
        "one_client_ms": {
            "p50": round(p50, 2),
            "p95": round(p95, 2),
            "p99": round(p99, 2),
            "p99_to_p50": round(p99 / p50, 1),
        },
    }


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--chunks", type=int, default=5_800)
    options.add_argument("--folder", type=Path, help="a project that is indexed already, with pages in docs/")
    options.add_argument("--code", type=Path, help="another checkout, whose server is measured")
    options.add_argument("--rounds", type=int, default=6)
    options.add_argument("--clients", type=int, default=8)
    options.add_argument("--port", type=int, default=17_332)
    args = options.parse_args()
    header("several clients at once against one")
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        folder = (args.folder or Path(name)).resolve()
        if args.folder is None:
            markdown_tree(folder / "docs", args.chunks // 11)
            (folder / "ctx.toml").write_text(CONFIG)
            print(f"store: {fill_vectors(folder):,} chunks with vectors")
        code = (args.code or Path(__file__).parent.parent).resolve()
        server = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from ctx.cli import main; main()",
                "serve",
                "mcp",
                "--config",
                str(folder / "ctx.toml"),
                "--bind",
                f"127.0.0.1:{args.port}",
            ],
            env={**os.environ, "PYTHONPATH": str(code)},
            cwd=code,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until_idle(f"127.0.0.1:{args.port}")
            queries = [
                " ".join((query + " data value file use").split()[:8])
                for query in queries_of(folder / "docs", 300)
            ]
            print(json.dumps(measure(args.port, "health", [request("/health", None)], 2, args.clients)))
            for mode in ("keyword", "hybrid"):
                requests = [request("/tools/search", {"query": query, "mode": mode}) for query in queries]
                print(json.dumps(measure(args.port, mode, requests, args.rounds, args.clients)), flush=True)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(10)
    finish()


if __name__ == "__main__":
    main()
